//! Making untrusted text visible and measurable: the one door to a terminal, a report or a log for anything from outside.

pub mod alike;
pub mod markdown;

use std::borrow::Cow;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// What a count of `n` is called: `call` for one, `calls` for any other. Every count in every text goes through this, or
/// through [`counted`] or [`either`].
#[must_use]
pub fn noun<N: Copy + PartialEq + From<u8>>(n: N, one: &str) -> String {
    if n == N::from(1) {
        return one.to_owned();
    }
    match one.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u'])) {
        Some(stem) => format!("{stem}ies"),
        None if one.ends_with("ch") || one.ends_with(['s', 'x']) => format!("{one}es"),
        None => format!("{one}s"),
    }
}

/// `1 call`, `2 calls`.
#[must_use]
pub fn counted<N: Copy + PartialEq + From<u8> + std::fmt::Display>(n: N, one: &str) -> String {
    format!("{n} {}", noun(n, one))
}

/// The words for one, or those for any other count: where more than a noun differs.
#[must_use]
pub fn either<'a, N: Copy + PartialEq + From<u8>>(n: N, one: &'a str, many: &'a str) -> &'a str {
    if n == N::from(1) { one } else { many }
}

/// `2 denied, 1 error, 0 timeouts`: how calls ended, in the words of evidence wherever they are summed up.
#[must_use]
pub fn endings(denied: u64, errors: u64, timeouts: u64) -> String {
    format!("{denied} denied, {}, {}", counted(errors, "error"), counted(timeouts, "timeout"))
}

/// Whether a character could move the cursor, hide, reorder or fake what a person reads.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{00}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' | '\u{ffa0}')
}

/// `text` with every control character, escape sequence, bidi override and invisible character made visible.
///
/// C0 controls become their Unicode pictures (`␛`, `␍`, `␊`), everything else `⟨U+202E⟩`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\u{00}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('␀')),
            '\u{7f}' => out.push('␡'),
            c if is_hidden(c) => {
                use std::fmt::Write as _;
                let _ = write!(out, "⟨U+{:04X}⟩", c as u32);
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// As [`visible`] for bytes that may be no UTF-8: what is not is shown as `⟨0xFF⟩`.
#[must_use]
pub fn visible_bytes(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&visible(chunk.valid()));
        for b in chunk.invalid() {
            let _ = write!(out, "⟨0x{b:02X}⟩");
        }
    }
    out
}

/// Columns that `text` takes on a terminal.
#[must_use]
pub fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut to at most `columns`, on a grapheme boundary, with `…` where something was cut.
#[must_use]
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for g in text.graphemes(true) {
        let w = g.width();
        if used + w + 1 > columns {
            break;
        }
        used += w;
        out.push_str(g);
    }
    if columns > 0 {
        out.push('…');
    }
    Cow::Owned(out)
}

/// Two texts that begin alike, each from shortly before the place where they part, if that place is not within the first
/// `columns` characters; `…` marks what is left out. Otherwise both are unchanged.
#[must_use]
pub fn where_they_part<'a>(a: &'a str, b: &'a str, columns: usize) -> (Cow<'a, str>, Cow<'a, str>) {
    const BEFORE: usize = 16;
    let alike = a.chars().zip(b.chars()).take_while(|(x, y)| x == y).count();
    if alike.saturating_add(BEFORE) <= columns || alike <= BEFORE {
        return (Cow::Borrowed(a), Cow::Borrowed(b));
    }
    let cut = |text: &str| format!("…{}", text.chars().skip(alike - BEFORE).collect::<String>());
    (Cow::Owned(cut(a)), Cow::Owned(cut(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_that_part_late_are_shown_from_there() {
        let long = "x".repeat(100);
        let (a, b) = (format!("{long}abc"), format!("{long}ade"));
        let (left, right) = where_they_part(&a, &b, 60);
        assert_eq!((left.as_ref(), right.as_ref()), ("…xxxxxxxxxxxxxxxabc", "…xxxxxxxxxxxxxxxade"));
        for (a, b) in [("abc", "abd"), ("", "abc"), ("grüße", "grüßt")] {
            assert_eq!(where_they_part(a, b, 60), (a.into(), b.into()));
            assert_eq!(where_they_part(a, b, 0), (a.into(), b.into()));
        }
        let (a, b) = (format!("{long}{long}"), long.clone());
        let (left, right) = where_they_part(&a, &b, 60);
        assert_eq!((left.chars().count(), right.chars().count()), (117, 17));
    }

    #[test]
    fn escapes_and_overrides_are_shown() {
        for (raw, shown) in [
            ("plain 日本", "plain 日本"),
            ("\u{1b}[31mred", "␛[31mred"),
            ("a\r\nb\tc", "a␍␊b␉c"),
            ("\u{202e}gpj.exe", "⟨U+202E⟩gpj.exe"),
            ("\u{9b}2J\u{7f}", "⟨U+009B⟩2J␡"),
            ("a\u{200b}b\u{e0041}", "a⟨U+200B⟩b⟨U+E0041⟩"),
        ] {
            assert_eq!(visible(raw), shown);
        }
        assert_eq!(visible_bytes(b"a\xff\x1bb"), "a⟨0xFF⟩␛b");
    }

    #[test]
    fn cutting_keeps_graphemes_whole() {
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("abcd", 0), "");
    }

    proptest! {
        #[test]
        fn nothing_hidden_survives_and_nothing_is_wider_than_asked(s in "\\PC*|.*", columns in 0usize..40) {
            let v = visible(&s).into_owned();
            prop_assert!(!v.chars().any(is_hidden));
            prop_assert!(width(&fit(&v, columns)) <= columns.max(usize::from(columns > 0)));
        }
    }
}
