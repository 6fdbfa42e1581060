//! Changing one entry by moving pieces of the text: nothing is written anew, so nothing else can change.
//!
//! The source text of the old command moves behind `--`, and ours goes in front of the first argument. So undoing is to move it
//! back and to remove ours, whatever the client has done to the file in between. What comes out is read again before anybody
//! sees it: it must differ in this entry's command and arguments alone, and undoing must give the old bytes.

mod lists;
mod members;
mod quote;
pub mod remote;

pub use quote::quoted;

use super::{
    command::{MARK, SUBCOMMAND, Wrapped},
    read::{self, Dialect, Fault},
    tree::{Found, Kind, Member, Node, Span, Step},
};

/// Where an entry keeps the command of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The way to what has the members: the entry, or an object in it.
    pub path: Vec<Step>,
    /// Name of the command: a string, or a list that begins with the program.
    pub command: String,
    /// Name of the list of arguments beside it.
    pub args: String,
}

/// Why an entry is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be changed, or must not be.
    Skip(String),
    /// The file cannot be read.
    File(Fault),
}

impl Refusal {
    fn skip(why: impl Into<String>) -> Self {
        Self::Skip(why.into())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Skip(why) => f.write_str(why),
            Self::File(fault) => fault.fmt(f),
        }
    }
}

/// What goes in front of a server's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ours {
    /// The program.
    pub program: String,
    /// Options of the proxy.
    pub flags: Vec<String>,
}

impl Ours {
    /// Our arguments up to `--`; the mark has these parts.
    fn args(&self, parts: &[&str]) -> Vec<String> {
        let mark: Vec<&str> = std::iter::once("1").chain(parts.iter().copied()).collect();
        let mut args = vec![SUBCOMMAND.to_owned()];
        args.extend(self.flags.iter().cloned());
        args.extend([format!("{MARK}{}", mark.join(",")), "--".to_owned()]);
        args
    }

    /// What goes in front of a server's command, for those who write it themselves.
    #[must_use]
    pub fn by_hand(&self) -> String {
        let words: Vec<&str> =
            [self.program.as_str(), SUBCOMMAND].into_iter().chain(self.flags.iter().map(String::as_str)).collect();
        format!("{} --", words.join(" "))
    }
}

/// Part of the mark of an entry that had no list of arguments.
const NO_ARGS: &str = "args";
/// Part of the mark of an entry whose command had no quotes, which it needs among arguments (YAML).
const PLAIN: &str = "plain";

/// The text of a file, with the tree that it is.
pub(super) struct File<'t> {
    pub dialect: Dialect,
    pub text: &'t str,
    pub tree: Node,
}

/// Replacements of pieces of a text.
type Edits = Vec<(Span, String)>;

/// What an entry has for a command.
enum Form<'t> {
    /// A string, and arguments that may be missing.
    Split { command: &'t Member, args: Option<&'t Member> },
    /// One list.
    List { argv: &'t Node },
}

impl<'t> File<'t> {
    pub fn read(dialect: Dialect, text: &'t str) -> Result<Self, Refusal> {
        match read::tree(dialect, text).map_err(Refusal::File)? {
            Some(tree) => Ok(Self { dialect, text, tree }),
            None => Err(Refusal::skip("the file is empty")),
        }
    }

    /// The map that a slot is in. A member that is there twice, in or above it, or an alias can make of it something else
    /// than what stands here.
    fn map(&self, slot: &Slot) -> Result<&Node, Refusal> {
        let mut node = &self.tree;
        for step in &slot.path {
            let next = match step {
                Step::Key(key) => match node.find(key) {
                    Found::One(member) => Some(&member.value),
                    Found::Twice(second) => {
                        let (line, _) = read::place(self.text, second.at.start);
                        return Err(Refusal::skip(format!("`{key}` is there twice, again in line {line}; remove one")));
                    }
                    Found::No => None,
                },
                Step::Item(n) => node.items().and_then(|items| items.get(*n)),
            };
            if node.indirect {
                break;
            }
            node = next.ok_or_else(|| Refusal::skip("the entry is gone"))?;
        }
        if node.has_indirect() {
            return Err(Refusal::skip("it has an anchor, an alias or a tag in it or above it; change it by hand"));
        }
        if let Some(twice) = node.twice() {
            let (line, _) = read::place(self.text, twice.at.start);
            return Err(Refusal::skip(format!("`{}` is there twice, again in line {line}; remove one", twice.key)));
        }
        Ok(node)
    }

