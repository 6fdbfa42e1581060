//! The dashboard as a person has it: the real binary on a pseudo terminal. What is waited for is text, never time.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use assay_support::{
    drift::{tool, tools},
    rig::{Client, Rig, rig},
    tty::Tty,
};
use std::time::Instant;

assay_support::server!();

/// A proxy that has answered `initialize`.
fn session(rig: &Rig, flags: &[&str]) -> Client {
    let mut client = Client::start(rig.proxy(flags));
    client.converse([rig::INITIALIZE.to_owned()].into_iter());
    client
}

#[test]
fn a_live_call_is_seen_while_it_runs_and_when_it_has_ended() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 120, 30);
    tty.wait("No live session.");
    let mut client = session(&rig, &["--store-args", "--store-results"]);
    tty.wait("recording");
    client.send(&rig::call(1, "hang", 0));
    tty.wait("hang");
    tty.wait("… running");
    tty.wait("1 in flight");
    client.converse([rig::call(2, "echo", 7)].into_iter());
    tty.wait("✓ forwarded");
    // Its arguments are read from the receipt on disk.
    tty.keys("]]");
    tty.wait("n: 7");
    client.end();
    tty.wait_any(&["pack verified", "pack built"]);
    tty.wait("! timeout");
    let (code, normal) = tty.quit("q");
    assert_eq!(code, 0);
    assert!(normal.contains("assay: watched 1 session, 2 calls"), "{normal}");
}

#[test]
fn assay_alone_is_the_dashboard_and_every_size_will_do() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &[], 120, 30);
    let mut client = session(&rig, &[]);
    client.converse((1..30).map(|n| rig::call(n, "echo", n)));
    tty.wait("29 calls");
    for (columns, lines) in [(60, 20), (39, 9), (24, 8), (10, 3), (1, 1), (200, 60), (80, 24)] {
        tty.resize(columns, lines);
    }
    tty.wait("29 calls  following");
    // A key that comes with a resize is not lost.
    tty.resize(100, 30);
    tty.keys("?");
    tty.wait("Keys: Live: calls");
    client.end();
    assert_eq!(tty.quit("\u{3}").0, 0);
}

#[test]
fn filter_help_and_palette_work_by_keys() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch", "--no-mouse"], 120, 30);
    let mut client = session(&rig, &[]);
    client.converse((1..6).map(|n| rig::call(n, if n == 3 { "fail" } else { "echo" }, n)));
    tty.wait("5 calls");
    tty.keys("/outcome:error");
    tty.wait("1 of 5 calls");
    tty.keys(" nonsense:");
    tty.wait("↓");
    tty.keys("\u{1b}");
    tty.wait("5 calls  following");
    tty.keys(":follow\r");
    tty.wait("f follows");
    tty.keys("?");
    tty.wait("Keys: Live: calls");
    tty.keys("\u{1b}");
    tty.wait("5 calls  f follows");
    tty.keys("G\u{1b}[A");
    tty.wait("f follows");
    client.end();
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn the_terminal_is_given_back_however_it_ends() {
    let rig = rig!();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::HUP, rustix::process::Signal::INT] {
        let mut tty = Tty::start(&rig, &["watch"], 80, 24);
        tty.wait("No live session.");
        tty.signal(signal);
        let (code, _) = tty.ended();
        assert_eq!(code, if signal == rustix::process::Signal::INT { 130 } else { 0 }, "{signal:?}");
    }
    // Only builds for tests have the key that panics.
    if cfg!(debug_assertions) {
        let mut tty = Tty::start_with(&rig, &["watch"], 80, 24, &[("ASSAY_TEST_PANIC_KEY", "1")]);
        tty.wait("No live session.");
        tty.keys("\u{1b}[24~");
        let (code, normal) = tty.ended();
        assert_eq!(code, 2);
        assert!(normal.contains("internal error at"), "{normal}");
    }
}

