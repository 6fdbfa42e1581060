//! Listings, put together from pages.
//!
//! A listing is a request without a cursor, followed by requests with exactly the cursor of the page before, in one
//! context. Several may be under way at once, also of one facet: a page belongs to the listing that waits for its
//! cursor. Whatever does not end as it should is incomplete and says why; its items are handed on all the same.

use crate::{
    canon::{self, Kind},
    model::surface::{Bound, Context, Facet, Ignored, Item, Reason},
};
use std::collections::{HashMap, HashSet, VecDeque};

/// Bounds of one listing, and of what is under way at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Pages.
    pub pages: usize,
    /// Items over all pages.
    pub items: usize,
    /// Bytes of results over all pages.
    pub bytes: usize,
    /// Listings that are under way at once, and requests that wait for an answer.
    pub open: usize,
}

impl Limits {
    /// What every surface is read within.
    pub const DEFAULT: Self = Self { pages: 1000, items: 10_000, bytes: 16 << 20, open: 64 };
}

/// A page that was read.
#[derive(Debug, Clone)]
pub struct Page<'a> {
    /// Bytes of the result.
    pub bytes: usize,
    /// The elements of its list, in their order.
    pub items: Vec<Item>,
    /// Its `nextCursor`, raw.
    pub next: Option<&'a [u8]>,
    /// The result has a member twice, or one whose name cannot be read.
    pub twice: bool,
}

/// What one answer, or one end, led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A page; more follow. These are its items.
    Page(Vec<Item>),
    /// The whole list.
    Complete(Vec<Item>),
    /// Not the whole list; these are all items that were seen of it.
    Incomplete(Vec<Item>, Reason),
    /// The server does not have the method.
    NotOffered,
}

/// One listing under way.
#[derive(Debug)]
struct Walk {
    facet: Facet,
    context: Context,
    /// The cursor of the page that has to be asked for next; `None` while an answer is awaited.
    expects: Option<String>,
    seen: HashSet<[u8; 32]>,
    items: Vec<Item>,
    pages: usize,
    bytes: usize,
    changed: bool,
    /// It started with a cursor of unknown origin.
    stray: bool,
}

/// All listings of one server that are under way.
///
/// `T` is what tells one awaited answer from every other of this server.
#[derive(Debug)]
pub struct Listings<T> {
    limits: Limits,
    ignored: Vec<Ignored>,
    asked: HashMap<T, Walk>,
    order: VecDeque<T>,
    /// Listings whose next page was not asked for yet, oldest first.
    waiting: VecDeque<Walk>,
}

/// What the cursor of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor<'a> {
    /// Absent or null.
    First,
    /// The string that the page before gave, possibly empty.
    After(&'a str),
    /// Anything else.
    Bad,
}