    fn form<'f>(slot: &Slot, map: &'f Node) -> Result<Form<'f>, Refusal> {
        let Found::One(command) = map.find(&slot.command) else {
            return Err(Refusal::skip(format!("it has no `{}`", slot.command)));
        };
        match &command.value.kind {
            Kind::List(items) if items.is_empty() => Err(Refusal::skip(format!("`{}` is empty", slot.command))),
            Kind::List(_) => match command.value.texts() {
                Some(_) => Ok(Form::List { argv: &command.value }),
                None => Err(Refusal::skip(format!("`{}` has something else than strings", slot.command))),
            },
            Kind::Text(_) => {
                let args = match map.find(&slot.args) {
                    Found::One(args) if args.value.texts().is_some() => Some(args),
                    Found::One(args) => {
                        let what = if args.value.items().is_some() {
                            "has something else than strings"
                        } else {
                            "is not a list"
                        };
                        return Err(Refusal::skip(format!("`{}` {what}", slot.args)));
                    }
                    _ => None,
                };
                Ok(Form::Split { command, args })
            }
            _ => Err(Refusal::skip(format!("`{}` is {}, not a string", slot.command, command.value.what()))),
        }
    }

    fn source(&self, span: &Span) -> &str {
        &self.text[span.clone()]
    }

    fn quote(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| quoted(self.dialect, text)).collect()
    }
}

/// The command line of an entry: the program and its arguments.
///
/// # Errors
/// Why it has none.
pub fn argv(dialect: Dialect, text: &str, slot: &Slot) -> Result<Vec<String>, Refusal> {
    let file = File::read(dialect, text)?;
    argv_of(slot, file.map(slot)?)
}

fn argv_of(slot: &Slot, map: &Node) -> Result<Vec<String>, Refusal> {
    Ok(match File::form(slot, map)? {
        Form::List { argv } => argv.texts().unwrap_or_default(),
        Form::Split { command, args } => {
            let mut argv = vec![command.value.as_text().unwrap_or_default().to_owned()];
            argv.extend(args.and_then(|args| args.value.texts()).unwrap_or_default());
            argv
        }
    })
}

/// Puts the proxy in front of an entry that has none.
///
/// # Errors
/// Why that cannot be done; the file is what it was.
pub fn wrap(dialect: Dialect, text: &str, slot: &Slot, ours: &Ours) -> Result<String, Refusal> {
    match moved(dialect, text, slot, ours, false) {
        // In brackets, some of what needs no quotes elsewhere means something else.
        Err(refused @ Refusal::Skip(_)) if dialect == Dialect::Yaml => {
            moved(dialect, text, slot, ours, true).map_err(|_| refused)
        }
        done => done,
    }
}

/// The text with the proxy in front of an entry. `in_quotes` says that a command without quotes is given some.
fn moved(dialect: Dialect, text: &str, slot: &Slot, ours: &Ours, in_quotes: bool) -> Result<String, Refusal> {
    let file = File::read(dialect, text)?;
    let map = file.map(slot)?;
    let mut expected = file.tree.clone();
    let mut edits = Edits::new();
    match File::form(slot, map)? {
        Form::List { argv } => {
            let mut all = vec![ours.program.clone()];
            all.extend(ours.args(&[]));
            edits.push(lists::insert(&file, argv, &file.quote(&all), None)?);
            all.extend(argv.texts().unwrap_or_default());
            set(&mut expected, slot, &slot.command, Node::list(&all))?;
        }
        Form::Split { command, args } => {
            let old = file.source(&command.value.span);
            if dialect == Dialect::Yaml && old.contains('\n') {
                return Err(Refusal::skip(format!(
                    "`{}` is written over several lines; write it in one",
                    slot.command
                )));
            }
            let program = command.value.as_text().unwrap_or_default();
            let plain = in_quotes && old == program;
            let old = if plain { quoted(Dialect::Json, program) } else { old.to_owned() };
            let parts = [args.is_none().then_some(NO_ARGS), plain.then_some(PLAIN)];
            let mut all = ours.args(&parts.into_iter().flatten().collect::<Vec<_>>());
            edits.push((command.value.span.clone(), quoted(dialect, &ours.program)));
            edits.push(match args {
                Some(args) => lists::insert(&file, &args.value, &file.quote(&all), Some(&old))?,
                None => members::add(&file, map, command, &slot.args, &file.quote(&all), &old),
            });
            all.push(program.to_owned());
            all.extend(args.and_then(|args| args.value.texts()).unwrap_or_default());
            set(&mut expected, slot, &slot.command, Node::text(&ours.program))?;
            set(&mut expected, slot, &slot.args, Node::list(&all))?;
        }
    }
    let new = applied(text, edits)?;
    must_be(dialect, &new, &expected)?;
    if undone(dialect, &new, slot)?.0 != text {
        return Err(Refusal::skip("undoing it would not give the same bytes back; change it by hand"));
    }
    Ok(new)
}

/// Removes the proxy from an entry.
///
/// # Errors
/// Why that cannot be done; the file is what it was.
pub fn unwrap(dialect: Dialect, text: &str, slot: &Slot) -> Result<String, Refusal> {
    let (new, expected) = undone(dialect, text, slot)?;
    must_be(dialect, &new, &expected)?;
    Ok(new)
}

