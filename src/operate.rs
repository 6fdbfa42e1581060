//! A gateway that runs on this machine: where it keeps its files, and what it is asked over the socket there.

use crate::{
    error::{Exit, Failure},
    files::{self, Lock, Tree},
    paths,
    text::visible,
};
use serde_json::Value;
use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

/// The file that is locked while a gateway runs: its process id, and where it listens.
pub const LOCK: &str = "gateway.lock";
/// The socket of its API.
pub const SOCKET: &str = "gateway.sock";

/// Bytes of the lock file that are read.
const MAX_LOCK: u64 = 4096;
/// How long an answer may take: a check asks a server.
const PATIENCE: Duration = Duration::from_secs(180);
/// Bytes of an answer.
const MAX_ANSWER: u64 = 64 << 20;

/// Where a gateway keeps everything if nobody says otherwise: below the user directory.
///
/// # Errors
/// There is no home directory.
pub fn default_data() -> Result<PathBuf, paths::PathError> {
    Ok(paths::assay_home()?.join("gateway"))
}

/// A gateway that runs in a data directory: its process id, and where it listens.
///
/// # Errors
/// The system's error.
pub fn running(data: &Path) -> io::Result<Option<(String, String)>> {
    let path = data.join(LOCK);
    let file = match Tree::at(data).open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if files::try_lock_shared(&file)? != Lock::Busy {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_LOCK).read_to_string(&mut text)?;
    let (pid, url) = text.trim_end().split_once('\n').unwrap_or((text.trim_end(), ""));
    Ok(Some((pid.to_owned(), url.to_owned())))
}

/// The audit directory of a service.
#[must_use]
pub fn evidence(data: &Path, name: &str) -> PathBuf {
    data.join("evidence").join(name)
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Gateway {
    socket: PathBuf,
}

/// What it answers.
#[derive(Debug)]
pub struct Answer {
    /// The document; null where there is none.
    pub body: Value,
}

impl Gateway {
    /// The one in a directory, if one runs there.
    pub fn of(data: &Path) -> Result<Option<Self>, Failure> {
        let runs = running(data).map_err(|e| Failure::bad_input(format_args!("{}: {e}", data.display())))?;
        // It has its socket before it says where it listens.
        let is_ready = runs.is_some_and(|(_, url)| !url.is_empty());
        Ok(is_ready.then(|| Self { socket: data.join(SOCKET) }))
    }

    /// The same; there has to be one.
    pub fn needed(data: &Path) -> Result<Self, Failure> {
        Self::of(data)?.ok_or_else(|| {
            Failure::failed(format_args!("no gateway runs in {}", data.display()))
                .hint("assay gateway run starts one; --data names its directory")
        })
    }

    /// Asks. `path` is what follows `/api/admin`.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let silent = |e: io::Error| {
            Failure::failed(format_args!("the gateway at {} does not answer: {e}", self.socket.display()))
        };
        let (status, body) = self.exchange(method, path, if_match, body).map_err(silent)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if (200..300).contains(&status) { Ok(Answer { body }) } else { Err(refused(status, &body)) }
    }

    fn exchange(
        &self,
        method: &str,
        path: &str,
        if_match: Option<&str>,
        body: Option<&Value>,
    ) -> io::Result<(u16, Vec<u8>)> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} /api/admin{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        if let Some(wanted) = if_match {
            let _ = write!(head, "If-Match: {wanted}\r\n");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            let _ = write!(head, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "its answer is none");
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(bad)?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(bad)?;
        Ok((status, answer.split_off(end + 4)))
    }
}

/// What was refused, in words.
fn refused(status: u16, problem: &Value) -> Failure {
    let detail = problem["detail"].as_str().unwrap_or("it says no more");
    let mut what = format!("the gateway refuses: {detail}");
    for error in problem["errors"].as_array().into_iter().flatten() {
        let text = |name: &str| visible(error[name].as_str().unwrap_or_default());
        let pointer = text("pointer");
        let at = if pointer.is_empty() { String::new() } else { format!("{pointer}: ") };
        let _ = write!(what, "\n{at}{}", text("detail"));
    }
    let exit = match status {
        409 | 412 | 428 => Exit::Violation,
        400..500 => Exit::BadInput,
        _ => Exit::Failed,
    };
    Failure { exit, ..Failure::failed(what) }
}

/// A name as a part of a path.
pub fn part(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}
