//! An entry by URL becomes the command of the bridge, member by member: names change where they stand, the URL moves behind ours,
//! and the values of headers stay where they are, as values of the environment.

use super::{Edits, File, Refusal, Slot, applied, members, must_be, quote::requoted, undone};
use crate::clients::{
    command::{MARK, SUBCOMMAND, UPSTREAM, WITH_VALUE, Wrapped},
    read::Dialect,
    remote::{self, Remote, Shape},
    splice::Ours,
    table::Client,
    tree::{Kind, Member, Node, Step},
};

/// Beginning of the names of variables that have values of headers.
const VARIABLE: &str = "ASSAY_HEADER_";
const HEADER_ENV: &str = "--header-env";

/// Makes an entry by URL the command of the bridge; also gives where that is.
///
/// # Errors
/// Why that cannot be done; the file is what it was.
pub fn wrap(
    dialect: Dialect,
    text: &str,
    path: &[Step],
    client: &Client,
    ours: &Ours,
) -> Result<(String, Slot), Refusal> {
    let file = File::read(dialect, text)?;
    let whole = Slot { path: path.to_vec(), command: String::new(), args: String::new() };
    let map = file.map(&whole)?;
    let remote = remote::read(map, client).map_err(Refusal::Skip)?;
    let Shape { command, args, env, local, .. } = remote.shape;
    let slot = Slot { path: path.to_vec(), command: command.to_owned(), args: args.unwrap_or("args").to_owned() };
    let address = file.source(&remote.url.value.span);
    if address.contains('\n') {
        return Err(Refusal::skip("its URL is written over several lines; write it in one"));
    }
    let headers = remote.headers.and_then(|headers| headers.value.members()).unwrap_or_default();
    let words = words(ours, &remote, headers);
    let mut argv = vec![ours.program.clone()];
    argv.extend(words.iter().cloned());
    argv.extend(remote.url.value.as_text().map(str::to_owned));

    let mut expected = file.tree.clone();
    let entry = entry(&mut expected, path)?;
    let mut edits = vec![rename(&file, entry, remote.url, command)];
    let value = remote.url.value.span.clone();
    if args.is_some() {
        edits.push((value, super::quoted(dialect, &ours.program)));
        edits.push(members::add(&file, map, remote.url, &slot.args, &file.quote(&words), address));
        put(entry, command, Node::text(&ours.program));
        let behind = entry.iter().position(|member| member.key == command).map_or(entry.len(), |at| at + 1);
        entry.insert(behind, Member { key: slot.args.clone(), at: 0..0, value: Node::list(&argv[1..]) });
    } else {
        let mut tokens = file.quote(&argv[..argv.len() - 1]);
        tokens.push(address.to_owned());
        edits.push((value, format!("[{}]", tokens.join(", "))));
        put(entry, command, Node::list(&argv));
    }
    if let Some(kind) = remote.kind {
        edits.push((kind.value.span.clone(), requoted(file.source(&kind.value.span), local)));
        put(entry, &kind.key, Node::text(local));
    }
    if let Some(member) = remote.headers {
        edits.push(rename(&file, entry, member, env));
        for (n, header) in headers.iter().enumerate() {
            let inner = inner(entry, env)?;
            edits.push(rename(&file, inner, header, &format!("{VARIABLE}{}", n + 1)));
        }
    }
    let new = applied(text, edits)?;
    must_be(dialect, &new, &expected)?;
    if undone(dialect, &new, &slot)?.0 != text {
        return Err(Refusal::skip("undoing it would not give the same bytes back; change it by hand"));
    }
    Ok((new, slot))
}

/// Our words in front of the URL.
fn words(ours: &Ours, remote: &Remote<'_>, headers: &[Member]) -> Vec<String> {
    let mut words = vec![SUBCOMMAND.to_owned()];
    words.extend(ours.flags.iter().cloned());
    let kind = remote.kind.and_then(|kind| kind.value.as_text());
    if kind == Some("sse") {
        words.extend(["--transport", "sse"].map(str::to_owned));
    }
    for (n, header) in headers.iter().enumerate() {
        words.extend([HEADER_ENV.to_owned(), format!("{}={VARIABLE}{}", header.key, n + 1)]);
    }
    let mut mark = format!("{MARK}1,url={}", remote.url.key);
    for (name, value) in [("type", kind), ("headers", remote.headers.map(|headers| headers.key.as_str()))] {
        if let Some(value) = value {
            mark.extend([",", name, "=", value]);
        }
    }
    words.extend([mark, UPSTREAM.to_owned()]);
    words
}

/// Whether a command line is one that was an entry by URL.
pub fn is_remote(wrapped: &Wrapped) -> bool {
    of_mark(wrapped, "url").is_some()
}

