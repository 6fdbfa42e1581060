//! `assay wrap` and `assay unwrap`: the proxy in front of servers, and away again.

use super::{
    out::{self, visible_lines},
    scan::{ScopeArg, client, project, shown},
};
use crate::{
    clients::{
        change::{Action, Done, Job, Outcome, Pick, Verb, difference},
        discover::{self, Found, Surroundings, Wanted},
        entry::Transport,
        names::Names,
        plan::{self, Wishes},
        read::{Dialect, Fault},
        scan,
        state::Programs,
        table::{CLIENTS, Client, NAMED, Scope, named_place},
        write::{LATER, WriteError, Writer, Written},
    },
    error::{Exit, Failure},
    files::Kept,
    policy::Policy,
    text::{counted, visible},
};
use clap::{Args, ValueEnum as _};
use serde::Serialize;
use std::{
    collections::HashSet,
    fmt::Write as _,
    io::{BufRead as _, IsTerminal as _},
    path::{Path, PathBuf},
};

/// Which entries are meant, and how the command goes about it.
#[derive(Debug, Args)]
struct Selectors {
    /// Names of servers
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Every server that it can be done to
    #[arg(long)]
    all: bool,
    /// Only in files of this client; may be repeated
    #[arg(long, value_name = "CLIENT", value_parser = client)]
    client: Vec<String>,
    /// Only in files of this scope: user, project, local or managed
    #[arg(long, value_enum, value_name = "SCOPE", hide_possible_values = true)]
    scope: Vec<ScopeArg>,
    /// The directory of the project whose files count [default: this one]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Only in this file, whichever client reads it
    #[arg(long, value_name = "FILE", conflicts_with = "project")]
    file: Option<PathBuf>,
    /// Also change files of an administrator or a plugin, and files that are generated
    #[arg(long)]
    force: bool,
    /// Show the difference and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON document; nothing is asked
    #[arg(long)]
    json: bool,
}

/// Arguments of `assay wrap`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay wrap --all --dry-run\n  assay wrap github --client cursor\n  \
                  assay wrap filesystem --profile guard --policy assay.mcp-policy.yaml\n  \
                  assay wrap --all --remote --dry-run\n\n\
                  It shows the difference, asks, and changes the command and the arguments of these entries,\n\
                  and nothing else in the file. A copy of the file is in $ASSAY_HOME/backups.\n\
                  assay unwrap gives every byte back.\n\n\
                  Files of the user get the absolute path of this program. Files of a project are shared:\n\
                  they get assay, which everybody who uses the repository needs in PATH, and\n\
                  --audit-dir repo:.assay/mcp.\n\n\
                  --remote makes a server that is reached by a URL a command: assay mcp-proxy --upstream-url URL.\n\
                  Values of its headers move into env, never into arguments.\n\n\
                  Exit codes: 0 done, or nothing to do; 1 some were skipped, or --dry-run would change something;\n\
                  2 a file could not be written, or is not what was written; 3 bad input")]
pub struct WrapArgs {
    #[command(flatten)]
    which: Selectors,
    /// Record without interfering (audit), or enforce a policy (guard)
    #[arg(long, value_enum, value_name = "PROFILE", hide_possible_values = true)]
    profile: Option<super::proxy::ProfileArg>,
    /// Policy file that judges every call
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Where evidence is written [default: ~/.assay/mcp; in files of a project repo:.assay/mcp]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// Name of the server in receipts, if one server is wrapped [default: its name in the file]
    #[arg(long, value_name = "ID", value_parser = super::proxy::server_id)]
    server_id: Option<String>,
    /// One pack per session, or one every N minutes (Nm) or N receipts (Nr)
    #[arg(long, value_name = "session|Nm|Nr", value_parser = pack_interval)]
    pack_interval: Option<String>,
    /// The program to write [default: the assay in PATH, or this program]
    #[arg(long, value_name = "PATH")]
    assay: Option<PathBuf>,
    /// Directory to put in front of the server's PATH; may be repeated
    #[arg(long, value_name = "DIR")]
    path: Vec<PathBuf>,
    /// Servers that are reached by a URL, too, if no login is configured: they become commands of the bridge
    #[arg(long)]
    remote: bool,
}

