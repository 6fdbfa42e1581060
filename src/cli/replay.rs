//! `assay replay`.

use super::{
    named::{self, Pack},
    out::{self, Style, Tone, short},
};
use crate::{
    error::{Exit, Failure},
    history::list::Places,
    numbers::{counted, duration_if, grouped},
    pack::{
        stored::{Stored, StoredError},
        verify::{Completeness, Integrity, VerifyOptions, VerifyReport, terminal::ProgressLine, verify},
    },
    probe::{Caller, Era, How, Server, Wire},
    relay::child::Stderr,
    replay::{
        against::{Compared, Plan, Side, Skip, Verdict, Wanted, send},
        serve::{Latency, Player, serve},
    },
    text::visible,
};
use clap::{Args, ValueEnum};
use globset::{Glob, GlobMatcher};
use serde::Serialize;
use std::{
    ffi::OsString,
    fmt::Write as _,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

/// Places in one result that are printed; `--json` has more.
const PLACES: usize = 5;
/// Schema of the JSON document.
const SCHEMA: &str = "assay.replay.v1";

/// Arguments of `assay replay`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  assay replay last\n  assay replay 41e1 --against -- npx -y @modelcontextprotocol/server-everything\n\n\
                  Without --against this is an MCP server over standard input and output: put the command into the\n\
                  file of a client, or into a test. It answers from the pack, which needs stored results\n\
                  (mcp-proxy --store-results). With --against, the recorded calls are sent to a server, which may\n\
                  do again what it did then; calls of tools that their server called destructive are sent only if\n\
                  --only names the tool.\n\n\
                  Exit codes: 0 the client hung up, or every answer is the same; 1 an answer differs; 2 the pack\n\
                  is TAMPERED, or the server cannot be started; 3 bad input, or there is nothing to send"
)]
pub struct ReplayArgs {
    /// A pack: its directory, an archive of it, last, or a session's id or the beginning of that
    pack: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// How long answers take: none, or as recorded
    #[arg(long, value_enum, value_name = "LATENCY", default_value = "none", conflicts_with = "against")]
    latency: LatencyArg,
    /// Send the recorded calls to the server whose command follows --, and compare the answers
    #[arg(long, requires = "command")]
    against: bool,
    /// Send only calls of these tools: a name or a glob; may be repeated
    #[arg(long, value_name = "TOOL", requires = "against", value_parser = Glob::new)]
    only: Vec<Glob>,
    /// Do not send calls of these tools: a name or a glob; may be repeated
    #[arg(long, value_name = "TOOL", requires = "against", value_parser = Glob::new)]
    skip: Vec<Glob>,
    /// Send without asking
    #[arg(short = 'y', long, requires = "against")]
    yes: bool,
    /// Print one JSON document
    #[arg(long, requires = "against")]
    json: bool,
    /// The server's command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND", requires = "against")]
    command: Vec<OsString>,
}

/// `--latency`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LatencyArg {
    /// At once.
    None,
    /// As long as it took then.
    Recorded,
}

impl From<StoredError> for Failure {
    fn from(e: StoredError) -> Self {
        Self::failed(e).hint("do not change a pack while it is read")
    }
}

/// Runs `assay replay`.
///
/// # Errors
/// A pack that cannot be used, a server that cannot be started, nobody who could be asked.
pub fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    if args.against {
        return out::answering(args.json, || against(args));
    }
    let (pack, _, stored) = read(args)?;
    let latency = match args.latency {
        LatencyArg::None => Latency::None,
        LatencyArg::Recorded => Latency::Recorded,
    };
    let player = Player::new(stored, latency);
    out::stderr(&format!("assay: {} {}", visible(&pack.shown.display().to_string()), player.said()));
    serve(player, io::BufReader::new(io::stdin()), io::stdout().lock())
        .map_err(|e| Failure::failed(format_args!("standard output: {e}")))?;
    Ok(Exit::Ok)
}

/// The pack, verified, and what was stored of its calls.
fn read(args: &ReplayArgs) -> Result<(Pack, VerifyReport, Stored), Failure> {
    let pack = named::pack(&args.pack, &Places::of_command(args.audit_dir.as_deref()))?;
    let (report, stored) = stored(&pack)?;
    Ok((pack, report, stored))
}