impl<T: Clone + Eq + std::hash::Hash> Listings<T> {
    /// Nothing under way.
    #[must_use]
    pub fn new(limits: Limits, ignored: Vec<Ignored>) -> Self {
        Self { limits, ignored, asked: HashMap::new(), order: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// A client asks for a page. What this pushes out is handed back, incomplete.
    pub fn asked(
        &mut self,
        id: T,
        facet: Facet,
        cursor: Cursor<'_>,
        context: &Context,
    ) -> Option<(Facet, Context, Outcome)> {
        let fits = |w: &Walk, c: &str| w.facet == facet && w.context == *context && w.expects.as_deref() == Some(c);
        let known = match cursor {
            Cursor::After(c) => self.waiting.iter().position(|w| fits(w, c)).and_then(|n| self.waiting.remove(n)),
            Cursor::First | Cursor::Bad => None,
        };
        let mut walk = known.unwrap_or_else(|| Walk {
            facet,
            context: context.clone(),
            expects: None,
            seen: HashSet::new(),
            items: Vec::new(),
            pages: 0,
            bytes: 0,
            changed: false,
            stray: cursor != Cursor::First,
        });
        walk.expects = None;
        // An id that is used again: what waited for its answer never gets it.
        let mut out = self.asked.insert(id.clone(), walk);
        if out.is_none() {
            self.order.push_back(id);
        }
        if out.is_none() && self.order.len() > self.limits.open {
            out = self.order.pop_front().and_then(|oldest| self.asked.remove(&oldest));
        }
        out.map(abandoned)
    }

    /// The result that answers `id`; nothing if no list was asked for with it. A page that has more behind it may push
    /// out a listing that nobody went on with: that one comes second.
    pub fn answered(&mut self, id: &T, result: &[u8]) -> Vec<(Facet, Context, Outcome)> {
        self.take_page(id, |walk, limits, ignored| walk.read(result, limits, ignored))
    }

    /// The same where the page was read already.
    pub fn answered_with(&mut self, id: &T, page: Page<'_>) -> Vec<(Facet, Context, Outcome)> {
        self.take_page(id, |walk, limits, _| walk.page(page, limits))
    }

    fn take_page(
        &mut self,
        id: &T,
        page: impl FnOnce(&mut Walk, &Limits, &[Ignored]) -> Result<Next, Reason>,
    ) -> Vec<(Facet, Context, Outcome)> {
        let Some(mut walk) = self.take(id) else { return Vec::new() };
        match page(&mut walk, &self.limits, &self.ignored) {
            Ok(Next::Page(items)) => {
                let mut out = vec![(walk.facet, walk.context.clone(), Outcome::Page(items))];
                self.waiting.push_back(walk);
                if self.waiting.len() > self.limits.open {
                    out.extend(self.waiting.pop_front().map(abandoned));
                }
                out
            }
            Ok(Next::End) => vec![walk.ended(None)],
            Err(reason) => vec![walk.ended(Some(reason))],
        }
    }

    /// The error that answers `id`. `offered`: the server has said that it has this capability.
    pub fn failed(&mut self, id: &T, code: i64, offered: bool) -> Option<(Facet, Context, Outcome)> {
        let walk = self.take(id)?;
        if code == -32601 && !offered && walk.pages == 0 && !walk.stray {
            return Some((walk.facet, walk.context, Outcome::NotOffered));
        }
        Some(walk.ended(Some(Reason::Failed(code))))
    }

    /// The server said that a facet has changed: what is under way of it cannot become complete.
    pub fn changed(&mut self, facet: Facet) {
        for walk in self.asked.values_mut().chain(&mut self.waiting).filter(|w| w.facet == facet) {
            walk.changed = true;
        }
    }

    /// The session is over: everything that is under way, incomplete.
    pub fn end(&mut self) -> Vec<(Facet, Context, Outcome)> {
        let asked = std::mem::take(&mut self.order).into_iter().filter_map(|id| self.asked.remove(&id));
        let asked: Vec<Walk> = asked.collect();
        std::mem::take(&mut self.waiting).into_iter().chain(asked).map(abandoned).collect()
    }

    fn take(&mut self, id: &T) -> Option<Walk> {
        let walk = self.asked.remove(id)?;
        self.order.retain(|other| other != id);
        Some(walk)
    }
}

fn abandoned(walk: Walk) -> (Facet, Context, Outcome) {
    walk.ended(Some(Reason::Abandoned))
}

enum Next {
    Page(Vec<Item>),
    End,
}

impl Walk {
    fn ended(self, reason: Option<Reason>) -> (Facet, Context, Outcome) {
        let reason =
            reason.or(self.stray.then_some(Reason::StrayCursor)).or(self.changed.then_some(Reason::ChangedMeanwhile));
        let outcome = match reason {
            None => Outcome::Complete(self.items),
            Some(reason) => Outcome::Incomplete(self.items, reason),
        };
        (self.facet, self.context, outcome)
    }

    fn read(&mut self, result: &[u8], limits: &Limits, ignored: &[Ignored]) -> Result<Next, Reason> {
        self.begin(result.len(), limits)?;
        let page = self.page_of(result, limits, ignored).ok_or(Reason::NoList)?;
        self.add(page, limits)
    }

    fn page(&mut self, page: Page<'_>, limits: &Limits) -> Result<Next, Reason> {
        self.begin(page.bytes, limits)?;
        self.add(page, limits)
    }

    /// Reads a page, no more of its items than may be there; `None` if there is no list in it.
    fn page_of<'a>(&self, result: &'a [u8], limits: &Limits, ignored: &[Ignored]) -> Option<Page<'a>> {
        let (list_member, _) = self.facet.members()?;
        let (mut list, mut next, mut names) = (None, None, HashSet::new());
        let mut twice = false;
        for member in canon::members(result).ok()? {
            let member = member.ok()?;
            match member.key {
                None => twice = true,
                Some(key) => {
                    if key == list_member {
                        list = Some(member.value);
                    } else if key == "nextCursor" {
                        next = Some(member.value);
                    }
                    twice |= !names.insert(key);
                }
            }
        }
        let list = &result[list?];
        let elements = canon::elements(list).ok()?.take(limits.items.saturating_sub(self.items.len()) + 1);
        let item =
            |element: Result<std::ops::Range<usize>, _>| Item::of(self.facet, &list[element.ok()?], ignored).ok();
        let items = elements.map(item).collect::<Option<Vec<_>>>()?;
        Some(Page { bytes: result.len(), items, next: next.map(|next| &result[next]), twice })
    }