/// Arguments of `assay unwrap`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay unwrap --all --dry-run\n  assay unwrap github --client cursor\n\n\
                  It undoes the entries in the file as it is now, and brings no older file back.\n\n\
                  Exit codes: 0 done, or nothing to do; 1 some were skipped, or --dry-run would change something;\n\
                  2 a file could not be written, or is not what was written; 3 bad input")]
pub struct UnwrapArgs {
    #[command(flatten)]
    which: Selectors,
}

fn pack_interval(text: &str) -> Result<String, String> {
    super::proxy::interval(text).map(|_| text.to_owned())
}

/// Runs `assay wrap`.
///
/// # Errors
/// Bad input.
pub fn run(args: &WrapArgs) -> Result<Exit, Failure> {
    out::answering(args.which.json, || {
        let wishes = wishes(args)?;
        answer(Verb::Wrap, &args.which, &wishes)
    })
}

/// Runs `assay unwrap`.
///
/// # Errors
/// Bad input.
pub fn undo(args: &UnwrapArgs) -> Result<Exit, Failure> {
    out::answering(args.which.json, || answer(Verb::Unwrap, &args.which, &Wishes::default()))
}

fn wishes(args: &WrapArgs) -> Result<Wishes, Failure> {
    use super::proxy::ProfileArg;
    let profile = match args.profile {
        None => None,
        Some(ProfileArg::Escrow) => return Err(Failure::bad_input("--profile escrow is reserved and not implemented")),
        Some(profile) => profile.to_possible_value().map(|value| value.get_name().to_owned()),
    };
    if args.profile == Some(ProfileArg::Guard) && args.policy.is_none() {
        return Err(crate::proxy::no_policy());
    }
    if let Some(policy) = &args.policy {
        Policy::load(policy).map_err(Failure::bad_input)?.compile().map_err(Failure::bad_input)?;
    }
    let absolute = |path: &PathBuf| -> Result<String, Failure> {
        let absolute =
            std::path::absolute(path).map_err(|e| Failure::bad_input(format_args!("{}: {e}", path.display())))?;
        let text = absolute.to_str().map(str::to_owned);
        text.ok_or_else(|| Failure::bad_input(format_args!("{} is not UTF-8", path.display())))
    };
    if let Some(dir) = &args.audit_dir {
        crate::paths::named_audit_dir(dir).map_err(Failure::bad_input)?;
    }
    if args.server_id.is_some() && (args.which.all || args.which.names.len() > 1) {
        return Err(
            Failure::bad_input("--server-id names one server").hint("give the name of one server, without --all")
        );
    }
    Ok(Wishes {
        profile,
        policy: args.policy.as_ref().map(absolute).transpose()?,
        audit_dir: match &args.audit_dir {
            Some(dir) if crate::paths::is_in_repository(dir) => dir.to_str().map(str::to_owned),
            Some(dir) => Some(absolute(dir)?),
            None => None,
        },
        server_id: args.server_id.clone(),
        pack_interval: args.pack_interval.clone(),
        assay: args.assay.as_deref().map(plan::named_program).transpose().map_err(Failure::bad_input)?,
        path: args.path.iter().map(absolute).collect::<Result<_, _>>()?,
        remote: args.remote,
    })
}

/// The document.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    command: Verb,
    dry_run: bool,
    files: Vec<FileReport>,
    exit_code: u8,
}

#[derive(Debug, Serialize)]
struct FileReport {
    client: &'static str,
    scope: Scope,
    file: PathBuf,
    /// Whether it was written, or would be.
    changed: bool,
    diff: String,
    backup: Option<PathBuf>,
    entries: Vec<Done>,
    error: Option<String>,
}

/// A file with what is meant of it.
struct Target {
    found: Vec<Found>,
    picks: Vec<Pick>,
}

