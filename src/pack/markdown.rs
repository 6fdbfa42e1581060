//! Text from outside in Markdown.

use crate::text::visible;

/// `text` as plain words in GitHub Flavored Markdown, also in a table cell: nothing in it is a link, an image, HTML, code
/// or a second line.
#[must_use]
pub fn escape(text: &str) -> String {
    let text = visible(text);
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        // `.`, `:` and `@` too: bare addresses become links without any brackets.
        if c.is_ascii_punctuation() && !matches!(c, ',' | '/' | '-' | '\'' | '%' | '?') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        for (raw, escaped) in [
            ("read_file", "read\\_file"),
            ("a|b", "a\\|b"),
            ("<img src=x onerror=alert(1)>", "\\<img src\\=x onerror\\=alert\\(1\\)\\>"),
            ("[x](javascript:1)", "\\[x\\]\\(javascript\\:1\\)"),
            ("https://evil.example www.x.y a@b.c", "https\\://evil\\.example www\\.x\\.y a\\@b\\.c"),
            ("`code`\n# head\r\u{1b}[31m\u{202e}", "\\`code\\`␊\\# head␍␛\\[31m⟨U+202E⟩"),
            ("\\`", "\\\\\\`"),
            ("&lt;", "\\&lt\\;"),
        ] {
            assert_eq!(escape(raw), escaped);
        }
    }
}
