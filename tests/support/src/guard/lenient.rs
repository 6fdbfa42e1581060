//! The most lenient reading of what a server received: every call that any server could find in these bytes.
//!
//! Written without anything of the guard's own: it splits lines wherever some runtime does, skips byte order marks, reads
//! values behind values and beside garbage, takes every one of several members with one name, compares names as Go's
//! `encoding/json` does (Unicode simple folding) and leaves out what some readers leave out.

/// A value as a reader without principles sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    /// As it is written: a number, a word, garbage.
    Other(String),
    List(Vec<Value>),
    Members(Vec<(String, Value)>),
}

/// What is found in a call that names no tool.
pub const NAMELESS: &str = "<a call without a name>";

/// Tool names of everything that could be taken for a call.
pub fn calls(received: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for piece in pieces(received) {
        let mut at = 0;
        while at < piece.len() {
            if matches!(piece[at], b'{' | b'[') {
                let mut reader = Reader { bytes: piece, at };
                let value = reader.value(0);
                at = reader.at.max(at + 1);
                let before = names.len();
                find(&value, &mut names);
                if !matches!(piece[..at.min(piece.len())].last(), Some(b'}' | b']')) {
                    // Cut off before its name, it calls nothing.
                    let found = names.split_off(before);
                    names.extend(found.into_iter().filter(|name| name != NAMELESS));
                }
            } else {
                at += 1;
            }
        }
    }
    names
}

/// Lines as `\n` ends them, and as everything does that some runtime takes for an end.
pub fn pieces(received: &[u8]) -> Vec<&[u8]> {
    let mut all: Vec<&[u8]> = received.split(|b| *b == b'\n').collect();
    let mut start = 0;
    let mut at = 0;
    while at < received.len() {
        let rest = &received[at..];
        let brk = match rest {
            [b'\n' | b'\r' | 0x0b | 0x0c | 0x1c..=0x1e | 0, ..] => 1,
            [0xc2, 0x85, ..] => 2,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            _ => 0,
        };
        if brk > 0 {
            all.push(&received[start..at]);
            start = at + brk;
        }
        at += brk.max(1);
    }
    all.push(&received[start..]);
    all
}

fn find(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::List(all) => all.iter().for_each(|v| find(v, names)),
        Value::Members(members) => {
            let named = |name: &str| {
                let name = name.to_owned();
                members.iter().filter(move |(key, _)| same(key, &name)).map(|(_, value)| value)
            };
            let calls = named("method").any(|m| matches!(m, Value::Text(text) if same(text, "tools/call")));
            if calls {
                let before = names.len();
                for params in named("params") {
                    match params {
                        Value::Members(members) => {
                            for (key, value) in members {
                                if let (true, Value::Text(tool)) = (same(key, "name"), value) {
                                    names.push(tool.clone());
                                }
                            }
                        }
                        Value::List(all) => {
                            if let Some(Value::Text(tool)) = all.first() {
                                names.push(tool.clone());
                            }
                        }
                        _ => {}
                    }
                }
                if names.len() == before {
                    names.push(NAMELESS.to_owned());
                }
            }
        }
        _ => {}
    }
}

/// Go's comparison, and that of readers which leave out `_`, `-` and blanks.
pub fn same(name: &str, word: &str) -> bool {
    let plain = |text: &str| -> String {
        text.split('\0')
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !matches!(c, '_' | '-' | '\u{feff}' | '\u{200b}') && !c.is_whitespace())
            .map(|c| match c {
                '\u{17f}' => 's',
                '\u{212a}' => 'k',
                c => c.to_lowercase().next().unwrap_or(c),
            })
            .collect()
    };
    plain(name) == plain(word)
}

/// Reads values where they stand.
pub struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Blanks of any kind, comments.
    fn skip(&mut self) {
        while let Some(b) = self.peek() {
            let rest = &self.bytes[self.at..];
            if b.is_ascii_whitespace() || b < 0x20 {
                self.at += 1;
            } else if rest.starts_with(b"\xef\xbb\xbf") {
                self.at += 3;
            } else if rest.starts_with(b"/*") {
                let end = rest.windows(2).position(|w| w == b"*/").map_or(rest.len(), |n| n + 2);
                self.at += end;
            } else {
                return;
            }
        }
    }

    pub fn value(&mut self, depth: usize) -> Value {
        self.skip();
        match self.peek() {
            Some(b'{') if depth < 400 => self.members(depth),
            Some(b'[') if depth < 400 => self.list(depth),
            Some(quote @ (b'"' | b'\'')) => Value::Text(self.text(quote)),
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|b| !matches!(b, b',' | b'}' | b']' | b':')) {
                    self.at += 1;
                }
                Value::Other(String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned())
            }
        }
    }

    /// What stands until `end`, between any of `separators`; goes on behind what no item can be read from.
    fn items(&mut self, end: u8, separators: &[u8], mut item: impl FnMut(&mut Self)) {
        self.at += 1;
        loop {
            self.skip();
            match self.peek() {
                None => return,
                Some(b) if b == end => {
                    self.at += 1;
                    return;
                }
                Some(b) if separators.contains(&b) => self.at += 1,
                Some(_) => {
                    let before = self.at;
                    item(self);
                    if self.at == before {
                        self.at += 1;
                    }
                }
            }
        }
    }

    fn list(&mut self, depth: usize) -> Value {
        let mut all = Vec::new();
        self.items(b']', b",", |reader| all.push(reader.value(depth + 1)));
        Value::List(all)
    }

    fn members(&mut self, depth: usize) -> Value {
        let mut all = Vec::new();
        self.items(b'}', b",:", |reader| {
            let before = reader.at;
            let name = match reader.value(depth + 1) {
                Value::Text(name) => name,
                _ => String::from_utf8_lossy(&reader.bytes[before..reader.at]).into_owned(),
            };
            reader.skip();
            if reader.peek() == Some(b':') {
                reader.at += 1;
                all.push((name, reader.value(depth + 1)));
            }
        });
        Value::Members(all)
    }

    fn text(&mut self, quote: u8) -> String {
        self.at += 1;
        let mut out = Vec::new();
        while let Some(b) = self.peek() {
            self.at += 1;
            match b {
                b if b == quote => break,
                b'\\' => {
                    let escape = self.peek();
                    self.at += 1;
                    match escape {
                        Some(b'n') => out.push(b'\n'),
                        Some(b'u') => {
                            let unit = self.bytes.get(self.at..self.at + 4).and_then(|h| std::str::from_utf8(h).ok());
                            let unit = unit.and_then(|h| u32::from_str_radix(h, 16).ok());
                            self.at += if unit.is_some() { 4 } else { 0 };
                            let c = unit.and_then(char::from_u32).unwrap_or('\u{fffd}');
                            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        Some(other) => out.push(other),
                        None => {}
                    }
                }
                b => out.push(b),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}
