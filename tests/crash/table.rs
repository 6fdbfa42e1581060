//! The table of ends: what a server does at its end, by what a client does at its own, by profile.
//!
//! Where somebody waits for the proxy to end, or nobody is left, `--shutdown-timeout` is far beyond the limit of a test: only
//! haste ends those in time. Some cells are played, so that each server, each client and both profiles are there;
//! `ASSAY_ENDS=all` plays every cell and shows how long each took, any other text the cells with that in their name.

use crate::ends::{NEVER, NOTE, proxy, said_by_recorder, signal};
use assay_support::{
    check,
    rig::{INITIALIZE, Rig, call, files, rig, until},
};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    process::{Pid, Signal, kill_process},
};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    /// Ends at the end of its input.
    Polite,
    IgnoresEof,
    IgnoresEofAndTerm,
    /// Dies by SIGKILL with a call in flight.
    DiesInCall,
    /// Exits with 1, nothing in flight.
    Fails,
    /// The same, and its stdout is closed a moment before.
    FailsWithoutStdout,
    /// Goes on writing after the end of its input.
    TalksOn,
    /// The same, and neither SIGTERM nor a closed pipe ends it.
    TalksOnForEver,
    /// Floods with requests, never reads, and only SIGKILL ends it.
    Floods,
    /// Starts the server in the background and ends.
    Wrapper,
}

const SERVERS: [Server; 10] = [
    Server::Polite,
    Server::IgnoresEof,
    Server::IgnoresEofAndTerm,
    Server::DiesInCall,
    Server::Fails,
    Server::FailsWithoutStdout,
    Server::TalksOn,
    Server::TalksOnForEver,
    Server::Floods,
    Server::Wrapper,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Closes stdin, reads on and waits.
    Closes,
    /// Closes stdin and asks to end soon after.
    ClosesAndTerminates,
    /// Asks to end, and keeps the pipes.
    Terminates,
    /// Is killed: both pipes closed at once.
    Dies,
    /// Is killed, and another process holds both pipes.
    DiesAndPipesAreHeld,
    /// Reads no more, and holds our stdin.
    StopsReading,
    /// Floods, never reads, and closes stdin once nothing more is taken.
    Floods,
}

const CLIENTS: [Client; 7] = [
    Client::Closes,
    Client::ClosesAndTerminates,
    Client::Terminates,
    Client::Dies,
    Client::DiesAndPipesAreHeld,
    Client::StopsReading,
    Client::Floods,
];

impl Server {
    /// Its first line says that it is past its traps.
    fn script(self) -> String {
        // So long that little of it fills the pipes to a client that does not read.
        let answer = "long=$(printf %4000s); while read -r line; do \
                      echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":0,\\\"result\\\":{\\\"_\\\":\\\"$long\\\"}}\"; done";
        let answer_one = answer.replace("while", "for _ in 1; do").replace("; do echo", "; echo");
        let talk = format!("while :; do echo '{NOTE}' 2>&1; done");
        match self {
            Self::Polite => answer.to_owned(),
            Self::IgnoresEof => format!("{answer}; exec sleep 1000"),
            Self::IgnoresEofAndTerm => format!("trap '' TERM; {answer}; while :; do sleep 0.2; done"),
            Self::DiesInCall => format!("{answer_one}; read -r line; kill -KILL $$"),
            Self::Fails => format!("{answer_one}; read -r line; exit 1"),
            Self::FailsWithoutStdout => format!("{answer_one}; read -r line; exec 1>&-; sleep 0.05; exit 1"),
            Self::TalksOn => format!("{answer}; {talk}"),
            Self::TalksOnForEver => format!("trap '' TERM PIPE; {answer}; {talk}"),
            Self::Floods => {
                // More at once than all that may wait, then as many as a recorder without optimization can take.
                let request = r#"{"jsonrpc":"2.0","id":"$n","method":"roots/list","params":{"_":"$long"}}"#;
                let request = request.replace('"', "\\\"");
                format!(
                    "trap '' TERM PIPE; n=0; long=$(printf %4000s); while :; do n=$((n+1)); echo \"{request}\" 2>&1; \
                     [ $n -lt 500 ] || sleep 0.005; done"
                )
            }
            Self::Wrapper => format!("exec 3<&0; ({answer}) <&3 & exit 0"),
        }
    }

