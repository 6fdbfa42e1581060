//! What the proxy says on stderr and in its own log. stdout belongs to the protocol.

use super::Sealed;
use crate::text::counted;
use crate::{error::Exit, files, model::SessionId, paths::AuditDir, record::session::RecorderReport, text::visible};
use std::io::IsTerminal as _;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::WorkerGuard;

/// The recorder's log is begun anew when it is longer than this; one old log is kept.
const MAX_LOG: u64 = 8 << 20;
/// Log lines that wait for the disk at most; more are dropped.
const LOG_LINES: usize = 1024;

/// Writes messages to stderr, as text or as JSON lines.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    json: bool,
    routine: bool,
}

/// What became of all sessions together.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Something went wrong with one.
    pub(super) has_problems: bool,
    /// One is not complete.
    pub(super) is_incomplete: bool,
    /// The policy denied a call in one.
    pub(super) denied: bool,
}

impl Tally {
    pub(super) fn add(&mut self, sealed: &Sealed) {
        self.has_problems |= !sealed.problems.is_empty() || sealed.rolled_back.is_some();
        self.is_incomplete |= !sealed.complete;
        self.denied |= sealed.policy_denied > 0;
    }
}

/// How the server ended, as far as the exit code goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerEnd {
    /// The exit code of a server that ended on its own and failed.
    pub(super) code: Option<u8>,
    /// It died without a code, or had to be killed after a signal to us.
    pub(super) died: bool,
}

impl Status {
    /// Text, or JSON lines with `--json`. What goes as it should is said only to a person at a terminal or to who asked
    /// for it: a client that keeps its server's stderr finds there what the server said.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json, routine: json || std::io::stderr().is_terminal() }
    }

    fn say(self, event: &str, text: &str, more: &serde_json::Value) {
        use std::io::Write as _;
        let line = if self.json {
            let mut object = serde_json::json!({ "event": event, "message": text });
            if let (Some(object), Some(more)) = (object.as_object_mut(), more.as_object()) {
                object.extend(more.clone());
            }
            object.to_string()
        } else {
            format!("assay: {}", visible(text))
        };
        // The client may have closed our stderr: then the message is lost.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    /// Warns of something that is not as it should be, while the session continues.
    pub fn warn(self, text: &str) {
        tracing::warn!("{text}");
        self.say("warning", &format!("warning: {text}"), &serde_json::Value::Null);
    }

    /// Another policy is in force.
    pub(super) fn policy(self, text: &str) {
        tracing::info!("{text}");
        if self.routine {
            self.say("policy", text, &serde_json::Value::Null);
        }
    }

    /// Another configuration is in force.
    pub fn configured(self, text: &str) {
        tracing::info!("{text}");
        self.say("configuration", text, &serde_json::Value::Null);
    }

    /// A route of a gateway stands otherwise. It is always said: somebody may have to look at it.
    pub fn route(self, service: &str, state: &str, text: &str) {
        tracing::info!(service, state, "{text}");
        self.say("route", &format!("{service}: {text}"), &serde_json::json!({ "service": service, "state": state }));
    }

    /// What a server offers was taken for what to compare with. It is always said: nobody approved it.
    pub fn first_use(self, text: &str) {
        tracing::info!("{text}");
        self.say("surface", text, &serde_json::Value::Null);
    }

    /// Clients can connect. It is always said: the port may be known to nobody else.
    pub fn listening(self, url: &str, upstream: &str) {
        tracing::info!(url, upstream, "listening");
        let more = serde_json::json!({ "url": url, "upstream": upstream });
        self.say("listening", &format!("listening on {url} for {upstream}"), &more);
    }

    pub(super) fn recording(self, dir: &AuditDir, session: SessionId, pid: u32) {
        let text = format!("recording session {session} in {}", dir.root().display());
        tracing::info!(%session, pid, "recording");
        if !self.routine {
            return;
        }
        self.say(
            "session_start",
            &text,
            &serde_json::json!({ "session_id": session, "audit_dir": files::text(dir.root()), "server_pid": pid }),
        );
    }

    pub(super) fn sealed(self, sealed: &Sealed) {
        self.pack("pack", sealed);
    }

    pub(super) fn recovered(self, sealed: &Sealed) {
        self.pack("recovered", sealed);
    }

    fn pack(self, event: &str, sealed: &Sealed) {
        let state = match (sealed.verified, sealed.complete) {
            (true, true) => "verified",
            (true, false) => "verified, INCOMPLETE",
            (false, _) => "not verified",
        };
        for problem in sealed.problems.iter().chain(&sealed.rolled_back) {
            self.warn(&format!("session {}: {problem}", sealed.session));
        }
        for note in &sealed.notes {
            tracing::info!(session = %sealed.session, "{note}");
        }
        let Some(pack) = &sealed.pack else { return };
        let what = if event == "pack" { "proof pack" } else { "recovered proof pack" };
        let text =
            format!("{what} ({}, {}, {state}): {}", counted(sealed.calls, "call"), sealed.end_reason, pack.display());
        tracing::info!(session = %sealed.session, "{text}");
        let more = serde_json::json!({
            "session_id": sealed.session, "pack": files::text(pack), "verified": sealed.verified, "session_complete": sealed.complete,
            "end_reason": sealed.end_reason, "calls": sealed.calls, "notes": sealed.notes,
        });
        if self.routine || !sealed.verified || !sealed.complete {
            self.say(event, &text, &more);
        }
    }

    /// Writes the last status messages; the exit code of the proxy.
    pub(super) fn finish(self, report: &RecorderReport, sealed: &Tally, interrupted: bool, server: ServerEnd) -> Exit {
        if report.missed_messages + report.missed_bytes > 0 {
            self.warn(&format!(
                "evidence is missing: {}, {} crossed unrecorded ({})",
                counted(report.missed_messages, "message"),
                counted(report.missed_bytes, "byte"),
                why_missed(report)
            ));
        }
        if report.nothing_recorded {
            self.warn("nothing of this session was recorded");
        }
        if report.left_for_recovery {
            self.warn("the last evidence could not be written; it is kept in memory until a reboot: free some space, then run `assay recover`");
        }
        if report.drifts > 0 {
            self.warn("the server announced what nobody approved; see assay surface list");
        }
        let recorded = !report.left_for_recovery
            && !report.nothing_recorded
            && report.missed_messages + report.missed_bytes == 0
            && !sealed.has_problems;
        let exit = match server.code {
            _ if interrupted => Exit::Interrupted,
            _ if !recorded => Exit::Failed,
            Some(code) => Exit::Server(code),
            None if server.died || sealed.is_incomplete => Exit::Failed,
            None if report.violations > 0 || report.drifts > 0 || sealed.denied => Exit::Violation,
            None => Exit::Ok,
        };
        tracing::info!(exit = exit.code(), "the proxy ends");
        exit
    }
}