/// Of the options of such a command line, as they are or will be, those that are not made from the entry itself.
#[must_use]
pub fn wished(wrapped: Option<&Wrapped>, flags: &[String]) -> Vec<String> {
    let was_sse = wrapped.and_then(|wrapped| of_mark(wrapped, "type")) == Some("sse");
    let mut kept = Vec::new();
    let mut flags = flags.iter().cloned();
    while let Some(flag) = flags.next() {
        let value = if WITH_VALUE.contains(&flag.as_str()) { flags.next() } else { None };
        let is_header = value.as_ref().is_some_and(|value| value.contains(&format!("={VARIABLE}")));
        if flag == UPSTREAM || flag == HEADER_ENV && is_header || flag == "--transport" && was_sse {
            continue;
        }
        kept.push(flag);
        kept.extend(value);
    }
    kept
}

fn of_mark<'w>(wrapped: &'w Wrapped, name: &str) -> Option<&'w str> {
    let parts = wrapped.mark.as_deref()?.split(',');
    parts.filter_map(|part| part.split_once('=')).find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The edits that make it an entry by URL again, and the tree that it must be.
pub(super) fn undo(file: &File<'_>, map: &Node, slot: &Slot, wrapped: &Wrapped) -> Result<(Edits, Node), Refusal> {
    let odd = |what: &str| Refusal::skip(format!("{what}; make it an entry by URL again by hand"));
    let url = of_mark(wrapped, "url").unwrap_or("url");
    let command = map.members().unwrap_or_default().iter().find(|member| member.key == slot.command);
    let command = command.ok_or_else(|| odd("it has no command"))?;
    let args = map.members().unwrap_or_default().iter().find(|member| member.key == slot.args);
    let list = command.value.items().or_else(|| args.and_then(|args| args.value.items())).unwrap_or_default();
    let address = list.last().filter(|last| last.as_text() == wrapped.flag(UPSTREAM));
    let address = address.ok_or_else(|| odd("its URL is not its last argument"))?;
    let mut expected = file.tree.clone();
    let entry = entry(&mut expected, &slot.path)?;
    put(entry, &slot.command, Node::text(address.as_text().unwrap_or_default()));
    let mut edits = vec![rename(file, entry, command, url)];
    edits.push((command.value.span.clone(), file.source(&address.span).to_owned()));
    let mut env = "environment";
    if command.value.items().is_none() {
        let args = args.ok_or_else(|| odd("it has no arguments"))?;
        edits.push((members::extent(file, map, args)?, String::new()));
        entry.retain(|member| member.key != slot.args);
        env = if slot.command == "cmd" { "envs" } else { "env" };
    }
    if let Some(word) = of_mark(wrapped, "type") {
        let kind = remote::kind(map).ok_or_else(|| odd("it has no type"))?;
        edits.push((kind.value.span.clone(), requoted(file.source(&kind.value.span), word)));
        put(entry, &kind.key, Node::text(word));
    }
    if let Some(headers) = of_mark(wrapped, "headers") {
        let names: Vec<(&str, &str)> =
            wrapped.all(HEADER_ENV).iter().filter_map(|given| given.split_once('=')).collect();
        let member = map.members().unwrap_or_default().iter().find(|member| member.key == env);
        let member = member.ok_or_else(|| odd("the values of its headers are gone"))?;
        edits.push(rename(file, entry, member, headers));
        for value in member.value.members().unwrap_or_default() {
            let Some((name, _)) = names.iter().find(|(_, variable)| *variable == value.key) else {
                return Err(odd(&format!("`{env}` has {}, which is no header", value.key)));
            };
            let inner = inner(entry, headers)?;
            edits.push(rename(file, inner, value, name));
        }
    }
    Ok((edits, expected))
}

/// The members of an entry in a tree.
fn entry<'n>(tree: &'n mut Node, path: &[Step]) -> Result<&'n mut Vec<Member>, Refusal> {
    match tree.at_mut(path).map(|node| &mut node.kind) {
        Some(Kind::Map(members)) => Ok(members),
        _ => Err(Refusal::skip("the entry is no object")),
    }
}

fn inner<'n>(members: &'n mut [Member], key: &str) -> Result<&'n mut Vec<Member>, Refusal> {
    match members.iter_mut().find(|member| member.key == key).map(|member| &mut member.value.kind) {
        Some(Kind::Map(members)) => Ok(members),
        _ => Err(Refusal::skip("its headers are no object")),
    }
}

/// Another name for a member, in the text and in the tree.
fn rename(file: &File<'_>, members: &mut [Member], member: &Member, name: &str) -> (super::Span, String) {
    if let Some(known) = members.iter_mut().find(|known| known.key == member.key) {
        name.clone_into(&mut known.key);
    }
    (member.at.clone(), requoted(file.source(&member.at), name))
}

fn put(members: &mut [Member], key: &str, value: Node) {
    if let Some(member) = members.iter_mut().find(|member| member.key == key) {
        member.value = value;
    }
}
