//! First pass over a document: its anomalies, and the order of the members of large objects that are not in order.

use super::MAX_DEPTH;
use super::error::{Anomalies, ScanError};
use super::number::Literal;
use super::order;
use super::scan::{self, Events};
use super::string::Scanned;

/// Bounds on the memory of the two passes. Tests lower them to take the large paths with small inputs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes: an object up to this size is sorted in memory in the second pass and needs no index.
    pub small: usize,
    /// Members of open objects, 16 bytes each.
    pub open: usize,
    /// Members of large unordered objects that have closed, 8 bytes each.
    pub kept: usize,
    /// Large objects, 16 bytes each.
    pub objects: usize,
    /// Bytes: a string from this size on, if its raw text is canonical, is not looked at again in the second pass.
    pub verbatim: usize,
    /// Bytes between two calls of the page callback.
    pub page: usize,
}

/// Canonical strings remembered at most, 16 bytes each; those beyond are looked at again.
const VERBATIM: usize = 1 << 17;

impl Limits {
    /// 16 MiB of open members, 8 MiB of kept ones and 16 MiB of objects at most.
    pub(super) const DEFAULT: Self =
        Self { small: 16 * 1024, open: 1 << 20, kept: 1 << 20, objects: 1 << 20, verbatim: 16 * 1024, page: 1 << 20 };

    /// Forgets objects that have closed, for callers that only want the anomalies.
    pub(super) const fn scan_only() -> Self {
        Self { small: usize::MAX, verbatim: usize::MAX, ..Self::DEFAULT }
    }
}

/// A member of an open object: enough to sort it without touching its name again in most cases.
#[derive(Clone, Copy)]
struct Member {
    prefix: u64,
    /// Offset of the name's opening quote.
    start: usize,
}

impl Member {
    fn cmp(&self, other: &Self, bytes: &[u8]) -> std::cmp::Ordering {
        self.prefix.cmp(&other.prefix).then_with(|| order::compare_at(bytes, self.start, other.start))
    }
}

/// An open container.
#[derive(Clone, Copy)]
struct Frame {
    start: usize,
    /// Where its members start in `Pass::open`.
    base: usize,
    ordered: bool,
}

/// A large object that has closed.
#[derive(Clone, Copy)]
struct Large {
    start: usize,
    first: u32,
    /// 0 where the members are already in canonical order.
    count: u32,
}

/// What the first pass leaves for the second.
pub(super) struct Index {
    pub anomalies: Anomalies,
    /// One past the document's value.
    pub end: usize,
    objects: Vec<Large>,
    kept: Vec<usize>,
    /// Start and end of long strings whose raw text is canonical, by start.
    verbatim: Vec<(usize, usize)>,
}

/// How the second pass must treat an object.
pub(super) enum Plan<'a> {
    /// Small: sort it in memory.
    Small,
    /// Large, with members in order: pass it through.
    Ordered,
    /// Large: the offsets of its member names in canonical order.
    Sorted(&'a [usize]),
}

impl Index {
    /// Scans the document `bytes`.
    pub(super) fn build(bytes: &[u8], limits: &Limits, page: Option<&dyn Fn(usize)>) -> Result<Self, ScanError> {
        let mut pass = Pass::new(limits, page);
        let end = scan::walk(bytes, 0, &mut pass)?;
        scan::finish(bytes, end)?;
        let mut index = pass.into_index();
        index.end = end;
        Ok(index)
    }

    /// The end of the string that starts at `start` if its raw text is known to be canonical.
    pub(super) fn verbatim(&self, start: usize) -> Option<usize> {
        let found = self.verbatim.binary_search_by_key(&start, |string| string.0).ok()?;
        Some(self.verbatim[found].1)
    }

    /// How to write the object that starts at `start`.
    pub(super) fn plan(&self, start: usize) -> Plan<'_> {
        let Ok(found) = self.objects.binary_search_by_key(&start, |object| object.start) else {
            return Plan::Small;
        };
        let object = self.objects[found];
        if object.count == 0 {
            return Plan::Ordered;
        }
        let first = object.first as usize;
        Plan::Sorted(&self.kept[first..first + object.count as usize])
    }
}

/// The first pass.
pub(super) struct Pass<'a> {
    limits: &'a Limits,
    page: Option<&'a dyn Fn(usize)>,
    next_page: usize,
    frames: Vec<Frame>,
    open: Vec<Member>,
    /// Too many members: nothing more is kept, only syntax and the other anomalies count.
    overflow: bool,
    index: Index,
}

