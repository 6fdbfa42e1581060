//! `assay keys`, and what every command does with bad input, run as a user runs them.

use assay_support::rig::{Rig, files, rig, stderr, stdout, until};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Output, Stdio},
};

fn key(rig: &Rig, name: &str) -> PathBuf {
    rig.at("home/keys").join(name)
}

fn json(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_key_is_made_listed_shown_and_exported() {
    let rig = rig!();
    assert!(stdout(&rig.run(&["keys", "list"])).starts_with("no keys in "));
    assert!(!rig.at("home").exists(), "looking makes nothing");
    let made = rig.run(&["keys", "generate"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(rig.run(&["keys", "generate", "--signer", "ci", "--activate"]).status.success());
    let listed = json(&rig.run(&["keys", "list", "--json"]));
    let signers: Vec<_> = listed["signers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["signer_id"].as_str().unwrap(), s["active"].as_bool().unwrap()))
        .collect();
    assert_eq!(signers, [("assay-local", false), ("ci", true)]);
    let shown = json(&rig.run(&["keys", "show", "--json"]));
    assert_eq!(shown["signer_id"], "ci");
    let raw = rig.run(&["keys", "export", "ci", "--format", "raw"]).stdout;
    assert_eq!(raw, fs::read(key(&rig, "ci.pub")).unwrap());
    assert_eq!(shown["fingerprint"], assay::model::sha256_hex(&raw));
    assert!(stdout(&rig.run(&["keys", "show"])).contains(shown["fingerprint"].as_str().unwrap()));
    assert_eq!(stdout(&rig.run(&["keys", "export", "--format", "base64"])).trim(), shown["public_key"]);
    assert!(stdout(&rig.run(&["keys", "export"])).starts_with("-----BEGIN PUBLIC KEY-----\n"));
}

#[test]
fn nothing_is_overwritten() {
    let rig = rig!();
    rig.run(&["keys", "generate"]);
    let before = fs::read(key(&rig, "assay-local.key")).unwrap();
    let again = rig.run(&["keys", "generate"]);
    assert_eq!(again.status.code(), Some(3));
    assert!(stderr(&again).contains("already exists\n  hint: a key is never replaced"), "{}", stderr(&again));
    assert_eq!(fs::read(key(&rig, "assay-local.key")).unwrap(), before);
    fs::write(rig.at("mine.pem"), "mine").unwrap();
    let export = rig.run(&["keys", "export", "--out", "mine.pem"]);
    assert_eq!(export.status.code(), Some(3));
    assert_eq!(fs::read(rig.at("mine.pem")).unwrap(), b"mine");
    assert!(rig.run(&["keys", "export", "--out", "new.pem"]).status.success());
}

#[test]
fn a_key_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let rig = rig!();
    rig.run(&["keys", "generate"]);
    let key = key(&rig, "assay-local.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    for args in [&["keys", "show"][..], &["keys", "export"], &["keys", "show", "--json"]] {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(3));
        let hint = format!("run: chmod 600 {}", key.display());
        assert!(stderr(&out).contains(&hint), "{}", stderr(&out));
        if args.contains(&"--json") {
            let answer = json(&out);
            assert_eq!((&answer["exit_code"], &answer["hint"]), (&3.into(), &hint.into()));
        }
    }
    let listed = rig.run(&["keys", "list"]);
    assert_eq!(listed.status.code(), Some(3));
    assert!(stdout(&listed).contains("cannot be used"), "{}", stdout(&listed));
}

#[test]
fn fifty_processes_that_need_a_first_key_end_with_one() {
    let rig = rig!();
    // `generate` refuses what exists, so exactly one of them makes the key.
    let children: Vec<_> = (0..50)
        .map(|_| {
            rig.program(&["keys", "generate", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
        })
        .collect();
    let made = children.into_iter().map(|c| c.wait_with_output().unwrap()).filter(|o| o.status.success()).count();
    assert_eq!(made, 1);
    assert!(rig.run(&["keys", "show"]).status.success());
    assert_eq!(fs::read_dir(rig.at("home/keys")).unwrap().count(), 2, "no temporary files stay");
}

#[test]
fn bad_input_is_exit_code_3_and_makes_nothing() {
    let rig = rig!();
    fs::write(rig.at("file"), "x").unwrap();
    for args in [
        &["mcp-proxy"][..],
        &["mcp-proxy", "--"],
        &["mcp-proxy", "--pack-interval", "0m", "--", "cat"],
        &["mcp-proxy", "--profile", "escrow", "--", "cat"],
        &["mcp-proxy", "--profile", "guard", "--", "cat"],
        &["mcp-proxy", "--no-such-flag", "--", "cat"],
        &["verify-pack"],
        &["verify-pack", "."],
        &["verify-pack", "file"],
        &["verify-pack", "gone"],
        &["verify-pack", "--signer", "abc", "."],
        &["explain", "."],
        &["explain", "file"],
        &["explain", "gone"],
        &["keys"],
        &["keys", "show", "../../etc/passwd"],
        &["keys", "show", "nobody"],
        &["keys", "generate", "--signer", ".hidden"],
        &["no-such-command"],
        &["\u{1b}[31mred"],
    ] {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        assert!(out.stdout.is_empty(), "{args:?}");
        assert!(!stderr(&out).is_empty(), "{args:?}");
        assert!(!stderr(&out).contains('\u{1b}'), "{args:?}");
    }
    // The rig's own is there, and nothing in it.
    assert_eq!(files(&rig.root, |_| true), [rig.at("file"), rig.at("run")]);
    assert_eq!(files(&rig.at("run"), |_| true), [] as [PathBuf; 0]);
}

#[test]
fn help_and_version_are_exit_code_0_on_standard_output() {
    let rig = rig!();
    for args in [&["--help"][..], &["--version"], &["mcp-proxy", "--help"], &["keys", "export", "--help"], &["help"]] {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        assert!(!out.stdout.is_empty() && out.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let rig = rig!();
    rig.run(&["keys", "generate"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let out = rig.program(&["keys", "list"]).stdout(writer).output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let out = rig.program(&["keys", "list"]).stdout(full).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).starts_with("assay: error: standard output: "), "{}", stderr(&out));
}

#[cfg(target_os = "linux")]
#[test]
fn another_process_of_the_same_user_reads_nothing_of_a_recorder_s_memory_and_the_server_is_as_usual() {
    use std::os::unix::{fs::chown, process::CommandExt as _};
    let rig = rig!();
    // Root may read everything.
    let user = Some(65_534).filter(|_| rustix::process::geteuid().is_root());
    let program = rig.at("assay");
    fs::hard_link(rig.assay, &program).or_else(|_| fs::copy(rig.assay, &program).map(drop)).unwrap();
    for path in [rig.root.clone(), rig.at("run")] {
        chown(path, user, user).unwrap();
    }
    let as_user = |mut command: std::process::Command| {
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command
    };
    let mut proxy = rig.command(&program);
    let audit = rig.audit.to_str().unwrap();
    proxy.args(["mcp-proxy", "--audit-dir", audit, "--", "sh", "-c", "echo $$ >server; exec cat"]);
    let mut child = as_user(proxy).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let server = until("the server", || fs::read_to_string(rig.at("server")).ok().filter(|pid| pid.ends_with('\n')));
    let reads = |pid: &str, file: &str| {
        let mut cat = rig.command("cat");
        cat.arg(format!("/proc/{pid}/{file}"));
        as_user(cat).output().unwrap().status.success()
    };
    for file in ["environ", "maps", "io"] {
        assert!(!reads(&child.id().to_string(), file), "{file}");
        assert!(reads(server.trim(), file), "{file}");
    }
    // What dashboards go by.
    assert!(reads(&child.id().to_string(), "stat"));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(rig.only_pack("audit").join("checkpoints.jsonl").exists());
}

/// A real ssh-agent with two keys, whose socket is `agent` in the rig's directory.
struct SshAgent(std::process::Child);

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_agent(rig: &Rig, args: &[&str]) -> std::process::Command {
    let mut command = rig.program(args);
    command.env("SSH_AUTH_SOCK", rig.at("agent"));
    command
}

/// Something of OpenSSH's, which needs a password.
fn ssh(rig: &Rig, script: &str) {
    let ask = rig.at("ask");
    fs::write(&ask, "#!/bin/sh\necho pw\n").unwrap();
    fs::set_permissions(&ask, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = rig.shell(script);
    command.env("SSH_AUTH_SOCK", rig.at("agent")).env("SSH_ASKPASS", ask).env("SSH_ASKPASS_REQUIRE", "force");
    let out = command.env("DISPLAY", "none").stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{script}: {}", stderr(&out));
}

fn ssh_agent(rig: &Rig) -> SshAgent {
    let mut command = rig.command("ssh-agent");
    command.args(["-D", "-a"]).arg(rig.at("agent")).stdout(Stdio::null());
    let agent = SshAgent(command.spawn().expect("ssh-agent of the package openssh-client"));
    until("the agent", || rig.at("agent").exists().then_some(()));
    for name in ["one", "two"] {
        ssh(rig, &format!("ssh-keygen -q -t ed25519 -N '' -C {name} -f {name} && ssh-add -q {name}"));
    }
    agent
}

/// A session of a server that says which agent it knows, to its end.
fn session(rig: &Rig) -> Output {
    session_that(rig, with_agent(rig, &RECORD), || ())
}

const RECORD: [&str; 6] = ["mcp-proxy", "--audit-dir", "audit", "--", "sh", "-c"];

/// The same with something that happens before its end.
fn session_that(rig: &Rig, mut proxy: std::process::Command, before_end: impl FnOnce()) -> Output {
    let server = "echo \"$SSH_AUTH_SOCK\" >known; exec cat >/dev/null";
    proxy.arg(server);
    let mut child = proxy.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), ping.as_bytes()).unwrap();
    let known = until("the server", || fs::read_to_string(rig.at("known")).ok().filter(|text| text.ends_with('\n')));
    assert_eq!(known, "\n", "the server knows the agent");
    fs::remove_file(rig.at("known")).unwrap();
    before_end();
    child.wait_with_output().unwrap()
}

#[test]
fn a_key_in_ssh_agent_signs_everything_and_one_that_is_locked_or_gone_costs_a_pack_and_no_session() {
    let rig = rig!();
    let agent = ssh_agent(&rig);
    let add = |args: &[&str]| with_agent(&rig, &[&["keys", "add-agent"], args].concat()).output().unwrap();
    let which = add(&["ci"]);
    assert_eq!(which.status.code(), Some(3));
    assert!(stderr(&which).contains("which key?") && stderr(&which).contains("  two"), "{}", stderr(&which));
    assert!(stderr(&add(&["ci", "--key", "three"])).contains("it has:"), "{}", stderr(&which));
    let made = add(&["ci", "--key", "two", "--activate", "--json"]);
    let made = json(&made);
    assert_eq!((&made["signer_id"], &made["kept_in"]), (&"ci".into(), &"agent".into()), "{made}");
    let kept = format!("{}socket {}\n", fs::read_to_string(rig.at("two.pub")).unwrap(), rig.at("agent").display());
    assert_eq!(fs::read_to_string(key(&rig, "ci.agent")).unwrap(), kept);
    assert_eq!(add(&["ci", "--key", "one"]).status.code(), Some(3), "no key is replaced");
    assert!(stdout(&rig.run(&["keys", "list"])).contains("in an agent"));
    let fingerprint = made["fingerprint"].as_str().unwrap();
    let packs = || files(&rig.audit.join("packs"), |_| true);
    let verified = |pack: &PathBuf| {
        let said = json(&rig.run(&["verify-pack", "--json", "--signer", fingerprint, pack.to_str().unwrap()]));
        assert_eq!((&said["integrity_verdict"], &said["signer_verdict"]), (&"PASS".into(), &"PINNED".into()), "{said}");
        said["completeness_verdict"].as_str().unwrap().to_owned()
    };

    let ended = session(&rig);
    assert!(ended.status.success(), "{}", stderr(&ended));
    assert_eq!(verified(&packs()[0]), "COMPLETE");
    assert!(packs()[0].join("checkpoints.jsonl").exists() && rig.audit.join("audit/log/checkpoint").exists());
    rig.json(0, &["verify-dir", "audit"]);

    ssh(&rig, "ssh-add -x");
    let ended = session(&rig);
    assert_eq!(packs().len(), 1);
    assert!(stderr(&ended).contains("it cannot be signed") && stderr(&ended).contains("locked"), "{}", stderr(&ended));
    assert_ne!(with_agent(&rig, &["recover", "--audit-dir", "audit"]).output().unwrap().status.code(), Some(0));
    assert_eq!(packs().len(), 1);
    ssh(&rig, "ssh-add -X");
    let made = with_agent(&rig, &["recover", "--audit-dir", "audit"]).output().unwrap();
    assert!(made.status.success(), "{}{}", stdout(&made), stderr(&made));
    assert_eq!(packs().len(), 2);
    let mut seen: Vec<String> = packs().iter().map(verified).collect();
    seen.sort();
    assert_eq!(seen, ["COMPLETE", "INCOMPLETE"], "recovery has finished the other one");
    rig.json(1, &["verify-dir", "audit"]);

    // It certified the session's key, and was locked when the pack was to be signed: only that is missing.
    let ended = session_that(&rig, with_agent(&rig, &RECORD), || {
        until("a checkpoint", || {
            let all = files(&rig.audit.join("audit"), |name| name.starts_with("checkpoints_"));
            all.iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0)).then_some(())
        });
        ssh(&rig, "ssh-add -x");
    });
    assert!(packs().len() == 2 && stderr(&ended).contains("locked"), "{}", stderr(&ended));
    ssh(&rig, "ssh-add -X");
    let made = with_agent(&rig, &["recover", "--audit-dir", "audit"]).output().unwrap();
    assert!(made.status.success(), "{}{}", stdout(&made), stderr(&made));
    let mut seen: Vec<String> = packs().iter().map(verified).collect();
    seen.sort();
    assert_eq!(seen, ["COMPLETE", "COMPLETE", "INCOMPLETE"]);

    // A client of the desktop has no such variable.
    let mut proxy = rig.program(&RECORD);
    proxy.env_remove("SSH_AUTH_SOCK");
    let ended = session_that(&rig, proxy, || ());
    assert!(ended.status.success() && packs().len() == 4, "{}", stderr(&ended));

    drop(agent);
    let ended = session(&rig);
    assert_eq!(packs().len(), 4);
    assert!(stderr(&ended).contains("cannot be asked"), "{}", stderr(&ended));
    assert!(rig.run(&["keys", "delete", "ci", "--yes"]).status.success());
    assert!(!key(&rig, "ci.agent").exists());
}