/// Verifies a pack and reads it; what it lacks is said on stderr.
///
/// # Errors
/// A pack that does not verify, or that cannot be read.
pub(super) fn stored(pack: &Pack) -> Result<(VerifyReport, Stored), Failure> {
    let mut progress = ProgressLine::new();
    let report = verify(&pack.dir, &VerifyOptions::default(), &mut |p| progress.show(p));
    progress.clear();
    let report = report?;
    let shown = pack.shown.display();
    match report.integrity {
        Integrity::Pass => {}
        Integrity::Tampered => {
            return Err(Failure::failed(format_args!("{shown} is TAMPERED: what is in it is not what was recorded"))
                .hint("assay verify-pack shows what was changed"));
        }
        Integrity::Unsupported => {
            return Err(Failure::bad_input(format_args!("{shown}: {}", report.too_new().unwrap_or_default()))
                .hint("use a later assay"));
        }
    }
    if report.completeness != Completeness::Complete {
        out::stderr(&format!("assay: warning: {} is {}", visible(&shown.to_string()), report.completeness.as_str()));
    }
    let stored = Stored::of_pack(&pack.dir, &report)?;
    for problem in &stored.problems {
        out::stderr(&format!("assay: warning: {}", visible(problem)));
    }
    Ok((report, stored))
}

/// Names and globs of tools.
struct Tools {
    only: Vec<(String, GlobMatcher)>,
    skip: Vec<GlobMatcher>,
}

impl Wanted for Tools {
    fn wants(&self, tool: &str) -> bool {
        (self.only.is_empty() || self.only.iter().any(|(_, glob)| glob.is_match(tool)))
            && !self.skip.iter().any(|glob| glob.is_match(tool))
    }

    fn names(&self, tool: &str) -> bool {
        self.only.iter().any(|(name, _)| name == tool)
    }
}

#[derive(Serialize)]
struct Skipped<'a> {
    tool: &'a str,
    reason: Skip,
    calls: u64,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    pack: String,
    pack_id: Option<&'a str>,
    pack_manifest_sha256: Option<&'a str>,
    sent: u64,
    same: u64,
    different: u64,
    no_answer: u64,
    skipped: Vec<Skipped<'a>>,
    calls: &'a [Compared],
}

fn against(args: &ReplayArgs) -> Result<Exit, Failure> {
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if !args.yes && (!terminal || args.json) {
        return Err(Failure::bad_input("nobody can be asked here")
            .hint("--yes sends the calls without asking; the server may do again what it did then"));
    }
    let (pack, report, stored) = read(args)?;
    let tools = Tools {
        only: args.only.iter().map(|glob| (glob.glob().to_owned(), glob.compile_matcher())).collect(),
        skip: args.skip.iter().map(Glob::compile_matcher).collect(),
    };
    let plan = Plan::of(&stored, &tools);
    let style = Style::of_stdout();
    let not_sent = not_sent(&plan, style);
    if plan.sent.is_empty() {
        return Err(Failure::bad_input(format_args!("there is nothing to send\n{}", not_sent.trim_end())).hint(
            if args.only.is_empty() && args.skip.is_empty() {
                "record with mcp-proxy --store-args --store-results"
            } else {
                "--only and --skip take names of tools, * for anything; assay explain names those that were called"
            },
        ));
    }
    if !args.json {
        out::stdout(not_sent.as_bytes())?;
    }
    if !args.yes && !asked(args, &plan)? {
        out::stdout(b"nothing was sent\n")?;
        return Ok(Exit::BadInput);
    }
    let modern = stored.surface.as_ref().and_then(|s| s.context.era.as_deref()) == Some("modern");
    let how = How { era: if modern { Era::Modern } else { Era::Legacy }, ..How::default() };
    let server = Server::Command(args.command.clone());
    let mut wire = Wire::open(server, Stderr::Inherited).map_err(Failure::failed)?;
    let mut caller = Caller::begin(&mut wire, &how).map_err(Failure::failed)?;
    let mut printed = Ok(());
    let calls = send(&plan, &mut caller, |compared| {
        if !args.json && printed.is_ok() {
            printed = out::stdout(line(compared, style).as_bytes());
        }
    });
    printed?;
    let count = |verdict| calls.iter().filter(|c| c.verdict == verdict).count() as u64;
    let (same, different, no_answer) = (count(Verdict::Same), count(Verdict::Different), count(Verdict::NoAnswer));
    if args.json {
        let skipped =
            plan.skipped.iter().map(|((tool, reason), calls)| Skipped { tool, reason: *reason, calls: *calls });
        out::json(&Document {
            schema: SCHEMA,
            pack: pack.shown.display().to_string(),
            pack_id: report.facts.pack_id.as_deref(),
            pack_manifest_sha256: report.facts.pack_manifest_sha256.as_deref(),
            sent: calls.len() as u64,
            same,
            different,
            no_answer,
            skipped: skipped.collect(),
            calls: &calls,
        })?;
    } else {
        let mut text = format!("{} sent: {} the same", counted(calls.len() as u64, "call"), grouped(same));
        for (n, what) in [(different, "different"), (no_answer, "without an answer")] {
            if n > 0 {
                let _ = write!(text, ", {} {what}", grouped(n));
            }
        }
        out::stdout(format!("{text}\n").as_bytes())?;
    }
    Ok(if different + no_answer == 0 { Exit::Ok } else { Exit::Violation })
}

