//! Trees as tiles (c2sp.org/tlog-tiles): files of at most 256 hashes each, from which a growing tree is continued and proofs are made,
//! and which any web server can serve.
//!
//! It knows hashes only. Where files are is for whoever reads and writes them.

use crate::tree::{Frontier, Hash, leaf, root_of};

/// Hashes of a whole tile.
pub const WIDTH: usize = 256;

/// What a tile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Hashes of the tree: 0 has those of leaves, each other level the roots of whole tiles of the one below.
    Level(u8),
    /// The entries themselves.
    Entries,
}

/// The place of a tile, and how many hashes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// What it holds.
    pub kind: Kind,
    /// Its number among those of its kind.
    pub index: u64,
    /// 1 to 256.
    pub width: usize,
}

impl Place {
    /// Its path below the log, with `/`.
    #[must_use]
    pub fn path(&self) -> String {
        let mut groups = vec![format!("{:03}", self.index % 1000)];
        let mut rest = self.index / 1000;
        while rest > 0 {
            groups.insert(0, format!("x{:03}", rest % 1000));
            rest /= 1000;
        }
        let (kind, index) = (self.kind.name(), groups.join("/"));
        if self.width == WIDTH {
            format!("tile/{kind}/{index}")
        } else {
            format!("tile/{kind}/{index}.p/{}", self.width)
        }
    }

    /// Bytes of its file.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.kind {
            Kind::Level(_) => self.width * 32,
            Kind::Entries => self.width * ENTRY,
        }
    }

    /// Never: a tile without hashes is not written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.width == 0
    }
}

impl Kind {
    fn name(self) -> String {
        match self {
            Self::Level(level) => level.to_string(),
            Self::Entries => "entries".to_owned(),
        }
    }
}

/// Bytes of an entry in a bundle: its length in two bytes, most significant first, and the 32 bytes that the leaf is a hash of.
const ENTRY: usize = 34;

/// A tile, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// Where it stands.
    pub place: Place,
    /// Hashes, or entries.
    pub hashes: Vec<Hash>,
}

impl Tile {
    /// The bytes of its file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        match self.place.kind {
            Kind::Level(_) => self.hashes.concat(),
            Kind::Entries => self.hashes.iter().flat_map(|entry| [&[0, 32], &entry[..]].concat()).collect(),
        }
    }

    /// Reads the file of a place; `None` if it has another length, or entries that are no hashes.
    #[must_use]
    pub fn read(place: Place, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != place.len() || place.is_empty() {
            return None;
        }
        let hashes = match place.kind {
            Kind::Level(_) => bytes.as_chunks::<32>().0.to_vec(),
            Kind::Entries => {
                let entry = |entry: &[u8; ENTRY]| entry.strip_prefix(&[0, 32]).and_then(|hash| hash.try_into().ok());
                bytes.as_chunks::<ENTRY>().0.iter().map(entry).collect::<Option<_>>()?
            }
        };
        Some(Self { place, hashes })
    }
}

/// The last tile of each level of a growing tree, which is all that it needs to grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// From the leaves up; each has fewer than 256 hashes.
    levels: Vec<Vec<Hash>>,
    /// The entries of the last tile of leaves.
    entries: Vec<Hash>,
}

