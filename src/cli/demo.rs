//! `assay demo`: a real session through the real proxy, its pack, and what one changed byte does to it.

use super::out::{self, Style, Tone};
use crate::model::pack::RECEIPTS;
use crate::{
    demo::{
        client::{Client, ClientError, Closed},
        script::{self, Ended, Ending, Happened},
        server,
        tamper::{self, Change},
    },
    error::{Exit, Failure},
    files,
    live::watcher::Wanted,
    numbers,
    pack::{
        claims::{MCP_SESSION, RECEIPT_COMPLETENESS},
        explain::Explanation,
        keys::{KeyStore, Signer},
        verify::{
            self, Claims, Completeness, Integrity, SignerVerdict, VerifyOptions, VerifyReport,
            verdict::{channels, finding_lines},
        },
    },
    paths::{self, PathError},
    text::{counted, fit, visible, width},
    tui::{
        self, Beside,
        app::Start,
        msg::{Effect, Target},
    },
};
use clap::Args;
use serde_json::Value;
use std::{
    fmt::{Display, Write as _},
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Where the demo leaves its session when nobody names another place.
const DEFAULT_DIR: &str = "assay-demo";
/// How many default directories are tried.
const MAX_DIRS: u32 = 99;
/// How long the proxy may take from the end of its input to its own.
const SEALING: Duration = Duration::from_mins(1);
/// What the agent of the dashboard's demo may do.
const LIVE_POLICY: &str = "# The policy of assay demo --live, enforced by its guard; docs/policy.md has every key.
version: \"1\"
default: allow
denylist:
  - delete_everything
constraints:
  search:
    deny_patterns: [\"password\"]
";
/// Findings of the tampered copy that are shown.
const SHOWN_FINDINGS: usize = 3;

/// Arguments of `assay demo`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay demo --dir ./assay-demo\n  assay demo --live\n\n\
                  A small MCP server that is part of this program runs behind assay mcp-proxy, and a small\n\
                  client calls its tools. The session is recorded, sealed in a signed pack and verified. Then\n\
                  one byte is changed in a copy of the pack, and the copy is verified. This takes a few seconds\n\
                  and needs no network. With --live, the dashboard shows a session of one minute while it runs,\n\
                  and then opens its pack.\n\n\
                  Nothing is overwritten. The signing key is the one in $ASSAY_HOME/keys, else ~/.assay/keys;\n\
                  it is created if there is none.\n\n\
                  Exit codes: 0 everything was as expected; 2 something was not; 3 bad input")]
pub struct DemoArgs {
    /// New directory for the session and its pack; must not exist [default: assay-demo, then assay-demo-2, …]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Show a scripted agent in the dashboard for one minute; then open and verify its pack
    #[arg(long)]
    pub live: bool,
    /// How the dashboard looks.
    #[command(flatten)]
    pub screen: super::screen::ScreenArgs,
}

/// Arguments of `assay demo-server`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay demo-server < requests.jsonl")]
pub struct DemoServerArgs {}

/// Runs `assay demo-server`.
///
/// # Errors
/// Standard output cannot be written.
pub fn serve(_args: &DemoServerArgs) -> Result<Exit, Failure> {
    server::serve(io::BufReader::new(io::stdin()), io::stdout().lock())
        .map_err(|e| Failure::failed(format_args!("standard output: {e}")))?;
    Ok(Exit::Ok)
}

/// Runs `assay demo`.
///
/// # Errors
/// A directory that exists or cannot be made, a key that cannot be used, or what keeps the session from being recorded.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    if args.live && !super::screen::is_there() {
        return Err(Failure::bad_input("--live needs a terminal")
            .hint("without --live, assay demo prints what it does as lines"));
    }
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format_args!("cannot find the path of this program: {e}")))?;
    let keys = KeyStore::of_user()?;
    let active = keys.active()?;
    let fresh = !keys.has(&active);
    let dir = make_dir(args.dir.as_deref())?;
    let signer = keys.load_or_generate(&active).inspect_err(|_| {
        // It is still empty: a demo that never began leaves nothing.
        let _ = std::fs::remove_dir(&dir);
    })?;
    let mut demo = Demo { program, dir, signer, style: Style::of_stdout(), problems: Vec::new() };
    if args.live {
        return demo.live(&args.screen);
    }
    demo.title(&keys, fresh)?;
    let (closed, calls) = demo.session()?;
    let pack = demo.sealed(&closed)?;
    demo.evidence(&pack, &calls)?;
    demo.intact(&pack)?;
    demo.tampered(&pack)?;
    demo.next(&pack)?;
    demo.verdict()
}