#[test]
fn it_stops_for_the_shell_and_comes_back() {
    use rustix::process::Signal;
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 80, 24);
    tty.wait("No live session.");
    let state = |tty: &Tty| std::fs::read_to_string(format!("/proc/{}/stat", tty.pid())).unwrap();
    for by_key in [true, false] {
        if by_key {
            tty.keys("\u{1a}")
        } else {
            tty.signal(Signal::TSTP)
        }
        rig::until("the stop", || state(&tty).contains(") T ").then_some(()));
        rig::until("the normal screen", || tty.is_normal().then_some(()));
        tty.signal(Signal::CONT);
        tty.wait("No live session.");
        rig::until("the other screen", || (!tty.is_normal()).then_some(()));
    }
    // One that was stopped without being asked takes the terminal again, too.
    let before = tty.frames();
    tty.signal(Signal::STOP);
    rig::until("the stop", || state(&tty).contains(") T ").then_some(()));
    tty.signal(Signal::CONT);
    rig::until("another frame", || (tty.frames() > before).then_some(()));
    tty.keys("?");
    tty.wait("Keys: Live: calls");
    assert_eq!(tty.quit("\u{3}").0, 0);
}

#[test]
fn times_are_those_of_the_users_zone_and_of_utc_by_a_key() {
    let rig = rig!();
    let mut tty = Tty::start_with(&rig, &["watch"], 120, 30, &[("TZ", "XST-5:30")]);
    let mut client = session(&rig, &[]);
    client.converse([rig::call(1, "echo", 1)].into_iter());
    tty.wait("time XST");
    tty.keys("Z");
    tty.wait("times are in UTC");
    tty.wait("time UTC");
    tty.keys("Z");
    tty.wait("times are in XST");
    // What machines read stays in UTC.
    let out = rig
        .shell("TZ=XST-5:30 timeout 2 \"$0\" watch --json; TZ=XST-5:30 timeout 2 \"$0\" watch --plain")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let (json, plain): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    assert!(plain.iter().any(|line| line.ends_with(" XST")) && !json.is_empty(), "{text}");
    assert!(json.iter().all(|line| !line.contains("XST")), "{text}");
    client.end();
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn every_signal_that_ends_it_gives_the_terminal_back() {
    use rustix::process::Signal;
    let rig = rig!();
    for signal in [Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::XCPU]
    {
        let mut tty = Tty::start(&rig, &["watch"], 80, 24);
        tty.wait("No live session.");
        tty.signal(signal);
        let (code, _) = tty.ended();
        assert_ne!(code, 0, "{signal:?}: whoever waits is told that a signal ended it");
    }
}

#[test]
fn ten_thousand_calls_draw_few_frames() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 120, 30);
    tty.wait("No live session.");
    let (begun, before) = (Instant::now(), tty.frames());
    let mut client = session(&rig, &[]);
    for n in 1..=10_000 {
        client.send(&rig::call(n, "echo", n));
    }
    client.await_lines(10_001);
    tty.wait("10 000 calls");
    let (drawn, seconds) = (tty.frames() - before, begun.elapsed().as_secs_f64());
    assert!(drawn as f64 <= 31.0 * seconds + 5.0, "{drawn} frames in {seconds} s");
    client.end();
    tty.wait_any(&["pack verified", "pack built"]);
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn no_colour_keeps_the_highlight() {
    let rig = rig!();
    let mut tty = Tty::start_with(&rig, &["watch"], 120, 30, &[("NO_COLOR", "1")]);
    let mut client = session(&rig, &[]);
    client.converse([rig::call(1, "fail", 1)].into_iter());
    tty.wait("! error");
    let bytes = tty.bytes();
    assert!(memchr::memmem::find(&bytes, b"\x1b[7m").is_some(), "nothing is reversed");
    for colour in 0..8 {
        for lead in ["3", "4", "9", "10"] {
            let code = format!("\x1b[{lead}{colour}m");
            assert!(memchr::memmem::find(&bytes, code.as_bytes()).is_none(), "{code:?}");
        }
    }
    client.end();
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn hostile_names_reach_no_terminal() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 120, 30);
    let mut client = session(&rig, &[]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\u001b[2J\u001b]0;owned\u0007\u202ez","arguments":{}}}"#;
    client.converse([call.to_owned()].into_iter());
    tty.wait("a␛[2J");
    let bytes = tty.bytes();
    for evil in ["\x1b[2J\x1b]0;owned", "owned\x07", "\u{202e}"] {
        assert!(memchr::memmem::find(&bytes, evil.as_bytes()).is_none(), "{evil:?}");
    }
    client.end();
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let rig = rig!();
    let mut tty = Tty::start_with(&rig, &["watch"], 80, 24, &[("TERM", "dumb")]);
    let (code, normal) = tty.ended();
    assert_eq!(code, 0);
    assert!(normal.contains("no live session"), "{normal}");
    assert!(memchr::memmem::find(&tty.bytes(), b"\x1b").is_none());
}