/// What all files have in common.
struct Ground<'a> {
    verb: Verb,
    wishes: &'a Wishes,
    home: Option<&'a Path>,
    names: &'a Names,
    own: &'a Result<String, String>,
    force: bool,
}

impl<'a> Ground<'a> {
    fn job(&self, target: &'a Target) -> Job<'a> {
        let Self { verb, wishes, home, names, own, force } = *self;
        Job { verb, found: &target.found, picks: &target.picks, wishes, home, names, own, force }
    }
}

fn answer(verb: Verb, which: &Selectors, wishes: &Wishes) -> Result<Exit, Failure> {
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let name = if verb == Verb::Wrap { "wrap" } else { "unwrap" };
    if which.names.is_empty() && !which.all && (!terminal || which.json || which.yes) {
        return Err(Failure::bad_input("no server is named")
            .hint(format_args!("give names, or --all; assay {name} --all --dry-run shows what would change")));
    }
    let around = Surroundings::of_process();
    let here = project(which.project.as_deref())?;
    let found = candidates(which, &around, &here)?;
    let targets = select(verb, which, wishes.remote, &found, &here)?;
    if !which.yes && !which.dry_run && (!terminal || which.json) {
        return Err(Failure::bad_input("nobody can be asked here")
            .hint("--yes writes without asking, --dry-run shows the difference"));
    }
    let mut programs = Programs::of_process();
    let own = plan::own_program(&mut programs);
    let home = around.home.as_deref();
    let everywhere = discover::files(&around, &Wanted::default(), &here, false);
    let names = Names::of(if which.file.is_some() { &found } else { &everywhere }, &here, &mut programs);
    let ground = Ground { verb, wishes, home, names: &names, own: &own, force: which.force };
    let mut reports = Vec::new();
    for target in &targets {
        let first = &target.found[0];
        let job = ground.job(target);
        let (change, bytes) = match look(&job, &mut programs) {
            Ok(looked) => looked,
            Err(fault) => {
                reports.push((report(first, String::new(), Vec::new(), Some(fault.to_string())), None));
                continue;
            }
        };
        let old = String::from_utf8_lossy(&bytes);
        let diff = if change.text == old {
            String::new()
        } else {
            let dialect = first.place.dialect;
            difference(dialect, &old, &change.text, &change.slots, &shown(&first.file, home))
        };
        let mut one = report(first, diff, change.done, None);
        one.changed = change.text != old;
        reports.push((one, Some(target)));
    }
    name_others(&mut reports, &names);
    let changes = reports.iter().filter(|(report, _)| report.changed).count();
    if !which.json {
        preview(&reports, verb, home)?;
    }
    let mut exit = Exit::Ok;
    if which.dry_run {
        if changes > 0 {
            exit = Exit::Violation;
        }
    } else if changes > 0 {
        if !which.yes && !asked(changes)? {
            out::stdout(b"nothing was written\n")?;
            return Ok(Exit::Ok);
        }
        write_all(&mut reports, &ground, &mut programs)?;
        name_others(&mut reports, &names);
    }
    // Of all, those that are no programs are left alone and no failure.
    let skipped = |done: &Done| done.action == Action::Skipped && (done.named || !is_elsewhere(done));
    if reports.iter().any(|(report, _)| report.entries.iter().any(skipped)) {
        exit = Exit::Violation;
    }
    if reports.iter().any(|(report, _)| report.error.is_some()) {
        exit = Exit::Failed;
    }
    let files: Vec<FileReport> = reports.into_iter().map(|(report, _)| report).collect();
    if which.json {
        let schema = "assay.wrap.v1";
        out::json(&Report { schema, command: verb, dry_run: which.dry_run, files, exit_code: exit.code() })?;
    } else if !which.dry_run {
        aftermath(&files, verb, home)?;
    } else {
        said_errors(&files, home);
    }
    Ok(exit)
}

/// Whether an entry is no program of this machine.
fn is_elsewhere(done: &Done) -> bool {
    done.reason.as_deref().is_some_and(|why| why.starts_with("it is reached by") || why.starts_with("it is part of"))
}

fn report(found: &Found, diff: String, entries: Vec<Done>, error: Option<String>) -> FileReport {
    FileReport {
        client: found.client.id,
        scope: found.place.scope,
        file: found.file.clone(),
        changed: false,
        diff,
        backup: None,
        entries,
        error,
    }
}

/// The files that may be meant.
fn candidates(which: &Selectors, around: &Surroundings, here: &Path) -> Result<Vec<Found>, Failure> {
    let wanted =
        Wanted { clients: which.client.clone(), scopes: which.scope.iter().map(|scope| (*scope).into()).collect() };
    let mut found = discover::files(around, &Wanted::default(), here, false);
    if let Some(file) = &which.file {
        let file =
            std::path::absolute(file).map_err(|e| Failure::bad_input(format_args!("{}: {e}", file.display())))?;
        if !file.exists() {
            return Err(Failure::bad_input(format_args!("{}: there is no such file", file.display())));
        }
        found.retain(|one| one.file == file && one.exists);
        if found.is_empty() {
            let dialect = match file.extension().and_then(|end| end.to_str()) {
                Some("toml") => Dialect::Toml,
                Some("yaml" | "yml") => Dialect::Yaml,
                _ => Dialect::Json,
            };
            let client: &'static Client =
                CLIENTS.iter().find(|known| which.client.contains(&known.id.to_owned())).unwrap_or(&NAMED);
            let mut place = named_place(dialect);
            if let Some(scope) = wanted.scopes.first() {
                place.scope = *scope;
            }
            found.push(Found { client, place, exists: true, file });
        }
        return Ok(found);
    }
    let wanted = discover::files(around, &wanted, here, false);
    Ok(wanted.into_iter().filter(|one| one.exists).collect())
}

/// The files with what is meant of each. A name that is in several places needs to be told apart.
fn select(verb: Verb, which: &Selectors, remote: bool, found: &[Found], here: &Path) -> Result<Vec<Target>, Failure> {
    let mut programs = Programs::of_process();
    let mut targets: Vec<(PathBuf, Target)> = Vec::new();
    let mut places: Vec<Vec<String>> = vec![Vec::new(); which.names.len()];
    let everything = which.names.is_empty();
    for one in found {
        let read = scan::read_file(&one.file).and_then(|bytes| {
            let text = crate::clients::read::text(&bytes)?;
            scan::servers(one, text, &mut programs)
        });
        let mut picks = Vec::new();
        match read {
            // It is read again, and what is wrong with it said, if it is meant.
            Err(_) if everything || which.file.is_some() => picks.push(Pick { name: None, project: None }),
            Err(_) => {}
            Ok(servers) if everything => {
                let able = |(entry, seen): &&(crate::clients::entry::Entry, crate::clients::state::Seen)| match verb {
                    Verb::Wrap => entry.transport == Transport::Stdio || entry.broken.is_some() || which.all || remote,
                    Verb::Unwrap => seen.wrapped.is_some(),
                };
                if servers.iter().any(|server| able(&server)) {
                    picks.push(Pick { name: None, project: None });
                }
            }
            Ok(servers) => {
                for (n, name) in which.names.iter().enumerate() {
                    for (entry, _) in servers.iter().filter(|(entry, _)| entry.name == *name) {
                        // Of a file that has several projects, this one is meant.
                        let other = entry.project.as_ref().is_some_and(|of| !here.starts_with(of));
                        if other && !which.all {
                            continue;
                        }
                        let project = entry.project.as_ref().map(|of| format!(" ({of})")).unwrap_or_default();
                        places[n].push(format!(
                            "{} --scope {} {}{project}",
                            one.client.id,
                            one.place.scope.name(),
                            one.file.display()
                        ));
                        picks.push(Pick { name: Some(name.clone()), project: entry.project.clone() });
                    }
                }
            }
        }
        if picks.is_empty() {
            continue;
        }
        let real = one.file.canonicalize().unwrap_or_else(|_| one.file.clone());
        match targets.iter_mut().find(|(known, _)| *known == real) {
            Some((_, target)) => {
                target.found.push(one.clone());
                target.picks.extend(picks);
            }
            None => targets.push((real, Target { found: vec![one.clone()], picks })),
        }
    }
    for (name, places) in which.names.iter().zip(&places) {
        if places.is_empty() {
            return Err(Failure::bad_input(format_args!(
                "no server is called {name} in the files that were looked at"
            ))
            .hint("assay scan lists all servers"));
        }
        if places.len() > 1 && !which.all {
            let listed = places.join("\n  --client ");
            return Err(Failure::bad_input(format_args!("{name} is in several places:\n  --client {listed}"))
                .hint("tell them apart with --client, --scope or --file, or give --all for each of them"));
        }
    }
    Ok(targets.into_iter().map(|(_, target)| target).collect())
}

fn look(job: &Job<'_>, programs: &mut Programs) -> Result<(Outcome, Vec<u8>), Fault> {
    let file = &job.found[0].file;
    let bytes = scan::read_file(file)?;
    let real = file.canonicalize().unwrap_or_else(|_| file.clone());
    Ok((job.apply(&real, &bytes, programs)?, bytes))
}

type Reports<'t> = Vec<(FileReport, Option<&'t Target>)>;

