//! The servers that a file declares.

use super::{
    command::{UPSTREAM, Wrapped},
    read::{Fault, place},
    remote::URLS,
    splice::Slot,
    tree::{Kind, Member, Node, Step},
};

/// How a client reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A program, over its standard input and output.
    Stdio,
    /// A URL.
    Remote,
    /// Something that is part of the client.
    Builtin,
}

/// A server as it is declared.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// The project that it is declared for, in a file that has several.
    pub project: Option<String>,
    /// Line and column of its name, from 1.
    pub at: (usize, usize),
    /// The way to it.
    pub path: Vec<Step>,
    /// Where it keeps its command.
    pub slot: Option<Slot>,
    /// How it is reached.
    pub transport: Transport,
    /// The program and its arguments, as far as they are strings.
    pub argv: Vec<String>,
    /// The URL, of one that is reached by it.
    pub url: Option<String>,
    /// Whether the client starts it.
    pub enabled: bool,
    /// Why it is no declaration of a server; a fragment.
    pub broken: Option<String>,
    /// Whether it has a `type` beside its URL.
    pub has_type: bool,
    /// Whether it is started in a sandbox of the client.
    pub sandboxed: bool,
}

/// The servers at these ways in a tree, in the order of the file.
///
/// # Errors
/// Something else than an object where servers belong.
pub fn entries(text: &str, tree: &Node, ways: &[&[&str]]) -> Result<Vec<Entry>, Fault> {
    let mut found: Vec<Entry> = Vec::new();
    if tree.members().is_none() {
        return Err(Fault::at(text, tree.span.start, format!("{} where an object belongs", tree.what())));
    }
    for way in ways {
        walk(text, tree, way, &mut Vec::new(), None, &mut found)?;
    }
    Ok(found)
}

fn walk(
    text: &str,
    node: &Node,
    way: &[&str],
    path: &mut Vec<Step>,
    project: Option<&str>,
    found: &mut Vec<Entry>,
) -> Result<(), Fault> {
    let Some((first, rest)) = way.split_first() else {
        return collect(text, node, path, project, found);
    };
    let Some(members) = node.members() else { return Ok(()) };
    let mut seen = std::collections::HashSet::new();
    // Of what is there twice, the last one counts.
    for member in members.iter().rev().filter(|member| *first == "*" || member.key == *first) {
        if !seen.insert(&member.key) {
            continue;
        }
        path.push(Step::Key(member.key.clone()));
        let project = if *first == "*" { Some(member.key.as_str()) } else { project };
        walk(text, &member.value, rest, path, project, found)?;
        path.pop();
    }
    Ok(())
}

fn collect(
    text: &str,
    node: &Node,
    path: &mut Vec<Step>,
    project: Option<&str>,
    found: &mut Vec<Entry>,
) -> Result<(), Fault> {
    let mut add = |name: &str, at: usize, node: &Node, step: Step| {
        path.push(step);
        // `mcp.servers.NAME` has been found before `mcp.NAME`.
        if !found.iter().any(|entry| entry.path.starts_with(path)) {
            found.push(entry(name, place(text, at), node, path, project));
        }
        path.pop();
    };
    match &node.kind {
        Kind::Map(members) => {
            for Member { key, at, value } in members {
                add(key, at.start, value, Step::Key(key.clone()));
            }
            Ok(())
        }
        Kind::List(items) => {
            for (n, item) in items.iter().enumerate() {
                let name = item.get("name");
                let at = name.map_or(item.span.start, |name| name.span.start);
                add(name.and_then(Node::as_text).unwrap_or_default(), at, item, Step::Item(n));
            }
            Ok(())
        }
        Kind::Null => Ok(()),
        _ => Err(Fault::at(text, node.span.start, format!("{} where an object with servers belongs", node.what()))),
    }
}

/// Names of a command, with that of its arguments.
const COMMANDS: [(&str, &str); 3] = [("command", "args"), ("cmd", "args"), ("path", "args")];
/// Types of what is part of a client.
const BUILTIN: [&str; 5] = ["builtin", "platform", "frontend", "inline_python", "extension"];

