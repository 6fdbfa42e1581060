//! `assay wrap` where a file cannot be written as usual: the file is the old one or the new one, whole, and what happened is said.

use super::cli_wrap::{behind, document, in_project};
use assay_support::{
    rig::{Rig, files, rig, stderr, stdout},
    tty::Tty,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const OLD: &str = "{\"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [\"y\"]}}}\n";

/// A home with one file of one client; the file.
fn home() -> (Rig, PathBuf) {
    let rig = rig!();
    fs::create_dir_all(rig.at("project")).unwrap();
    fs::create_dir_all(rig.at(".cursor")).unwrap();
    let config = rig.at(".cursor/mcp.json");
    fs::write(&config, OLD).unwrap();
    (rig, config)
}

fn is_new(text: &str) -> bool {
    text.contains("--wrapped=1") && text.ends_with("\"y\"]}}}\n")
}

fn said(out: &Output) -> String {
    stdout(out) + &stderr(out)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_mounted_file_and_one_with_other_names_are_written_in_place() {
    let (rig, config) = home();
    let wrap = ["wrap", "a", "--yes", "--assay", rig.assay];
    fs::hard_link(&config, rig.at("other")).unwrap();
    let inode = config.metadata().unwrap().ino();
    let out = in_project(&rig, &wrap);
    assert!(out.status.success(), "{}", said(&out));
    assert!(stdout(&out).contains("written in place"), "{}", said(&out));
    assert!(is_new(&fs::read_to_string(rig.at("other")).unwrap()));
    assert_eq!(config.metadata().unwrap().ino(), inode);
    if Command::new("strace").arg("-V").output().is_err() {
        return;
    }
    fs::remove_file(rig.at("other")).unwrap();
    for (fault, in_place) in [("EBUSY", true), ("EXDEV", true), ("EROFS", true), ("EACCES", true), ("EIO", false)] {
        fs::write(&config, OLD).unwrap();
        let out = behind(&rig, &format!("rename:error={fault}"), &wrap);
        let now = fs::read_to_string(&config).unwrap();
        assert_eq!(is_new(&now), in_place, "{fault}: {now} {}", said(&out));
        assert_eq!(out.status.code(), Some(if in_place { 0 } else { 2 }), "{fault}: {}", said(&out));
        assert_eq!(config.metadata().unwrap().ino(), inode, "{fault}");
        assert_eq!(files(&rig.at(".cursor"), |_| true), std::slice::from_ref(&config), "{fault}");
    }
}

#[test]
fn a_file_keeps_its_owner_and_mode_and_what_another_user_owns_is_refused_whole() {
    let (rig, config) = home();
    mode(&config, 0o640);
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: files of other users are not tried");
        return;
    }
    let nobody = 65_534;
    chown(&config, Some(nobody), Some(nobody)).unwrap();
    let out = in_project(&rig, &["wrap", "a", "--yes", "--assay", rig.assay]);
    assert!(out.status.success(), "{}", said(&out));
    let meta = config.metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (nobody, nobody, 0o640));
    // From now on as that user, in its own home, with a program that it can reach.
    let program = rig.at("assay");
    fs::copy(rig.assay, &program).unwrap();
    for path in [rig.root.clone(), rig.at("project"), rig.at(".cursor"), rig.at("run")] {
        chown(&path, Some(nobody), Some(nobody)).unwrap();
    }
    let _ = fs::remove_dir_all(rig.at("home"));
    let as_nobody = || {
        let mut command = rig.command(&program);
        command.args(["wrap", "a", "--yes", "--assay", program.to_str().unwrap()]);
        command.current_dir(rig.at("project")).env_remove("XDG_CONFIG_HOME").uid(nobody).gid(nobody);
        command.output().unwrap()
    };
    // A file of root, which this user may read and not write.
    fs::write(&config, OLD).unwrap();
    chown(&config, Some(0), Some(0)).unwrap();
    mode(&config, 0o644);
    let out = as_nobody();
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(stderr(&out).contains("mcp.json") && stderr(&out).contains("denied"), "{}", said(&out));
    assert_eq!(fs::read_to_string(&config).unwrap(), OLD);
    assert_eq!(config.metadata().unwrap().uid(), 0);
    // A directory that cannot be written: the file is written in place.
    chown(&config, Some(nobody), Some(nobody)).unwrap();
    mode(&rig.at(".cursor"), 0o555);
    let out = as_nobody();
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert!(stdout(&out).contains("written in place"), "{}", said(&out));
    assert!(is_new(&fs::read_to_string(&config).unwrap()));
    // Neither can be written.
    fs::write(&config, OLD).unwrap();
    mode(&config, 0o444);
    let out = as_nobody();
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert_eq!(fs::read_to_string(&config).unwrap(), OLD);
    mode(&rig.at(".cursor"), 0o755);
}