    /// Ends before its client does, when it is told the line; with this exit code, or by a signal.
    fn ends_first(self) -> Option<(String, Option<i32>)> {
        match self {
            Self::DiesInCall => Some((call(1, "hang", 0), None)),
            Self::Fails | Self::FailsWithoutStdout => Some((NOTE.to_owned(), Some(1))),
            _ => None,
        }
    }
}

/// What must come of a cell.
struct Wanted {
    reason: &'static str,
    teardown: &'static [&'static str],
    exit: i32,
    /// Whether the session is complete; who floods may or may not have a call in flight at the end.
    complete: Option<bool>,
}

fn wanted(server: Server, client: Client) -> Wanted {
    let flooded = client == Client::Floods;
    if let Some((_, code)) = server.ends_first() {
        let complete = if flooded { None } else { Some(server != Server::DiesInCall) };
        return Wanted { reason: "server_failed", teardown: &["exited"], exit: code.unwrap_or(2), complete };
    }
    let teardown: &[&str] = match server {
        // Whoever reads no more keeps it from reading up to the end.
        Server::Polite | Server::Wrapper if flooded => &["stdin_closed", "terminated"],
        Server::IgnoresEof => &["terminated"],
        // It may end of a closed pipe.
        Server::TalksOn => &["terminated", "stdin_closed"],
        Server::IgnoresEofAndTerm | Server::TalksOnForEver | Server::Floods => &["killed"],
        _ => &["stdin_closed"],
    };
    let signalled = client == Client::Terminates;
    let exit = if signalled && teardown == ["killed"] { 2 } else { 0 };
    let reason = if signalled { "signal_TERM" } else { "client_closed" };
    Wanted { reason, teardown, exit, complete: Some(true) }
}

