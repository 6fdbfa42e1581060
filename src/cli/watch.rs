//! `assay watch`: live sessions as lines.

use super::out::{self, Style, Tone};
use crate::{
    clients::discover::Surroundings,
    error::{Exit, Failure},
    filter::Filter,
    live::{
        client::{self, Update},
        discovery,
        protocol::{LiveLine, OpenStream, PackState, Streams},
        row::CallRow,
        state::facts,
        watcher::Wanted,
        words::CallState,
    },
    model::{SessionId, WallTime},
    numbers::{age, counted, duration, size},
    pack::verify::terminal::ascii_controls,
    text::{fit, visible},
    tui::{self, app::Start, live::hint::Place},
    zone::Zone,
};
use clap::Args;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Events that are told of the time before, a session.
const BACKLOG: u64 = 400;
/// How often new sessions are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Updates that wait to be printed.
const WAITING: usize = 4096;
/// Columns of a tool's name.
const TOOL: usize = 32;

/// Arguments of `assay watch`.
#[derive(Debug, Default, Args)]
#[command(after_help = "Example:\n  assay watch\n  \
                  assay watch --filter 'tool:read* !outcome:forwarded ms>250'\n  \
                  assay watch --json | jq -r 'select(.event == \"call_finished\") | .call.tool_name'\n\n\
                  On a terminal this opens the dashboard; ? shows its keys. Without a terminal, or with TERM=dumb,\n\
                  --plain or --json, it prints lines. If no session is live, it then says how to start one and\n\
                  ends; with --wait it waits for one. It ends with the last session that it watches, or with\n\
                  Ctrl-C. The exit code is 0 in all these cases.\n\n\
                  Filter: terms that must all match. tool:NAME server:NAME verdict:allowed|denied|no_policy\n\
                  outcome:running|forwarded|denied|error|timeout id:ID ms>250; ! before a term negates it, * stands\n\
                  for anything, plain text matches names and ids; text with a colon stands in quotes.")]
pub struct WatchArgs {
    /// Only this session: mcp_…, its 16 digits, or their beginning
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only sessions in this audit directory
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub audit_dir: Option<PathBuf>,
    /// Print lines of text; automatic if there is no terminal
    #[arg(long)]
    pub plain: bool,
    /// Print the events of the live protocol, one JSON object per line
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// Wait for a session if none is live
    #[arg(long)]
    pub wait: bool,
    /// Only calls that match this filter
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,
    /// The data directory of a gateway whose services the screen Surface shows [default: gateway, below the user directory]
    #[arg(long, value_name = "DIR")]
    pub gateway: Option<PathBuf>,
    /// The policy on the dashboard's screen Policy [default: assay.mcp-policy.yaml]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// How the dashboard looks.
    #[command(flatten)]
    pub screen: super::screen::ScreenArgs,
}

/// Runs `assay watch`.
///
/// # Errors
/// A filter that means nothing, a session that is not live, or output that cannot be written.
pub fn run(args: &WatchArgs) -> Result<Exit, Failure> {
    let text = args.filter.as_deref().unwrap_or_default();
    let filter = Filter::parse(text).map_err(|e| {
        let mark = e.under(text);
        out::stderr(&mark);
        Failure::bad_input(format_args!("--filter: {e}, at byte {}", e.at)).hint("assay watch --help explains filters")
    })?;
    let wanted = wanted(args)?;
    if !args.plain && !args.json && super::screen::is_there() {
        let start = Start {
            live: true,
            surfaces: true,
            servers: std::env::current_dir().ok().map(|project| Place { around: Surroundings::of_process(), project }),
            filter: text.to_owned(),
            audit_dir: args.audit_dir.clone(),
            gateway: args.gateway.clone(),
            policy: args.policy.clone(),
            ..args.screen.start()
        };
        return tui::run(start, wanted);
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|e| Failure::failed(format_args!("cannot handle signals: {e}")))?;
    }
    let (updates, inbox) = mpsc::sync_channel(WAITING);
    let mut watch = Watch {
        wanted,
        wait: args.wait,
        printer: Printer {
            json: args.json,
            filter,
            style: Style::of_stdout(),
            ascii: !speaks_unicode(),
            zone: Zone::Local,
            streams: BTreeMap::new(),
        },
        followed: HashMap::new(),
        said: HashSet::new(),
        updates,
        stop,
    };
    let done = watch.run(&inbox);
    watch.stop.store(true, Ordering::Relaxed);
    done.map(|()| Exit::Ok)
}

