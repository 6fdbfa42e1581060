//! Sessions of a later version: they are named and left alone, and those beside them are watched.

use super::*;
use assay::{
    files::{Lock, try_lock},
    live::protocol::RUN_CARD_VERSION,
    model::{event::EVENT_VERSION, receipt::SCHEMA_VERSION},
    record::card::CARD_VERSION,
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    os::unix::net::UnixListener,
    path::Path,
    process::{Child, Output, Stdio},
};

/// The next major version, the next minor one, and one far away; as they stand in JSON.
fn later(known: u32) -> [String; 3] {
    [(known + 1).to_string(), format!("\"{known}.1\""), "4000000000".to_owned()]
}

fn version(v: &str) -> String {
    above(v, CARD_VERSION)
}

fn above(v: &str, known: u32) -> String {
    format!("is of version {}; this assay reads up to {known}: too new, it needs a later assay", v.trim_matches('"'))
}

fn watch(rig: &Rig, args: &[&str]) -> Child {
    let mut command = rig.program(&["watch"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(mut watch: Child) -> (Output, String, String) {
    until("the end of watching", || watch.try_wait().unwrap());
    let out = watch.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (out.clone(), text(&out.stdout), text(&out.stderr))
}

/// What a proxy of protocol 1 wrote: its run card, and all that it sent.
const FORMER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/live-v1");

/// A live run card that the test writes, its socket, and who listens there.
struct Proxy {
    card: PathBuf,
    text: String,
    listener: UnixListener,
    held: fs::File,
}

impl Proxy {
    fn new(run: &Path, text: &str) -> Self {
        let card = run.join("00000000000000aa.json");
        fs::write(&card, text).unwrap();
        let held = fs::File::open(&card).unwrap();
        assert!(matches!(try_lock(&held).unwrap(), Lock::Taken));
        let listener = UnixListener::bind(card.with_extension("sock")).unwrap();
        Self { card, text: text.to_owned(), listener, held }
    }

    fn is_as_it_was(&self) -> bool {
        self.card.with_extension("sock").exists() && fs::read_to_string(&self.card).unwrap() == self.text
    }

    fn gone(self) {
        fs::remove_file(self.card.with_extension("sock")).unwrap();
        fs::remove_file(&self.card).unwrap();
        drop(self.held);
    }
}

/// The run card of another session, with these versions of it and of the card in it.
fn run_card(card: &RunCard, outer: &str, inner: &str) -> String {
    let mut doc = serde_json::to_value(card).unwrap();
    doc["card"]["session_id"] = json!("mcp_00000000000000aa");
    doc["v"] = serde_json::from_str(outer).unwrap();
    doc["card"]["v"] = serde_json::from_str(inner).unwrap();
    doc.to_string()
}

#[test]
fn a_run_card_of_a_later_version_is_said_and_the_session_beside_it_is_watched() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    client.converse([rig::call(1, "echo", 1)].into_iter());
    let (inner, outer) = (later(CARD_VERSION), later(RUN_CARD_VERSION));
    for (inner, outer) in inner.iter().map(String::as_str).zip(outer.iter().map(String::as_str)) {
        for (text, version) in [
            (run_card(&card, outer, "1"), above(outer, 2)),
            (run_card(&card, "2", inner), version(inner)),
            (run_card(&card, "1", inner), version(inner)),
            (format!("{{\"v\":{outer}}}"), above(outer, 2)),
        ] {
            let proxy = Proxy::new(&run_dir(&rig), &text);
            let mut seen = watch(&rig, &["--json"]);
            let mut out = std::io::BufReader::new(seen.stdout.take().unwrap());
            let mut line = String::new();
            std::io::BufRead::read_line(&mut out, &mut line).unwrap();
            let hello: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(hello["session"]["card"]["session_id"], card.card.session_id.to_string());
            let only = ended(watch(&rig, &["--plain", "--session", "00000000000000aa"]));
            assert!(only.0.status.code() == Some(3) && only.2.contains(&version), "{only:?}");
            assert!(only.2.contains("no live session that this assay can read"), "{only:?}");
            seen.kill().unwrap();
            let said = String::from_utf8(seen.wait_with_output().unwrap().stderr).unwrap();
            let words = [&version[..], "its session lives and is not shown", proxy.card.to_str().unwrap()];
            assert!(words.iter().all(|w| said.contains(w)), "{said}");
            assert!(proxy.is_as_it_was());
            proxy.gone();
        }
    }
    client.end();
    // Alone it is not a live session, and not nothing either; dead it stays, whoever looks.
    let proxy = Proxy::new(&run_dir(&rig), &run_card(&card, "3", "1"));
    let (out, stdout, stderr) = ended(watch(&rig, &["--plain"]));
    assert_eq!((out.status.code(), &*stdout), (Some(0), "no live session that this assay can read\n"));
    assert!(stderr.contains(&above("3", 2)), "{stderr}");
    rustix::fs::flock(&proxy.held, rustix::fs::FlockOperation::Unlock).unwrap();
    assert_eq!(rig.recover().status.code(), Some(0));
    let (mut again, _) = start(&rig, &[]);
    again.end();
    let (_, _, stderr) = ended(watch(&rig, &["--plain"]));
    assert!(stderr.contains(&above("3", 2)) && stderr.contains("its session has ended"), "{stderr}");
    assert!(proxy.is_as_it_was());
}

#[test]
fn a_stream_of_a_later_version_is_said_and_its_end_is_heard() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let ours = run_card(&card, "1", "1");
    client.end();
    let (inner, outer) = (later(CARD_VERSION), later(RUN_CARD_VERSION));
    for (inner, outer) in inner.iter().map(String::as_str).zip(outer.iter().map(String::as_str)) {
        let hello = |protocol: &str, session: &str| {
            format!("{{\"event\":\"hello\",\"protocol\":{protocol},\"session\":{session},\"more\":[]}}\n")
        };
        let card = |outer, inner| {
            let session: RunCard = serde_json::from_str(&ours).unwrap();
            run_card(&session, outer, inner)
        };
        for (greeting, version) in [
            (hello(outer, "[]"), above(outer, 2)),
            (hello(outer, &ours), above(outer, 2)),
            (hello("1", &card(outer, "1")), above(outer, 2)),
            (hello("1", &card("1", inner)), version(inner)),
            (hello("1", &card("2", inner)), version(inner)),
        ] {
            let proxy = Proxy::new(&run_dir(&rig), &ours);
            let watching = watch(&rig, &["--plain"]);
            let (mut stream, _) = proxy.listener.accept().unwrap();
            stream.write_all(greeting.as_bytes()).unwrap();
            // It goes, and does not come again.
            let mut rest = Vec::new();
            std::io::Read::read_to_end(&mut stream, &mut rest).unwrap();
            assert_eq!(rest, b"");
            assert!(proxy.is_as_it_was());
            proxy.gone();
            let (out, stdout, _) = ended(watching);
            assert_eq!(out.status.code(), Some(0));
            assert!(stdout.starts_with("mcp_00000000000000aa: this "), "{stdout}");
            assert!(stdout.contains(&version) && stdout.lines().count() == 1, "{stdout}");
        }
    }
}

#[test]
fn events_of_a_later_version_are_said_and_the_others_told() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    client.converse((1..=5).map(|n| rig::call(n, "echo", n)));
    client.end();
    rig.as_once();
    let whole = fs::read_to_string(&card.segment).unwrap();
    for v in later(EVENT_VERSION) {
        let lines: Vec<&str> = whole.lines().collect();
        let newer = lines[4].replace("\"v\":1,", &format!("\"v\":{v},\"w\":[],"));
        fs::write(&card.segment, whole.replace(lines[4], &newer)).unwrap();
        // Its process is gone: everything is told from the files.
        let inbox = follow(&card, 10_000);
        let mut state = State::default();
        let updates = to_the_end(&inbox, &mut state);
        let said: Vec<&String> =
            updates.iter().filter_map(|u| if let Update::TooNew { why, .. } = u { Some(why) } else { None }).collect();
        assert!(matches!(&said[..], [why] if why.contains(&above(&v, EVENT_VERSION))), "{said:?}");
        assert!(updates.iter().filter(|u| matches!(u, Update::Line(_))).count() >= lines.len() - 1);
        assert!(fs::read_to_string(&card.segment).unwrap().contains(&newer));
        let receipts = fs::read_to_string(&card.receipts).unwrap();
        let later = format!("{SCHEMA_VERSION}0");
        let schema = receipts.replacen("\"schema_version\":\"3.0\"", &format!("\"schema_version\":\"{later}\""), 2);
        fs::write(&card.receipts, &schema).unwrap();
        let mut calls = 0;
        let too_new = journal::calls(&card.receipts, None, &mut |_| calls += 1).unwrap();
        assert_eq!((too_new.unwrap().found, calls), (later, 4));
        fs::write(&card.receipts, &receipts).unwrap();
    }
}