#[test]
fn where_no_more_can_be_written_the_file_stays_whole() {
    let (rig, config) = home();
    // Larger than what may be written, as a disk that is full in the middle of it.
    let big = OLD.replace("\"y\"", &format!("\"{}\", \"y\"", "y".repeat(40_000)));
    for (limit, trap) in
        [("0", "trap '' XFSZ;"), ("8", "trap '' XFSZ;"), ("8", "ulimit -c 0;"), ("85", "trap '' XFSZ;")]
    {
        fs::write(&config, &big).unwrap();
        let script = format!("{trap} ulimit -f {limit}; exec \"$0\" wrap a --yes --assay \"$0\"");
        let out = rig.shell(&script).current_dir(rig.at("project")).env_remove("XDG_CONFIG_HOME").output().unwrap();
        let now = fs::read_to_string(&config).unwrap();
        let whole = now == big || is_new(&now) && now.len() > big.len();
        assert!(whole, "{limit}: {} bytes", now.len());
        assert_eq!(out.status.success(), now != big, "{limit}: {}", said(&out));
        // Only what was killed leaves something beside it.
        let left = files(&rig.at(".cursor"), |_| true).len();
        assert!(left == 1 || left == 2 && out.status.code().is_none(), "{limit}: {left}");
        let _ = fs::remove_file(rig.at(".cursor/.mcp.json.assay-new"));
    }
}

/// In a small file system of its own, with so many free pages of 4 KiB: what became of the file, and the exit code.
const ON_A_SMALL_DISK: &str = r#"
set -eu
mount -t tmpfs -o size=512k,mode=700 assay-test small
export HOME="$PWD/small" ASSAY_HOME="$PWD/small/home"
old="$PWD/old.json" new="$PWD/new.json" said="$PWD/said"
cd small
mkdir .cursor
cp "$old" .cursor/mcp.json
"$0" wrap a --yes --assay "$0" >"$said"
cp .cursor/mcp.json "$new"
for form in renamed linked; do
    for free in 0 1 4 9 10 11 12 19 20 21 22 24 30; do
        rm -rf home fill .cursor other
        mkdir .cursor
        cp "$old" .cursor/mcp.json
        [ $form = renamed ] || ln .cursor/mcp.json other
        dd if=/dev/zero of=fill bs=4096 2>/dev/null || true
        truncate -s $(($(stat -c %s fill) - free * 4096)) fill
        code=0
        "$0" wrap a --yes --assay "$0" >"$said" 2>&1 || code=$?
        state=torn
        if cmp -s .cursor/mcp.json "$old"; then state=old; fi
        if cmp -s .cursor/mcp.json "$new"; then state=new; fi
        echo "$form $free $code $state $(ls -A .cursor | wc -l) $(tail -n 1 "$said")"
    done
done
"#;

#[test]
fn on_a_disk_that_is_really_full_the_file_is_the_old_one_or_the_new_one() {
    let rig = rig!();
    fs::create_dir(rig.at("small")).unwrap();
    fs::write(rig.at("old.json"), OLD.replace("\"y\"", &format!("\"{}\", \"y\"", "y".repeat(40_000)))).unwrap();
    let who: &[&str] = if rustix::process::geteuid().is_root() { &["-m"] } else { &["-r", "-m"] };
    let mut command = rig.command("unshare");
    command.args(who).args(["sh", "-c", ON_A_SMALL_DISK, rig.assay]).env_remove("XDG_CONFIG_HOME");
    let out = command.output().unwrap();
    assert!(out.status.success(), "this test mounts a small tmpfs in a namespace of its own: {}", said(&out));
    let all = stdout(&out);
    for form in ["renamed", "linked"] {
        let (mut kept, mut written) = (0, 0);
        for line in all.lines().filter(|line| line.starts_with(form)) {
            let words: Vec<&str> = line.split(' ').collect();
            match (words[2], words[3], words[4]) {
                ("0", "new", "1") => written += 1,
                ("2", "old", "1") => kept += 1,
                _ => panic!("{line}\n{all}"),
            }
            assert_eq!(words[3] == "old", line.contains("No space left"), "{line}");
        }
        assert!(kept >= 3 && written >= 3, "{all}");
    }
}