impl<'a> Pass<'a> {
    pub(super) fn new(limits: &'a Limits, page: Option<&'a dyn Fn(usize)>) -> Self {
        let (objects, kept, verbatim) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            limits,
            page,
            next_page: limits.page,
            // Enough for nearly every message.
            frames: Vec::with_capacity(8),
            open: Vec::with_capacity(16),
            overflow: false,
            index: Index { anomalies: Anomalies::NONE, end: 0, objects, kept, verbatim },
        }
    }

    /// What it leaves; where the document ended is known to who walked.
    pub(super) fn into_index(self) -> Index {
        let mut index = self.index;
        index.objects.sort_unstable_by_key(|object| object.start);
        index
    }
}

impl Pass<'_> {
    #[cold]
    fn overflow(&mut self) {
        self.overflow = true;
        self.index.anomalies |= Anomalies::TOO_MANY_MEMBERS;
        self.open = Vec::new();
        self.index.kept = Vec::new();
        self.index.objects = Vec::new();
    }

    /// Sorts the members of an unordered object that closes, and finds duplicates among them.
    fn sort(&mut self, bytes: &[u8], base: usize) {
        let members = &mut self.open[base..];
        members.sort_unstable_by(|a, b| a.cmp(b, bytes));
        if members.windows(2).any(|pair| pair[0].cmp(&pair[1], bytes).is_eq()) {
            self.index.anomalies |= Anomalies::DUPLICATE_KEY;
        }
    }

    /// Keeps what the second pass needs to know of a large object.
    fn keep(&mut self, frame: Frame) {
        let members = if frame.ordered { &[] } else { &self.open[frame.base..] };
        let first = self.index.kept.len();
        if self.index.objects.len() >= self.limits.objects || first + members.len() > self.limits.kept {
            self.overflow();
            return;
        }
        self.index.kept.extend(members.iter().map(|member| member.start));
        self.index.objects.push(Large { start: frame.start, first: first as u32, count: members.len() as u32 });
    }
}

impl Events for Pass<'_> {
    #[inline]
    fn open(&mut self, at: usize, _object: bool, depth: usize) {
        if depth > MAX_DEPTH {
            self.index.anomalies |= Anomalies::DEPTH_EXCEEDED;
            // Nothing but openings may follow for long.
            self.passed(at);
        } else {
            self.frames.push(Frame { start: at, base: self.open.len(), ordered: true });
        }
    }

    #[inline]
    fn close(&mut self, bytes: &[u8], end: usize, object: bool, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let Some(frame) = self.frames.pop() else {
            return;
        };
        if !object || self.overflow {
            return;
        }
        if !frame.ordered {
            self.sort(bytes, frame.base);
        }
        if end - frame.start > self.limits.small {
            self.keep(frame);
        }
        self.open.truncate(frame.base);
    }

    #[inline]
    fn name(&mut self, bytes: &[u8], start: usize, name: Scanned, depth: usize, _: usize) {
        self.index.anomalies |= name.anomalies;
        if depth > MAX_DEPTH || self.overflow {
            return;
        }
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        if self.open.len() >= self.limits.open {
            self.overflow();
            return;
        }
        let member = Member { prefix: order::prefix_at(bytes, start..name.end, name.escaped), start };
        if frame.ordered
            && let Some(last) = self.open[frame.base..].last()
        {
            frame.ordered = last.cmp(&member, bytes).is_lt();
        }
        self.open.push(member);
    }

    #[inline]
    fn string(&mut self, start: usize, string: Scanned) {
        self.index.anomalies |= string.anomalies;
        if string.canonical && string.end - start >= self.limits.verbatim && self.index.verbatim.len() < VERBATIM {
            self.index.verbatim.push((start, string.end));
        }
    }

    #[inline]
    fn number(&mut self, bytes: &[u8], number: Literal) {
        if !number.in_range(bytes) {
            self.index.anomalies |= Anomalies::NUMBER_OUT_OF_RANGE;
        }
    }

    #[inline]
    fn passed(&mut self, at: usize) {
        if at >= self.next_page {
            self.next_page = at + self.limits.page;
            if let Some(page) = self.page {
                page(at);
            }
        }
    }
}