/// It runs for days yet: whoever follows hears all of it, asks in its words, and connects again.
#[test]
fn a_proxy_of_protocol_1_is_followed_from_one_session_to_the_next() {
    let rig = rig!();
    let run = run_dir(&rig);
    fs::create_dir_all(&run).unwrap();
    fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let read = |name: &str| fs::read_to_string(Path::new(FORMER).join(name)).unwrap();
    let lines: Vec<Value> = read("stream.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let hellos: Vec<&Value> = lines.iter().filter(|l| l["event"] == "hello").collect();
    let ids: Vec<&Value> = hellos.iter().map(|h| &h["session"]["card"]["session_id"]).collect();
    assert_eq!((hellos.len(), &hellos[0]["protocol"]), (2, &json!(1)));
    let proxy = Proxy::new(&run, &read("card.json"));
    let card = discovery::live_in(&run).remove(0);
    assert_eq!(card.card.socket, Some(proxy.card.with_extension("sock")));
    let (inbox, mut state, mut updates) = (follow(&card, 1000), State::default(), Vec::new());
    // The connection breaks where the first session ends, and then in the middle of the second. What was sent of the past is not
    // sent again.
    for (session, from, sent) in [(0, 0, 1..22), (1, 0, 23..30), (1, 5, 30..lines.len())] {
        let (peer, _) = proxy.listener.accept().unwrap();
        writeln!(&peer, "{}", hellos[session]).unwrap();
        let mut asked = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&peer), &mut asked).unwrap();
        let asked: Value = serde_json::from_str(&asked).unwrap();
        assert_eq!(asked, json!({"from": from, "session_id": ids[session]}));
        lines[sent.clone()].iter().for_each(|line| writeln!(&peer, "{line}").unwrap());
        let last = lines[sent].iter().rev().find_map(|l| l["hash"].as_str()).unwrap();
        until("what was sent", || {
            while let Ok(update) = inbox.try_recv() {
                apply(&mut state, &update);
                updates.push(update);
            }
            state.sessions().values().any(|s| s.head.as_deref() == Some(last)).then_some(())
        });
    }
    proxy.gone();
    updates.extend(to_the_end(&inbox, &mut state));
    // Every event once and in order, each call with its end.
    let told = updates.iter().filter_map(|u| if let Update::Line(l) = u { l.chained() } else { None });
    let told: Vec<_> = told.map(|c| (c.session_id.to_string(), c.cursor)).collect();
    let sent = lines.iter().filter(|l| l["hash"].is_string());
    let sent: Vec<_> =
        sent.map(|l| (l["session_id"].as_str().unwrap().to_owned(), l["cursor"].as_u64().unwrap())).collect();
    assert_eq!(told, sent);
    assert_eq!((state.rows().count(), state.sessions().len()), (7, 2));
    assert!(state.rows().all(|r| !r.is_running()) && state.sessions().values().all(|s| s.end.is_some()));
    assert!(!updates.iter().any(|u| matches!(u, Update::TooNew { .. })), "{updates:?}");
}
