//! Faults at chosen system calls, with `strace`; and a file system that is really full, which needs root.

use assay::pack::verify::Completeness;
use assay_support::{
    check::{self, Crossed},
    rig::{Client, INITIALIZE, Rig, call, files, rig, until},
};
use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// Everything that changes what lies on disk.
const CALLS: &[&str] = &[
    "write",
    "openat",
    "fdatasync",
    "fsync",
    "rename",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "ftruncate",
    "mkdir",
    "mkdirat",
    "fallocate",
    "linkat",
];

/// `strace` with this fault in these system calls of what stands behind it.
fn strace(calls: &str, fault: &str) -> Vec<String> {
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:{fault}"));
    ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned).to_vec()
}

fn kill_at(syscall: &str, n: u32) -> Vec<String> {
    strace(syscall, &format!("signal=SIGKILL:when={n}"))
}

/// A proxy behind such a command.
fn proxy_behind(rig: &Rig, argv: &[String], flags: &[&str]) -> Command {
    rig.wrapped(&argv.iter().map(String::as_str).collect::<Vec<_>>(), flags, "")
}

/// A recovery behind such a command.
fn recover_behind(rig: &Rig, argv: &[String]) -> Output {
    let mut command = rig.command(&argv[0]);
    command.args(&argv[1..]).arg(rig.assay).args(["recover", "--json", "--audit-dir"]).arg(&rig.audit);
    command.output().unwrap()
}

/// `strace` with a fault in this system call of one thread of a proxy that runs.
fn attach(rig: &Rig, client: &Client, tid: &str, syscall: &str, fault: &str) -> Child {
    let (trace, inject) = (format!("trace={syscall}"), format!("inject={syscall}:{fault}"));
    let mut command = rig.command("strace");
    command.args(["-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject, "-p", tid]);
    let tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("the tracer", || {
        let status = fs::read_to_string(format!("/proc/{}/task/{tid}/status", client.child.id())).ok()?;
        (!status.contains("TracerPid:\t0")).then_some(())
    });
    tracer
}

/// A proxy whose segment is there, after one call.
fn begun(flags: &[&str]) -> (Rig, Client) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(flags));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    until("the segment", || (!rig.segments().is_empty()).then_some(()));
    (rig, client)
}

/// Calls until `done`; gives the id of the last call.
fn call_until(what: &str, client: &mut Client, done: impl Fn() -> bool) -> u64 {
    let mut id = 1;
    until(what, || {
        id += 1;
        client.converse(std::iter::once(call(id, "echo", id)));
        done().then_some(())
    });
    id
}

/// How many threads share a sweep over system calls.
const SHARES: usize = 2;