fn asked(args: &ReplayArgs, plan: &Plan<'_>) -> Result<bool, Failure> {
    let mut text = String::new();
    for (tool, calls) in plan.tools() {
        let _ = writeln!(text, "  {:>6}  {}", grouped(calls), short(tool));
    }
    let command = args.command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let calls = counted(plan.sent.len() as u64, "call");
    let _ = write!(text, "send {calls} to {}? It may do again what it did then [y/N] ", short(&command));
    out::stdout(text.as_bytes())?;
    let mut line = String::new();
    let _ = io::stdin().lock().read_line(&mut line);
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn not_sent(plan: &Plan<'_>, style: Style) -> String {
    let mut text = String::new();
    for ((tool, why), calls) in &plan.skipped {
        let calls = counted(*calls, "call");
        let _ = writeln!(
            text,
            "{}",
            style.paint(Tone::Dim, &format!("not sent: {calls} of {}: {}", short(tool), why.words()))
        );
    }
    text
}

fn line(c: &Compared, style: Style) -> String {
    let us = |side: &Side| side.duration_ms.map(|ms| (ms * 1000.0) as u64);
    let (tone, word) = match c.verdict {
        Verdict::Same => (Tone::Good, "same"),
        Verdict::Different => (Tone::Bad, "different"),
        Verdict::NoAnswer => (Tone::Bad, "no answer"),
    };
    let mut text = format!(
        "{}  {}  {} → {}  {}\n",
        style.paint(tone, &format!("{word:<9}")),
        short(&c.tool),
        duration_if(us(&c.recorded)),
        duration_if(us(&c.now)),
        style.paint(Tone::Dim, &c.receipt_id)
    );
    if let Some(error) = &c.error {
        let _ = writeln!(text, "           {}", visible(error));
    }
    for place in c.differences.iter().take(PLACES) {
        let _ = writeln!(text, "           {}", short(if place.path.is_empty() { "(all of it)" } else { &place.path }));
        for (sign, tone, value) in [("-", Tone::Bad, &place.old), ("+", Tone::Good, &place.new)] {
            if let Some(value) = value {
                let _ = writeln!(
                    text,
                    "             {}",
                    style.paint(tone, &format!("{sign} {}", short(&value.to_string())))
                );
            }
        }
    }
    let more = c.differences.len().saturating_sub(PLACES) as u64 + c.differences_omitted;
    if more > 0 {
        let _ = writeln!(text, "           and {} more", counted(more, "place"));
    }
    if c.verdict == Verdict::Different && c.differences.is_empty() {
        let _ = writeln!(
            text,
            "           only the hashes differ: the recorded result was not stored, was redacted, or is too large to compare"
        );
    }
    text
}
