//! `assay surface snapshot` and `check`: a server is asked what it offers.

use super::{Asking, CapabilitiesArg, CheckArgs, Desk, EraArg, Format, SnapshotArgs, Where, formats, look, view};
use crate::{
    approvals::{
        lockfile::{LockError, SurfaceLock},
        observed::{self, Seen},
        summary::Summary,
    },
    bridge,
    cli::out::{self, Style},
    error::{Exit, Failure},
    model::surface::{Identity, Outcome, Snapshot},
    probe::{Capabilities, Era, How, ProbeError, Server, Wire, ask},
    record::recorder::{Origin, server_id_of_command, server_id_of_url},
    relay::child::Stderr,
    surface::rules::Rules,
    text::visible,
};
use serde_json::json;
use std::{fmt::Write as _, path::PathBuf, sync::Arc};

/// Which server it is, and how it is spoken with.
fn server(args: &Asking) -> Result<(Server, Identity), Failure> {
    match (&args.upstream_url, args.command.as_slice()) {
        (Some(url), []) => {
            let (destination, headers) = args.upstream.destination(url)?;
            let url = destination.url.as_str();
            let id = args.server_id.clone().unwrap_or_else(|| server_id_of_url(url));
            let endpoint = Origin::of_url(url, false).digest().to_owned();
            let config = bridge::Config {
                book: None,
                destination,
                headers,
                transport: bridge::Transport::Auto,
                session_loss: bridge::SessionLoss::Error,
                timing: bridge::Timing::default(),
                notice: Arc::new(|text: &str| out::stderr(&format!("assay: {}", visible(text)))),
            };
            Ok((Server::Url(Box::new(config)), Identity { endpoint, id }))
        }
        (None, command @ [_, ..]) => {
            let argv: Vec<String> = command.iter().map(|a| a.to_string_lossy().into_owned()).collect();
            let id = args.server_id.clone().unwrap_or_else(|| server_id_of_command(&argv));
            let endpoint = Origin::of_command(argv, false).digest().to_owned();
            Ok((Server::Command(command.to_vec()), Identity { endpoint, id }))
        }
        (None, []) => Err(Failure::bad_input("no server").hint("give a command after --, or --url URL")),
        (Some(_), _) => {
            Err(Failure::bad_input("there are two servers: --url and a command").hint("leave out one of them"))
        }
    }
}

/// Asks the server.
fn asked(args: &Asking, rules: &Rules) -> Result<(Identity, Result<Snapshot, ProbeError>), Failure> {
    let (server, identity) = server(args)?;
    let how = How {
        client: args.client.clone(),
        capabilities: match args.capabilities {
            CapabilitiesArg::None => Capabilities::None,
            CapabilitiesArg::All => Capabilities::All,
        },
        era: match args.era {
            EraArg::Auto => Era::Auto,
            EraArg::Legacy => Era::Legacy,
            EraArg::Modern => Era::Modern,
        },
        ignored: rules.ignored(),
        left_out: rules.left_out(),
        rules_hash: rules.hash(),
    };
    let seen = Wire::open(server, Stderr::Piped).and_then(|mut wire| {
        let seen = ask(&mut wire, identity.clone(), &how);
        if seen.as_ref().map_or(true, |seen| seen.root().is_err()) {
            complain(&wire.complaints());
        }
        seen
    });
    Ok((identity, seen))
}

/// Says what the server wrote to standard error before it did not say all that it offers.
fn complain(complaints: &[u8]) {
    let text = String::from_utf8_lossy(complaints);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if !lines.is_empty() {
        out::stderr("assay: the server wrote to standard error:");
        lines[lines.len().saturating_sub(COMPLAINTS)..]
            .iter()
            .for_each(|line| out::stderr(&format!("  {}", visible(line))));
    }
}

/// Lines of a server's standard error that are shown.
const COMPLAINTS: usize = 20;

pub fn snapshot(at: &Where, args: &SnapshotArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let (_, snapshot) = asked(&args.asking, &desk.rules)?;
        let snapshot = snapshot.map_err(Failure::failed)?;
        let seen = kept(&desk, snapshot)?;
        if let Some(file) = &args.out {
            out::new_file(file, &seen.snapshot.document().map_err(Failure::failed)?)?;
        }
        let (summary, _) = desk.summary(&seen.snapshot)?;
        if at.json {
            let mut value = view::server(&seen, &summary);
            value["items"] = json!(view::items(&summary));
            out::json(&value)?;
        } else {
            out::stdout(told(&seen, &summary).as_bytes())?;
        }
        Ok(if summary.root.is_ok() { Exit::Ok } else { Exit::Failed })
    })
}