fn wanted(args: &WatchArgs) -> Result<Wanted, Failure> {
    let session = args.session.as_ref().map(|id| {
        Wanted::digits(id).ok_or_else(|| Failure::bad_input(format_args!("--session: {id:?} is not a session id")))
    });
    args.audit_dir.iter().for_each(|dir| out::warn_of_rollback(dir));
    let audit_dir = args.audit_dir.as_ref().map(|dir| {
        let found = if args.wait { to_come(dir) } else { fs::canonicalize(dir) };
        found.map_err(|e| Failure::bad_input(format_args!("{}: {e}", dir.display())))
    });
    Ok(Wanted { session: session.transpose()?, audit_dir: audit_dir.transpose()? })
}

/// A directory, or what it will be called once somebody makes it.
fn to_come(dir: &Path) -> io::Result<PathBuf> {
    match (fs::canonicalize(dir), dir.parent(), dir.file_name()) {
        (Err(e), Some(parent), Some(name)) if e.kind() == io::ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(to_come(parent)?.join(name))
        }
        (found, ..) => found,
    }
}

struct Watch {
    wanted: Wanted,
    /// It does not end before there was a session.
    wait: bool,
    printer: Printer,
    /// By socket: one thread a proxy.
    followed: HashMap<PathBuf, JoinHandle<()>>,
    /// What was said of sessions that are passed over.
    said: HashSet<String>,
    updates: SyncSender<Update>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn run(&mut self, inbox: &Receiver<Update>) -> Result<(), Failure> {
        self.look()?;
        if self.followed.is_empty() {
            if !self.wait {
                return self.nothing();
            }
            out::stderr("assay: waiting for a live session");
        }
        let mut looked = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            match inbox.recv_timeout(LOOK) {
                Ok(update) => {
                    let gone = matches!(update, Update::Gone(_));
                    if !self.printer.print(&update)? {
                        return Ok(());
                    }
                    if !gone && looked.elapsed() < LOOK {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            looked = Instant::now();
            self.look()?;
            if !self.followed.is_empty() && self.followed.values().all(JoinHandle::is_finished) {
                // A follower that has ended has sent everything.
                while let Ok(update) = inbox.try_recv() {
                    if !self.printer.print(&update)? {
                        return Ok(());
                    }
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Follows what is new.
    fn look(&mut self) -> Result<(), Failure> {
        let live = discovery::look_around();
        for card in live.unread.into_iter().filter(|card| self.wanted.may_be(card)) {
            let said = visible(&card.to_string()).into_owned();
            if self.said.insert(said.clone()) {
                out::stderr(&format!("assay: warning: {said}"));
            }
        }
        for card in live.sessions {
            let Some(socket) = card.card.socket.clone().filter(|_| self.wanted.has(&card)) else { continue };
            if self.followed.contains_key(&socket) {
                continue;
            }
            let (only, updates, stop) = (self.wanted.session.clone(), self.updates.clone(), Arc::clone(&self.stop));
            let thread = client::follow_only(card, only, (BACKLOG, false), updates, stop)
                .map_err(|e| Failure::failed(format_args!("cannot start a thread to follow sessions: {e}")))?;
            self.followed.insert(socket, thread);
        }
        Ok(())
    }

    fn nothing(&self) -> Result<(), Failure> {
        if let Some(id) = &self.wanted.session {
            let which =
                if self.said.is_empty() { "no live session" } else { "no live session that this assay can read:" };
            return Err(
                Failure::bad_input(format_args!("{which} mcp_{id}")).hint("assay watch shows every live session")
            );
        }
        if !self.said.is_empty() {
            let text = "no live session that this assay can read\n";
            return if self.printer.json { Ok(()) } else { out::stdout(text.as_bytes()) };
        }
        let text = "no live session\n\n\
                    To start one, put the recorder in front of an MCP server's command, in a client's configuration or here:\n  \
                    assay mcp-proxy -- npx -y @modelcontextprotocol/server-filesystem .\n\n\
                    assay watch --wait waits for the first one\n";
        if self.printer.json {
            out::stderr(text.trim_end());
            return Ok(());
        }
        out::stdout(text.as_bytes())
    }
}

/// Whether the locale says UTF-8.
fn speaks_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

struct Printer {
    json: bool,
    filter: Filter,
    style: Style,
    ascii: bool,
    zone: Zone,
    /// The streams that are open, as they were last told of.
    streams: BTreeMap<SessionId, Streams>,
}

impl Printer {
    /// Prints an update; `false` when nobody reads any more.
    fn print(&mut self, update: &Update) -> Result<bool, Failure> {
        let text = if self.json {
            self.json(update)
        } else {
            let lines = self.plain(update).into_iter().chain(self.stream_lines(update));
            Some(lines.fold(String::new(), |all, line| all + &line + "\n")).filter(|text| !text.is_empty())
        };
        let Some(text) = text else { return Ok(true) };
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(e) => Err(Failure::failed(format_args!("standard output: {e}"))),
        }
    }

    fn passes(&self, row: &CallRow) -> bool {
        self.filter.is_empty() || self.filter.passes(&facts(row))
    }

    fn json(&self, update: &Update) -> Option<String> {
        let bytes = match update {
            Update::Line(line) => {
                let call = line.chained().and_then(|c| c.call.as_ref());
                if call.map_or(!self.filter.is_empty() && line.chained().is_some(), |row| !self.passes(row)) {
                    return None;
                }
                line.to_bytes()
            }
            Update::Call(row) if self.passes(row) => {
                let mut bytes = serde_json::to_vec(&serde_json::json!({ "event": "call", "call": row })).ok()?;
                bytes.push(b'\n');
                bytes
            }
            Update::TooNew { session, why } => {
                out::stderr(&format!("assay: warning: {session}: {}", visible(why)));
                return None;
            }
            _ => return None,
        };
        String::from_utf8(bytes).ok().map(|text| ascii_controls(&text).into_owned())
    }

    fn plain(&self, update: &Update) -> Option<String> {
        match update {
            Update::Line(line) => self.line(line),
            Update::Call(row) => self.call(row),
            Update::Lost(id) => Some(self.style.paint(Tone::Warn, &format!("{id}: connection lost, trying again"))),
            Update::TooNew { session, why } => {
                Some(self.style.paint(Tone::Warn, &format!("{session}: {}", fit(&visible(why), 400))))
            }
            Update::Gone(_) | Update::Unread(_) => None,
        }
    }

    fn line(&self, line: &LiveLine) -> Option<String> {
        match line {
            LiveLine::Session(head) => {
                let card = &head.session.card;
                let server = card.server_info.as_ref().map(|s| format!(" ({s})")).unwrap_or_default();
                let client = card.client_info.as_ref().map(|c| format!(" with {c}")).unwrap_or_default();
                let dir = head.session.audit_dir.display();
                let began = self.zone.full(card.started_at);
                let text = format!("{}  {}{server}{client}  {dir}  since {began}", card.session_id, card.server_id);
                Some(self.style.paint(Tone::Dim, &fit(&visible(&text), 200)))
            }
            LiveLine::CallStarted(c) | LiveLine::CallFinished(c) => c.call.as_ref().and_then(|row| self.call(row)),
            LiveLine::SessionEnd(c) => {
                let end = c.end.as_ref()?;
                let state = if end.complete { "complete" } else { "INCOMPLETE" };
                Some(format!(
                    "{}  {}  ended: {}, {}, {state}",
                    self.zone.clock(c.at),
                    c.session_id,
                    visible(&end.reason),
                    counted(c.totals.finished, "call")
                ))
            }
            LiveLine::PackProgress(p) if p.state != PackState::Sealing => {
                let state = match p.state {
                    PackState::Verified => "pack verified",
                    PackState::Built => "pack built",
                    PackState::None => "no pack",
                    PackState::Failed | PackState::Sealing => "pack failed",
                };
                let pack = p.pack.as_ref().map(|p| format!(": {}", p.display())).unwrap_or_default();
                Some(format!("{}  {state}{}", p.session_id, visible(&pack)))
            }
            // Each would be a line where a disk went bad.
            LiveLine::Unread(u) if u.unread.is_power_of_two() => {
                let text =
                    format!("{}: event {} cannot be read: {}", u.session_id, u.cursor, fit(&visible(&u.why), 200));
                Some(self.style.paint(Tone::Warn, &text))
            }
            LiveLine::Chain(c) if self.filter.is_empty() => {
                let note = c.note.as_ref()?;
                Some(format!(
                    "{}  {}  {}",
                    self.zone.clock(c.at),
                    self.word(Tone::Warn, "!", c.kind.as_str()),
                    fit(&visible(note), 200)
                ))
            }
            _ => None,
        }
    }

    /// Which streams have been opened and closed.
    fn stream_lines(&mut self, update: &Update) -> Vec<String> {
        let Update::Line(line) = update else { return Vec::new() };
        let told = match &**line {
            LiveLine::Session(head) => head.streams.as_ref(),
            LiveLine::Streams(told) => Some(told),
            LiveLine::SessionEnd(c) => {
                self.streams.remove(&c.session_id);
                None
            }
            _ => None,
        };
        let Some(told) = told else { return Vec::new() };
        let (id, now) = (told.session_id, WallTime::now());
        let before = self.streams.insert(id, told.streams.clone()).unwrap_or_default();
        if !self.filter.is_empty() {
            return Vec::new();
        }
        let has = |of: &Streams, stream: &OpenStream| of.open.iter().any(|s| s.exchange == stream.exchange);
        let opened = told.streams.open.iter().filter(|s| !has(&before, s)).map(|s| (s.since, s, "opened".to_owned()));
        // Of more streams than are named, one that is not named any more may be open.
        let is_whole = told.streams.total == told.streams.open.len() as u64;
        let closed = before.open.iter().filter(|s| is_whole && !has(&told.streams, s)).map(|s| {
            let took = age(now.millis().saturating_sub(s.since.millis()).max(0).unsigned_abs() / 1000);
            let (messages, bytes) = (counted(s.messages, "message"), size(s.bytes));
            (now, s, format!("closed after {took}: {messages}, {bytes}"))
        });
        let line = |(at, s, what): (WallTime, &OpenStream, String)| {
            let text = format!("{}  {id}  stream {} ({}) {what}", self.zone.clock(at), s.exchange, visible(&s.method));
            self.style.paint(Tone::Dim, &text)
        };
        opened.chain(closed).map(line).collect()
    }

    fn call(&self, row: &CallRow) -> Option<String> {
        if !self.passes(row) {
            return None;
        }
        let at = row.ended_at.filter(|_| !row.is_running()).or(row.requested_at)?;
        let server = visible(row.server_id.as_deref().unwrap_or("?")).into_owned();
        let tool = visible(row.tool_name.as_deref().unwrap_or("?")).into_owned();
        let took = row.duration_ms.filter(|_| !row.is_running()).map(|d| format!("  {}", duration(d.0)));
        let took = took.map(|text| if self.ascii { text.replace('µ', "u") } else { text }).unwrap_or_default();
        let reason = row.outcome_reason.as_ref().or(row.policy_reason.as_ref());
        let reason = reason.map(|r| format!("  {}", fit(&visible(r), 60))).unwrap_or_default();
        let tool = fit(&tool, TOOL).into_owned();
        let pad = " ".repeat(TOOL - crate::text::width(&tool));
        Some(format!("{}  {}  {tool}{pad}  {}{took}{reason}", self.zone.clock(at), fit(&server, 24), self.state(row)))
    }

    /// The state in words, the dashboard's.
    fn state(&self, row: &CallRow) -> String {
        let state = CallState::of(row);
        let tone = match state {
            CallState::Running => Tone::Dim,
            CallState::Denied | CallState::Error => Tone::Bad,
            CallState::Timeout | CallState::NotEnforced => Tone::Warn,
            CallState::Forwarded | CallState::Allowed => Tone::Good,
        };
        self.word(tone, state.glyph(self.ascii), state.word())
    }

    fn word(&self, tone: Tone, glyph: &str, word: &str) -> String {
        self.style.paint(tone, &format!("{glyph} {word}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DurationMs, InvocationId, Outcome, PolicyVerdict};

    fn row() -> CallRow {
        CallRow {
            requested_at: Some(WallTime::from_millis(1_773_574_200_123)),
            server_id: Some("fs".into()),
            tool_name: Some("read\u{1b}[31m".into()),
            ..CallRow::new(SessionId::from_bits(1), InvocationId::from_bits(2))
        }
    }

    #[test]
    fn calls_are_lines_of_the_dashboards_words() {
        let printer = |ascii| Printer {
            json: false,
            filter: Filter::default(),
            style: Style::plain(),
            ascii,
            zone: Zone::Utc,
            streams: BTreeMap::new(),
        };
        let done = |outcome, verdict| CallRow {
            outcome: Some(outcome),
            policy_verdict: Some(verdict),
            ended_at: row().requested_at,
            duration_ms: Some(DurationMs(12_345)),
            ..row()
        };
        for (row, text, ascii) in [
            (row(), "… running", ". running"),
            (done(Outcome::Forwarded, PolicyVerdict::Allowed), "✓ allowed  12 ms", "+ allowed  12 ms"),
            (done(Outcome::Forwarded, PolicyVerdict::NoPolicy), "✓ forwarded  12 ms", "+ forwarded  12 ms"),
            (done(Outcome::Denied, PolicyVerdict::Denied), "✗ denied  12 ms", "x denied  12 ms"),
            (done(Outcome::Error, PolicyVerdict::NoPolicy), "! error  12 ms", "! error  12 ms"),
            (done(Outcome::Timeout, PolicyVerdict::NoPolicy), "! timeout  12 ms", "! timeout  12 ms"),
        ] {
            let line = printer(false).call(&row).unwrap();
            assert!(line.starts_with("11:30:00.123  fs  read␛[31m "), "{line}");
            assert!(line.ends_with(text), "{line}");
            assert!(printer(true).call(&row).unwrap().ends_with(ascii));
        }
        let narrow = Printer { filter: Filter::parse("outcome:error").unwrap(), ..printer(false) };
        assert_eq!(narrow.call(&row()), None);
    }
}
