//! What a scan finds: the document `assay.scan.v1`.

use super::{
    discover::Found,
    entry::{self, Entry, Transport},
    read::{self, Dialect, Extra, Fault},
    state::{self, Command, Programs, Seen, State},
    table::{Client, Reads, Scope, Takes},
    tree::Node,
};
use crate::files;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    io,
    path::{Path, PathBuf},
};

/// The name of the document.
pub const SCHEMA: &str = "assay.scan.v1";

/// The document.
#[derive(Debug, Clone, Serialize)]
pub struct Scan {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Every place that was looked at.
    pub clients: Vec<ClientFile>,
    /// Servers counted.
    pub summary: Summary,
    /// The exit code.
    pub exit_code: u8,
}

/// A file of a client.
#[derive(Debug, Clone, Serialize)]
pub struct ClientFile {
    /// Id of the client.
    pub client: &'static str,
    /// Whose servers they are.
    pub scope: Scope,
    /// Where it is.
    pub file: PathBuf,
    /// Whether it is there.
    pub exists: bool,
    /// Its language.
    pub dialect: Dialect,
    /// Its servers, in its order.
    pub servers: Vec<Server>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    #[serde(skip)]
    known: Option<&'static Client>,
}

/// A server.
#[derive(Debug, Clone, Serialize)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// What becomes of its calls.
    pub state: State,
    /// How it is reached.
    pub transport: Transport,
    /// Name of the program, without its directory.
    pub program: Option<String>,
    /// Name of the package, if the program runs packages.
    pub package: Option<String>,
    /// Line of its name, from 1.
    pub line: usize,
    /// Column of its name in characters, from 1.
    pub column: usize,
    /// Whether the client starts it.
    pub enabled: bool,
    /// How it leads through the recorder.
    pub wrapped: Option<Through>,
    /// The bridge, recorder or gateway that stands in front.
    pub behind: Option<String>,
    /// The project that it is declared for, in a file that has several.
    pub project: Option<String>,
    /// Of a name that several files declare, whether this one counts; `null` where that is not known, or nothing else has it.
    pub wins: Option<bool>,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// How a server leads through the recorder.
#[derive(Debug, Clone, Serialize)]
pub struct Through {
    /// The program.
    pub program: String,
    /// The server's name in receipts.
    pub server_id: Option<String>,
    /// `audit` or `guard`.
    pub profile: String,
    /// Where evidence is written.
    pub audit_dir: Option<String>,
}

/// Something that is wrong with a file.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// `unreadable` or `client_rejects_file`.
    pub kind: &'static str,
    /// Line, from 1; 0 where the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What it is.
    pub message: String,
}

/// Servers by their state. Those that are not enabled are counted as disabled alone.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Summary {
    /// Files that are there.
    pub files: usize,
    /// Files that cannot be read.
    pub unreadable_files: usize,
    /// All servers.
    pub servers: usize,
    /// Those that no client starts.
    pub disabled: usize,
    /// Those that are enabled, by state.
    #[serde(flatten)]
    pub states: BTreeMap<&'static str, usize>,
}

impl Summary {
    /// How many enabled servers are in a state.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.states.get(state.name()).copied().unwrap_or_default()
    }

    /// How many enabled servers of this machine leave no evidence.
    #[must_use]
    pub fn missing(&self) -> usize {
        State::ALL.iter().filter(|state| state.is_missing()).map(|state| self.count(*state)).sum()
    }
}

/// The text of a file.
///
/// # Errors
/// It cannot be read.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Fault> {
    let read = files::named(path).and_then(|file| files::read_all(file, read::LARGEST));
    read.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Fault::whole("the file is gone"),
        _ => Fault::whole(e.to_string()),
    })
}

/// What a client would refuse in a text, and where.
#[must_use]
pub fn rejected(text: &str, reads: Reads) -> Option<Fault> {
    // What is strict JSON has none of them, and most files are.
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return None;
    }
    [(Extra::Comments, reads.comments), (Extra::TrailingCommas, reads.trailing_commas), (Extra::Mark, reads.mark)]
        .into_iter()
        .filter(|(_, takes)| *takes == Takes::No)
        .find_map(|(extra, _)| read::has_extra(text, extra))
}

/// The servers of a text, with what is known of each.
///
/// # Errors
/// The text cannot be read.
pub fn servers(found: &Found, text: &str, programs: &mut Programs) -> Result<Vec<(Entry, Seen)>, Fault> {
    let tree = read::tree(found.place.dialect, text)?;
    servers_in(found, text, tree.as_ref(), programs)
}

fn servers_in(
    found: &Found,
    text: &str,
    tree: Option<&Node>,
    programs: &mut Programs,
) -> Result<Vec<(Entry, Seen)>, Fault> {
    let Some(tree) = tree else { return Ok(Vec::new()) };
    let entries = entry::entries(text, tree, found.place.at)?;
    Ok(entries
        .into_iter()
        .map(|entry| {
            let mut seen = state::look(&entry, programs);
            if entry.transport == Transport::Remote && found.client.url_needs_type && !entry.has_type {
                seen.problems.push(format!("{} skips a url without a type; add \"type\": \"http\"", found.client.name));
            }
            (entry, seen)
        })
        .collect())
}

/// A file that was read.
struct Parsed {
    text: String,
    tree: Option<Node>,
    rejected: Option<Fault>,
}