/// Makes the demo's directory; one that exists is never used.
fn make_dir(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let mut tries: Vec<PathBuf> = match named {
        Some(dir) => vec![dir.to_owned()],
        None => (2..=MAX_DIRS).map(|n| PathBuf::from(format!("{DEFAULT_DIR}-{n}"))).collect(),
    };
    if named.is_none() {
        tries.insert(0, PathBuf::from(DEFAULT_DIR));
    }
    for dir in &tries {
        let dir = std::path::absolute(dir).map_err(|e| Failure::bad_input(format_args!("{}: {e}", dir.display())))?;
        if let Some(parent) = dir.parent() {
            paths::create_private_dir(parent).map_err(|e| unusable(&dir, &e))?;
        }
        match files::new_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(unusable(&dir, &PathError::Io { path: dir.clone(), source })),
        }
    }
    let last = tries.last().map(|dir| dir.display().to_string()).unwrap_or_default();
    Err(Failure::bad_input(format_args!("{last} exists already"))
        .hint("nothing is overwritten; name a new directory: assay demo --dir DIR"))
}

fn unusable(dir: &Path, error: &PathError) -> Failure {
    let name = dir.file_name().map_or_else(|| DEFAULT_DIR.into(), |name| name.to_string_lossy());
    Failure::bad_input(format_args!("the session cannot be recorded there: {error}"))
        .hint(format_args!("name a directory that you can write to: assay demo --dir /tmp/{name}"))
}

struct Demo {
    program: PathBuf,
    dir: PathBuf,
    signer: Signer,
    style: Style,
    /// What was not as it should be.
    problems: Vec<String>,
}

impl Demo {
    fn heading(&self, text: &str) -> Result<(), Failure> {
        out::stdout(format!("\n{}\n", self.style.paint(Tone::Strong, text)).as_bytes())
    }

    /// A line in two columns.
    fn row(name: &str, text: &str) -> Result<(), Failure> {
        out::stdout(format!("  {name:<13} {}\n", visible(text)).as_bytes())
    }

    /// A line in three columns: name, what happened, how long it took.
    fn timed(name: &str, text: &str, took: Duration) -> Result<(), Failure> {
        let (text, took) = (visible(text), numbers::duration(took.as_micros() as u64));
        let text = fit(&text, 56);
        let pad = " ".repeat(56usize.saturating_sub(width(&text)));
        out::stdout(format!("  {name:<13} {text}{pad} {took:>9}\n").as_bytes())
    }

    /// Holds what happened against what should have happened.
    fn check<T: PartialEq + Display + Copy>(&mut self, what: &str, expected: T, found: T) {
        if expected != found {
            self.problems.push(format!("{what}: expected {expected}, found {found}"));
        }
    }

    fn audit_dir(&self) -> PathBuf {
        self.dir.join("mcp")
    }

    fn title(&self, keys: &KeyStore, fresh: bool) -> Result<(), Failure> {
        let title = "assay demo: one MCP session, from its first message to a pack that anyone can verify";
        out::stdout(format!("{}\n", self.style.paint(Tone::Strong, title)).as_bytes())?;
        let made = if fresh { ", just created" } else { "" };
        let fingerprint = self.signer.fingerprint();
        Self::row("signing key", &format!("{}{made}: {}", self.signer.id(), keys.dir().display()))?;
        Self::row("fingerprint", &fingerprint)
    }

