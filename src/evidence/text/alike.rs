//! Names that some readers of JSON take for the same and others do not.
//!
//! Go's `encoding/json` matches members under Unicode simple case folding, so `paramſ` (U+017F) is `params` and the
//! Kelvin sign is a `k`; its second version can be told to leave out `_` and `-`; .NET and Java readers compare without
//! case, in some locales with dotless and dotted `i` as one.

/// A character as the most lenient reader compares it.
#[must_use]
pub fn folded(c: char) -> char {
    match c {
        'A'..='Z' => c.to_ascii_lowercase(),
        '\0'..='\u{7f}' => c,
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        // Full-width forms, for readers that normalize.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).map_or(c, |ascii| ascii.to_ascii_lowercase()),
        c => {
            let mut lower = c.to_lowercase();
            match (lower.next(), lower.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        }
    }
}

/// What some reader does not see in a name.
fn is_left_out(c: char) -> bool {
    matches!(c, '_' | '-' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
        || c.is_whitespace()
        || c.is_control()
}

/// What a part of a document spells for the most lenient reader, its escapes undone. `strict`: escapes of control
/// characters stand for these, and are left out; otherwise for the letters that they are written with.
pub fn spelt(part: &str, strict: bool) -> impl Iterator<Item = char> {
    let mut chars = part.chars();
    std::iter::from_fn(move || {
        let c = chars.next()?;
        if c != '\\' {
            return Some(c);
        }
        match chars.next()? {
            'u' => {
                let code = chars.as_str().get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                if code.is_some() {
                    chars.nth(3);
                }
                Some(code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            'b' | 'f' | 'n' | 'r' | 't' if strict => Some('\n'),
            other => Some(other),
        }
    })
    .filter(|c| !is_left_out(*c))
    .map(folded)
}

/// Whether some reader takes `name` for `word` (lower-case or camel-case ASCII).
#[must_use]
pub fn is_like(name: &str, word: &str) -> bool {
    // Nearly all names end here.
    if name.bytes().all(|b| b.is_ascii_lowercase()) && word.bytes().all(|b| b.is_ascii_lowercase()) {
        return name == word;
    }
    let mut name = name.chars().filter(|c| !is_left_out(*c)).map(folded);
    let mut word = word.chars().filter(|c| !is_left_out(*c)).map(folded);
    loop {
        match (name.next(), word.next()) {
            (None, None) => return true,
            (a, b) if a == b => {}
            _ => return false,
        }
    }
}

/// Whether a string as it is written, with its quotes, is `word` for a reader that takes the escapes of control
/// characters for the letters that they are written with: `"\tools/call"`.
#[must_use]
pub fn is_misread_as(raw: &[u8], word: &str) -> bool {
    let escaped = raw.contains(&b'\\');
    let inner = raw.get(1..raw.len().saturating_sub(1)).filter(|_| escaped);
    inner
        .and_then(|inner| std::str::from_utf8(inner).ok())
        .is_some_and(|text| spelt(text, false).eq(spelt(word, false)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_some_reader_takes_for_the_protocols() {
        for (name, word, like) in [
            ("method", "method", true),
            ("Method", "method", true),
            ("METHOD", "method", true),
            ("param\u{17f}", "params", true),
            ("me_thod", "method", true),
            ("met-hod", "method", true),
            (" method\u{200b}", "method", true),
            ("ｍethod", "method", true),
            ("İD", "id", true),
            ("tas\u{212a}", "task", true),
            ("Tools/Call", "tools/call", true),
            ("sampling/createmessage", "sampling/createMessage", true),
            ("methods", "method", false),
            ("metho", "method", false),
            ("", "id", false),
            ("мethod", "method", false),
        ] {
            assert_eq!(is_like(name, word), like, "{name:?} {word}");
        }
    }

    #[test]
    fn escapes_may_be_taken_for_their_letters() {
        for (raw, word, misread) in [
            (r#""\tools/call""#, "tools/call", true),
            (r#""\tools\/call""#, "tools/call", true),
            (r#""me\thod""#, "method", true),
            (r#""pa\rams""#, "params", true),
            (r#""sampli\ng/C\reateMessage""#, "sampling/createMessage", true),
            (r#""\u0074ools/call""#, "tools/call", true),
            (r#""tools/call""#, "tools/call", false),
            (r#""\tools/calls""#, "tools/call", false),
            (r#""\ttools/call""#, "tools/call", false),
            (r#"""#, "id", false),
        ] {
            assert_eq!(is_misread_as(raw.as_bytes(), word), misread, "{raw} {word}");
        }
    }
}
