//! A session when nothing of it can be recorded, because the system has not enough for a recorder: memory, descriptors,
//! threads, or files that may be long enough.
//!
//! In audit the server gets our own streams, as if we were not there. A guard lets nothing pass that it cannot record:
//! every request is refused, and no server is asked.

use super::{Status, lifecycle::Event, spawn_failure};
use crate::{
    bridge::{Bridge, Config},
    error::{Exit, Failure},
    guard::DENIED,
    relay::child::{Alone, Around, SpawnError},
    sys::fd::{Want, wait_ready},
};
use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    stdio::{stdin, stdout},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{Read as _, Write as _},
    sync::{Arc, mpsc::Receiver},
    thread,
    time::Duration,
};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of a request that a guard refuses with its id; longer ones are refused without.
const LONGEST: usize = 64 << 10;

/// Whether a server that could not be started might be startable without a recorder.
pub(super) fn lacks_something(e: &SpawnError) -> bool {
    let SpawnError::Start { source, .. } = e else { return false };
    let errno = source.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|e| [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN].contains(&e))
}

/// Runs a bridge between our own streams and its server until it ends.
///
/// # Errors
/// It cannot be started.
pub(super) fn pass_bridged(
    upstream: Option<&Config>,
    why: &str,
    signals: &Receiver<Event>,
    status: Status,
) -> Result<Exit, Failure> {
    status.warn(&format!("nothing of this session will be recorded; it continues without the recorder: {why}"));
    let failed = |e: std::io::Error| Failure::failed(format_args!("the bridge to the server cannot begin: {e}"));
    let Some(upstream) = upstream else { return Err(Failure::failed("there is no server")) };
    let (reader, said) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let (told, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
    let notice = Arc::new(move |text: &str| status.warn(text));
    let bridge = Bridge::start(Config { notice, ..upstream.clone() }, reader, writer).map_err(failed)?;
    let copies =
        thread::Builder::new().spawn(move || drop(std::io::copy(&mut std::io::stdin(), &mut File::from(said))));
    copies.map_err(failed)?;
    let tells = thread::Builder::new().spawn(move || {
        let (mut told, mut stdout) = (File::from(told), std::io::stdout());
        let mut piece = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = told.read(&mut piece) {
            if stdout.write_all(&piece[..bytes]).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    let tells = tells.map_err(failed)?;
    let mut interrupted = false;
    while bridge.ended().is_none() {
        thread::sleep(LOOK);
        for signal in signals.try_iter().filter_map(|event| signal(&event)) {
            interrupted |= signal == signal_hook::consts::SIGINT;
            bridge.stop();
        }
    }
    let _ = tells.join();
    status.warn("nothing of this session was recorded");
    Ok(if interrupted { Exit::Interrupted } else { Exit::Failed })
}

/// Runs the server on our own streams until it ends.
///
/// # Errors
/// It cannot be started.
pub(super) fn pass(
    command: &[OsString],
    around: Around<'_>,
    why: &str,
    signals: Option<&Receiver<Event>>,
    status: Status,
) -> Result<Exit, Failure> {
    status.warn(&format!("nothing of this session will be recorded; it continues without the recorder: {why}"));
    let mut server = Alone::start(command, around).map_err(spawn_failure)?;
    let mut interrupted = false;
    while !server.has_ended() {
        std::thread::sleep(LOOK);
        for signal in signals.into_iter().flat_map(Receiver::try_iter).filter_map(|event| signal(&event)) {
            interrupted |= signal == signal_hook::consts::SIGINT;
            let _ = server.signal(signal);
        }
    }
    status.warn("nothing of this session was recorded");
    Ok(if interrupted { Exit::Interrupted } else { Exit::Failed })
}

/// Refuses all requests of the client, until it hangs up.
pub(super) fn refuse(why: &str, signals: Option<&Receiver<Event>>, status: Status) -> Exit {
    status.warn(&format!("nothing of this session can be recorded, so every request is refused: {why}"));
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    let mut exit = Exit::Failed;
    loop {
        if let Some(signal) = signals.into_iter().flat_map(Receiver::try_iter).find_map(|event| signal(&event)) {
            if signal == signal_hook::consts::SIGINT {
                exit = Exit::Interrupted;
            }
            break;
        }
        match wait_ready(stdin(), Want::Read, None, Some(LOOK)) {
            Ok(ready) if ready.fd => {}
            Ok(_) => continue,
            Err(_) => break,
        }
        let read = match rustix::io::read(stdin(), &mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(Errno::INTR | Errno::AGAIN) => continue,
            Err(_) => break,
        };
        for byte in &piece[..read] {
            if *byte != b'\n' {
                // The rest of a line that is too long is not JSON, and is refused without its id.
                line.truncate(LONGEST);
                line.push(*byte);
                continue;
            }
            let answer = answer(&line, why);
            line.clear();
            if answer.is_some_and(|answer| write_all(answer.as_bytes()).is_err()) {
                return exit;
            }
        }
    }
    status.warn("nothing of this session was recorded");
    exit
}

fn signal(event: &Event) -> Option<i32> {
    if let Event::Signal(signal) = event { Some(*signal) } else { None }
}

fn write_all(mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => std::thread::sleep(LOOK),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The line that refuses a message; `None` for one that waits for no answer.
fn answer(line: &[u8], why: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let id = match &message {
        serde_json::Value::Object(message) if message.contains_key("method") => message.get("id")?.clone(),
        serde_json::Value::Object(_) => return None,
        _ if line.is_ascii() && line.trim_ascii().is_empty() => return None,
        _ => serde_json::Value::Null,
    };
    let message = format!("refused by guard: nothing can be recorded: {why}");
    let error = serde_json::json!({ "code": DENIED, "message": message });
    Some(format!("{}\n", serde_json::json!({ "jsonrpc": "2.0", "id": id, "error": error })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_with_their_ids_and_nothing_else_is_answered() {
        let id = |line: &str| {
            let answer: serde_json::Value = serde_json::from_str(&answer(line.as_bytes(), "no room")?).ok()?;
            assert_eq!(answer["error"]["code"], DENIED);
            Some(answer["id"].clone())
        };
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":"a","method":"tools/call"}"#), Some("a".into()));
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#), Some(7.into()));
        assert_eq!(id(r#"[{"jsonrpc":"2.0","id":7,"method":"ping"}]"#), Some(serde_json::Value::Null));
        assert_eq!(id("no json"), Some(serde_json::Value::Null));
        for quiet in [r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, " "]
        {
            assert_eq!(id(quiet), None, "{quiet}");
        }
    }
}