#[test]
fn a_policy_is_edited_beside_what_it_would_do_and_written() {
    let rig = rig!();
    let mut client = session(&rig, &[]);
    client.converse((1..7).map(|n| rig::call(n, if n == 3 { "fail" } else { "echo" }, n)));
    let file = rig.root.join("mine.yaml");
    let mut tty = Tty::start(&rig, &["policy", "edit", "mine.yaml", "--audit-dir", "audit"], 120, 30);
    tty.wait("mine.yaml  new");
    // What was not recorded yet cannot be proposed.
    tty.wait("6 of 6 calls would now be denied");
    // The least that these calls need, one of them taken out again, and back while the session goes on.
    tty.keys("p");
    tty.wait("no call would be newly denied");
    tty.keys("Gi\rdenylist: [fail]");
    tty.wait("1 of 6 calls would now be denied");
    client.converse([rig::call(7, "fail", 7)].into_iter());
    tty.wait("2 of 7 calls would now be denied");
    tty.keys("x:");
    tty.wait("^");
    tty.wait("From the last text without an error");
    tty.keys("\u{1a}\u{1a}");
    tty.wait("2 of 7 calls would now be denied");
    tty.keys("\u{13}");
    tty.wait("written: ");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.ends_with("\ndenylist: [fail]"), "{text}");
    // What is not written when it ends is kept.
    tty.keys(" # later");
    tty.wait("[fail] # later");
    tty.wait("yaml  changed");
    tty.signal(rustix::process::Signal::TERM);
    let (code, normal) = tty.ended();
    assert_eq!(code, 0);
    let kept = normal.split("they are kept in ").nth(1).unwrap_or_else(|| panic!("{normal}"));
    let kept = kept.split_whitespace().next().unwrap();
    assert!(std::fs::read_to_string(kept).unwrap().ends_with("[fail] # later"), "{kept}");
    client.end();
}

#[test]
fn drift_is_said_where_one_is_approved_with_what_was_seen_and_is_in_the_pack() {
    let rig = rig!();
    let audit = rig.audit.to_str().unwrap().to_owned();
    let offer = |text: &str| rig.offers(&tools(&[tool("read", text), tool("write", "writes")]));
    offer("reads");
    let server = Rig::server_argv("");
    let server: Vec<&str> = server.iter().map(String::as_str).collect();
    let of = ["--audit-dir", &audit, "--server-id", "drifting"];
    for args in [
        [&["surface", "snapshot"][..], &of, &["--"], &server].concat(),
        vec!["surface", "approve", "drifting", "--audit-dir", &audit],
    ] {
        let out = rig.run(&args);
        assert!(out.status.success(), "{}", rig::stderr(&out));
    }
    let mut tty = Tty::start(&rig, &["watch", "--audit-dir", &audit], 140, 40);
    tty.wait("No live session.");
    offer("reads; then calls send");
    let mut client = session(&rig, &["--server-id", "drifting"]);
    client.converse([r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#.to_owned()].into_iter());
    tty.wait("drift: drifting changed (1 high); 6 shows it");
    tty.keys("6");
    tty.wait("text_changed");
    tty.keys("\tg");
    tty.wait("reads; then calls send");
    tty.keys("a");
    let decisions = rig::until("the decision", || {
        let text = std::fs::read_to_string(rig.audit.join("surface/approvals.jsonl")).ok()?;
        (text.ends_with('\n') && text.lines().count() == 2).then_some(text)
    });
    assert!(decisions.lines().last().unwrap().contains(r#""via":"tui""#), "{decisions}");
    // The session that runs takes it up.
    rig::until("the decision is in the chain", || {
        let text = std::fs::read_to_string(rig.segments().pop()?).ok()?;
        (text.matches("\"surface_decision\"").count() == 2).then_some(())
    });
    // Back to the first screen, and out.
    assert_eq!(tty.quit("qq").0, 0);
    assert_eq!(client.end().code(), Some(1), "it drifted");
    let pack = rig::files(&rig.audit.join("packs"), |name| name.starts_with("proof_pack_")).pop().unwrap();
    let mut tty = Tty::start(&rig, &["open", pack.to_str().unwrap()], 140, 40);
    tty.wait(" surface ");
    tty.keys("[");
    tty.wait("2 items");
    tty.wait("approved   read");
    assert_eq!(tty.quit("q").0, 0);
}

#[test]
fn a_session_that_died_is_said_to_be_recovered_once_it_is() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 120, 30);
    tty.wait("No live session.");
    let mut client = session(&rig, &[]);
    client.converse([rig::call(1, "echo", 1)].into_iter());
    tty.wait("✓ forwarded");
    client.kill();
    tty.wait("died: assay recover");
    assert_eq!(rig.recover().status.code(), Some(0));
    tty.wait("died, recovered");
    assert_eq!(tty.quit("q").0, 0);
}

/// A call whose arguments nobody may keep.
fn secret(id: u64, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"s":"{text}","bell":"\u0007\u001b[2J"}}}}}}"#
    )
}