impl Edge {
    /// How many leaves there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        root(&self.levels)
    }

    /// The hashes of its tiles that are not whole, from the leaves up.
    #[must_use]
    pub fn levels(&self) -> &[Vec<Hash>] {
        &self.levels
    }

    /// Appends an entry; a tile that is whole now goes to `whole`.
    pub fn push(&mut self, entry: Hash, whole: &mut dyn FnMut(Tile)) {
        let mut tell = |kind, index, hashes| whole(Tile { place: Place { kind, index, width: WIDTH }, hashes });
        self.size += 1;
        self.entries.push(entry);
        if self.entries.len() == WIDTH {
            tell(Kind::Entries, self.size / WIDTH as u64 - 1, std::mem::take(&mut self.entries));
        }
        let (mut hash, mut covered) = (leaf(&entry), self.size);
        for level in 0..u8::MAX {
            if self.levels.len() <= usize::from(level) {
                self.levels.push(Vec::new());
            }
            let Some(hashes) = self.levels.get_mut(usize::from(level)) else { return };
            hashes.push(hash);
            if hashes.len() < WIDTH {
                return;
            }
            let hashes = std::mem::take(hashes);
            hash = hashes.iter().copied().collect::<Frontier>().root();
            covered /= WIDTH as u64;
            tell(Kind::Level(level), covered - 1, hashes);
        }
    }

    /// The tiles at the edge that are not whole.
    #[must_use]
    pub fn partial(&self) -> Vec<Tile> {
        let hashes = |place: &Place| match place.kind {
            Kind::Entries => self.entries.clone(),
            Kind::Level(level) => self.levels.get(usize::from(level)).cloned().unwrap_or_default(),
        };
        places(self.size).into_iter().map(|place| Tile { hashes: hashes(&place), place }).collect()
    }

    /// The edge of a tree of this size, from those of its tiles that are not whole, in the order of [`places`]; `None` if they are not
    /// those, or its entries not what its leaves are made of. Whether the tree is the right one is for its root to say.
    #[must_use]
    pub fn of(size: u64, tiles: Vec<Tile>) -> Option<Self> {
        let mut edge = Self { size, ..Self::default() };
        if !tiles.iter().map(|tile| tile.place).eq(places(size)) {
            return None;
        }
        for Tile { place, hashes } in tiles {
            match place.kind {
                Kind::Entries => edge.entries = hashes,
                Kind::Level(level) => {
                    edge.levels.resize(usize::from(level) + 1, Vec::new());
                    edge.levels[usize::from(level)] = hashes;
                }
            }
        }
        let leaves = edge.levels.first().map_or(&[][..], Vec::as_slice);
        edge.entries.iter().map(|entry| leaf(entry)).eq(leaves.iter().copied()).then_some(edge)
    }
}

/// The root of a tree with these hashes in its tiles that are not whole, from the leaves up.
#[must_use]
pub fn root(levels: &[Vec<Hash>]) -> Hash {
    let peaks = |level: &Vec<Hash>| level.iter().copied().collect::<Frontier>().peaks().to_vec();
    root_of(&levels.iter().rev().flat_map(peaks).collect::<Vec<_>>())
}

/// Whether so many hashes are in the tiles of a tree of this size that are not whole.
#[must_use]
pub fn fits(size: u64, levels: &[Vec<Hash>]) -> bool {
    let mut covered = size;
    let fits = levels.iter().all(|level| {
        let fits = level.len() as u64 == covered % WIDTH as u64;
        covered /= WIDTH as u64;
        fits
    });
    fits && covered == 0
}

/// Which leaves may differ between two trees of one size, by their hashes in the tiles that are not whole: the first hash that is
/// another one. `None` if they are the same.
#[must_use]
pub fn differs(size: u64, one: &[Vec<Hash>], other: &[Vec<Hash>]) -> Option<std::ops::Range<u64>> {
    let wide = WIDTH as u64;
    one.iter().zip(other).enumerate().rev().find_map(|(level, (one, other))| {
        let leaves = wide.checked_pow(u32::try_from(level).ok()?)?;
        let at = one.iter().zip(other).position(|(one, other)| one != other)?;
        let first = size / leaves / wide * wide * leaves + at as u64 * leaves;
        Some(first..first + leaves)
    })
}