    /// The proxy before the server that is built in.
    fn proxy(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["mcp-proxy", "--json", "--server-id", server::NAME, "--audit-dir"]).arg(self.audit_dir());
        command
    }

    /// The dashboard, while an agent works for a minute beside it.
    fn live(&self, screen: &super::screen::ScreenArgs) -> Result<Exit, Failure> {
        let audit_dir = self.audit_dir();
        crate::paths::create_private_dir(&audit_dir).map_err(|e| unusable(&self.dir, &e))?;
        let policy = self.dir.join("assay.mcp-policy.yaml");
        out::new_file(&policy, LIVE_POLICY.as_bytes())?;
        let mut command = self.proxy();
        command.args(["--profile", "guard", "--policy"]).arg(&policy).args(["--store-args", "--store-results", "--"]);
        command.arg(&self.program).arg("demo-server");
        let start = Start {
            live: true,
            audit_dir: Some(audit_dir.clone()),
            signers: vec![self.signer.fingerprint()],
            policy: Some(policy),
            ..screen.start()
        };
        let wanted = Wanted { session: None, audit_dir: std::fs::canonicalize(&audit_dir).ok() };
        let beside = Box::new(move |teller: &Beside| agent(command, teller));
        let exit = tui::run_beside(start, wanted, Some(beside))?;
        let text = format!("The session and its pack: {}\n", shown(&self.dir));
        out::stdout(visible_text(&text).as_bytes())?;
        Ok(exit)
    }

    /// Client, proxy and server, three processes as in real life.
    fn session(&mut self) -> Result<(Closed, Vec<Ended>), Failure> {
        self.heading("A client calls the tools of a server, through assay mcp-proxy")?;
        let mut command = self.proxy();
        command.arg("--").arg(&self.program).arg("demo-server");
        let mut client = Client::start(&mut command).map_err(broken)?;
        let mut shown = Ok(());
        let played = script::play(&mut client, &script::tour(), &mut |what| {
            if shown.is_ok() {
                shown = Self::happened(&what);
            }
        });
        let begun = Instant::now();
        let closed = client.close(SEALING);
        shown?;
        let calls = match (played, &closed) {
            (Ok(calls), _) => calls,
            // The proxy says better than the client why it ended.
            (Err(e), Ok(closed)) => {
                let said = closed.stderr.iter().filter_map(|line| message(line)).collect::<Vec<_>>().join("; ");
                return Err(if said.is_empty() { broken(e) } else { broken(format_args!("{e} (it wrote: {said})")) });
            }
            (Err(e), Err(_)) => return Err(broken(e)),
        };
        let closed = closed.map_err(broken)?;
        let code = closed.status.code().map_or_else(|| closed.status.to_string(), |code| format!("exit code {code}"));
        Self::timed("end", &format!("the client hangs up, the pack is built: {code}"), begun.elapsed())?;
        self.check("exit of the proxy", "exit code 0", code.as_str());
        self.expected_order(&calls);
        Ok((closed, calls))
    }

    fn happened(what: &Happened<'_>) -> Result<(), Failure> {
        match what {
            Happened::Connected { server, protocol, took } => {
                Self::timed("initialize", &format!("{server}, MCP {protocol}"), *took)
            }
            Happened::Tools { names, took } => Self::timed("tools/list", &names.join(", "), *took),
            Happened::Sent(calls) => {
                let text = format!("{} sent at once, the slowest first:", counted(calls.len(), "call"));
                Self::row("", &text)
            }
            Happened::Ended(call) => {
                let text = match &call.ending {
                    Ending::Answered if call.progress > 0 => {
                        format!("answered, after {}", counted(call.progress, "progress note"))
                    }
                    Ending::Answered if call.bytes > 1 << 20 => {
                        format!("answered with {}", numbers::size(call.bytes as u64))
                    }
                    Ending::Answered if call.parallel => format!("answered, request {}", call.id),
                    Ending::Answered => "answered".to_owned(),
                    Ending::Failed(why) => format!("error: {why}"),
                    Ending::Cancelled => "cancelled by the client at the first sign of progress".to_owned(),
                };
                Self::timed(call.tool, &text, call.took)
            }
        }
    }

    /// The last of three calls that were sent at once is answered first.
    fn expected_order(&mut self, calls: &[Ended]) {
        let ids: Vec<u64> = calls.iter().filter(|c| c.parallel).map(|c| c.id).collect();
        let reversed = ids.len() == 3 && ids.is_sorted_by(|a, b| a > b);
        self.check("parallel calls answered in reverse order", true, reversed);
    }

    /// Where the proxy says that the pack is.
    fn sealed(&mut self, closed: &Closed) -> Result<PathBuf, Failure> {
        let said: Vec<Value> = closed.stderr.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let warnings = closed.stderr.iter().filter(|line| !line.is_empty()).count() - said.len()
            + said.iter().filter(|v| v["event"] == "warning").count();
        for line in closed.stderr.iter().filter_map(|line| message(line)) {
            if warnings > 0 {
                self.problems.push(format!("the proxy wrote: {line}"));
            }
        }
        let packs: Vec<&Value> = said.iter().filter(|v| v["event"] == "pack").collect();
        self.check("packs", 1, packs.len());
        let pack = packs.first().and_then(|v| v["pack"].as_str()).map(PathBuf::from);
        pack.ok_or_else(|| {
            let all = self.problems.join("; ");
            Failure::failed(format_args!("the proxy built no pack: {all}")).hint("run: assay recover --audit-dir DIR")
        })
    }

    /// What the recorder made of the session, against what the client saw.
    fn evidence(&mut self, pack: &Path, calls: &[Ended]) -> Result<(), Failure> {
        self.heading("What was recorded")?;
        let e = Explanation::of_pack(pack)?;
        let count = |of: fn(&Ending) -> bool| calls.iter().filter(|c| of(&c.ending)).count() as u64;
        let events = e.session.as_ref().map_or(0, |s| s.event_count);
        let t = &e.total;
        Self::row(
            "receipts",
            &format!(
                "{}: one per call ({} answered, {}, {} cancelled), session start and end",
                e.receipts,
                t.forwarded,
                counted(t.errors, "error"),
                t.timeouts
            ),
        )?;
        Self::row("audit events", &format!("{events}, each with the hash of the one before"))?;
        Self::row("arguments", "stored as hashes only; --store-args and --store-results store them in cleartext")?;
        Self::row("pack", &shown(pack))?;
        self.check("call receipts", calls.len() as u64, t.calls);
        self.check("answered calls", count(|e| *e == Ending::Answered), t.forwarded);
        self.check("failed calls", count(|e| matches!(e, Ending::Failed(_))), t.errors);
        self.check("cancelled calls", count(|e| *e == Ending::Cancelled), t.timeouts);
        self.check("receipts", calls.len() as u64 + 2, e.receipts);
        let complete = e.session.as_ref().is_some_and(|s| s.session_complete);
        self.check("session_complete", true, complete);
        Ok(())
    }

    fn report(&self, pack: &Path) -> Result<VerifyReport, Failure> {
        let options = VerifyOptions {
            signers: vec![self.signer.fingerprint()],
            cards: vec![RECEIPT_COMPLETENESS.to_owned(), MCP_SESSION.to_owned()],
            ..VerifyOptions::default()
        };
        Ok(verify::verify(pack, &options, &mut |_| ControlFlow::Continue(()))?)
    }

    fn intact(&mut self, pack: &Path) -> Result<(), Failure> {
        self.heading("The pack is verified, with what is in it and the fingerprint above")?;
        let report = self.report(pack)?;
        let mut text = String::new();
        channels(&mut text, &report, self.style);
        for finding in report.errors.iter().take(SHOWN_FINDINGS) {
            finding_lines(&mut text, finding, self.style);
        }
        out::stdout(indented(&text).as_bytes())?;
        self.check("integrity of the pack", Integrity::Pass, report.integrity);
        self.check("completeness of the pack", Completeness::Complete, report.completeness);
        self.check("claims of the pack", Claims::Pass, report.claims);
        self.check("signer of the pack", SignerVerdict::Pinned, report.signer.verdict);
        self.check("findings in the pack", 0, report.errors.len());
        Ok(())
    }

    fn tampered(&mut self, pack: &Path) -> Result<(), Failure> {
        self.heading("One byte is changed in a copy: the duration of the slow tool")?;
        let change = self.change(pack).map_err(|e| Failure::failed(format_args!("the copy of the pack: {e}")))?;
        let copy = change.file.parent().unwrap_or(&self.dir).to_owned();
        let name = change.file.file_name().unwrap_or_default().to_string_lossy();
        Self::row("copy", &shown(&copy))?;
        Self::row("change", &format!("{name}, line {}, byte {}", change.line, change.offset))?;
        Self::row("", &format!("{} becomes {}", change.before, change.after))?;
        let report = self.report(&copy)?;
        let at_line = |f: &&verify::Finding| f.file.as_deref() == Some(&*name) && f.line == Some(change.line);
        let found: Vec<_> = report.errors.iter().filter(at_line).collect();
        let mut text = String::from("\n");
        channels(&mut text, &report, self.style);
        text.push('\n');
        let first = report.errors.first().filter(|f| !at_line(f));
        for finding in first.into_iter().chain(found.iter().copied()).take(SHOWN_FINDINGS) {
            finding_lines(&mut text, finding, self.style);
        }
        if let Some(more) = report.errors.len().checked_sub(SHOWN_FINDINGS).filter(|more| *more > 0) {
            let _ = writeln!(text, "and {more} more");
        }
        out::stdout(indented(&text).as_bytes())?;
        self.check("integrity of the changed copy", Integrity::Tampered, report.integrity);
        self.check("the changed line is named", true, !found.is_empty());
        self.check("exit code for the changed copy", Exit::Failed.code(), report.exit().code());
        Ok(())
    }

    fn change(&self, pack: &Path) -> io::Result<Change> {
        let place = self.dir.join("tampered");
        files::new_dir(&place)?;
        let copy = place.join(pack.file_name().unwrap_or_default());
        tamper::copy(pack, &copy)?;
        tamper::change_digit(&copy.join(RECEIPTS), "\"tool_name\":\"slow\"", "duration_ms")
    }

    fn next(&self, pack: &Path) -> Result<(), Failure> {
        self.heading("What to do next")?;
        let program = self.program.display().to_string();
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_else(|_| format!("{text:?}"));
        let mut text = String::new();
        let _ = writeln!(text, "  Look at the pack:");
        let _ = writeln!(text, "    {} explain {}", word(&program), word(&shown(pack)));
        let signer = self.signer.fingerprint();
        let _ = writeln!(text, "  Verify it, here or on any other machine:");
        let _ = writeln!(text, "    {} verify-pack --signer {signer} \\\n      {}", word(&program), word(&shown(pack)));
        let _ = writeln!(text, "  Record your own server: in your MCP client's configuration, the command");
        let _ = writeln!(text, "    \"command\": \"python\", \"args\": [\"server.py\"]");
        let _ = writeln!(text, "  becomes");
        let _ = writeln!(text, "    \"command\": {},", quoted(&program));
        let _ = writeln!(
            text,
            "    \"args\": [\"mcp-proxy\", \"--audit-dir\", \"/a/directory/of/yours\", \"--\", \"python\", \"server.py\"]"
        );
        let _ = writeln!(text, "  docs/clients.md shows this for each client; docs/verify.md is for those who verify.");
        out::stdout(visible_text(&text).as_bytes())
    }

    fn verdict(&self) -> Result<Exit, Failure> {
        if self.problems.is_empty() {
            let text = self.style.paint(Tone::Good, "Everything was as expected.");
            out::stdout(format!("\n{text}\n").as_bytes())?;
            return Ok(Exit::Ok);
        }
        let mut text = format!("\n{}\n", self.style.paint(Tone::Bad, "Not everything was as expected:"));
        for problem in &self.problems {
            let _ = writeln!(text, "  - {}", out::short(problem));
        }
        out::stdout(text.as_bytes())?;
        Ok(Exit::Failed)
    }
}

