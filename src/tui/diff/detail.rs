//! All about the selected difference, as lines: old beside new where there is room, old above new where there is not.

use super::{
    Side, list,
    rows::{self, DiffRow, Section},
};
use crate::{
    model::surface,
    numbers::{NONE, counted, grouped},
    pack::diff::{
        CallChange, CallSide, DiffTotals, Difference, DifferenceKind, Document, Quantiles, SideView, SurfaceGroup,
        totals_rows,
    },
    text::{either, noun, width},
    tui::{
        cursor::Cursor,
        detail::tree::{of_pointer, text_rows},
        kit::ListPane,
        paint::{Pen, clean},
        theme::{Role, Theme},
    },
};
use ratatui::layout::Rect;
use serde_json::Value;

/// Columns of a label.
const LABEL: u16 = 13;

/// A line of the detail.
#[derive(Debug, Default)]
pub struct DiffLine {
    /// Column, columns, text, role.
    cells: Vec<(u16, u16, String, Role)>,
    /// What `y` takes: what it is, and the text.
    pub copy: Option<(String, String)>,
    /// The JSONPath of the place that it is about.
    pub path: Option<String>,
    /// Whether a place begins here, where `n` stops.
    pub begins: bool,
}

/// Draws the lines that are on the screen.
pub fn draw(pen: &mut Pen<'_>, area: Rect, lines: &[DiffLine], cursor: &Cursor, focused: bool) {
    ListPane::new(lines.len(), area).draw(cursor, pen, focused.then_some(true), |pen, n, row| {
        for (x, columns, text, role) in lines.get(n).map_or(&[][..], |line| &line.cells) {
            if *x < area.width {
                pen.outside(row.x + x, row.y, (*columns).min(area.width - x), text, *role);
            }
        }
    });
}

/// The lines about a row for a pane of so many columns.
pub fn lines(document: &Document, row: DiffRow, columns: u16, beside: bool, ascii: bool) -> Vec<DiffLine> {
    let theme = Theme { ascii, ..Theme::default() };
    let mut b = Builder { columns, beside, theme, out: Vec::new() };
    let comparison = document.comparison.as_ref();
    match row {
        DiffRow::Head(section) => b.text(explained(section), Role::Dim),
        DiffRow::Side(which) | DiffRow::Verdicts(which) | DiffRow::Finding(which, _) => {
            b.pack(rows::side(document, which), which);
        }
        DiffRow::NotCompared => {
            b.text(&list::not_compared(document), Role::Bad);
            b.text(
                "Evidence that does not verify says nothing about what happened. Both packs must verify first.",
                Role::Text,
            );
            b.text("Enter on a finding shows where it is; assay open PACK shows the byte.", Role::Dim);
        }
        DiffRow::Worse(n) => {
            if let Some(r) = document.regressions.get(n) {
                b.text(&r.what, Role::Bad);
                b.field("kind", r.kind, Role::Text);
                b.field("calls", &grouped(r.count), Role::Text);
                b.text("n goes to the listed calls.", Role::Dim);
            }
        }
        DiffRow::Change(n) => {
            if let Some(change) = comparison.and_then(|c| c.changes.get(n)) {
                b.change(change);
            }
        }
        DiffRow::Omitted(section) => {
            let n = rows::omitted(document, section);
            let text = format!(
                "{} more {} counted but not listed: a list has at most a few hundred.",
                grouped(n),
                either(n, "is", "are")
            );
            b.text(&text, Role::Dim);
            b.text("assay analyze PACK and assay open PACK show every call of one pack.", Role::Dim);
        }
        DiffRow::AllTools => {
            if let Some(c) = comparison {
                b.tool(&c.totals_a, &c.totals_b, &c.latency_a, &c.latency_b);
            }
        }
        DiffRow::Tool(n) => {
            if let Some(tool) = comparison.and_then(|c| c.tools.get(n)) {
                b.tool(&tool.a.totals, &tool.b.totals, &tool.a.latency, &tool.b.latency);
            }
        }
        DiffRow::Context(n) => {
            if let Some(change) = comparison.and_then(|c| c.context.get(n)) {
                b.sides();
                b.both("", change.a.as_deref(), change.b.as_deref());
            }
        }
        DiffRow::Surface(n) => {
            if let Some(group) = comparison.and_then(|c| c.surface.get(n)) {
                b.surface(group);
            }
        }
    }
    b.out
}