/// Says of what is wrapped which other declarations of its name leave no evidence: the client warns if they differ.
fn name_others(reports: &mut Reports<'_>, names: &Names) {
    let is_wrapped = |done: &&Done| matches!(done.action, Action::Wrapped | Action::Rewrapped);
    let key = |file: &Path, done: &Done| (file.to_owned(), done.project.clone(), done.name.clone());
    let wrapped: HashSet<_> = reports
        .iter()
        .flat_map(|(report, _)| report.entries.iter().filter(is_wrapped).map(|done| key(&report.file, done)))
        .collect();
    for (report, _) in reports {
        for done in report.entries.iter_mut().filter(|done| is_wrapped(&&**done)) {
            for other in names.unrecorded_beside(report.client, &done.name, &report.file, done.project.as_deref()) {
                if !wrapped.contains(&(other.file.clone(), other.project.clone(), other.name.clone())) {
                    done.warnings.push(format!(
                        "{} has this name in {}, too (--scope {}), and warns of conflicting scopes if only one of them is wrapped",
                        client_name(report.client),
                        other.file.display(),
                        other.scope.name()
                    ));
                }
            }
        }
    }
}

fn preview(reports: &Reports<'_>, verb: Verb, home: Option<&Path>) -> Result<(), Failure> {
    let mut text = String::new();
    for (report, _) in reports {
        for line in report.diff.lines() {
            text.push_str(&visible(line));
            text.push('\n');
        }
        for done in &report.entries {
            let called = visible(&done.name).into_owned();
            if let Some(why) = &done.reason {
                let _ = writeln!(text, "skipped: {called} in {}: {}", shown(&report.file, home), visible(why));
            }
            for warning in &done.warnings {
                let _ = writeln!(text, "note: {called}: {}", visible(warning));
            }
        }
    }
    if !reports.iter().any(|(report, _)| report.changed || report.error.is_some()) {
        text.push_str(if verb == Verb::Wrap { "nothing to wrap\n" } else { "nothing to unwrap\n" });
    }
    out::stdout(text.as_bytes())
}