/// Works for a minute, or until the dashboard is left; then its pack is shown.
fn agent(mut command: Command, beside: &Beside) {
    let said = worked(&mut command, beside).unwrap_or_else(|e| Effect::Warn(format!("the demo's session failed: {e}")));
    beside.ask(said);
}

fn worked(command: &mut Command, beside: &Beside) -> Result<Effect, ClientError> {
    let mut client = Client::start(command)?;
    for (pause, step) in script::minute() {
        if !beside.pause(pause) {
            break;
        }
        script::play(&mut client, &[step], &mut |_| ())?;
    }
    let closed = client.close(SEALING)?;
    let said = closed.stderr.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let pack = said.filter(|v| v["event"] == "pack").find_map(|v| v["pack"].as_str().map(PathBuf::from));
    Ok(match pack {
        Some(pack) => Effect::Open(Target::Pack(pack)),
        None => Effect::Warn(format!("no pack was built: {}", closed.stderr.join("; "))),
    })
}

impl From<ClientError> for Failure {
    fn from(e: ClientError) -> Self {
        broken(e)
    }
}

fn broken(e: impl Display) -> Failure {
    Failure::failed(format_args!("the demo's session failed: {e}"))
        .hint("what was recorded is kept; finish it with assay recover --audit-dir DIR")
}

