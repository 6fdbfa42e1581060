//! Process and thread attributes.

use rustix::process::{Pid, test_kill_process};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Ignores `SIGPIPE` (a gone reader is an error of the write) and `SIGXFSZ` (a file limit is an error of the write),
/// instead of being killed by them.
pub fn ignore_write_signals() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN installs no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Undoes a setting of our parent that would keep the end of a child from us: a `SIGCHLD` that is ignored, with which
/// nobody learns how a child ended, and signals that are blocked. Call it before the first thread.
pub fn hear_signals() {
    // SAFETY: SIG_DFL installs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    unblock_signals();
}

/// Keeps what is in the memory of this process, keys above all, from other processes of the same user: they can no longer
/// attach to it or read its `mem`, `maps` and `environ`, and it leaves no core (Linux; elsewhere nothing happens). What
/// it starts is as usual: `exec` undoes it.
pub fn keep_memory_private() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // Afterwards it belongs to root.
        let _ = io_file();
        if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(error = %e, "other processes of this user can read the memory of this one");
        }
    }
}

/// What the system says of the bytes that this process has read and written (Linux `/proc/self/io`).
pub fn io_so_far() -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::FileExt as _;
        let mut text = [0; 1024];
        let len = io_file()?.read_at(&mut text, 0).ok()?;
        String::from_utf8(text[..len].to_vec()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn io_file() -> Option<&'static std::fs::File> {
    static IO: std::sync::OnceLock<Option<std::fs::File>> = std::sync::OnceLock::new();
    IO.get_or_init(|| std::fs::File::open("/proc/self/io").ok()).as_ref()
}

/// Whether `signal` is ignored, as `nohup` and shells without job control leave it to those that they start.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: only asks: `action` is written by the call and read only if that succeeded.
    unsafe {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Sends any signal, real-time ones too, to the process `pid`. Quietly nothing if there is none.
pub fn send(pid: u32, signal: i32) -> io::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return Ok(()) };
    // SAFETY: no memory is touched.
    if unsafe { libc::kill(pid, signal) } == 0 {
        return Ok(());
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(e) }
}

/// Signals that would end this process and have no meaning to it, but that users send to servers that react to them.
pub fn forwarded_signals() -> Vec<i32> {
    let mut all = vec![
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGQUIT,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGIO,
        libc::SIGXCPU,
    ];
    #[cfg(target_os = "linux")]
    all.extend([libc::SIGPWR, libc::SIGSTKFLT].into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()));
    all
}

/// Lowers the priority of the calling thread by `nice` steps (Linux, where threads have their own; elsewhere nothing
/// happens, because there it would slow the whole process).
pub fn nice_this_thread(nice: i32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::setpriority_process(None, nice)?;
    #[cfg(not(target_os = "linux"))]
    let _ = nice;
    Ok(())
}

/// Prepares `command` so that the program starts as if its user had started it: default dispositions for the signals
/// that [`ignore_write_signals`] ignores, an empty signal mask, no descriptor but 0, 1 and 2, and (Linux) `SIGKILL`
/// when the thread that calls `spawn` ends. Spawn from a thread that lives as long as the session: the kernel ties the
/// signal to the thread.
pub fn harden_child(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: the closure runs between fork and exec and makes system calls only: no allocation, no lock, no panic.
    unsafe {
        command.pre_exec(move || {
            reset_signals();
            close_on_exec_from_3();
            die_with_parent(parent)
        });
    }
}

/// Default dispositions and an empty mask; async-signal-safe.
fn reset_signals() {
    // Only what we ignore ourselves: a SIGHUP that `nohup` ignores is meant to stay ignored.
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_DFL installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    unblock_signals();
}

