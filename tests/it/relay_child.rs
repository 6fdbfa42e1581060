//! The server process: found or clearly not, started clean, drained, ended with all it left behind.

use assay::relay::Waker;
use assay::relay::capture::{Capture, Direction};
use assay::relay::child::{Child, EndStep, Exit, GroupEnd, Pipes, SpawnError, Stderr};
use assay::relay::stdio::{Mode, Stop, StopReason, relay};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Far beyond what any step here takes; reaching it is a hang.
const HANG: Duration = Duration::from_secs(60);

fn shell(script: &str) -> (Child, Pipes) {
    let command: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
    Child::spawn(&command, Stderr::Piped, assay::relay::child::Group::Own).unwrap()
}

fn first_line(pipe: impl Into<File>) -> (String, BufReader<File>) {
    let mut reader = BufReader::new(pipe.into());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (line, reader)
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let (child, pipes) = shell("head -c 150000 /dev/zero; sleep 1000 & exit 3");
    let waker = Arc::new(Waker::new());
    let dirs = [dir.path().join("ring")];
    let (producer, mut consumer, _) =
        Capture::create(&dirs, "00000000000000bb", Direction::ServerToClient, 1 << 20, &waker).unwrap();
    let stop = Stop::new().unwrap();
    let to = dir.path().join("to");
    let output = File::create(&to).unwrap();
    let loops = thread::spawn({
        let stop = stop.clone();
        move || relay(pipes.stdout, output.into(), producer, &stop, Mode::Audit)
    });
    assert_eq!(child.wait().unwrap(), Exit::Code(3));
    stop.drain();
    let end = loops.join().unwrap();
    assert!(matches!(end.reason, StopReason::Drained), "{:?}", end.reason);
    assert_eq!(std::fs::read(&to).unwrap().len(), 150_000);
    assert_eq!(consumer.available().len(), 150_000);
    consumer.advance(150_000);
    assert!(child.group_alive(), "the grandchild is still there");
    assert_eq!(child.end_group(HANG).unwrap(), GroupEnd::Terminated);
    assert!(!child.group_alive());
    assert_eq!(child.wait().unwrap(), Exit::Code(3), "told again after reaping");
}

#[test]
fn a_grandchild_that_ignores_term_is_killed() {
    let (child, pipes) = shell("(trap '' TERM; echo ready; while :; do sleep 0.05; done) & wait; exit 0");
    let (line, _reader) = first_line(pipes.stdout);
    assert_eq!(line, "ready\n");
    let (step, exit) = child.terminate(Duration::ZERO, HANG, || drop(pipes.stdin)).unwrap();
    assert_eq!((step, exit), (EndStep::Terminated, Some(Exit::Signal(15))));
    assert_eq!(child.end_group(Duration::from_millis(20)).unwrap(), GroupEnd::Killed);
    assert!(!child.group_alive());
}

#[test]
fn each_step_of_the_ladder_ends_the_server_that_needs_it() {
    let short = Duration::from_millis(20);
    let (polite, pipes) = shell("echo up; cat; exit 7");
    let (_, _reader) = first_line(pipes.stdout);
    let (step, exit) = polite.terminate(HANG, HANG, || drop(pipes.stdin)).unwrap();
    assert_eq!((step, exit), (EndStep::StdinClosed, Some(Exit::Code(7))));
    assert_eq!(polite.end_group(short).unwrap(), GroupEnd::Empty);

    let (deaf, pipes) = shell("echo up; exec sleep 1000");
    let (_, _reader) = first_line(pipes.stdout);
    let (step, exit) = deaf.terminate(short, HANG, || drop(pipes.stdin)).unwrap();
    assert_eq!((step, exit), (EndStep::Terminated, Some(Exit::Signal(15))));
    assert_eq!(exit.unwrap().shell_code(), 143);

    let (stubborn, pipes) = shell("trap '' TERM; echo up; while :; do sleep 0.05; done");
    let (_, _reader) = first_line(pipes.stdout);
    let (step, exit) = stubborn.terminate(short, short, || drop(pipes.stdin)).unwrap();
    assert_eq!((step, exit), (EndStep::Killed, Some(Exit::Signal(9))));
    assert_ne!(stubborn.end_group(HANG).unwrap(), GroupEnd::Left);
}

#[test]
#[cfg(target_os = "linux")]
fn the_server_ends_with_the_thread_that_started_it() {
    let (child, _pipes) = thread::spawn(|| shell("exec sleep 1000")).join().unwrap();
    assert_eq!(child.wait_timeout(HANG).unwrap(), Some(Exit::Signal(9)));
}

#[test]
fn the_server_leads_its_own_group_and_sees_its_own_name() {
    let (child, pipes) = shell("ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat; echo $0");
    drop(pipes.stdin);
    let mut text = String::new();
    File::from(pipes.stdout).read_to_string(&mut text).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words, [child.pid().to_string().as_str(), "sh"]);
    assert!(child.path().ends_with("sh") && child.path().is_absolute());
    assert_eq!(child.wait().unwrap(), Exit::Code(0));
}

#[test]
fn a_dead_server_is_a_broken_pipe_and_not_our_death() {
    let (child, pipes) = shell("exit 0");
    child.wait().unwrap();
    let mut sink = File::from(pipes.stdin);
    let start = std::time::Instant::now();
    // A test beside this one may be between fork and exec, and hold a copy of the other end for that moment.
    let error = loop {
        match sink.write(b"x") {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break error,
            _ => assert!(start.elapsed() < HANG, "no broken pipe"),
        }
        thread::yield_now();
    };
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_command_that_is_not_there_is_refused_before_anything_starts() {
    let spawn = |words: &[&str]| {
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        Child::spawn(&command, Stderr::Inherited, assay::relay::child::Group::Own).unwrap_err()
    };
    assert!(matches!(spawn(&[]), SpawnError::Empty));
    let error = spawn(&["no-such-mcp-server", "--flag"]);
    let SpawnError::Lookup(lookup) = &error else { panic!("{error:?}") };
    let dirs = std::env::var_os("PATH").unwrap();
    assert_eq!(lookup.tried.len(), std::env::split_paths(&dirs).count());
    assert!(
        error.to_string().starts_with("command \"no-such-mcp-server\" not found in PATH; looked for \"/"),
        "{error}"
    );
    assert_eq!(spawn(&["/no/such"]).to_string(), "cannot execute \"/no/such\": no such file");
    assert_eq!(spawn(&["/"]).to_string(), "cannot execute \"/\": not a file");
}