/// The text without the proxy in an entry, and the tree that it must be.
fn undone(dialect: Dialect, text: &str, slot: &Slot) -> Result<(String, Node), Refusal> {
    let file = File::read(dialect, text)?;
    let map = file.map(slot)?;
    let mut expected = file.tree.clone();
    let mut edits = Edits::new();
    let not_ours = || Refusal::skip("it does not lead through assay");
    if let Some(wrapped) = Wrapped::read(&argv_of(slot, map)?).filter(remote::is_remote) {
        let (edits, expected) = remote::undo(&file, map, slot, &wrapped)?;
        return Ok((applied(text, edits)?, expected));
    }
    let no_server = || {
        Refusal::skip(
            "there is no server's command behind the proxy's options; what leads to a URL and was written by hand is undone by hand",
        )
    };
    match File::form(slot, map)? {
        Form::List { argv } => {
            let (items, texts) = (argv.items().unwrap_or_default(), argv.texts().unwrap_or_default());
            let wrapped = Wrapped::read(&texts).ok_or_else(not_ours)?;
            let rest = texts.get(wrapped.ours..).filter(|rest| !rest.is_empty()).ok_or_else(no_server)?;
            edits.push((items[0].span.start..items[wrapped.ours].span.start, String::new()));
            set(&mut expected, slot, &slot.command, Node::list(rest))?;
        }
        Form::Split { command, args } => {
            let mut texts = vec![command.value.as_text().unwrap_or_default().to_owned()];
            texts.extend(args.and_then(|args| args.value.texts()).unwrap_or_default());
            let wrapped = Wrapped::read(&texts).ok_or_else(not_ours)?;
            let rest = texts.get(wrapped.ours..).filter(|rest| !rest.is_empty()).ok_or_else(no_server)?;
            let Some(args) = args else { return Err(no_server()) };
            let items = args.value.items().unwrap_or_default();
            let old = file.source(&items[wrapped.ours - 1].span);
            let old = if wrapped.has_part(PLAIN) && old.starts_with(['"', '\'']) { &rest[0] } else { old };
            edits.push((command.value.span.clone(), old.to_owned()));
            set(&mut expected, slot, &slot.command, Node::text(&rest[0]))?;
            let was_added = rest.len() == 1 && wrapped.has_part(NO_ARGS);
            if was_added {
                edits.push((members::extent(&file, map, args)?, String::new()));
                remove(&mut expected, slot, &slot.args);
            } else {
                edits.push((lists::front(&file, &args.value, wrapped.ours), String::new()));
                set(&mut expected, slot, &slot.args, Node::list(&rest[1..]))?;
            }
        }
    }
    Ok((applied(text, edits)?, expected))
}

/// Sets a member of the map in a tree; a new one goes behind the command.
fn set(tree: &mut Node, slot: &Slot, key: &str, value: Node) -> Result<(), Refusal> {
    let Some(Kind::Map(members)) = tree.at_mut(&slot.path).map(|node| &mut node.kind) else {
        return Err(Refusal::skip("the entry is no object"));
    };
    if let Some(member) = members.iter_mut().find(|member| member.key == key) {
        member.value = value;
        return Ok(());
    }
    let behind = members.iter().position(|member| member.key == slot.command).map_or(members.len(), |at| at + 1);
    members.insert(behind, Member { key: key.to_owned(), at: 0..0, value });
    Ok(())
}

fn remove(tree: &mut Node, slot: &Slot, key: &str) {
    if let Some(Kind::Map(members)) = tree.at_mut(&slot.path).map(|node| &mut node.kind) {
        members.retain(|member| member.key != key);
    }
}

fn must_be(dialect: Dialect, text: &str, expected: &Node) -> Result<(), Refusal> {
    let why = "the file cannot be changed without changing something else; change this entry by hand";
    match read::tree(dialect, text) {
        Ok(Some(tree)) if tree.same(expected) => Ok(()),
        _ => Err(Refusal::skip(why)),
    }
}

/// The text with pieces of it replaced.
fn applied(text: &str, mut edits: Edits) -> Result<String, Refusal> {
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    let mut new = String::with_capacity(text.len() + 256);
    let mut at = 0;
    for (span, piece) in edits {
        let Some(kept) = text.get(at..span.start).filter(|_| text.is_char_boundary(span.end)) else {
            return Err(Refusal::skip("its members stand in an unexpected order; change it by hand"));
        };
        new.push_str(kept);
        new.push_str(&piece);
        at = span.end;
    }
    new.push_str(&text[at..]);
    Ok(new)
}

/// Where the line begins that a byte is in.
fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Where the line ends that a byte is in, before its line break.
fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    if text[at..end].ends_with('\r') { end - 1 } else { end }
}

/// The line break that a file uses.
fn line_break(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Whether there is nothing but white space.
fn is_blank(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Whether there is nothing but white space, and this sign once.
fn is_only(text: &str, sign: char) -> bool {
    text.split_once(sign).is_some_and(|(before, behind)| is_blank(before) && is_blank(behind))
}

#[cfg(test)]
mod tests;
