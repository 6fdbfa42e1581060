//! A small MCP client: a child process, JSON-RPC lines to it and from it, and an orderly end.

use serde_json::Value;
use std::{
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What a conversation can fail with.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The program did not start.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program that was started.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing can be written to it.
    #[error("cannot write to the server: {0}")]
    Write(io::Error),
    /// It said nothing for so long.
    #[error("the server was silent for {} s", .0.as_secs())]
    Silent(Duration),
    /// It ended in the middle of the conversation.
    #[error("the server closed its output in the middle of the conversation")]
    Ended,
    /// It said something that makes no sense here.
    #[error("the server sent {0}")]
    Unexpected(String),
    /// It is still there, long after its input was closed.
    #[error("the server was still running {} s after its input was closed", .0.as_secs())]
    Lingers(Duration),
}

/// A message from the server.
#[derive(Debug)]
pub struct Received {
    /// When its last byte was read.
    pub at: Instant,
    /// Its length without the newline.
    pub bytes: usize,
    /// The message; `null` for a line that is not JSON.
    pub value: Value,
}

/// How the server ended.
#[derive(Debug)]
pub struct Closed {
    /// Its exit status.
    pub status: ExitStatus,
    /// What it wrote to standard error, line by line.
    pub stderr: Vec<String>,
}

/// A server process and the conversation with it. Dropped, it closes the server's input, waits a moment and kills it.
#[derive(Debug)]
pub struct Client {
    child: Option<Child>,
    stdin: Option<ChildStdin>,
    inbox: Receiver<Received>,
    stderr: Option<JoinHandle<Vec<String>>>,
    next_id: u64,
}

/// How long a dropped client's server may take.
const GRACE: Duration = Duration::from_secs(5);

impl Client {
    /// Starts the server.
    ///
    /// # Errors
    /// [`ClientError::Start`].
    pub fn start(command: &mut Command) -> Result<Self, ClientError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |source| ClientError::Start { program: program.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (messages, inbox) = mpsc::channel();
        // From here on an error drops the client, which ends the child.
        let mut client = Self { child: Some(child), stdin, inbox, stderr: None, next_id: 1 };
        thread::Builder::new()
            .name("demo-client-in".into())
            .spawn(move || {
                for line in stdout.into_iter().flat_map(|out| BufReader::with_capacity(1 << 16, out).split(b'\n')) {
                    let Ok(line) = line else { break };
                    let at = Instant::now();
                    let value = serde_json::from_slice(&line).unwrap_or_default();
                    if messages.send(Received { at, bytes: line.len(), value }).is_err() {
                        break;
                    }
                }
            })
            .map_err(failed)?;
        let drain = move || {
            let lines = stderr.into_iter().flat_map(|err| BufReader::new(err).split(b'\n'));
            lines.map_while(Result::ok).map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
        };
        client.stderr = Some(thread::Builder::new().name("demo-client-err".into()).spawn(drain).map_err(failed)?);
        Ok(client)
    }

    /// An id that was not used before.
    pub fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// Sends messages, all of them in one write.
    ///
    /// # Errors
    /// [`ClientError::Write`].
    pub fn send(&mut self, messages: &[Value]) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        for message in messages {
            serde_json::to_writer(&mut bytes, message).map_err(|e| ClientError::Write(e.into()))?;
            bytes.push(b'\n');
        }
        let stdin = self.stdin.as_mut().ok_or(ClientError::Ended)?;
        stdin.write_all(&bytes).and_then(|()| stdin.flush()).map_err(ClientError::Write)
    }

    /// The next message from the server.
    ///
    /// # Errors
    /// [`ClientError::Silent`] after `limit`, [`ClientError::Ended`].
    pub fn receive(&self, limit: Duration) -> Result<Received, ClientError> {
        self.inbox.recv_timeout(limit).map_err(|e| match e {
            RecvTimeoutError::Timeout => ClientError::Silent(limit),
            RecvTimeoutError::Disconnected => ClientError::Ended,
        })
    }

    /// Closes the server's input and waits for it to end.
    ///
    /// # Errors
    /// [`ClientError::Lingers`] after `limit`; it is killed then.
    pub fn close(mut self, limit: Duration) -> Result<Closed, ClientError> {
        self.stdin = None;
        let status = self.reap(limit).ok_or(ClientError::Lingers(limit))?;
        let stderr = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ok(Closed { status, stderr })
    }

    fn reap(&mut self, limit: Duration) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                self.child = None;
                return Some(status);
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stdin = None;
        if self.child.is_some()
            && self.reap(GRACE).is_none()
            && let Some(child) = &mut self.child
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(script: &str) -> Client {
        Client::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn messages_go_out_in_one_write_and_come_back() {
        let mut client = shell("cat; echo bye >&2; exit 3");
        let ids = [client.fresh_id(), client.fresh_id()];
        client.send(&ids.map(|id| json!({"id": id}))).unwrap();
        let limit = Duration::from_secs(20);
        let seen: Vec<_> = (0..2).map(|_| client.receive(limit).unwrap().value["id"].as_u64()).collect();
        assert_eq!(seen, [Some(1), Some(2)]);
        let closed = client.close(limit).unwrap();
        assert_eq!((closed.status.code(), closed.stderr), (Some(3), vec!["bye".to_owned()]));
    }

    #[test]
    fn silence_and_an_early_end_are_told_apart() {
        let client = shell("echo not json; exec cat");
        assert_eq!(client.receive(Duration::from_secs(20)).unwrap().value, Value::Null);
        assert!(matches!(client.receive(Duration::from_millis(1)), Err(ClientError::Silent(_))));
        let client = shell("exit 0");
        assert!(matches!(client.receive(Duration::from_secs(20)), Err(ClientError::Ended)));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Client::start(&mut Command::new("/nonexistent/assay")).unwrap_err();
        assert!(error.to_string().starts_with("cannot start /nonexistent/assay: "), "{error}");
    }
}