impl Parsed {
    fn of(found: &Found) -> Result<Self, Fault> {
        let bytes = read_file(&found.file)?;
        let text = read::text(&bytes)?.to_owned();
        let tree = read::tree(found.place.dialect, &text)?;
        let is_json = found.place.dialect == Dialect::Json;
        let rejected = is_json.then(|| rejected(&text, found.place.reads)).flatten();
        Ok(Self { text, tree, rejected })
    }
}

/// Looks at all files. `project` is where one stands: which of the servers that are declared for one project are meant.
#[must_use]
pub fn scan(found: &[Found], project: &Path, strict: bool) -> Scan {
    let mut programs = Programs::of_process();
    // Some files have servers at several places.
    let mut files: HashMap<&Path, Result<Parsed, Fault>> = HashMap::new();
    let mut clients = Vec::new();
    for one in found {
        let mut file = ClientFile {
            client: one.client.id,
            scope: one.place.scope,
            file: one.file.clone(),
            exists: one.exists,
            dialect: one.place.dialect,
            servers: Vec::new(),
            problems: Vec::new(),
            known: Some(one.client),
        };
        if one.exists {
            let parsed = files.entry(&one.file).or_insert_with(|| Parsed::of(one));
            let read = parsed.as_ref().map_err(Clone::clone).and_then(|parsed| {
                let servers = servers_in(one, &parsed.text, parsed.tree.as_ref(), &mut programs)?;
                file.problems.extend(parsed.rejected.as_ref().map(|fault| problem("client_rejects_file", fault)));
                Ok(servers)
            });
            match read {
                Ok(servers) => file.servers = servers.into_iter().map(|(entry, seen)| server(entry, seen)).collect(),
                Err(fault) => file.problems.push(problem("unreadable", &fault)),
            }
        }
        clients.push(file);
    }
    winners(&mut clients, project);
    let summary = summary(&clients);
    let exit_code = exit(&summary, strict);
    Scan { schema: SCHEMA, clients, summary, exit_code }
}

fn problem(kind: &'static str, fault: &Fault) -> Problem {
    Problem { kind, line: fault.line, column: fault.column, message: fault.what.clone() }
}

fn server(entry: Entry, seen: Seen) -> Server {
    let inner =
        seen.wrapped.as_ref().map_or(&entry.argv[..], |wrapped| entry.argv.get(wrapped.ours..).unwrap_or_default());
    let command = (!inner.is_empty()).then(|| Command::of(inner));
    Server {
        name: entry.name,
        state: seen.state,
        transport: entry.transport,
        program: command.as_ref().map(|command| command.program.clone()),
        package: command.and_then(|command| command.package),
        line: entry.at.0,
        column: entry.at.1,
        enabled: entry.enabled,
        wrapped: seen.wrapped.map(|wrapped| Through {
            server_id: wrapped.flag("--server-id").map(str::to_owned),
            profile: wrapped.flag("--profile").unwrap_or("audit").to_owned(),
            audit_dir: wrapped.flag("--audit-dir").map(str::to_owned),
            program: wrapped.program,
        }),
        behind: seen.behind,
        project: entry.project,
        wins: None,
        problems: seen.problems,
    }
}

/// Marks which declaration of a name counts, for clients whose order is known.
fn winners(clients: &mut [ClientFile], project: &Path) {
    let applies = |server: &Server| server.project.as_ref().is_none_or(|of| project.starts_with(of));
    let mut names: HashMap<(&str, String), Vec<(usize, usize)>> = HashMap::new();
    for (n, file) in clients.iter().enumerate().filter(|(_, file)| file.known.is_some_and(|client| client.ordered)) {
        for (m, server) in file.servers.iter().enumerate().filter(|(_, server)| applies(server)) {
            names.entry((file.client, server.name.clone())).or_default().push((n, m));
        }
    }
    for places in names.into_values().filter(|places| places.len() > 1) {
        let some_recorded = places.iter().any(|(n, m)| clients[*n].servers[*m].state.is_recorded());
        let some_missing = places.iter().any(|(n, m)| clients[*n].servers[*m].state.is_missing());
        for (rank, (n, m)) in places.into_iter().enumerate() {
            let server = &mut clients[n].servers[m];
            server.wins = Some(rank == 0);
            if some_recorded && some_missing {
                server.problems.push("other files declare this name, and not all of them are recorded".to_owned());
            }
        }
    }
}

fn summary(clients: &[ClientFile]) -> Summary {
    let mut summary =
        Summary { states: State::ALL.iter().map(|state| (state.name(), 0)).collect(), ..Summary::default() };
    let mut files = std::collections::HashSet::new();
    for file in clients.iter().filter(|file| file.exists) {
        if files.insert(&file.file) {
            summary.files += 1;
            summary.unreadable_files += usize::from(file.problems.iter().any(|problem| problem.kind == "unreadable"));
        }
        for server in &file.servers {
            summary.servers += 1;
            if server.enabled {
                *summary.states.entry(server.state.name()).or_default() += 1;
            } else {
                summary.disabled += 1;
            }
        }
    }
    summary
}

fn exit(summary: &Summary, strict: bool) -> u8 {
    let missing =
        State::ALL.iter().filter(|state| state.is_missing()).map(|state| summary.count(*state)).sum::<usize>();
    if summary.unreadable_files > 0 || summary.count(State::Unreadable) > 0 {
        2
    } else {
        u8::from(missing > 0 || strict && summary.count(State::Remote) > 0)
    }
}