#[test]
fn what_could_not_be_written_in_place_is_put_back() {
    let (rig, config) = home();
    let room = 80 * 512;
    let old = OLD.replace("\"y\"", &format!("\"{}\", \"y\"", "y".repeat(room - OLD.len() - 20)));
    fs::write(&config, &old).unwrap();
    fs::hard_link(&config, rig.at("other")).unwrap();
    let script = "trap '' XFSZ; ulimit -f 80; exec \"$0\" wrap a --yes --assay \"$0\"";
    let out = rig.shell(script).current_dir(rig.at("project")).env_remove("XDG_CONFIG_HOME").output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(stderr(&out).contains("mcp.json"), "{}", said(&out));
    assert_eq!(fs::read_to_string(rig.at("other")).unwrap(), old);
    assert_eq!(fs::read(&files(&rig.at("home/backups"), |_| true)[0]).unwrap(), old.as_bytes());
}

#[test]
fn without_a_home_it_is_said_what_is_missing() {
    let rig = rig!();
    fs::create_dir_all(rig.at("project/.cursor")).unwrap();
    fs::create_dir(rig.at("project/.git")).unwrap();
    let config = rig.at("project/.cursor/mcp.json");
    fs::write(&config, OLD).unwrap();
    let homeless = |args: &[&str]| {
        let mut program = rig.program(args);
        program.current_dir(rig.at("project")).env("HOME", "relative").env_remove("ASSAY_HOME");
        program.env_remove("XDG_CONFIG_HOME").output().unwrap()
    };
    let scan = homeless(&["scan"]);
    assert_eq!(scan.status.code(), Some(1), "{}", said(&scan));
    let out = homeless(&["wrap", "a", "--yes"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
    assert!(stderr(&out).contains("set HOME"), "{}", said(&out));
    assert_eq!(fs::read_to_string(&config).unwrap(), OLD);
    assert!(!rig.at("project/relative").exists());
}

#[test]
fn on_a_terminal_the_difference_is_shown_and_a_question_asked() {
    let (rig, config) = home();
    for (answer, code, written) in [("n\n", 0, false), ("\n", 0, false), ("y\n", 0, true)] {
        fs::write(&config, OLD).unwrap();
        let mut tty = Tty::start(&rig, &["wrap", "--assay", rig.assay], 200, 40);
        tty.wait("write 1 file? [y/N]");
        assert!(tty.contents().contains("--wrapped=1"), "{}", tty.contents());
        assert_eq!(fs::read_to_string(&config).unwrap(), OLD, "nobody has answered");
        let (ended, screen) = tty.quit(answer);
        assert_eq!((ended, screen.contains("nothing was written")), (code, !written), "{screen}");
        assert_eq!(is_new(&fs::read_to_string(&config).unwrap()), written, "{answer:?}");
    }
}

#[test]
fn with_another_writer_at_work_the_file_is_always_one_of_both_whole() {
    let (rig, config) = home();
    let stop = AtomicBool::new(false);
    let theirs = |n: u64| {
        format!("{{\"n\": {n}, \"mcpServers\": {{\"a\": {{\"command\": \"x\", \"args\": [\"y\"]}}}}, \"m\": {n}}}\n")
    };
    thread::scope(|scope| {
        let (stop, config) = (&stop, &config);
        scope.spawn(move || {
            let staged = config.with_extension("theirs");
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                fs::write(&staged, theirs(n)).unwrap();
                fs::rename(&staged, config).unwrap();
            }
        });
        for _ in 0..5 {
            let out = in_project(&rig, &["wrap", "a", "--yes", "--assay", rig.assay]);
            let text = fs::read_to_string(config).unwrap();
            let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(value["n"], value["m"], "{text}");
            assert!(matches!(out.status.code(), Some(0 | 2)), "{}", said(&out));
            if out.status.code() == Some(2) {
                let why = stderr(&out);
                assert!(
                    why.contains("changes while it is changed") || why.contains("written by another program"),
                    "{why}"
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    // When it rests, the same command does it.
    document(&rig, 0, &["wrap", "a", "--yes", "--assay", rig.assay]);
    assert!(fs::read_to_string(&config).unwrap().contains("--wrapped=1"));
}
