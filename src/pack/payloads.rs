//! Stored arguments and results that no receipt holds: those in the investigation log beside a pack or a journal.

use super::verify::source::PackDir;
use crate::{
    canon,
    lines::Lines,
    model::redaction::{self, Side},
};
use std::{
    borrow::Cow,
    collections::HashMap,
    fs::File,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// Bytes of a stored value that are read.
const MAX_PAYLOAD: u64 = 64 << 20;

/// Which value of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payload {
    /// What the tool was given.
    Arguments,
    /// What it answered, or its error.
    Result,
}

impl Payload {
    const fn side(self) -> Side {
        match self {
            Self::Arguments => Side::Arguments,
            Self::Result => Side::Result,
        }
    }

    /// As it is spelt on disk.
    const fn word(self) -> &'static str {
        self.side().as_str()
    }
}

/// An investigation log, and offset and length of the line of each value.
type Index = (File, HashMap<(Payload, String), (u64, u64)>);

/// The values in one investigation log. It is indexed when something is first asked for.
pub struct Payloads {
    path: Option<PathBuf>,
    open: Option<Index>,
    /// What is wrong with it, in words.
    pub problems: Vec<String>,
}

/// The investigation log of a pack that is in its audit directory.
#[must_use]
pub fn beside(pack: &Path) -> Option<PathBuf> {
    let stem = pack.file_name()?.to_str()?.strip_prefix("proof_pack_")?;
    let audit = pack.parent().filter(|p| p.file_name().is_some_and(|n| n == "packs"))?.parent()?;
    Some(audit.join("investigation").join(format!("session_{stem}.jsonl")))
}

impl Payloads {
    /// The values in this log; without one there are none.
    #[must_use]
    pub fn new(path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), open: None, problems: Vec::new() }
    }

    /// A value of a call, if what was stored has the hash of the receipt, or is what rules left of it that `anomalies` name.
    pub fn get(
        &mut self,
        which: Payload,
        invocation: &str,
        hash: &str,
        anomalies: &[impl AsRef<str>],
    ) -> Option<Vec<u8>> {
        if let Some(path) = self.path.take() {
            self.open = index(&path, &mut self.problems);
        }
        let (file, places) = self.open.as_ref()?;
        let (offset, len) = *places.get(&(which, invocation.to_owned()))?;
        if len > MAX_PAYLOAD {
            return None;
        }
        let mut line = vec![0; len as usize];
        file.read_exact_at(&mut line, offset).ok()?;
        let content = content(&line)?;
        let words = anomalies.iter().map(|word| word.as_ref().as_bytes());
        let same = canon::digest(&content, None).is_ok_and(|d| d.to_string() == hash)
            || redaction::stands_for(&content, hash.as_bytes(), words, which.side());
        if !same && self.problems.is_empty() {
            let which = which.word();
            self.problems.push(format!("the stored {which} of {invocation} does not have the hash in its receipt"));
        }
        same.then_some(content)
    }
}

fn index(path: &Path, problems: &mut Vec<String>) -> Option<Index> {
    let (dir, name) = (path.parent()?, path.file_name()?.to_str()?);
    let dir = PackDir::open(dir).ok()?;
    let (file, _) = dir.open_file(name).ok()?;
    let mut lines = Lines::of(file.try_clone().ok()?);
    let mut places = HashMap::new();
    loop {
        match lines.next(&mut ()) {
            Ok(Some(line)) => {
                if let Some(key) = key(line.bytes) {
                    places.insert(key, (line.offset, line.bytes.len() as u64));
                }
            }
            Ok(None) => return Some((file, places)),
            Err(_) => {
                problems.push(format!("{}: it could not be read to the end", path.display()));
                return Some((file, places));
            }
        }
    }
}

/// What a line of the investigation log has, and of which call.
fn key(line: &[u8]) -> Option<(Payload, String)> {
    // What may be long stands behind, in lines of the recorder's.
    let head = &line[..line.len().min(512)];
    let member = |name: &str| {
        let at = memchr::memmem::find(head, format!("\"{name}\":\"").as_bytes())? + name.len() + 4;
        let end = at + memchr::memchr(b'"', &head[at..])?;
        std::str::from_utf8(&head[at..end]).ok()
    };
    let kind = member("kind")?;
    let which = [Payload::Arguments, Payload::Result].into_iter().find(|which| which.word() == kind)?;
    Some((which, member("invocation_id")?.to_owned()))
}

/// The value as it was on the wire or in canonical form.
fn content(line: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let mut content = None;
    for member in canon::members(line).ok()? {
        let member = member.ok()?;
        let raw = &line[member.value];
        match member.key.as_deref() {
            Some("content") => content = Some(raw.to_vec()),
            Some("raw_base64") => {
                let text: Cow<'_, str> = canon::decode_string(raw)?;
                content = Some(base64::engine::general_purpose::STANDARD.decode(text.as_bytes()).ok()?);
            }
            _ => {}
        }
    }
    content
}