const fn explained(section: Section) -> &'static str {
    match section {
        Section::Sides => "Both packs are verified before they are compared: integrity, completeness, claims, signer.",
        Section::Worse => {
            "Only what is clearly worse: B is less complete, a claim no longer holds, or a call that was answered in A is \
             denied, fails or has no response in B. n and N go to the next and the previous one."
        }
        Section::Changed => {
            "The same tool with the same arguments in both packs, in any order, but with a different outcome, policy verdict \
             or result."
        }
        Section::New => "Calls of B that A does not have: a different tool, different arguments, or more often.",
        Section::Gone => "Calls of A that B does not have: a different tool, different arguments, or less often.",
        Section::Tools => {
            "Round trips from request to response, exact quantiles; the shift is that of the 95th percentile."
        }
        Section::Context => "What the sessions ran with and how they were recorded, where it differs.",
        Section::Surface => {
            "What the servers said of themselves, as far as both sessions asked. Equal changes of several items are one group."
        }
    }
}

struct Builder {
    columns: u16,
    beside: bool,
    theme: Theme,
    out: Vec<DiffLine>,
}

impl Builder {
    fn line(&mut self, cells: Vec<(u16, u16, String, Role)>) -> &mut DiffLine {
        let at = self.out.len();
        self.out.push(DiffLine { cells, ..DiffLine::default() });
        &mut self.out[at]
    }

