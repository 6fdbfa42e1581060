//! The Merkle tree of RFC 9162 §2.1 over SHA-256, and its proofs: that an entry stands in a tree, and that a tree begins with
//! another one.
//!
//! It knows hashes only. What a leaf stands for is decided by whoever builds a tree.

use sha2::{Digest, Sha256};
use std::ops::Range;
use thiserror::Error;

/// A hash: of a leaf, of a node, or of a whole tree.
pub type Hash = [u8; 32];

/// Hashes of a proof, at most: trees have fewer than 2^63 leaves.
pub const MAX_PROOF: usize = 63;

/// Why a proof does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refused {
    /// Nothing is proven about no entries (RFC 9162 leaves it open).
    #[error("nothing can be proven about a tree without entries")]
    Empty,
    /// The entry is not one of the tree's, or the earlier tree is not the smaller one.
    #[error("a tree of size {size} has no number {index}")]
    OutOfRange {
        /// The number of the entry, or the size of the earlier tree.
        index: u64,
        /// The size of the tree.
        size: u64,
    },
    /// Not as many hashes as numbers and sizes demand.
    #[error("the proof has {found} hashes, and needs {needed}")]
    Length {
        /// How many there are.
        found: usize,
        /// How many there must be.
        needed: usize,
    },
    /// Another root comes out.
    #[error("the proof leads to another root")]
    OtherRoot,
}

/// The hash of a leaf (RFC 9162 §2.1.1).
pub fn leaf(entry: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(entry).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// A growing tree: the roots of its perfect subtrees, largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// Appends a leaf, by its hash.
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                hash = node(&left, &hash);
            }
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root of the tree so far.
    pub fn root(&self) -> Hash {
        root_of(&self.peaks)
    }

    /// The roots of its perfect subtrees, largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }
}

/// The root of the tree with these perfect subtrees, largest first.
pub fn root_of(peaks: &[Hash]) -> Hash {
    let mut peaks = peaks.iter().rev();
    let Some(last) = peaks.next() else { return Sha256::digest([]).into() };
    peaks.fold(*last, |right, left| node(left, &right))
}

impl Extend<Hash> for Frontier {
    fn extend<I: IntoIterator<Item = Hash>>(&mut self, leaves: I) {
        leaves.into_iter().for_each(|leaf| self.push(leaf));
    }
}

impl FromIterator<Hash> for Frontier {
    fn from_iter<I: IntoIterator<Item = Hash>>(leaves: I) -> Self {
        let mut tree = Self::default();
        tree.extend(leaves);
        tree
    }
}

/// Where a tree of this many leaves divides: the largest power of two below it.
fn half(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// The subtrees whose roots prove that a leaf stands in a tree, in the order of the proof (RFC 9162 §2.1.3.1).
pub fn inclusion(index: u64, size: u64) -> Result<Vec<Range<u64>>, Refused> {
    if index >= size {
        return Err(Refused::OutOfRange { index, size });
    }
    let (mut tree, mut others) = (0..size, Vec::new());
    while tree.end - tree.start > 1 {
        let middle = tree.start + half(tree.end - tree.start);
        if index < middle {
            others.push(middle..tree.end);
            tree.end = middle;
        } else {
            others.push(tree.start..middle);
            tree.start = middle;
        }
    }
    others.reverse();
    Ok(others)
}

/// The subtrees whose roots prove that a tree begins with an earlier one, in the order of the proof (RFC 9162 §2.1.4.1).
pub fn consistency(earlier: u64, size: u64) -> Result<Vec<Range<u64>>, Refused> {
    compared(earlier, size)?;
    let (mut tree, mut whole, mut others) = (0..size, true, Vec::new());
    while tree.end != earlier {
        let middle = tree.start + half(tree.end - tree.start);
        if earlier <= middle {
            others.push(middle..tree.end);
            tree.end = middle;
        } else {
            others.push(tree.start..middle);
            tree.start = middle;
            whole = false;
        }
    }
    if !whole {
        others.push(tree);
    }
    others.reverse();
    Ok(others)
}

/// The perfect subtrees of a whole tree, for proofs of many of its leaves.
#[derive(Debug, Clone)]
pub struct Nodes {
    size: u64,
    /// From the leaves up: level `n` has the roots of 2^n leaves each.
    levels: Vec<Vec<Hash>>,
}

impl Nodes {
    /// Those of the tree with these leaves.
    pub fn of(leaves: Vec<Hash>) -> Self {
        let size = leaves.len() as u64;
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|below| below.len() > 1) {
            let above = below.as_chunks::<2>().0.iter().map(|[left, right]| node(left, right)).collect();
            levels.push(above);
        }
        Self { size, levels }
    }

    /// The root of a subtree, as proofs have them: of a power of two it begins at a multiple of it.
    fn root(&self, leaves: &Range<u64>) -> Hash {
        let size = leaves.end - leaves.start;
        if size.is_power_of_two() {
            let level = size.trailing_zeros();
            return self.levels[level as usize][(leaves.start >> level) as usize];
        }
        let middle = leaves.start + half(size);
        node(&self.root(&(leaves.start..middle)), &self.root(&(middle..leaves.end)))
    }

    /// The proof that a leaf stands in the tree.
    pub fn inclusion(&self, index: u64) -> Result<Vec<Hash>, Refused> {
        Ok(inclusion(index, self.size)?.iter().map(|part| self.root(part)).collect())
    }
}

fn compared(earlier: u64, size: u64) -> Result<(), Refused> {
    match earlier {
        0 => Err(Refused::Empty),
        _ if earlier > size => Err(Refused::OutOfRange { index: earlier, size }),
        _ => Ok(()),
    }
}

/// Whether a leaf stands at this place of the tree with this size and root (RFC 9162 §2.1.3.2).
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> Result<(), Refused> {
    let needed = inclusion(index, size)?;
    same_length(proof, &needed)?;
    let step = |hash: Hash, (other, with): (&Range<u64>, &Hash)| {
        if other.start > index { node(&hash, with) } else { node(with, &hash) }
    };
    let found = needed.iter().zip(proof).fold(*leaf, step);
    same(&found, root)
}

/// Whether the tree with this size and root begins with the earlier one (RFC 9162 §2.1.4.2).
pub fn verify_consistency(
    (earlier, earlier_root): (u64, &Hash),
    (size, root): (u64, &Hash),
    proof: &[Hash],
) -> Result<(), Refused> {
    let needed = consistency(earlier, size)?;
    same_length(proof, &needed)?;
    let mut parts = needed.iter().zip(proof);
    // The subtree at the earlier tree's end is the whole of it, or the first of the proof.
    let first = if earlier.is_power_of_two() { *earlier_root } else { parts.next().map_or(*earlier_root, |(_, h)| *h) };
    let (before, after) = parts.fold((first, first), |(before, after), (other, with)| {
        if other.start >= earlier { (before, node(&after, with)) } else { (node(with, &before), node(with, &after)) }
    });
    same(&before, earlier_root)?;
    same(&after, root)
}

fn same_length(proof: &[Hash], needed: &[Range<u64>]) -> Result<(), Refused> {
    match (proof.len(), needed.len()) {
        (found, needed) if found == needed => Ok(()),
        (found, needed) => Err(Refused::Length { found, needed }),
    }
}

fn same(found: &Hash, root: &Hash) -> Result<(), Refused> {
    if found == root { Ok(()) } else { Err(Refused::OtherRoot) }
}

#[cfg(test)]
mod tests;