/// Calls `killed` for every system call of one share with 1, 4, 7, …, until it says that nothing was killed.
/// `ASSAY_SYSCALLS=all`: with 1, 2, 3, …
fn sweep(share: usize, killed: impl Fn(&str, u32) -> bool) {
    let step = if std::env::var("ASSAY_SYSCALLS").is_ok_and(|calls| calls == "all") { 1 } else { 3 };
    let mut failed = Vec::new();
    for syscall in CALLS.iter().skip(share).step_by(SHARES) {
        for n in (1..).step_by(step) {
            assert!(n < 500, "{syscall} has no end");
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| killed(syscall, n))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => failed.push(format!("{syscall} {n}")),
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// A short session under `strace`; the server may be hit, too, which ends the session in another way.
fn session_killed_at(syscall: &str, n: u32) -> bool {
    let rig = rig!();
    let wrapper = kill_at(syscall, n);
    let mut client = Client::start(proxy_behind(&rig, &wrapper, &["--pack-interval", "3r"]));
    client.send(INITIALIZE);
    for i in 1..=9 {
        client.send(&call(i, if i == 4 { "ask" } else { "echo" }, i));
    }
    until("the answers or the end", || {
        (client.lines() >= 11 || client.child.try_wait().unwrap().is_some()).then_some(())
    });
    let status = client.end();
    rig.await_silence();
    let server = fs::read(rig.server_log()).unwrap_or_default();
    check::recovered(&rig, &Crossed { client: client.got(), server, damaged: false });
    status.signal().is_some() || status.code() != Some(0)
}

#[test]
fn a_proxy_that_is_killed_at_any_system_call_loses_nothing() {
    sweep(0, session_killed_at);
}

#[test]
fn a_proxy_that_is_killed_at_any_other_system_call_loses_nothing() {
    sweep(1, session_killed_at);
}

/// Puts `root` back as it was.
fn restore(root: &Path, saved: &[(PathBuf, Vec<u8>)]) {
    for path in check::tree(root).into_keys().filter(|p| p.is_file()) {
        if !saved.iter().any(|(p, _)| *p == path) {
            fs::remove_file(path).unwrap();
        }
    }
    for pack in files(&root.join("audit/packs"), |_| true) {
        fs::remove_dir_all(pack).unwrap();
    }
    for (path, bytes) in saved {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn recover_killed(share: usize) {
    let rig = rig!();
    let mut client = Client::start(rig.proxy(&["--pack-interval", "4r"]));
    client.send(INITIALIZE);
    for i in 1..=40 {
        client.send(&call(i, if i % 9 == 4 { "ask" } else { "echo" }, i));
    }
    client.await_lines(20);
    client.kill();
    rig.await_silence();
    let crossed = Crossed::of(&rig, &client);
    let all = check::tree(&rig.root).into_keys().filter(|p| p.is_file());
    let saved: Vec<(PathBuf, Vec<u8>)> = all.map(|p| (p.clone(), fs::read(&p).unwrap())).collect();
    sweep(share, |syscall, n| {
        restore(&rig.root, &saved);
        let status = recover_behind(&rig, &kill_at(syscall, n)).status;
        check::recovered(&rig, &crossed);
        status.signal().is_some() || status.code() == Some(137)
    });
}

#[test]
fn a_recovery_that_is_killed_at_any_system_call_is_made_up_for_by_the_next() {
    recover_killed(0);
}

#[test]
fn a_recovery_that_is_killed_at_any_other_system_call_is_made_up_for_by_the_next() {
    recover_killed(1);
}

/// The thread of a process that has this name.
fn thread(pid: u32, name: &str) -> String {
    until(name, || {
        files(Path::new(&format!("/proc/{pid}/task")), |_| true)
            .into_iter()
            .find(|t| fs::read_to_string(t.join("comm")).is_ok_and(|c| c.trim() == name))
            .map(|t| t.file_name().unwrap().to_str().unwrap().to_owned())
    })
}

/// Makes the next `fdatasync` of one thread fail with an I/O error.
struct FailingSync(Child);

impl FailingSync {
    fn of(rig: &Rig, client: &Client, name: &str) -> Self {
        let tid = thread(client.child.id(), name);
        Self(attach(rig, client, &tid, "fdatasync", "error=EIO:when=1"))
    }
}

impl Drop for FailingSync {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

#[test]
fn a_failed_sync_begins_another_segment_and_the_old_pack_is_incomplete() {
    let (rig, mut client) = begun(&[]);
    let failing = FailingSync::of(&rig, &client, "assay-sync");
    let id = call_until("a second segment", &mut client, || rig.segments().len() > 1);
    drop(failing);
    client.converse((id + 1..id + 4).map(|i| call(i, "echo", i)));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    check::settled(&rig);
    let mut sessions = check::sessions(&rig);
    sessions.sort_by_key(|s| s.doc.continues.is_some());
    assert_eq!(sessions.len(), 2);
    assert_eq!(sessions[0].doc.end_reason, "fsync_failed");
    assert_eq!(sessions[0].completeness, Completeness::Incomplete);
    assert_eq!(sessions[1].doc.continues, Some(sessions[0].doc.session_id));
    assert_eq!(sessions[1].completeness, Completeness::Complete);
    check::evidence(&sessions, &Crossed::of(&rig, &client));
}

#[test]
fn a_ledger_that_cannot_be_synced_when_rolling_over_is_tried_again() {
    let (rig, mut client) = begun(&["--pack-interval", "3r"]);
    let failing = FailingSync::of(&rig, &client, "assay-recorder");
    client.converse((2..8).map(|i| call(i, "echo", i)));
    client.await_said("beginning a session");
    drop(failing);
    until("the next segment", || (rig.segments().len() > 1).then_some(()));
    client.converse((8..10).map(|i| call(i, "echo", i)));
    client.end();
    let server = fs::read(rig.server_log()).unwrap();
    check::settled(&rig);
    let sessions = check::sessions(&rig);
    assert!(sessions.len() > 1);
    // What crossed meanwhile is a gap, not a silence.
    let missed: u64 = sessions.iter().map(|s| s.doc.counts.missed).sum();
    let found = sessions.iter().map(|s| s.doc.counts.calls).sum::<u64>();
    assert!(missed > 0 || found == 9, "{missed} missed, {found} found");
    assert!(!server.is_empty());
}

/// What file systems say that have no locks, or do not sync, or not directories.
const CANNOT: [&str; 4] = ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EINVAL"];

fn unable(calls: &str, error: &str) -> Vec<String> {
    strace(calls, &format!("error={error}"))
}

#[test]
fn a_file_system_without_locks_or_syncs_gets_what_it_can_hold() {
    for (calls, errors) in
        [("flock", &CANNOT[..]), ("fsync,fdatasync", &CANNOT[1..]), ("flock,fsync,fdatasync", &CANNOT[3..])]
    {
        for error in errors {
            let rig = rig!();
            let argv = unable(calls, error);
            let mut client = Client::start(proxy_behind(&rig, &argv, &["--pack-interval", "3r"]));
            client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=9).map(|i| call(i, "echo", i))));
            assert_eq!(client.end().code(), Some(0), "{calls} {error}: {}", client.said());
            assert_eq!(client.said().contains("--audit-dir"), calls.contains("flock"), "{}", client.said());
            assert!(!client.said().contains("no pack was built"), "{}", client.said());
            assert_eq!(recover_behind(&rig, &unable(calls, error)).status.code(), Some(0), "{calls} {error}");
            rig.await_silence();
            check::settled(&rig);
            let sessions = check::sessions(&rig);
            assert!(sessions.len() > 1 && sessions.iter().all(|s| s.completeness == Completeness::Complete));
            check::evidence(&sessions, &Crossed::of(&rig, &client));
        }
    }
}

#[test]
fn where_nobody_can_lock_a_session_that_runs_is_left_alone_and_a_dead_one_is_finished() {
    for error in CANNOT {
        let rig = rig!();
        let mut client = Client::start(rig.proxy(&[]));
        client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..=3).map(|i| call(i, "echo", i))));
        rig.await_events(13);
        // Its card it writes itself, when it hears who takes part; and its log and its checkpoints.
        let own = |p: &Path| {
            let name = p.file_name().unwrap().to_string_lossy();
            p.starts_with(rig.audit.join("live")) || name == "recorder.log" || name.starts_with("checkpoints_")
        };
        let files = || check::tree(&rig.audit).into_iter().filter(|(p, _)| !own(p) && p.is_file());
        let before: Vec<_> = files().collect();
        let out = recover_behind(&rig, &unable("flock", error));
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
        assert!(String::from_utf8_lossy(&out.stdout).contains("\"sessions\": []"), "{out:?}");
        assert_eq!(files().collect::<Vec<_>>(), before, "{error}: a session that runs was touched");
        client.kill();
        rig.await_silence();
        let out = recover_behind(&rig, &unable("flock", error));
        assert_eq!(out.status.code(), Some(0), "{error}: {}", String::from_utf8_lossy(&out.stdout));
        check::recovered(&rig, &Crossed::of(&rig, &client));
    }
}

