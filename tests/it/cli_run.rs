//! `assay run`: a command, what was recorded of its servers, and what becomes of processes that it leaves.

use assay::receipts::{Outcome, Recorder, Request};
use assay_support::rig::{INITIALIZE, Rig, call, files, piped, rig, stderr, stdout, until};
use quick_junit::{Report, TestCaseStatus};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Output},
};

/// `assay run` of a shell script, in which `$0` is the program.
fn command(rig: &Rig, flags: &[&str], script: &str) -> Command {
    rig.program(&[&["run"], flags, &["--", "sh", "-c", script, rig.assay]].concat())
}

fn ran(rig: &Rig, flags: &[&str], script: &str) -> Output {
    command(rig, flags, script).output().unwrap()
}

/// Shell text: a session behind the recorder, of one call.
fn session() -> String {
    format!("printf '%s\\n' '{INITIALIZE}' '{}' | \"$0\" mcp-proxy -- \"$0\" demo-server", call(1, "echo", 1))
}

/// Shell text: the same, but the client stays (`$holder`); the script goes on when the call is answered. `$recorder` is its.
fn session_that_stays() -> String {
    let said = format!("printf '%s\\n' '{INITIALIZE}' '{}'", call(1, "echo", 1));
    format!(
        "rm -f in answers; mkfifo in; sleep 1000 >in 2>/dev/null & holder=$!; \
         \"$0\" mcp-proxy -- \"$0\" demo-server <in >answers & recorder=$!; {said} >in; \
         until grep -q '\"id\":1[,}}]' answers; do sleep 0.01; done"
    )
}

fn packs(rig: &Rig, dir: &str) -> Vec<PathBuf> {
    files(&rig.at(dir), |name| name.starts_with("proof_pack_"))
}

fn failures(rig: &Rig, junit: &str) -> Vec<String> {
    let report = Report::deserialize_from_str(&fs::read_to_string(rig.at(junit)).unwrap()).unwrap();
    let cases = report.test_suites.iter().flat_map(|suite| &suite.test_cases);
    let failed = cases.filter(|case| matches!(case.status, TestCaseStatus::NonSuccess { .. }));
    failed.map(|case| format!("{}/{}", case.classname.as_ref().unwrap().as_str(), case.name.as_str())).collect()
}

/// Run by a test as a program of its own: a server that records itself, without an SDK.
#[test]
#[ignore = "a program that tests start"]
fn receipted() {
    let recorder = Recorder::builder("demo@1").auto_pack(true).open().unwrap();
    let receipts = recorder.receipts();
    for n in 0..3 {
        let text = format!("{{\"n\":{n}}}");
        let request = Request { tool: "echo", arguments: Some(text.as_bytes()), ..Request::default() };
        let mut running = receipts.request(&request).judge().unwrap();
        running.start();
        running.finish(Outcome::Result(b"{\"content\":[]}"));
    }
    assert!(recorder.close().packs[0].verified);
}

#[test]
fn what_a_command_recorded_is_verified_wherever_files_say_that_evidence_is_kept() {
    let rig = rig!();
    fs::create_dir_all(rig.at("home")).unwrap();
    rig.file("home/assay.toml", "[mcp-proxy]\naudit-dir = \"elsewhere\"\n");
    let cards = ["-c", "receipt_completeness,mcp_session_completeness", "-c", "no_breakglass"];
    let flags = [&cards[..], &["--out", "here", "--junit", "r.xml", "--sarif", "r.sarif"]].concat();
    let out = ran(&rig, &flags, &format!("{}; {}", session(), session()));
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    let said = stdout(&out);
    assert!(said.contains("\"echo") || said.contains("\"result\""), "its output is the command's: {said}");
    assert_eq!(said.matches("PASS        COMPLETE     PASS").count(), 2, "{said}");
    assert_eq!((packs(&rig, ".assay/mcp/packs").len(), packs(&rig, "here").len()), (2, 2));
    assert!(!rig.at("home/elsewhere").exists());
    for pack in packs(&rig, "here") {
        assert_eq!(rig.json(0, &["verify-pack", pack.to_str().unwrap()])["integrity_verdict"], "PASS");
    }
    assert_eq!(failures(&rig, "r.xml"), <[String; 0]>::default());
    let sarif: Value = serde_json::from_str(&fs::read_to_string(rig.at("r.sarif")).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["tool"]["driver"]["name"], "assay run");
}

#[test]
fn each_way_to_fail_has_its_code() {
    let rig = rig!();
    let recorded = session();
    for (flags, script, code, said) in [
        (&["-c", "mcp_escrow_completeness"][..], &*recorded, 1, "mcp_escrow_completeness"),
        (&[], &format!("{recorded}; exit 7"), 1, "ended with code 7"),
        (&[], &format!("{recorded}; kill -9 $$"), 1, "ended by signal 9"),
        (&[], "true", 2, "nothing was recorded in "),
        (&[], "exit 7", 2, "hand few variables on"),
        (&["--allow-empty"], "true", 0, ""),
        (&["--allow-empty"], "exit 7", 1, "ended with code 7"),
        (&["-c", "no_such_card"], "touch started", 3, "there is no such claim card"),
        (&["--audit-dir", "a-file"], "touch started", 3, "a-file"),
        (&["--out", "a-file"], "touch started", 3, "a-file"),
        (&["--junit", "a-file"], "touch started", 3, "a-file"),
    ] {
        rig.file("a-file", "x");
        let out = ran(&rig, flags, script);
        let text = format!("{}{}", stdout(&out), stderr(&out));
        assert_eq!(out.status.code(), Some(code), "{flags:?} {script}: {text}");
        assert!(text.contains(said), "{flags:?} {script}: {text}");
    }
    assert!(!rig.at("started").exists());
    let none = rig.run(&["run", "--", "no-such-program"]);
    assert_eq!(none.status.code(), Some(3), "{}", stderr(&none));
    assert_eq!(rig.run(&["run"]).status.code(), Some(3));
    let out = ran(&rig, &["--junit", "r.xml"], "exit 7");
    assert_eq!(
        (out.status.code(), failures(&rig, "r.xml")),
        (Some(2), vec!["run/command".into(), "run/recorded".into()])
    );
}