fn asked(files: usize) -> Result<bool, Failure> {
    out::stdout(format!("write {}? [y/N] ", counted(files, "file")).as_bytes())?;
    let mut line = String::new();
    let _ = std::io::stdin().lock().read_line(&mut line);
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Said of a file that could not be replaced.
const IN_PLACE: &str = "written in place: the file has other names, is mounted, or its directory cannot be written";

/// What keeps a file from being written.
enum Stopped {
    Write(WriteError),
    Read(Fault),
}

impl From<WriteError> for Stopped {
    fn from(e: WriteError) -> Self {
        Self::Write(e)
    }
}

fn write_all(reports: &mut Reports<'_>, ground: &Ground<'_>, programs: &mut Programs) -> Result<(), Failure> {
    let user = crate::paths::assay_home().map_err(Failure::failed)?;
    let writer = Writer::take(&user).map_err(Failure::failed)?;
    let mut written: Vec<(usize, Written)> = Vec::new();
    for (n, (report, target)) in reports.iter_mut().enumerate().filter(|(_, (report, _))| report.changed) {
        let Some(target) = target else { continue };
        let job = ground.job(target);
        let real = report.file.canonicalize().unwrap_or_else(|_| report.file.clone());
        let changed = writer.change::<Stopped>(&report.file, |bytes| {
            let outcome = job.apply(&real, bytes, programs).map_err(Stopped::Read)?;
            report.entries = outcome.done;
            Ok(Some(outcome.text.into_bytes()).filter(|new| new != bytes))
        });
        match changed {
            Ok(Some(done)) => {
                report.backup = Some(done.backup.clone());
                written.push((n, done));
            }
            Ok(None) => report.changed = false,
            Err(Stopped::Write(e)) => report.error = Some(e.to_string()),
            Err(Stopped::Read(fault)) => report.error = Some(fault.to_string()),
        }
    }
    if !written.is_empty() {
        std::thread::sleep(LATER);
    }
    for (n, done) in written {
        let report = &mut reports[n].0;
        if let Err(e) = done.look() {
            let name = client_name(report.client);
            report.error = Some(format!("{e}; close {name} and run this again"));
        } else if done.how == Kept::InPlace {
            report.entries.iter_mut().take(1).for_each(|entry| entry.warnings.push(IN_PLACE.to_owned()));
        }
    }
    Ok(())
}

fn client_name(id: &str) -> &'static str {
    CLIENTS.iter().find(|client| client.id == id).map_or(NAMED.name, |client| client.name)
}