/// What a status line of the proxy says; a line of anything else is taken as it is.
fn message(line: &str) -> Option<String> {
    match serde_json::from_str::<Value>(line) {
        Ok(value) => (value["event"] == "warning").then(|| value["message"].as_str().unwrap_or(line).to_owned()),
        Err(_) => (!line.trim().is_empty()).then(|| line.to_owned()),
    }
}

/// A path below the working directory is shown relative to it, as a person would type it.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let relative = path.strip_prefix(&here).ok().filter(|p| !p.as_os_str().is_empty());
    relative.unwrap_or(path).display().to_string()
}

/// A path as one word of a shell command.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn visible_text(text: &str) -> String {
    let mut all = out::visible_lines(text);
    all.push('\n');
    all
}

fn indented(text: &str) -> String {
    text.lines().map(|l| if l.is_empty() { "\n".to_owned() } else { format!("  {l}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_default_directory_is_tried_and_a_named_one_never_reused() {
        let tmp = tempfile::tempdir().unwrap();
        let named = tmp.path().join("a/b");
        assert_eq!(make_dir(Some(&named)).unwrap(), named);
        let failure = make_dir(Some(&named)).unwrap_err();
        assert_eq!(failure.exit, Exit::BadInput);
        assert!(failure.what.ends_with("b exists already") && failure.hint.is_some(), "{failure}");
        let file = tmp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let failure = make_dir(Some(&file.join("sub"))).unwrap_err();
        assert!(failure.to_string().contains("is not a directory"), "{failure}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(word("/usr/bin/assay"), "/usr/bin/assay");
        assert_eq!(word("/o'b r"), "'/o'\\''b r'");
    }

    #[test]
    fn what_the_proxy_says_is_told_apart() {
        assert_eq!(message(r#"{"event":"pack","message":"m"}"#), None);
        assert_eq!(message(r#"{"event":"warning","message":"m"}"#).as_deref(), Some("m"));
        assert_eq!(message("assay: warning: x").as_deref(), Some("assay: warning: x"));
        assert_eq!(message(""), None);
    }
}
