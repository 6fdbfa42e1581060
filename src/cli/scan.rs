//! `assay scan`: which servers of this machine, or of a project, leave no evidence.

use super::{
    out::{self, Style, Tone, short},
    sarif,
};
use crate::{
    clients::{
        discover::{self, Found, Surroundings, Wanted},
        scan::{ClientFile, Scan, Server, scan},
        state::State,
        table::{CLIENTS, Scope},
    },
    error::{Exit, Failure},
    text::{counted, noun, visible},
};
use clap::{Args, ValueEnum};
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Arguments of `assay scan`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay scan\n  assay scan --client cursor --client claude-code\n  \
                  assay scan --scope project --strict --json\n\n\
                  It reads configurations and nothing else: it starts no server, resolves no variable, writes no file,\n\
                  and prints no argument, header or value of env.\n\n\
                  recorded, guarded: calls leave evidence. stale: the entry leads through an assay that is gone.\n\
                  bridge: a local program goes to a URL; other: another recorder or gateway stands in front;\n\
                  both can be recorded. remote: reached by URL; assay wrap --remote can record it.\n\n\
                  Exit codes: 0 every enabled local server is recorded; 1 some are not (with --strict remote ones\n\
                  count, too); 2 a file cannot be read; 3 bad input")]
pub struct ScanArgs {
    /// A directory of the project to look at; all from there up to the root of its repository count [default: this one]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Look only at files of this client; may be repeated
    #[arg(long, value_name = "CLIENT", value_parser = client)]
    client: Vec<String>,
    /// Look only at files of this scope: user, project, local or managed; may be repeated
    #[arg(long, value_enum, value_name = "SCOPE", hide_possible_values = true)]
    scope: Vec<ScopeArg>,
    /// Look at every project below, too, but not at what is ignored
    #[arg(long)]
    recursive: bool,
    /// Remote servers that are not recorded count, too
    #[arg(long)]
    strict: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Also write what is missing as SARIF to a new file, for code scanning
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
}

/// `--scope`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// This user's servers.
    User,
    /// Those of a project.
    Project,
    /// This user's in a project.
    Local,
    /// An administrator's.
    Managed,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::User => Self::User,
            ScopeArg::Project => Self::Project,
            ScopeArg::Local => Self::Local,
            ScopeArg::Managed => Self::Managed,
        }
    }
}

/// Reads the id of a client.
pub(super) fn client(text: &str) -> Result<String, String> {
    if CLIENTS.iter().any(|client| client.id == text) {
        return Ok(text.to_owned());
    }
    let ids: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
    Err(format!("expected one of {}", ids.join(", ")))
}

/// The directory of a project that was named, absolute.
pub(super) fn project(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let named = named.unwrap_or(Path::new("."));
    let dir = named.canonicalize().map_err(|e| Failure::bad_input(format_args!("{}: {e}", named.display())))?;
    if dir.is_dir() {
        return Ok(dir);
    }
    Err(Failure::bad_input(format_args!("{} is not a directory", named.display()))
        .hint("give the directory of a project; assay wrap --file changes one file"))
}

/// Runs `assay scan`.
///
/// # Errors
/// Bad input, or output that cannot be written.
pub fn run(args: &ScanArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || answer(args))
}

fn answer(args: &ScanArgs) -> Result<Exit, Failure> {
    let here = project(args.path.as_deref())?;
    let around = Surroundings::of_process();
    let wanted =
        Wanted { clients: args.client.clone(), scopes: args.scope.iter().map(|scope| (*scope).into()).collect() };
    let found = discover::files(&around, &wanted, &here, args.recursive);
    let scan = scan(&found, &here, args.strict);
    if let Some(file) = &args.sarif {
        out::new_file(file, sarif::of_scan(&scan, &here, args.strict).as_bytes())?;
    }
    if args.json {
        out::json(&scan)?;
    } else {
        out::stdout(listed(&scan, &found, around.home.as_deref(), Style::of_stdout()).as_bytes())?;
    }
    Ok(match scan.exit_code {
        0 => Exit::Ok,
        1 => Exit::Violation,
        _ => Exit::Failed,
    })
}

/// A path as people write it: the home as `~`.
pub(super) fn shown(path: &Path, home: Option<&Path>) -> String {
    let path = match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    };
    visible(&path).into_owned()
}