/// Holds up one system call of one thread, for longer than any test may take.
struct Hanging {
    tracer: Child,
    stat: PathBuf,
}

impl Hanging {
    fn of(rig: &Rig, client: &Client, name: &str, syscall: &str) -> Self {
        let tid = thread(client.child.id(), name);
        let tracer = attach(rig, client, &tid, syscall, "delay_enter=1000000000:when=1");
        let stat = PathBuf::from(format!("/proc/{}/task/{tid}/stat", client.child.id()));
        Self { tracer, stat }
    }

    /// Whether the thread waits for its system call.
    fn hangs(&self) -> bool {
        let stat = fs::read_to_string(&self.stat).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('t'))
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        let _ = self.tracer.kill();
        let _ = self.tracer.wait();
    }
}

#[test]
fn a_disk_that_hangs_holds_nobody_up_and_what_crossed_meanwhile_is_evidence() {
    for (name, syscall) in [("assay-sync", "fdatasync"), ("assay-recorder", "write")] {
        let (rig, mut client) = begun(&[]);
        let hanging = Hanging::of(&rig, &client, name, syscall);
        let id = call_until("the disk to hang", &mut client, || hanging.hangs());
        client.converse((id + 1..id + 200).map(|i| call(i, "echo", i)));
        assert!(hanging.hangs(), "{name} went on");
        drop(hanging);
        client.converse((id + 200..id + 203).map(|i| call(i, "echo", i)));
        assert_eq!(client.end().code(), Some(0), "{name}: {}", client.said());
        check::settled(&rig);
        let sessions = check::sessions(&rig);
        assert_eq!(sessions[0].completeness, Completeness::Complete);
        check::evidence(&sessions, &Crossed::of(&rig, &client));
    }
}