/// An empty mask for this thread and those that it starts; async-signal-safe.
fn unblock_signals() {
    // SAFETY: `set` is initialised by sigemptyset before it is read.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Marks every descriptor from 3 up close-on-exec (not closed: the standard library reports a failed exec through one).
fn close_on_exec_from_3() {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: changes descriptor flags only.
        let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        if done == 0 {
            return;
        }
    }
    // SAFETY: sysconf and fcntl with F_GETFD/F_SETFD touch no memory of ours.
    unsafe {
        let limit = libc::sysconf(libc::_SC_OPEN_MAX).clamp(256, 65_536) as i32;
        for fd in 3..limit {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 {
                libc::fcntl(fd, libc::F_SETFD, flags | libc::FD_CLOEXEC);
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The parent may have died before the line above; then the signal would never be sent.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_parent: Pid) -> io::Result<()> {
    Ok(())
}

/// Start time of a process in clock ticks since boot (Linux `/proc/<pid>/stat` field 22): with the pid it names one
/// process for ever. `None` if there is no such process or the system does not say.
pub fn start_time(pid: u32) -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name in field 2 may contain anything, also `)`: count from the last one.
        let after = stat.iter().rposition(|&b| b == b')')? + 1;
        let text = std::str::from_utf8(stat.get(after..)?).ok()?;
        text.split_ascii_whitespace().nth(19)?.parse().ok()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        None
    }
}

/// Whether the process `pid` that had this [`start_time`] is still there (a zombie counts). Without a start time, or
/// where the system does not tell them, only the pid is compared.
pub fn is_alive(pid: u32, started: Option<u64>) -> bool {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return false;
    };
    let there = match test_kill_process(id) {
        Ok(()) => true,
        Err(e) => e == rustix::io::Errno::PERM,
    };
    match (started, start_time(pid)) {
        (Some(then), Some(now)) => there && then == now,
        _ => there,
    }
}

/// Whether a process of the group `pgid` runs (zombies do not), this one aside. `None` where the system does not tell.
pub fn group_has_running(pgid: u32) -> Option<bool> {
    group_members(pgid).map(|members| !members.is_empty())
}

/// The processes of the group `pgid` that run (zombies do not), without this one. `None` where the system does not
/// tell.
pub fn group_members(pgid: u32) -> Option<Vec<u32>> {
    running(|_, group| group == pgid)
}

/// Makes this process the parent of every process below it whose own parent ends (Linux; elsewhere nothing happens).
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// The children of this process that run (zombies do not). `None` where the system does not tell.
pub fn children() -> Option<Vec<u32>> {
    let me = std::process::id();
    running(|parent, _| parent == me)
}

/// The other processes that run (zombies do not) and that `wanted` takes by their parent and their group.
fn running(wanted: impl Fn(u32, u32) -> bool) -> Option<Vec<u32>> {
    #[cfg(target_os = "linux")]
    {
        let one = |entry: std::fs::DirEntry| -> Option<u32> {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            let after = stat.iter().rposition(|&b| b == b')')? + 1;
            let text = std::str::from_utf8(stat.get(after..)?).ok()?;
            let mut fields = text.split_ascii_whitespace();
            let state = fields.next()?;
            let (parent, group): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let runs = wanted(parent, group) && pid != std::process::id() && !matches!(state, "Z" | "X" | "x");
            runs.then_some(pid)
        };
        Some(std::fs::read_dir("/proc").ok()?.flatten().filter_map(one).collect())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = wanted;
        None
    }
}

/// Whether what is typed at the terminal goes to the group of this process: then Ctrl-C reaches all of it.
pub fn is_in_foreground() -> bool {
    // SAFETY: no memory is touched.
    (0..3).any(|fd| unsafe { libc::tcgetpgrp(fd) == libc::getpgrp() })
}

/// Whether this process leads a process group of its own: its parent made one for it and what it starts.
pub fn leads_a_group() -> bool {
    rustix::process::getpgrp() == rustix::process::getpid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_only_with_its_own_start_time() {
        let me = std::process::id();
        let started = start_time(me);
        assert!(is_alive(me, started));
        assert!(is_alive(me, None));
        #[cfg(target_os = "linux")]
        assert!(!is_alive(me, started.map(|t| t + 1)));
        assert!(!is_alive(0, None));
        assert!(!is_alive(u32::MAX, None));
    }

    #[test]
    fn a_reaped_child_is_not_alive() {
        let mut child = Command::new("true").spawn().unwrap();
        let (pid, started) = (child.id(), start_time(child.id()));
        child.wait().unwrap();
        assert!(!is_alive(pid, started));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_hardened_child_sees_three_descriptors_and_no_ignored_signals() {
        use std::os::fd::AsRawFd;
        ignore_write_signals();
        let file = tempfile::tempfile().unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        assert!(file.as_raw_fd() > 2);
        let mut command = Command::new("/bin/sh");
        // `ls` itself opens one descriptor to read the directory.
        command.args(["-c", "ls /proc/self/fd | tr '\\n' ' '; grep -E 'SigIgn|SigBlk' /proc/self/status"]);
        harden_child(&mut command);
        let out = command.output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.starts_with("0 1 2 3 SigBlk"), "{text}");
        let bits = |name: &str| {
            let line = text.split(['\n', ' ']).find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(bits("SigBlk:"), 0);
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            assert_eq!(bits("SigIgn:") & (1 << (signal - 1)), 0, "{text}");
        }
    }
}