/// The reasons why evidence is missing.
fn why_missed(report: &RecorderReport) -> String {
    let mut why = Vec::new();
    if report.missed_messages > report.not_followed || report.missed_messages == 0 || report.disk_error.is_some() {
        why.push(report.disk_error.clone().unwrap_or_else(|| "the recorder could not keep up".to_owned()));
    }
    if report.not_followed > 0 {
        let requests = counted(report.not_followed, "request");
        why.push(format!("{requests} beyond those that are followed without an answer"));
    }
    why.join("; ")
}

/// How much is logged, as `ASSAY_LOG` says: `off`, `error`, `warn`, `info`, `debug` or `trace`; none if it is not set.
///
/// # Errors
/// Another word, as a fragment with those that there are.
pub fn log_level() -> Result<Option<LevelFilter>, String> {
    let Some(word) = std::env::var_os("ASSAY_LOG").filter(|word| !word.is_empty()) else { return Ok(None) };
    let level = word.to_str().and_then(|word| word.parse().ok());
    let expected = || format!("ASSAY_LOG is {}: expected off, error, warn, info, debug or trace", word.display());
    level.map(Some).ok_or_else(expected)
}

/// Writes the recorder's own log to `recorder.log` in the audit directory, 0600, off every thread that matters.
pub fn log_to(dir: &AuditDir, status: Status) -> Option<WorkerGuard> {
    // Only the first one in a process counts.
    if tracing::dispatcher::has_been_set() {
        return None;
    }
    let path = dir.root().join("recorder.log");
    let opened = dir.files().append(&path).and_then(|file| {
        if file.metadata()?.len() <= MAX_LOG {
            return Ok(file);
        }
        dir.files().rename(&path, &dir.root().join("recorder.log.1"))?;
        dir.files().append(&path)
    });
    let file = match opened {
        Ok(file) => file,
        Err(e) => {
            status.warn(&format!("{}: {e}; no log is written", path.display()));
            return None;
        }
    };
    // The library panics if it cannot have its thread.
    if let Err(e) = std::thread::Builder::new().spawn(|| ()).map(std::thread::JoinHandle::join) {
        status.warn(&format!("cannot start a thread for the log: {e}; no log is written"));
        return None;
    }
    // The default of 128 000 lines costs 4 MB and milliseconds at every start.
    let builder = tracing_appender::non_blocking::NonBlockingBuilder::default();
    let (writer, guard) = builder.buffered_lines_limit(LOG_LINES).finish(file);
    let level = log_level().unwrap_or_else(|what| {
        status.warn(&format!("{what}; the log has what info has"));
        None
    });
    let subscriber = tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(false)
        .with_max_level(level.unwrap_or(LevelFilter::INFO))
        .with_thread_names(true)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
    Some(guard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_has_its_causes() {
        let report = |missed_messages, not_followed, disk: Option<&str>| RecorderReport {
            missed_messages,
            not_followed,
            disk_error: disk.map(ToOwned::to_owned),
            ..RecorderReport::default()
        };
        assert_eq!(why_missed(&report(2, 0, None)), "the recorder could not keep up");
        assert_eq!(why_missed(&report(0, 0, None)), "the recorder could not keep up");
        assert_eq!(why_missed(&report(2, 0, Some("full"))), "full");
        assert_eq!(why_missed(&report(1, 1, None)), "1 request beyond those that are followed without an answer");
        assert!(why_missed(&report(3, 2, None)).starts_with("the recorder could not keep up; 2 requests beyond"));
        assert!(why_missed(&report(2, 2, Some("full"))).starts_with("full; 2 requests beyond"));
    }
}