#[test]
fn a_disk_that_hangs_to_the_end_does_not_keep_the_proxy() {
    let (rig, mut client) = begun(&["--shutdown-timeout", "1"]);
    let hanging = Hanging::of(&rig, &client, "assay-recorder", "write");
    let id = call_until("the disk to hang", &mut client, || hanging.hangs());
    client.converse((id + 1..id + 20).map(|i| call(i, "echo", i)));
    client.stdin = None;
    client.await_said("does not respond");
    drop(hanging);
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    rig.await_silence();
    let sessions = check::recovered(&rig, &Crossed::of(&rig, &client));
    assert_eq!(sessions[0].doc.counts.calls, id + 19);
}

/// A small file system of its own, unmounted on drop.
struct Small(PathBuf);

impl Small {
    /// Nothing if we may not mount, which only root may.
    fn at(dir: &Path) -> Option<Self> {
        fs::create_dir(dir).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=512k,mode=700", "assay-test"]).arg(dir);
        let mounted = command.stderr(Stdio::null()).status().unwrap().success();
        assert!(mounted || !rustix::process::geteuid().is_root(), "root cannot mount");
        mounted.then(|| Self(dir.to_owned()))
    }

    fn fill(&self) {
        use std::io::Write as _;
        let mut file = fs::File::options().append(true).create(true).open(self.0.join("filler")).unwrap();
        while file.write_all(&[b'.'; 1024]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_file_system_and_space_again() {
    let rig = rig!();
    let Some(small) = Small::at(&rig.audit) else { return };
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    rig.await_events(5);
    small.fill();
    client.converse((2..60).map(|i| call(i, "echo", i)));
    client.await_said("writing evidence");
    small.free();
    client.converse((60..62).map(|i| call(i, "echo", i)));
    assert_eq!(client.end().code(), Some(0), "{}", client.said());
    check::settled(&rig);
    let sessions = check::sessions(&rig);
    assert_eq!(sessions[0].doc.counts.calls, 61);
    assert_eq!(sessions[0].completeness, Completeness::Complete);
}

#[test]
fn a_file_system_that_stays_full_to_the_end() {
    let rig = rig!();
    let Some(small) = Small::at(&rig.audit) else { return };
    let mut client = Client::start(rig.proxy(&[]));
    client.converse([INITIALIZE.to_owned(), call(1, "echo", 1)].into_iter());
    rig.await_events(5);
    small.fill();
    client.converse((2..60).map(|i| call(i, "echo", i)));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    small.free();
    let sessions = check::recovered(&rig, &Crossed::of(&rig, &client));
    assert_eq!(sessions[0].doc.counts.calls, 59);
}

#[test]
fn a_file_system_that_is_full_from_the_start() {
    let rig = rig!();
    let Some(small) = Small::at(&rig.audit) else { return };
    small.fill();
    let mut client = Client::start(rig.proxy(&[]));
    client.converse(std::iter::once(INITIALIZE.to_owned()).chain((1..20).map(|i| call(i, "echo", i))));
    assert_eq!(client.end().code(), Some(2), "{}", client.said());
    assert!(client.said().contains("warning"), "{}", client.said());
    assert_eq!(client.lines(), 20);
    small.free();
    // Whatever was begun is finished, and nothing claims to be whole.
    let server = fs::read(rig.server_log()).unwrap();
    let sessions = check::recovered(&rig, &Crossed::damaged());
    assert!(sessions.iter().all(|s| s.completeness != Completeness::Complete));
    assert!(!server.is_empty());
}
