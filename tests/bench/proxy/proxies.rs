//! The proxies to compare with: a bare relay that anyone would write, and this crate's relay without a recorder.

use assay::relay::capture::{Capture, Consumer, Direction, ring_dirs};
use assay::relay::child::{Child, Stderr};
use assay::relay::stdio::{Mode, Stop, relay};
use assay::relay::{Pacer, Waker};
use assay::sys::fd::{Stdio as Standard, copy_stdio};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

fn fail(error: impl std::fmt::Display) -> ! {
    eprintln!("proxy: {error}");
    exit(1)
}

fn copy(mut from: impl Read, mut to: impl Write) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

/// Two threads, two buffers, nothing else.
pub fn bare(command: &[OsString]) -> ! {
    let spawned = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|e| fail(e));
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else { fail("no pipe") };
    let input = copy_stdio(Standard::In).unwrap_or_else(|e| fail(e));
    let output = copy_stdio(Standard::Out).unwrap_or_else(|e| fail(e));
    thread::spawn(move || copy(std::fs::File::from(input), stdin));
    copy(stdout, std::fs::File::from(output));
    let status = child.wait().unwrap_or_else(|e| fail(e));
    exit(status.code().unwrap_or(1))
}

/// Throws away what it gets, as a recorder would record it.
fn discard(mut captures: [Consumer; 2], waker: &Waker) {
    let _ = assay::sys::process::nice_this_thread(5);
    captures.iter().for_each(Consumer::prefault);
    let mut pacer = Pacer::default();
    loop {
        let closed = captures.iter().all(Consumer::is_closed);
        let mut worked = false;
        for capture in &mut captures {
            let n = capture.available().len();
            worked |= n > 0;
            capture.advance(n);
            capture.rewind(n == 0);
        }
        if closed && !worked {
            for capture in &captures {
                let _ = capture.remove();
            }
            return;
        }
        pacer.pause(waker, worked, Duration::from_secs(1), || {
            captures.iter().any(|capture| capture.is_closed() || !capture.available().is_empty())
        });
    }
}

/// This crate's hot path with a consumer that only discards.
pub fn relay_only(command: &[OsString]) -> ! {
    let run = || -> io::Result<i32> {
        let (child, pipes) =
            Child::spawn(command, Stderr::Inherited, assay::relay::child::Group::Own).map_err(io::Error::other)?;
        let waker = Arc::new(Waker::new());
        let dirs = ring_dirs(&std::env::temp_dir().join("assay-bench-rings"));
        let session = format!("{:016x}", u64::from(std::process::id()));
        let make = |direction| Capture::create(&dirs, &session, direction, Capture::DEFAULT_CAPACITY, &waker);
        let (to_server, sent, _) = make(Direction::ClientToServer)?;
        let (to_client, received, _) = make(Direction::ServerToClient)?;
        let (input, output) = (copy_stdio(Standard::In)?, copy_stdio(Standard::Out)?);
        let stop = Stop::new()?;
        let (stdin, stdout) = (pipes.stdin, pipes.stdout);
        let down = thread::spawn({
            let stop = stop.clone();
            move || relay(input, stdin, to_server, &stop, Mode::Audit)
        });
        let up = thread::spawn({
            let stop = stop.clone();
            move || relay(stdout, output, to_client, &stop, Mode::Audit)
        });
        let recorder = thread::spawn({
            let waker = Arc::clone(&waker);
            move || discard([sent, received], &waker)
        });
        let ended = child.wait()?;
        stop.drain();
        for part in [down, up] {
            part.join().map_err(|_| io::Error::other("a relay thread died"))?;
        }
        recorder.join().map_err(|_| io::Error::other("the recorder died"))?;
        child.end_group(Duration::from_secs(1))?;
        Ok(ended.shell_code())
    };
    match run() {
        Ok(code) => exit(code),
        Err(error) => fail(error),
    }
}