    /// One more page, of so many bytes.
    fn begin(&mut self, bytes: usize, limits: &Limits) -> Result<(), Reason> {
        self.pages += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits.bytes { Err(Reason::TooLong(Bound::Bytes)) } else { Ok(()) }
    }

    fn add(&mut self, page: Page<'_>, limits: &Limits) -> Result<Next, Reason> {
        let Page { mut items, next, twice, .. } = page;
        let room = limits.items.saturating_sub(self.items.len());
        if items.len() > room {
            items.truncate(room);
            self.items.append(&mut items);
            return Err(Reason::TooLong(Bound::Items));
        }
        let next = next.filter(|c| canon::kind(c) != Some(Kind::Null));
        let (false, Some(cursor)) = (twice, next) else {
            self.items.append(&mut items);
            return if twice { Err(Reason::Ambiguous) } else { Ok(Next::End) };
        };
        self.items.extend(items.iter().cloned());
        let cursor = canon::decode_string(cursor).ok_or(Reason::BadCursor)?;
        if !self.seen.insert(canon::sha256(cursor.as_bytes())) {
            return Err(Reason::CursorTwice);
        }
        if self.pages >= limits.pages {
            return Err(Reason::TooLong(Bound::Pages));
        }
        self.expects = Some(cursor.into_owned());
        Ok(Next::Page(items))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits { pages: 3, items: 4, bytes: 400, open: 2 };

    fn page(names: &str, next: Option<&str>) -> String {
        let tools: Vec<String> = names.chars().map(|n| format!(r#"{{"name":"{n}"}}"#)).collect();
        let next = next.map(|n| format!(r#","nextCursor":{n}"#)).unwrap_or_default();
        format!(r#"{{"tools":[{}]{next},"ttlMs":5}}"#, tools.join(","))
    }

    fn names(items: &[Item]) -> String {
        items.iter().map(|i| i.name.as_str()).collect()
    }

    /// What came out, in short.
    fn said(out: Vec<(Facet, Context, Outcome)>) -> Vec<(String, Option<Reason>)> {
        let short = |o| match o {
            Outcome::Page(i) => (format!("+{}", names(&i)), None),
            Outcome::Complete(i) => (names(&i), None),
            Outcome::Incomplete(i, r) => (names(&i), Some(r)),
            Outcome::NotOffered => ("-".into(), None),
        };
        out.into_iter().map(|(_, _, o)| short(o)).collect()
    }

    fn ask(l: &mut Listings<u64>, id: u64, cursor: Cursor<'_>) -> Vec<(String, Option<Reason>)> {
        said(l.asked(id, Facet::Tools, cursor, &Context::default()).into_iter().collect())
    }

    fn new() -> Listings<u64> {
        Listings::new(SMALL, Vec::new())
    }

    #[test]
    fn two_listings_in_flight_do_not_mix() {
        let mut l = new();
        assert!(ask(&mut l, 1, Cursor::First).is_empty() && ask(&mut l, 2, Cursor::First).is_empty());
        // The second server page comes first, and a cursor may be empty or escaped.
        assert_eq!(said(l.answered(&2, page("xy", Some(r#""""#)).as_bytes())), [("+xy".into(), None)]);
        assert_eq!(said(l.answered(&1, page("ab", Some(r#""\u0063""#)).as_bytes())), [("+ab".into(), None)]);
        assert!(ask(&mut l, 3, Cursor::After("c")).is_empty() && ask(&mut l, 4, Cursor::After("")).is_empty());
        assert_eq!(said(l.answered(&4, page("z", Some("null")).as_bytes())), [("xyz".into(), None)]);
        assert_eq!(said(l.answered(&3, page("c", None).as_bytes())), [("abc".into(), None)]);
        assert!(l.answered(&3, b"{}").is_empty() && l.end().is_empty());
    }

    #[test]
    fn what_was_read_already_makes_the_same_listing() {
        for (all, next) in [("ab", None), ("ab", Some(r#""c""#)), ("abcde", None), ("", None)] {
            let result = page(all, next);
            let read = |n: char| Item::of(Facet::Tools, format!(r#"{{"name":"{n}"}}"#).as_bytes(), &[]).unwrap();
            let items = all.chars().map(read).collect();
            let page = Page { bytes: result.len(), items, next: next.map(str::as_bytes), twice: false };
            let (mut one, mut other) = (new(), new());
            ask(&mut one, 1, Cursor::First);
            ask(&mut other, 1, Cursor::First);
            assert_eq!(one.answered(&1, result.as_bytes()), other.answered_with(&1, page), "{all}");
        }
    }

    #[test]
    fn another_context_or_facet_never_goes_on_with_a_listing() {
        let other = Context { auth: Some("sha256:x".into()), ..Context::default() };
        for (facet, context) in [(Facet::Tools, &other), (Facet::Prompts, &Context::default())] {
            let mut l = new();
            ask(&mut l, 1, Cursor::First);
            l.answered(&1, page("a", Some(r#""c""#)).as_bytes());
            l.asked(2, facet, Cursor::After("c"), context);
            let list = facet.members().unwrap().0;
            let out = said(l.answered(&2, format!(r#"{{"{list}":[{{"name":"b"}}]}}"#).as_bytes()));
            assert_eq!(out, [("b".into(), Some(Reason::StrayCursor))]);
            assert_eq!(said(l.end()), [("a".into(), Some(Reason::Abandoned))]);
        }
    }

    #[test]
    fn what_is_not_complete_says_why_and_keeps_its_items() {
        for (pages, items, reason) in [
            (vec![page("a", Some("7"))], "a", Reason::BadCursor),
            (vec![page("a", Some(r#""\ud800""#))], "a", Reason::BadCursor),
            (vec![page("a", Some(r#""c""#)), page("b", Some(r#""c""#))], "ab", Reason::CursorTwice),
            (vec![page("abcde", None)], "abcd", Reason::TooLong(Bound::Items)),
            (
                vec![page("a", Some(r#""c""#)), page("b", Some(r#""d""#)), page("c", Some(r#""e""#))],
                "abc",
                Reason::TooLong(Bound::Pages),
            ),
            (vec![format!(r#"{{"tools":[],"x":"{}"}}"#, "x".repeat(400))], "", Reason::TooLong(Bound::Bytes)),
            (vec![r#"{"prompts":[]}"#.into()], "", Reason::NoList),
            (vec![r#"{"tools":{}}"#.into()], "", Reason::NoList),
            (vec!["8".into()], "", Reason::NoList),
            (vec![r#"{"tools":[{"name":"a"}],"t\u006fols":[{"name":"b"}]}"#.into()], "b", Reason::Ambiguous),
            (vec![r#"{"tools":[],"nextCursor":"c","nextCursor":null}"#.into()], "", Reason::Ambiguous),
        ] {
            let mut l = new();
            let mut out = Vec::new();
            let mut cursor = Cursor::First;
            for (n, page) in pages.iter().enumerate() {
                ask(&mut l, n as u64, cursor);
                out = said(l.answered(&(n as u64), page.as_bytes()));
                cursor = Cursor::After(["c", "d", "e"][n]);
            }
            assert_eq!(out, [(items.to_owned(), Some(reason))], "{pages:?}");
            assert!(l.end().is_empty());
        }
    }

    #[test]
    fn errors_changes_and_ends() {
        for (code, offered, out) in [
            (-32601, false, ("-".into(), None)),
            (-32601, true, (String::new(), Some(Reason::Failed(-32601)))),
            (-32000, false, (String::new(), Some(Reason::Failed(-32000)))),
        ] {
            let mut l = new();
            ask(&mut l, 1, Cursor::First);
            assert_eq!(said(l.failed(&1, code, offered).into_iter().collect()), [out]);
        }
        // Between two pages, and while the answer is on its way; another facet is no matter.
        for (facet, reason) in [(Facet::Tools, Some(Reason::ChangedMeanwhile)), (Facet::Prompts, None)] {
            for between in [true, false] {
                let mut l = new();
                ask(&mut l, 1, Cursor::First);
                l.answered(&1, page("a", Some(r#""c""#)).as_bytes());
                if between {
                    l.changed(facet);
                }
                ask(&mut l, 2, Cursor::After("c"));
                if !between {
                    l.changed(facet);
                }
                assert_eq!(said(l.answered(&2, page("b", None).as_bytes())), [("ab".into(), reason)]);
            }
        }
    }

    #[test]
    fn what_is_pushed_out_is_said() {
        let gone = |items: &str| vec![(items.to_owned(), Some(Reason::Abandoned))];
        let mut l = new();
        ask(&mut l, 1, Cursor::First);
        assert_eq!(ask(&mut l, 1, Cursor::First), gone(""), "an id that is used again");
        ask(&mut l, 2, Cursor::First);
        assert_eq!(ask(&mut l, 3, Cursor::First), gone(""), "more requests than are followed");
        l.end();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            ask(&mut l, id, Cursor::First);
            let out = said(l.answered(&id, page(name, Some(r#""c""#)).as_bytes()));
            assert_eq!(out.get(1), gone("a").first().filter(|_| id == 3), "{out:?}");
        }
        assert_eq!(said(l.end()).len(), 2);
    }
}