/// The tiles of a tree that are not whole: entries, then levels from the leaves up.
#[must_use]
pub fn places(size: u64) -> Vec<Place> {
    let (mut places, mut covered, wide) = (Vec::new(), size, WIDTH as u64);
    let partial = |kind, covered: u64| Place { kind, index: covered / wide, width: (covered % wide) as usize };
    places.push(partial(Kind::Entries, covered));
    for level in 0..u8::MAX {
        places.push(partial(Kind::Level(level), covered));
        covered /= wide;
        if covered == 0 {
            break;
        }
    }
    places.retain(|place| place.width > 0);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> Hash {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&n.to_be_bytes());
        hash
    }

    #[test]
    fn an_edge_has_the_root_of_the_tree_and_goes_on_from_its_tiles() {
        let (mut edge, mut tree, mut whole) = (Edge::default(), Frontier::default(), Vec::new());
        assert_eq!(edge.root(), tree.root());
        for n in 0..70_000 {
            edge.push(entry(n), &mut |tile| whole.push(tile));
            tree.push(leaf(&entry(n)));
            let size = n + 1;
            if size < 600 || size % 7919 == 0 || size.is_multiple_of(256) || size == 65_537 {
                assert_eq!((edge.size(), edge.root()), (size, tree.root()), "{size}");
                let read = |tile: &Tile| Tile::read(tile.place, &tile.bytes()).unwrap();
                let again = Edge::of(size, edge.partial().iter().map(read).collect()).unwrap();
                assert_eq!(again.root(), edge.root());
                assert_eq!((again.size, &again.entries), (edge.size, &edge.entries));
            }
        }
        let of = |kind| whole.iter().filter(move |tile| tile.place.kind == kind).collect::<Vec<_>>();
        assert_eq!(of(Kind::Level(0)).len(), 70_000 / 256);
        assert_eq!((of(Kind::Entries).len(), of(Kind::Level(1)).len()), (70_000 / 256, 1));
        for (n, tile) in of(Kind::Level(0)).into_iter().enumerate() {
            assert_eq!(tile.place.index, n as u64);
            let root = tile.hashes.iter().copied().collect::<Frontier>().root();
            assert!(n >= 256 || of(Kind::Level(1))[0].hashes[n] == root, "{n}");
        }
    }

    #[test]
    fn the_first_leaf_that_differs_is_found_as_far_as_tiles_tell() {
        let tree = |size, other: Option<u64>| {
            let mut edge = Edge::default();
            (0..size).for_each(|n| edge.push(entry(if Some(n) == other { 1 << 40 } else { n }), &mut drop));
            edge
        };
        for size in [1, 255, 256, 257, 1000, 70_000] {
            let one = tree(size, None);
            assert!(fits(size, one.levels()) && !fits(size + 1, one.levels()) && root(one.levels()) == one.root());
            assert_eq!(differs(size, one.levels(), tree(size, None).levels()), None);
            for at in [0, size / 3, size - 1] {
                let range = differs(size, one.levels(), tree(size, Some(at)).levels()).unwrap();
                assert!(range.contains(&at), "{at} of {size}: {range:?}");
                assert!(at < size / 256 * 256 || range == (at..at + 1), "{at} of {size}: {range:?}");
            }
        }
    }

    #[test]
    fn tiles_that_are_not_those_of_the_size_are_refused() {
        let mut edge = Edge::default();
        (0..300).for_each(|n| edge.push(entry(n), &mut drop));
        let tiles = edge.partial();
        assert_eq!(
            tiles.iter().map(|tile| tile.place.path()).collect::<Vec<_>>(),
            ["tile/entries/001.p/44", "tile/0/001.p/44", "tile/1/000.p/1"]
        );
        assert!(Edge::of(300, tiles.clone()).is_some());
        assert!(Edge::of(301, tiles.clone()).is_none() && Edge::of(300, tiles[1..].to_vec()).is_none());
        let mut other = tiles.clone();
        other[0].hashes[3] = entry(9);
        assert!(Edge::of(300, other).is_none(), "an entry that its leaf is not made of");
        let bytes = tiles[0].bytes();
        for bad in [&bytes[1..], &bytes[..bytes.len() - 34], &[&[1], &bytes[1..]].concat(), &[]] {
            assert!(Tile::read(tiles[0].place, bad).is_none());
        }
    }

    #[test]
    fn paths_are_those_of_the_specification() {
        let path = |index, width| Place { kind: Kind::Level(0), index, width }.path();
        assert_eq!(path(1_234_067, 256), "tile/0/x001/x234/067");
        assert_eq!(path(999, 8), "tile/0/999.p/8");
        assert_eq!(path(1000, 256), "tile/0/x001/000");
        assert_eq!(Place { kind: Kind::Entries, index: 5, width: 1 }.path(), "tile/entries/005.p/1");
    }
}