fn said_errors(files: &[FileReport], home: Option<&Path>) {
    for file in files {
        if let Some(error) = &file.error {
            out::stderr(&format!("assay: error: {}: {}", shown(&file.file, home), visible_lines(error)));
        }
    }
}

/// What was written, and what is to be done now.
fn aftermath(files: &[FileReport], verb: Verb, home: Option<&Path>) -> Result<(), Failure> {
    let mut text = String::new();
    let mut restart: Vec<&str> = Vec::new();
    let mut shared = false;
    for file in files.iter().filter(|file| file.changed && file.error.is_none()) {
        let count =
            file.entries.iter().filter(|done| !matches!(done.action, Action::Skipped | Action::Unchanged)).count();
        let verb = if verb == Verb::Wrap { "wrapped" } else { "unwrapped" };
        let _ = writeln!(text, "{}: {} {verb}", shown(&file.file, home), counted(count, "server"));
        if let Some(backup) = &file.backup {
            let _ = writeln!(text, "  what it was: {}", shown(backup, home));
        }
        if file.entries.iter().flat_map(|entry| &entry.warnings).any(|warning| warning == IN_PLACE) {
            let _ = writeln!(text, "  {IN_PLACE}");
        }
        let name = client_name(file.client);
        if !restart.contains(&name) {
            restart.push(name);
        }
        shared |= file.scope == Scope::Project;
    }
    if !restart.is_empty() {
        let _ = write!(text, "restart {}", restart.join(", "));
        text.push_str(if restart.contains(&"Claude Code") && restart.len() == 1 {
            "; approvals of its servers stay\n"
        } else {
            "; a client may ask again for approval, because a command has changed\n"
        });
    }
    if shared && verb == Verb::Wrap {
        text.push_str(
            "files of a project name assay alone: whoever uses the repository needs it in PATH\n\
             evidence is in .assay/mcp of the repository: put .assay/ into .gitignore\n",
        );
    }
    out::stdout(text.as_bytes())?;
    said_errors(files, home);
    Ok(())
}
