//! Those who do not: none of them may cost the session anything.

use super::*;
use assay_support::rig::{call, rig};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Calls with names so long that what is told of them does not fit into what is kept for subscribers.
pub const CALLS: u64 = 1300;

pub fn wide(id: u64) -> String {
    call(id, &"echo".repeat(250), id)
}

/// One who wants to hear of every session from now on.
fn subscribe(socket: &Path) -> Option<UnixStream> {
    let stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(rig::LIMIT)).ok()?;
    (&stream).write_all(b"{\"subscribe\":\"all\"}\n").ok()?;
    Some(stream)
}

/// Waits until the live thread has come so far; who comes then is told its cursor.
fn await_cursor(socket: &Path, cursor: u64) {
    until("the live thread to come by", || {
        let lines = BufReader::new(subscribe(socket)?).lines().map_while(Result::ok);
        let mut lines = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line).unwrap());
        let session = lines.find(|line| line["event"] == "session")?;
        (session["cursor"].as_u64()? >= cursor).then_some(())
    });
}

fn session_is_whole(rig: &Rig, client: &mut Client, calls: u64) {
    assert_eq!(client.end().code(), Some(0));
    let doc = &documents(rig)[0];
    assert!(doc.session_complete);
    assert_eq!((doc.counts.calls, doc.counts.missed), (calls, 0));
    assert_eq!(client.lines() as u64, calls + 1);
}

#[test]
fn subscribers_that_do_not_read_lose_events_that_are_counted() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let socket = card.card.socket.clone().unwrap();
    let deaf: Vec<UnixStream> = (0..3).map(|_| subscribe(&socket).unwrap()).collect();
    let mut drop_by_drop = subscribe(&socket).unwrap();
    // All of them hear of the session: the one that came last does.
    drop_by_drop.read_exact(&mut [0; 600]).unwrap();
    let mut byte = [0];
    for id in 1..=CALLS {
        client.send(&wide(id));
        if id % 100 == 0 {
            drop_by_drop.read_exact(&mut byte).unwrap();
        }
    }
    client.await_lines(usize::try_from(CALLS).unwrap() + 1);
    await_cursor(&socket, 4 * CALLS);
    session_is_whole(&rig, &mut client, CALLS);
    // Each of the four has lost what the common memory does not hold.
    let missed = documents(&rig)[0].live_events_missed;
    assert!(missed > CALLS, "{missed}");
    drop((deaf, drop_by_drop));
}

#[test]
fn who_reads_again_after_a_pause_is_told_how_much_it_lost() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let socket = card.card.socket.clone().unwrap();
    let mut reader = BufReader::new(subscribe(&socket).unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"event\":\"hello\""), "{line}");
    line.clear();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"event\":\"session\""), "{line}");
    for id in 1..=CALLS {
        client.send(&wide(id));
    }
    client.await_lines(usize::try_from(CALLS).unwrap() + 1);
    await_cursor(&socket, 4 * CALLS);
    let gap = loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "no gap was told");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        if value["event"] == "gap" {
            break value;
        }
    };
    assert_eq!(gap["to"].as_u64().unwrap() - gap["from"].as_u64().unwrap(), gap["gap"].as_u64().unwrap());
    session_is_whole(&rig, &mut client, CALLS);
    let missed = documents(&rig)[0].live_events_missed;
    assert!(missed >= gap["gap"].as_u64().unwrap(), "{missed} {gap}");
}

#[test]
fn a_thousand_connections_and_endless_requests_are_turned_away() {
    let rig = rig!();
    let (mut client, card) = start(&rig, &[]);
    let socket = card.card.socket.clone().unwrap();
    let crowd = {
        let socket = socket.clone();
        std::thread::spawn(move || (0..1000).filter_map(|_| UnixStream::connect(&socket).ok()).collect::<Vec<_>>())
    };
    client.converse((1..=50).map(|id| call(id, "echo", id)));
    let crowd = crowd.join().unwrap();
    assert!(crowd.len() > 900, "{}", crowd.len());
    let greeted = crowd.iter().filter(|s| {
        s.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        matches!((&**s).read(&mut [0; 16]), Ok(1..))
    });
    assert!(greeted.count() <= assay::live::server::MAX_SUBSCRIBERS);
    drop(crowd);
    // A gigabyte of request: cut off long before.
    let flood = until("a place among the subscribers", || {
        let stream = UnixStream::connect(&socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        matches!((&stream).read(&mut [0; 16]), Ok(1..)).then_some(stream)
    });
    let piece = vec![b'x'; 1 << 20];
    let sent = (0..1024).take_while(|_| (&flood).write_all(&piece).is_ok()).count();
    assert!(sent < 16, "{sent} MiB were read");
    let wrong = until("another place", || {
        let stream = UnixStream::connect(&socket).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then_some(reader)
    });
    (&mut wrong.get_ref()).write_all(b"{\"from\":\"x\"}\n{\"subscribe\":\"all\",\"from\":0}\n").unwrap();
    let lines: Vec<String> = wrong.lines().map_while(Result::ok).take(3).collect();
    assert!(lines[0].contains("\"event\":\"error\""), "{lines:?}");
    assert!(lines[1].contains("\"event\":\"session\""), "{lines:?}");
    assert!(lines[2].contains("\"cursor\":0"), "{lines:?}");
    client.converse((51..=60).map(|id| call(id, "echo", id)));
    session_is_whole(&rig, &mut client, 60);
}

#[test]
fn a_session_goes_on_where_no_socket_can_be_made() {
    let rig = rig!();
    fs::write(rig.root.join("run/assay"), b"in the way").unwrap();
    fs::create_dir_all(rig.root.join("home")).unwrap();
    fs::write(rig.root.join("home/run"), b"in the way").unwrap();
    let mut command = rig.proxy(&[]);
    command.env("ASSAY_HOME", rig.root.join("home"));
    let mut client = Client::start(command);
    client.converse([rig::INITIALIZE.to_owned(), call(1, "echo", 0)].into_iter());
    session_is_whole(&rig, &mut client, 1);
    assert_eq!(client.said(), "");
}
