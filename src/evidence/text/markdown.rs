//! Text from outside in Markdown.

use super::visible;

/// `text` as plain words in GitHub Flavored Markdown, inside a line or a table cell: nothing in it is a link, an image, HTML,
/// emphasis, code, a list or a second line. (GitHub itself still makes a mail address one can click on.)
#[must_use]
pub fn escape(text: &str) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    let mut before = None;
    // While only these were seen, the text could still begin a list, a heading or a rule.
    let mut digits_so_far = true;
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        let inside_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let markup = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '#' | '@' | '$' => true,
            '_' => !(inside_word(before) && inside_word(after)),
            // Bare addresses become links without any brackets.
            ':' => after == Some('/'),
            '.' => digits_so_far || matches!(before, Some('w' | 'W')),
            ')' => digits_so_far,
            '+' | '-' | '=' => before.is_none(),
            _ => false,
        };
        if markup {
            out.push('\\');
        }
        out.push(c);
        digits_so_far &= c.is_ascii_digit();
        before = Some(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        for (raw, escaped) in [
            ("read_file", "read_file"),
            ("_a_ __b__ c_", "\\_a\\_ \\_\\_b\\_\\_ c\\_"),
            ("a|b", "a\\|b"),
            ("<img src=x onerror=alert(1)>", "\\<img src=x onerror=alert(1)\\>"),
            ("![x](javascript:1)", "!\\[x\\](javascript:1)"),
            ("https://evil.example WWW.x.y a@b.c", "https\\://evil.example WWW\\.x.y a\\@b.c"),
            ("`code`\n# head\r\u{1b}[31m\u{202e}", "\\`code\\`␊\\# head␍␛\\[31m⟨U+202E⟩"),
            ("\\`", "\\\\\\`"),
            ("&lt;", "\\&lt;"),
            ("1. one", "1\\. one"),
            ("12) one", "12\\) one"),
            ("- a - b", "\\- a - b"),
            ("Version 0.1.0: fine.", "Version 0.1.0: fine."),
            ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(escape(raw), escaped);
        }
    }
}