/// Writes until nothing more is taken for a while.
fn flood(stdin: &ChildStdin) {
    fcntl_setfl(stdin, fcntl_getfl(stdin).unwrap() | OFlags::NONBLOCK).unwrap();
    let long = "x".repeat(2000);
    for n in 1_000..5_000 {
        let line = call(n, &long, n) + "\n";
        let (mut left, waiting) = (line.as_bytes(), Instant::now());
        while !left.is_empty() {
            match rustix::io::write(stdin, left) {
                Ok(written) => left = &left[written..],
                Err(Errno::AGAIN) if waiting.elapsed() > Duration::from_millis(500) => return,
                Err(Errno::AGAIN) => thread::sleep(Duration::from_millis(1)),
                // The server has ended, and so has the proxy.
                Err(Errno::PIPE) => return,
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// A client that runs as a process of its own, so that it can be killed while another one holds its pipes.
const HELD: &str = r#"mkfifo in out; "$0" "$@" <in >out 2>stderr & exec 3>in 4<out
    echo "$INITIALIZE" >&3; read -r line <&4; [ -z "$THEN" ] || echo "$THEN" >&3
    (exec sleep 300) & echo "$!"; wait"#;

/// What a client holds of a proxy.
struct Ends {
    stdin: Option<ChildStdin>,
    stdout: Option<BufReader<ChildStdout>>,
    /// The one that holds the pipes after the client's death.
    holder: Option<Pid>,
}

fn begin(rig: &Rig, server: Server, client: Client, guard: bool) -> (Child, Ends) {
    let patient = matches!(client, Client::Closes | Client::Terminates | Client::Floods);
    let mut command = proxy(rig, guard, if patient { "1" } else { NEVER }, &server.script());
    let trigger = server.ends_first().map(|(line, _)| line);
    if client == Client::DiesAndPipesAreHeld {
        let mut held = rig.command("sh");
        held.args(["-c", HELD]).arg(command.get_program()).args(command.get_args());
        held.env("INITIALIZE", INITIALIZE).env("THEN", trigger.unwrap_or_default());
        let mut child = held.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let holder = line.trim().parse().ok().and_then(Pid::from_raw);
        assert!(holder.is_some(), "{line}");
        return (child, Ends { stdin: None, stdout: None, holder });
    }
    let stderr = fs::File::create(rig.root.join("stderr")).unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    writeln!(stdin, "{INITIALIZE}").unwrap();
    let mut stdout = BufReader::new(stdout);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.contains("jsonrpc"), "{line}");
    if let Some(trigger) = trigger {
        writeln!(stdin, "{trigger}").unwrap();
    }
    (child, Ends { stdin: Some(stdin), stdout: Some(stdout), holder: None })
}

/// Plays one cell; how long the proxy took after the client had begun to end, and whether its pack was there before.
fn play(server: Server, client: Client, guard: bool) -> Duration {
    let rig = rig!();
    let (mut child, mut ends) = begin(&rig, server, client, guard);
    if client == Client::Floods {
        flood(ends.stdin.as_ref().unwrap());
    }
    if server.ends_first().is_some() {
        said_by_recorder(&rig, "the session ends");
    }
    if server == Server::Wrapper {
        said_by_recorder(&rig, "has ended and left others");
    }
    let begun = Instant::now();
    let reads = matches!(client, Client::Closes | Client::ClosesAndTerminates | Client::Terminates);
    let reader = reads.then(|| {
        let mut stdout = ends.stdout.take().unwrap();
        thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()).unwrap())
    });
    match client {
        Client::Closes | Client::Floods => ends.stdin = None,
        Client::ClosesAndTerminates => {
            ends.stdin = None;
            said_by_recorder(&rig, "the session ends");
            signal(&child, Signal::TERM);
        }
        Client::Terminates => signal(&child, Signal::TERM),
        Client::Dies => (ends.stdin, ends.stdout) = (None, None),
        Client::StopsReading => ends.stdout = None,
        Client::DiesAndPipesAreHeld => child.kill().unwrap(),
    }
    let status = until("the proxy to end", || child.try_wait().unwrap());
    let log = || fs::read_to_string(rig.audit.join("recorder.log")).unwrap_or_default();
    let exit = until("the proxy's last word", || {
        log().split("the proxy ends exit=").nth(1)?.split_whitespace().next()?.parse::<i32>().ok()
    });
    let took = begun.elapsed();
    let packs = files(&rig.audit.join("packs"), |name| name.starts_with("proof_pack"));
    assert_eq!(packs.len(), 1, "the pack is there before the proxy ends");
    if client != Client::DiesAndPipesAreHeld {
        assert_eq!(status.code(), Some(exit));
    }
    if let Some(holder) = ends.holder {
        kill_process(holder, Signal::KILL).unwrap();
    }
    drop(ends);
    if let Some(reader) = reader {
        reader.join().unwrap();
    }
    rig.await_silence();
    let mut said = log();
    fs::File::open(rig.root.join("stderr")).unwrap().read_to_string(&mut said).unwrap();
    check::settled(&rig);
    let session = check::sessions(&rig).remove(0);
    let Wanted { reason, teardown, exit: code, complete } = wanted(server, client);
    assert_eq!(session.doc.end_reason, reason, "{said}");
    let by = session.doc.teardown.as_deref().unwrap();
    assert!(teardown.contains(&by), "{by}: {said}");
    assert_eq!(exit, code, "{said}");
    assert!(complete.is_none_or(|complete| complete == session.doc.session_complete), "{said}");
    assert!(took < Duration::from_secs(30), "{took:?}: {said}");
    took
}

/// They wait more than they work.
const BESIDE: usize = 8;

#[test]
fn every_end_is_bounded_and_is_what_it_is() {
    let which = std::env::var("ASSAY_ENDS").ok();
    let mut cells = Vec::new();
    for (s, server) in SERVERS.into_iter().enumerate() {
        for (c, client) in CLIENTS.into_iter().enumerate() {
            for guard in [false, true] {
                let turn = (c + CLIENTS.len() - s % CLIENTS.len()) % CLIENTS.len();
                let some = matches!((turn, guard == (s % 2 == 0)), (0, true) | (3, false));
                let name = format!("{server:?} × {client:?}, guard: {guard}");
                let wanted = which.as_ref().map_or(some, |which| which == "all" || name.contains(which));
                if wanted {
                    cells.push((name, server, client, guard));
                }
            }
        }
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                while let Some((name, server, client, guard)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match std::panic::catch_unwind(|| play(*server, *client, *guard)) {
                        Ok(took) if which.is_some() => println!("{:>6} ms  {name}", took.as_millis()),
                        Ok(_) => {}
                        Err(_) => failed.lock().unwrap().push(name),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{failed:#?}");
}