fn entry(name: &str, at: (usize, usize), node: &Node, path: &[Step], project: Option<&str>) -> Entry {
    let text = |key: &str| node.get(key).and_then(Node::as_text);
    let flag = |key: &str| match node.get(key).map(|node| &node.kind) {
        Some(Kind::Flag(flag)) => Some(*flag),
        _ => None,
    };
    let kind = text("type").or_else(|| text("source")).unwrap_or_default();
    let mut entry = Entry {
        name: name.to_owned(),
        project: project.map(str::to_owned),
        at,
        path: path.to_vec(),
        slot: None,
        transport: Transport::Builtin,
        argv: Vec::new(),
        url: None,
        enabled: flag("enabled").unwrap_or(true) && !flag("disabled").unwrap_or(false),
        broken: None,
        has_type: text("type").is_some() || text("transport").is_some(),
        sandboxed: flag("sandboxEnabled").unwrap_or(false),
    };
    if node.members().is_none() {
        entry.broken = Some(format!("{} where an object belongs", node.what()));
        return entry;
    }
    for (command, args) in &COMMANDS[..2] {
        let Some(value) = node.get(command) else { continue };
        entry.transport = Transport::Stdio;
        if value.members().is_some() {
            // Older Zed: an object that has the path and the arguments.
            let (command, args) = COMMANDS[2];
            let mut inner = path.to_vec();
            inner.push(Step::Key("command".to_owned()));
            entry.read_command(value, inner, command, args);
        } else {
            entry.read_command(node, path.to_vec(), command, args);
        }
        return entry;
    }
    entry.url = URLS.iter().find_map(|key| text(key)).map(str::to_owned);
    if entry.url.is_some() {
        entry.transport = Transport::Remote;
    } else if kind == "stdio" || kind == "local" {
        entry.transport = Transport::Stdio;
        entry.broken = Some("it has no command".to_owned());
    } else if !BUILTIN.contains(&kind) && kind.is_empty() && node.members().is_some_and(<[Member]>::is_empty) {
        entry.broken = Some("it is empty".to_owned());
    }
    entry
}

impl Entry {
    fn read_command(&mut self, map: &Node, path: Vec<Step>, command: &str, args: &str) {
        let value = map.get(command);
        let arguments = map.get(args);
        match value.map(|value| &value.kind) {
            Some(Kind::Text(program)) => {
                self.argv.push(program.clone());
                match arguments {
                    None => {}
                    Some(list) if list.items().is_some() => {
                        let items = list.items().unwrap_or_default();
                        self.argv.extend(items.iter().map_while(Node::as_text).map(str::to_owned));
                    }
                    Some(other) => self.broken = Some(format!("`{args}` is {}, not a list", other.what())),
                }
            }
            Some(Kind::List(items)) => {
                self.argv.extend(items.iter().map_while(Node::as_text).map(str::to_owned));
                if self.argv.is_empty() {
                    self.broken = Some(format!("`{command}` is empty"));
                }
            }
            Some(_) => self.broken = Some(format!("`{command}` is {}, not a string", value.map_or("", Node::what))),
            None => self.broken = Some(format!("it has no `{command}`")),
        }
        if self.argv.first().is_some_and(String::is_empty) {
            self.broken = Some(format!("`{command}` is empty"));
        }
        self.slot = Some(Slot { path, command: command.to_owned(), args: args.to_owned() });
    }

    /// What tells the server from others: its command without ours, or its URL.
    #[must_use]
    pub fn server(&self) -> Vec<String> {
        let Some(wrapped) = Wrapped::read(&self.argv) else {
            return self.url.iter().chain(&self.argv).cloned().collect();
        };
        let url = wrapped.flag(UPSTREAM).map(str::to_owned);
        url.into_iter().chain(self.argv.get(wrapped.ours..).unwrap_or_default().iter().cloned()).collect()
    }

    /// The way to it in words, for messages: its name, and its project where there are several.
    #[must_use]
    pub fn called(&self) -> String {
        match &self.project {
            Some(project) => format!("{} ({project})", self.name),
            None => self.name.clone(),
        }
    }
}