    fn none(&self) -> &'static str {
        self.theme.glyph(NONE, "-")
    }

    /// Words of ours, wrapped between words.
    fn text(&mut self, text: &str, role: Role) {
        let mut line = String::new();
        for word in clean(text).split(' ') {
            if !line.is_empty() && width(&line) + 1 + width(word) > self.columns as usize {
                let done = std::mem::take(&mut line);
                self.line(vec![(0, self.columns, done, role)]);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(vec![(0, self.columns, line, role)]);
    }

    /// A value after a label, on as many lines as it needs.
    fn field(&mut self, label: &str, text: &str, role: Role) {
        let label_columns = LABEL.min(self.columns / 2);
        let room = self.columns.saturating_sub(label_columns);
        for (n, row) in text_rows(text, room).into_iter().enumerate() {
            let own = if n == 0 { label.to_owned() } else { String::new() };
            let value = text.get(row).unwrap_or_default().to_owned();
            let copy = Some((label.to_owned(), text.to_owned()));
            self.line(vec![(0, label_columns.saturating_sub(1), own, Role::Dim), (label_columns, room, value, role)])
                .copy = copy;
        }
    }

    /// The heading of the two columns.
    fn sides(&mut self) {
        if self.beside {
            let (x, room, y) = self.halves(LABEL);
            self.line(vec![(x, room, "A".to_owned(), Role::Strong), (y, room, "B".to_owned(), Role::Strong)]);
        }
    }

    /// Two columns after a label: the first, their width, the second.
    fn halves(&self, label: u16) -> (u16, u16, u16) {
        let room = self.columns.saturating_sub(label + 2) / 2;
        (label, room, label + room + 2)
    }

    /// What both sides say.
    fn both(&mut self, label: &str, a: Option<&str>, b: Option<&str>) {
        let none = self.none();
        let (old, new) = (a.unwrap_or(none), b.unwrap_or(none));
        let same = a == b;
        if !self.beside {
            let joined = format!("{old} {} {new}", self.theme.glyph("→", "->"));
            if same {
                self.field(label, old, Role::Text);
            } else if width(&clean(&joined)) <= self.columns.saturating_sub(LABEL) as usize {
                self.field(label, &joined, Role::Warn);
            } else {
                self.text(label, Role::Dim);
                self.signed("-", old, Role::Warn);
                self.signed("+", new, Role::Warn);
            }
            return;
        }
        // Which of the two is the better one is not for colours to say.
        let role = if same { Role::Text } else { Role::Warn };
        self.columns_of(LABEL, label, (old, role), (new, role));
    }

    /// Two values side by side, wrapped.
    fn columns_of(&mut self, indent: u16, label: &str, (a, role_a): (&str, Role), (b, role_b): (&str, Role)) {
        let (x, room, y) = self.halves(indent);
        let (rows_a, rows_b) = (text_rows(a, room), text_rows(b, room));
        let part = |text: &str, rows: &[std::ops::Range<usize>], n: usize| {
            rows.get(n).and_then(|r| text.get(r.clone())).unwrap_or_default().to_owned()
        };
        for n in 0..rows_a.len().max(rows_b.len()) {
            let own = if n == 0 { label.to_owned() } else { String::new() };
            let (left, right) = (part(a, &rows_a, n), part(b, &rows_b, n));
            let line = self.line(vec![
                (0, indent.saturating_sub(1), own, Role::Dim),
                (x, room, left, role_a),
                (y, room, right, role_b),
            ]);
            line.copy = Some(("both values".to_owned(), format!("{a}\n{b}")));
        }
    }

    /// A value after a sign, on as many lines as it needs.
    fn signed(&mut self, sign: &str, text: &str, role: Role) {
        let room = self.columns.saturating_sub(2);
        for row in text_rows(text, room) {
            let part = text.get(row).unwrap_or_default().to_owned();
            let line = self.line(vec![(0, 1, sign.to_owned(), role), (2, room, part, role)]);
            line.copy = Some((if sign == "-" { "old value" } else { "new value" }.to_owned(), text.to_owned()));
        }
    }

    fn change(&mut self, change: &CallChange) {
        let arguments = change.arguments_hash.clone();
        match (&change.a, &change.b) {
            (Some(a), Some(b)) => {
                self.sides();
                let of = |f: fn(&CallSide) -> Option<&str>| (f(a), f(b));
                for (label, (old, new)) in [
                    ("outcome", of(|s| Some(&s.outcome))),
                    ("policy", of(|s| Some(&s.policy_verdict))),
                    ("result", of(|s| s.result_hash.as_deref())),
                ] {
                    self.both(label, old, new);
                }
                let (t, shifted) = (self.theme, list::shift(a.duration_us, b.duration_us).0);
                let new = format!("{}  {shifted}", list::time(b.duration_us, t));
                self.plain_both("round trip", &list::time(a.duration_us, t), new.trim_end());
                self.plain_both("receipt", &a.receipt_id, &b.receipt_id);
                self.field("arguments", &arguments, Role::Text);
                self.differences(change, a.result_hash != b.result_hash);
            }
            (None, Some(one)) | (Some(one), None) => {
                self.field("outcome", &one.outcome, Role::Text);
                self.field("policy", &one.policy_verdict, Role::Text);
                self.field("round trip", &list::time(one.duration_us, self.theme), Role::Text);
                self.field("result", one.result_hash.as_deref().unwrap_or(self.none()), Role::Text);
                self.field("receipt", &one.receipt_id, Role::Text);
                self.field("arguments", &arguments, Role::Text);
            }
            (None, None) => {}
        }
    }

    fn surface(&mut self, group: &SurfaceGroup) {
        self.field("severity", group.severity.as_str(), list::severity_role(group.severity));
        self.field("kind", group.kind.as_str(), Role::Text);
        let facet = group.facet.map_or("server", surface::Facet::word);
        self.field("where", &format!("{facet}{}", group.path), Role::Text);
        let names = group.names.iter().filter(|name| !name.is_empty());
        for (n, name) in names.enumerate() {
            self.field(if n == 0 { "items" } else { "" }, name, Role::Accent);
        }
        let more = group.items.saturating_sub(group.names.len() as u64);
        if more > 0 {
            self.field("", &format!("and {} more", grouped(more)), Role::Dim);
        }
        if group.before.is_some() || group.after.is_some() {
            self.line(Vec::new());
            self.sides();
            self.both("", group.before.as_deref(), group.after.as_deref());
        }
    }

    /// Two values that differ without that meaning anything.
    fn plain_both(&mut self, label: &str, a: &str, b: &str) {
        if self.beside {
            self.columns_of(LABEL, label, (a, Role::Text), (b, Role::Text));
            return;
        }
        let joined = format!("{a} {} {b}", self.theme.glyph("→", "->"));
        self.field(label, &joined, Role::Text);
    }

    fn differences(&mut self, change: &CallChange, other_result: bool) {
        if !other_result {
            return;
        }
        self.line(Vec::new());
        if [&change.a, &change.b].into_iter().flatten().any(|side| side.result_is_redacted) {
            self.text("Rules redacted a result before it was stored: what they took out is not compared.", Role::Warn);
        }
        if change.result_differences.is_empty() {
            let text = "The hashes of the results differ. Where they differ is unknown: not both packs store the results, or they are \
                        longer than 4 MiB, or they are not JSON.";
            self.text(text, Role::Dim);
            return;
        }
        let listed = change.result_differences.len() as u64;
        let all = listed + change.result_differences_omitted;
        let many = counted(all, "place");
        let text = format!("The results differ in {many}:");
        self.text(&text, Role::Strong);
        for difference in &change.result_differences {
            self.difference(difference);
        }
        if all > listed {
            let text = format!("and {} more {}", grouped(all - listed), noun(all - listed, "place"));
            self.text(&text, Role::Dim);
        }
    }

    fn difference(&mut self, d: &Difference) {
        let path = of_pointer(&d.path);
        let word = match d.kind {
            DifferenceKind::Added => "new",
            DifferenceKind::Removed => "gone",
            DifferenceKind::Changed => "changed",
        };
        let from = self.out.len();
        let note = if d.cut { format!("{word}, cut at 1 KiB") } else { word.to_owned() };
        let used = (width(&clean(&path)) as u16).min(self.columns.saturating_sub(width(&note) as u16 + 2).max(8));
        let rest = self.columns.saturating_sub(used + 2);
        self.line(vec![(0, used, path.clone(), Role::Accent), (used + 2, rest, note, Role::Dim)]);
        let (old, new) = (d.old.as_ref().map(|v| shown(v, d.cut)), d.new.as_ref().map(|v| shown(v, d.cut)));
        if self.beside {
            let none = self.none();
            let (a, b) = (old.as_deref().unwrap_or(none), new.as_deref().unwrap_or(none));
            self.columns_of(2, "", (a, Role::Warn), (b, Role::Good));
        } else {
            if let Some(old) = &old {
                self.signed("-", old, Role::Warn);
            }
            if let Some(new) = &new {
                self.signed("+", new, Role::Good);
            }
        }
        if let Some(first) = self.out.get_mut(from) {
            first.begins = true;
            let both = format!("{}\n{}", old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
            first.copy = Some(("both values".to_owned(), both));
        }
        for line in &mut self.out[from..] {
            line.path = Some(path.clone());
        }
    }

    fn tool(&mut self, a: &DiffTotals, b: &DiffTotals, old: &Quantiles, new: &Quantiles) {
        self.sides();
        for row in totals_rows(a, b, old, new) {
            let shown = |text: &str| text.replace(NONE, self.none());
            let (a, b) = (shown(&row.a), shown(&format!("{}  {}", row.b, row.by)));
            self.plain_both(row.label, &a, b.trim_end());
        }
    }

    fn pack(&mut self, side: &SideView, which: Side) {
        let verdicts = ["integrity", "completeness", "signer", "claims"].into_iter().zip(list::four(side, self.theme));
        for (label, (text, role)) in verdicts {
            self.field(label, text.trim_start_matches("- claims "), role);
            if label == "completeness" {
                for reason in &side.completeness_reasons {
                    self.field("", reason, Role::Warn);
                }
            }
        }
        let none = self.none();
        let opt = |t: &Option<String>| t.clone().unwrap_or_else(|| none.to_owned());
        self.field("pack", &side.path, Role::Accent);
        self.field("pack id", &opt(&side.pack_id), Role::Text);
        self.field("session", &opt(&side.session_id), Role::Text);
        self.field("receipts", &grouped(side.receipt_count), Role::Text);
        self.field("from", &opt(&side.timestamp_start), Role::Text);
        self.field("to", &opt(&side.timestamp_end), Role::Text);
        if side.surface_truncated {
            self.field("surface", surface::TRUNCATED, Role::Warn);
        }
        self.field("signed by", &opt(&side.signer.signer_id), Role::Text);
        self.field("key", &opt(&side.signer.fingerprint), Role::Text);
        for finding in &side.errors {
            self.line(Vec::new());
            let from = self.out.len();
            self.text(&format!("{} {}", finding.code, finding.message), Role::Bad);
            self.out[from].begins = true;
            let place = [finding.file.clone(), finding.line.map(|l| format!("line {l}"))];
            let place: Vec<String> = place.into_iter().flatten().collect();
            if !place.is_empty() {
                self.field("where", &place.join(", "), Role::Text);
            }
            for (label, text) in [("expected", &finding.expected), ("found", &finding.found)] {
                if let Some(text) = text {
                    self.field(label, text, Role::Value);
                }
            }
        }
        let more = side.error_count.saturating_sub(side.errors.len() as u64);
        if more > 0 {
            let text = format!("and {} more: assay open {}", grouped(more), if which == Side::A { "A" } else { "B" });
            self.text(&text, Role::Dim);
        }
    }
}

/// A value as text: JSON, but a text of several lines as it is.
fn shown(value: &Value, cut: bool) -> String {
    match value {
        Value::String(text) if cut || text.contains('\n') => text.clone(),
        other => other.to_string(),
    }
}