fn tone(state: State) -> Tone {
    match state {
        State::Recorded | State::Guarded => Tone::Good,
        State::Stale | State::Unreadable => Tone::Bad,
        State::Unrecorded | State::Bridge | State::Other => Tone::Warn,
        State::Remote | State::Builtin => Tone::Dim,
    }
}

fn listed(scan: &Scan, found: &[Found], home: Option<&Path>, style: Style) -> String {
    let mut out = String::new();
    for file in &scan.clients {
        if file.servers.is_empty() && file.problems.is_empty() {
            continue;
        }
        of_file(&mut out, file, home, style);
    }
    let (summary, shown_files) = (&scan.summary, summary_line(scan));
    if summary.servers == 0 && summary.unreadable_files == 0 {
        let mut places: Vec<String> = found.iter().map(|one| shown(&one.file, home)).collect();
        places.dedup();
        let _ = writeln!(out, "no MCP servers are configured; {} looked at:", counted(places.len(), "place"));
        for place in places {
            let _ = writeln!(out, "  {place}");
        }
        return out;
    }
    let _ = writeln!(out, "{shown_files}");
    let missing = summary.missing();
    if missing > 0 {
        let _ = writeln!(out, "  next: assay wrap --all --dry-run");
    }
    out
}

fn of_file(out: &mut String, file: &ClientFile, home: Option<&Path>, style: Style) {
    let name = CLIENTS.iter().find(|client| client.id == file.client).map_or(file.client, |client| client.name);
    let head = format!("{name}, {}: {}", file.scope.name(), shown(&file.file, home));
    let _ = writeln!(out, "{}", style.paint(Tone::Strong, &head));
    for problem in &file.problems {
        let place = if problem.line > 0 { format!(":{}:{}", problem.line, problem.column) } else { String::new() };
        let what = match problem.kind {
            "client_rejects_file" => format!("{name} refuses this file: {}", problem.message),
            _ => problem.message.clone(),
        };
        let _ = writeln!(out, "  {}{place}: {}", shown(&file.file, home), visible(&what));
    }
    let width = file.servers.iter().map(|server| crate::text::width(&called(server))).max().unwrap_or_default();
    for server in &file.servers {
        let called = called(server);
        let blank = " ".repeat(width - crate::text::width(&called));
        let state = format!("{:<10}", server.state.name());
        let _ = write!(out, "  {called}{blank}  {}", style.paint(tone(server.state), &state));
        let mut said: Vec<String> = Vec::new();
        if !server.enabled {
            said.push("disabled".to_owned());
        }
        match (&server.program, &server.package) {
            (Some(program), Some(package)) => said.push(format!("{} {}", short(program), short(package))),
            (Some(program), None) => said.push(short(program)),
            _ => {}
        }
        if let Some(id) = server.wrapped.as_ref().and_then(|wrapped| wrapped.server_id.as_ref())
            && *id != server.name
        {
            said.push(format!("as {}", short(id)));
        }
        if let Some(behind) = &server.behind {
            said.push(format!("behind {}", short(behind)));
        }
        if server.wins == Some(false) {
            said.push("another file wins".to_owned());
        }
        said.extend(server.problems.iter().map(|problem| visible(problem).into_owned()));
        let _ = writeln!(out, "  {}", said.join("; "));
    }
    out.push('\n');
}

fn called(server: &Server) -> String {
    let name = if server.name.is_empty() { "(no name)".to_owned() } else { short(&server.name) };
    match &server.project {
        Some(project) => format!("{name} ({})", short(project)),
        None => name,
    }
}

fn summary_line(scan: &Scan) -> String {
    let summary = &scan.summary;
    let recorded = summary.count(State::Recorded) + summary.count(State::Guarded);
    let missing = summary.missing();
    let mut line = format!("{recorded} of {} recorded", counted(recorded + missing, "local server"));
    for (count, what) in [
        (summary.count(State::Stale), "stale"),
        (summary.count(State::Remote), "remote"),
        (summary.count(State::Builtin), "built in"),
        (summary.disabled, "disabled"),
    ] {
        if count > 0 {
            let _ = write!(line, "; {count} {what}");
        }
    }
    if summary.unreadable_files > 0 {
        let _ =
            write!(line, "; {} {} cannot be read", summary.unreadable_files, noun(summary.unreadable_files, "file"));
    }
    line
}