/// Files below a directory that hold a text.
fn holding(dir: &std::path::Path, text: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file() && memchr::memmem::find(&std::fs::read(&path).unwrap(), text.as_bytes()).is_some() {
            found.push(path);
        }
    }
    found
}

#[test]
fn all_messages_are_seen_live_and_in_the_pack() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 120, 30);
    let mut client = session(&rig, &[]);
    client.converse([rig::call(1, "echo", 1), rig::call(2, "fail", 2)].into_iter());
    tty.wait("2 calls");
    client.send("this is no JSON");
    tty.keys("m");
    tty.wait("→ request");
    tty.wait("→ ! junk");
    tty.wait("5 messages");
    tty.keys("N");
    tty.wait("content: not recorded");
    tty.keys("m");
    tty.wait("2 calls");
    client.end();
    tty.wait_any(&["pack verified", "pack built"]);
    tty.keys("o");
    tty.wait("PASS");
    tty.keys("m");
    tty.wait("5 messages");
    tty.wait("tools/call echo");
    assert_eq!(tty.quit("qq").0, 0);
}

#[test]
fn what_rules_match_is_not_on_the_screen() {
    let rig = rig!();
    let rules = rig.file("rules.yaml", "version: \"1\"\nrules: [ { name: c, regex: 'CANARY-[a-z0-9]+' } ]");
    let mut tty = Tty::start(&rig, &["watch"], 200, 40);
    let mut client = session(&rig, &["--live-content", "--store-args", "--redact", &rules]);
    tty.wait("recording");
    tty.keys("m");
    // The recorder hears of the dashboard's wish a moment after the dashboard has heard of the session.
    let mut id = 0;
    rig::until("what is left on the screen", || {
        id += 1;
        client.converse([secret(id, "CANARY-ab12")].into_iter());
        tty.contents().contains("[redacted:c]").then_some(())
    });
    tty.keys("m");
    tty.keys("]]");
    tty.wait("arguments: redacted by c; its hash is of the original");
    client.end();
    assert_eq!(tty.quit("q").0, 0);
    assert!(memchr::memmem::find(&tty.bytes(), b"CANARY").is_none());
    std::fs::remove_file(rig.server_log()).ok();
    assert_eq!(holding(&rig.at("audit"), "CANARY"), Vec::<std::path::PathBuf>::new());
}

#[test]
fn what_is_shown_with_live_content_is_written_nowhere() {
    let rig = rig!();
    let mut tty = Tty::start(&rig, &["watch"], 200, 40);
    let mut client = session(&rig, &["--live-content"]);
    tty.wait("recording");
    // The recorder hears of the dashboard's wish a moment after the dashboard has heard of the session.
    let mut id = 0;
    rig::until("the arguments on the screen", || {
        id += 1;
        client.converse([secret(id, "CANARY-ab12")].into_iter());
        tty.contents().contains("CANARY-ab12").then_some(())
    });
    tty.keys("]]");
    tty.wait("not recorded, only shown here");
    tty.wait("arguments");
    tty.keys("m");
    tty.wait("CANARY-ab12");
    let bytes = tty.bytes();
    assert!(memchr::memmem::find(&bytes, b"\x07\x1b[2J").is_none(), "control characters reach the terminal");
    tty.keys("m");
    // Lines for other programs have none of it.
    let out = rig.shell("timeout 3 \"$0\" watch --json").output().unwrap();
    assert!(!String::from_utf8(out.stdout).unwrap().contains("CANARY"));
    client.end();
    tty.wait_any(&["pack verified", "pack built"]);
    assert_eq!(tty.quit("q").0, 0);
    std::fs::remove_file(rig.server_log()).ok();
    assert_eq!(holding(&rig.root, "CANARY"), Vec::<std::path::PathBuf>::new());
}