#[test]
fn a_server_that_records_itself_is_found_and_its_coverage_is_shown_everywhere() {
    let rig = rig!();
    let me = std::env::current_exe().unwrap();
    let server = [me.to_str().unwrap(), "--ignored", "--exact", "cli_run::receipted", "--test-threads=1"];
    let cards = ["run", "-c", "receipt_completeness", "-c", "mcp_escrow_completeness", "--audit-dir", "kept", "--"];
    let out = rig.run(&[&cards[..], &server].concat());
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    let all = packs(&rig, "kept/packs");
    let [pack] = &all[..] else { panic!("{all:?}") };
    let pack = pack.to_str().unwrap();
    let verified = rig.json(0, &["verify-pack", pack]);
    assert_eq!((&verified["coverage"]["requested"], &verified["coverage"]["ratio"]), (&3.into(), &1.0.into()));
    assert_eq!(rig.json(0, &["analyze", pack])["packs"][0]["coverage"], verified["coverage"]);
    let explained = rig.json(0, &["explain", pack]);
    assert_eq!(explained["coverage"], verified["coverage"]);
    assert_eq!(explained["total"]["calls"], 3, "they are calls like any other");
    for command in ["verify-pack", "analyze", "explain"] {
        let text = stdout(&rig.run(&[command, pack]));
        assert!(text.contains("3 of 3 (100.0 %)"), "{command}: {text}");
    }
    let summary = fs::read_to_string(format!("{pack}/_unsigned/PACK_SUMMARY.md")).unwrap();
    assert!(summary.contains("| Coverage | 3 of 3 (100.0 %) |"), "{summary}");
}

#[test]
fn a_session_that_died_is_finished_and_one_that_had_died_before_is_not_the_runs() {
    let rig = rig!();
    let died = format!("{}; kill -9 $recorder $holder; wait", session_that_stays());
    assert!(rig.shell(&died).output().unwrap().status.success());
    let out = ran(&rig, &["--allow-empty"], "true");
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
    assert_eq!((stdout(&out).as_str(), packs(&rig, ".assay/mcp/packs").len()), ("", 1), "it is finished all the same");
    let out = ran(&rig, &[], &died);
    assert_eq!(out.status.code(), Some(1), "{}{}", stdout(&out), stderr(&out));
    assert!(stderr(&out).contains("had no end and was finished: crashed"), "{}", stderr(&out));
    assert!(stdout(&out).contains("INCOMPLETE"), "{}", stdout(&out));
    assert_eq!(packs(&rig, ".assay/mcp/packs").len(), 2);
}

#[test]
fn no_process_is_left() {
    let rig = rig!();
    // One in a session of its own, and a recorder with its client.
    let out = ran(&rig, &[], &format!("setsid sleep 1000 & {}", session_that_stays()));
    assert_eq!(rig.processes(), <[PathBuf; 0]>::default(), "{}", stderr(&out));
    assert!(stderr(&out).contains("had left running had to be ended"), "{}", stderr(&out));
    assert_eq!(packs(&rig, ".assay/mcp/packs").len(), 1, "the recorder had the time to seal");
    assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
}

#[test]
fn a_parent_that_ignores_the_ends_of_its_children_hides_none() {
    let rig = rig!();
    let run = "exec \"$0\" run --allow-empty -- sh -c 'exit 7'";
    let out = rig.shell(&format!("trap '' CHLD; {run}")).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("ended with code 7"), "{}", stderr(&out));
}

#[test]
fn a_process_that_does_not_listen_is_killed() {
    let rig = rig!();
    let deaf = "setsid sh -c 'trap \"\" TERM; echo deaf >deaf; while :; do sleep 0.01; done' &";
    let script = format!("{deaf} until [ -e deaf ]; do sleep 0.01; done; trap '' TERM; echo over");
    let (mut run, _stdin, mut out) = piped(&mut command(&rig, &["--allow-empty"], &script)).unwrap();
    let mut said = [0; 5];
    out.read_exact(&mut said).unwrap();
    // Each signal shortens a step.
    let ended = until("the run to end", || {
        kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
        run.try_wait().unwrap()
    });
    assert_eq!(rig.processes(), <[PathBuf; 0]>::default());
    // The last signal may have come when it only verified.
    assert!(ended.success() || ended.signal() == Some(Signal::TERM.as_raw()), "{ended:?}");
}

#[test]
fn signals_go_to_the_command() {
    let rig = rig!();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1] {
        let name = format!("{signal:?}").rsplit("SIG").next().unwrap().trim_end_matches(')').to_owned();
        let number = signal.as_raw();
        let script = format!("trap 'echo got {number}; exit 5' {number}; echo ready; while :; do sleep 0.01; done");
        let (mut run, _stdin, mut out) = piped(&mut command(&rig, &["--allow-empty"], &script)).unwrap();
        let mut said = [0; 6];
        out.read_exact(&mut said).unwrap();
        kill_process(Pid::from_child(&run), signal).unwrap();
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert_eq!((run.wait().unwrap().code(), rest), (Some(1), format!("got {number}\n")), "{name}");
    }
    until("every process to end", || rig.processes().is_empty().then_some(()));
}
