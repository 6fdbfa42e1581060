//! Text in HTML, and the page around it.

use crate::text::visible;
use std::borrow::Cow;

/// Characters of one text that are shown.
const MAX_TEXT: usize = 2000;

/// `text` for element content and double-quoted attribute values: no markup, nothing hidden, of bounded length.
#[must_use]
pub fn escape(text: &str) -> String {
    let cut = match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    };
    let mut out = String::with_capacity(cut.len() + 8);
    for c in visible(&cut).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '`' => out.push_str("&#96;"),
            c => out.push(c),
        }
    }
    out
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2430;--dim:#5b6675;--line:#d9dee6;--page:#fff;--soft:#f4f6f9;--good:#17693a;--warn:#8a5a00;--bad:#b3261e}\
@media (prefers-color-scheme:dark){:root{--ink:#e4e8ee;--dim:#9aa5b4;--line:#333c49;--page:#12161c;--soft:#1b212a;--good:#62c98b;--warn:#e0b050;--bad:#ff8a80}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:62rem;padding:1.25rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);overflow-wrap:anywhere}\
h1{font-size:1.4rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}\
p{margin:.25rem 0}code{font:.85em ui-monospace,monospace}\
.answer{padding:.75rem 1rem;border-left:.35rem solid;background:var(--soft);font-weight:600;margin:1rem 0}\
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}.dim{color:var(--dim)}\
.sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(16rem,1fr));gap:1rem}\
.side{background:var(--soft);padding:.75rem 1rem}.side h2{margin-top:0}\
.time{white-space:nowrap}\
svg{display:block;font:11px system-ui,sans-serif;fill:var(--ink)}svg .good{fill:var(--good)}svg .warn{fill:var(--warn)}\
svg .bad{fill:var(--bad)}svg .dim{fill:var(--dim)}svg .flight{fill:var(--dim);fill-opacity:.35}\
.bars{width:40%}.bar{height:.8em;background:var(--good)}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;width:100%;font-size:.92rem}\
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--line)}\
th{color:var(--dim);font-weight:600;white-space:nowrap}\
td,th{overflow-wrap:normal}\
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
td.name{min-width:9rem;overflow-wrap:anywhere}td.text{min-width:11rem;overflow-wrap:anywhere}\
.place{margin:.35rem 0 0}.place code{display:block;white-space:pre-wrap;word-break:break-all;padding-left:1.2em;text-indent:-1.2em}\
@media (max-width:40rem){.cards thead{display:none}.cards,.cards tbody,.cards tr,.cards td{display:block;width:auto}\
.cards tr{padding:.5rem 0;border-bottom:1px solid var(--line)}.cards td{border:0;padding:.1rem 0;text-align:left}\
.cards td[data-is]::before{content:attr(data-is) \": \";color:var(--dim)}}\
@media print{:root{color-scheme:light;--ink:#000;--dim:#444;--line:#bbb;--page:#fff;--soft:#f4f4f4;--good:#060;--warn:#640;--bad:#900}\
body{max-width:none;padding:0;font-size:11px}td.name{min-width:9rem}td.text{min-width:7rem}th,td{padding:.2rem .4rem}.wide{overflow:visible}tr{break-inside:avoid}h2{break-after:avoid}}";

/// A whole page; `title` is escaped, `body` is HTML.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_becomes_markup(text in "\\PC*|.*|[<>&\"'`a\u{1b}\u{202e}]*") {
            let out = escape(&text);
            let markup = out.contains(['<', '>', '"', '\'', '`', '\u{1b}', '\u{202e}', '\n', '\r']);
            let entities = ["amp;", "lt;", "gt;", "quot;", "#39;", "#96;"];
            let stray = out.split('&').skip(1).any(|rest| !entities.iter().any(|e| rest.starts_with(e)));
            prop_assert!(!markup && !stray, "{out:?}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert!(escape(&"é".repeat(1 << 20)).len() < 5000);
        assert_eq!(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
    }
}