fn kept(desk: &Desk, snapshot: Snapshot) -> Result<Seen, Failure> {
    let path = observed::keep(&desk.dir, &snapshot).map_err(|e| desk.unreadable(&e))?;
    Ok(Seen { path, at: crate::model::WallTime::now().compact(), snapshot })
}

fn told(seen: &Seen, summary: &Summary) -> String {
    let style = Style::of_stdout();
    let id = out::short(&seen.snapshot.identity.id);
    let words = summary.words();
    let mut text = format!("{id}  {}  {}\n", style.paint(view::state_tone(&words), &words), view::counts(summary));
    let root = summary.root.clone().unwrap_or_else(|why| format!("none: {}", visible(&why)));
    let _ = writeln!(text, "  root {root}");
    if summary.decided {
        view::told(&mut text, &summary.outcome, style);
    } else {
        let _ = writeln!(text, "  next: assay surface show {id}; assay surface approve {id}");
    }
    text
}

pub fn check(at: &Where, args: &CheckArgs) -> Result<Exit, Failure> {
    let as_json = at.json || args.format == Format::Json;
    out::answering(as_json, || {
        let lock = args.lock.as_ref().map(|path| read_lock(path)).transpose()?;
        let rules = super::rules(at)?;
        if let Some(lock) = lock.as_ref().filter(|lock| lock.rules_hash != rules.hash()) {
            let shown = |hash: Option<&str>| hash.unwrap_or("the defaults").to_owned();
            return Err(Failure::bad_input(format_args!(
                "the lock was made under other rules: {}, not {}",
                shown(lock.rules_hash.as_deref()),
                shown(rules.hash().as_deref())
            ))
            .hint("give the same --rules, or write the lock again"));
        }
        // With a lock file nothing is read or kept in an audit directory.
        let desk = if lock.is_some() { None } else { Some(Desk::open(at)?) };
        let (identity, found) = asked(&args.asking, &rules)?;
        let (seen, summary) = match found {
            Err(e) => (None, unreachable(&e)),
            Ok(snapshot) => match (&lock, &desk) {
                (Some(lock), _) => {
                    let approved = lock.approved(&snapshot.identity, &snapshot.context);
                    let summary = Summary::of(&snapshot, &approved, &rules);
                    (Some(Seen { path: PathBuf::new(), at: String::new(), snapshot }), summary)
                }
                (None, Some(desk)) => {
                    let seen = kept(desk, snapshot)?;
                    let (summary, _) = desk.summary(&seen.snapshot)?;
                    (Some(seen), summary)
                }
                (None, None) => return Err(Failure::failed("there is nothing to compare with")),
            },
        };
        let format = if as_json { Format::Json } else { args.format };
        match format {
            Format::Json => {
                let mut value = seen.as_ref().map_or_else(
                    || json!({"server_id": identity.id, "endpoint": identity.endpoint, "comparison": view::outcome(&summary.outcome)}),
                    |seen| view::server(seen, &summary),
                );
                value["lock"] = json!(args.lock);
                out::json(&value)?;
            }
            Format::Sarif => out::stdout(formats::sarif(&identity, &summary, args.lock.as_deref()).as_bytes())?,
            Format::Junit => out::stdout(formats::junit(&identity, &summary)?.as_bytes())?,
            Format::Text => {
                let style = Style::of_stdout();
                let word = if summary.decided { summary.outcome.word() } else { "nothing approved" };
                let tone = view::state_tone(if look::exit(&summary.outcome) == Exit::Ok { "approved" } else { word });
                let mut text = format!("{}  {}\n", out::short(&identity.id), style.paint(tone, word));
                view::told(&mut text, &summary.outcome, style);
                out::stdout(text.as_bytes())?;
            }
        }
        Ok(match &summary.outcome {
            Outcome::Unreachable(_) => Exit::Failed,
            outcome if summary.decided => look::exit(outcome),
            _ => Exit::Violation,
        })
    })
}

fn unreachable(e: &ProbeError) -> Summary {
    let why = e.to_string();
    Summary { root: Err(why.clone()), items: Vec::new(), outcome: Outcome::Unreachable(why), decided: true }
}

fn read_lock(path: &std::path::Path) -> Result<SurfaceLock, Failure> {
    SurfaceLock::read(path).map_err(|e| {
        let failure = Failure::bad_input(format_args!("--lock {}: {e}", path.display()));
        match e {
            LockError::TooNew(_) => failure.hint("use a later assay"),
            LockError::Io(_) | LockError::Form(_) => failure.hint("assay surface lock ID writes one"),
        }
    })
}
