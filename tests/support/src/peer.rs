//! The server at the far end: one thread, answers in order, writes down what it reads before it looks at it.

use serde_json::{Value, json};
use std::{
    fs::{File, OpenOptions},
    io::{IoSlice, Read as _, Write as _},
    os::fd::AsFd as _,
    path::Path,
    process::Command,
};

/// The test that plays the server; each target whose tests start proxies with [`Rig::proxy`](crate::rig::Rig::proxy) has it at
/// its root.
#[macro_export]
macro_rules! server {
    () => {
        #[test]
        #[ignore = "this is the server that the other tests start"]
        fn server() {
            $crate::peer::serve_if_asked();
        }
    };
}

/// The file that a server writes down what it received in.
pub fn log() -> Option<std::path::PathBuf> {
    std::env::var_os("CRASH_SERVER_LOG").map(Into::into)
}

/// Serves where a rig started this process.
pub fn serve_if_asked() {
    let Some(log) = log() else { return };
    match std::env::var_os("DRIFT_SCRIPT").map(std::path::PathBuf::from).filter(|script| script.exists()) {
        Some(script) => crate::drift::serve(&script, &log),
        None => serve(&log),
    }
}

/// Speaks on fd 3, where the wrapper put the real stdout, away from what libtest prints.
#[expect(clippy::zombie_processes, reason = "the grandchild is to be left behind")]
pub fn serve(log: &Path) -> ! {
    let how = std::env::var("CRASH_SERVER").unwrap_or_default();
    let has = |flag: &str| how.split(' ').any(|f| f == flag);
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut out = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    if has("grandchild") {
        // It holds our stdout for longer than any test runs.
        let to = out.try_clone().unwrap();
        Command::new("sleep").arg("600").stdout(to).spawn().unwrap();
    }
    let mut held = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = input.read(&mut buffer) {
        write(&mut log, &buffer[..n]).unwrap();
        // What was there before has no end of a line.
        let mut looked = held.len();
        held.extend_from_slice(&buffer[..n]);
        while let Some(end) = memchr::memchr(b'\n', &held[looked..]) {
            let line: Vec<u8> = held.drain(..=looked + end).collect();
            answer(&line, &mut out);
            looked = 0;
        }
    }
    if has("ignore-eof") {
        loop {
            std::thread::park();
        }
    }
    let code = how.split(' ').find_map(|f| f.strip_prefix("exit=")).map_or(0, |c| c.parse().unwrap());
    std::process::exit(code);
}

/// With `writev`, so that tests which trap `write` trap the proxy's.
fn write(file: &mut File, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        let n = file.write_vectored(&[IoSlice::new(bytes)])?;
        bytes = &bytes[n..];
    }
    Ok(())
}

fn answer(line: &[u8], out: &mut File) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    let (Some(method), id) = (message["method"].as_str(), &message["id"]) else { return };
    let say = |out: &mut File, value: &Value| {
        let mut text = serde_json::to_vec(value).unwrap();
        text.push(b'\n');
        // The proxy may be gone.
        let _ = write(out, &text);
    };
    let reply = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let text = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    if method == "initialize" {
        let info = json!({ "name": "crash-server", "version": "1" });
        say(out, &reply(json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info })));
        return;
    }
    if method == "notifications/die" {
        if let Some(code) = message["params"]["how"].as_str().and_then(|how| how.parse().ok()) {
            std::process::exit(code);
        }
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    if id.is_null() {
        return;
    }
    let arguments = &message["params"]["arguments"];
    let number = || arguments["n"].as_u64().unwrap_or_default();
    match message["params"]["name"].as_str() {
        Some("big") => say(out, &reply(text("x".repeat(usize::try_from(number()).unwrap()) + &id.to_string()))),
        Some("ask") => {
            let ask = json!({ "jsonrpc": "2.0", "id": format!("s{id}"), "method": "sampling/createMessage",
                "params": { "messages": [], "maxTokens": 1 } });
            say(out, &ask);
            say(out, &reply(text(format!("asked {id}"))));
        }
        Some("fail") => {
            say(out, &reply(json!({ "isError": true, "content": [{ "type": "text", "text": id.to_string() }] })))
        }
        Some("hang") => {}
        Some("flood") => {
            for n in 0..number() {
                let methods = ["roots/list", "sampling/createMessage", "elicitation/create"];
                say(out, &json!({ "jsonrpc": "2.0", "id": n, "method": methods[n as usize % 3], "params": {} }));
            }
            say(out, &reply(text(format!("flooded {id}"))));
        }
        Some("die") => std::process::exit(i32::try_from(number()).unwrap()),
        Some("noise") => {
            std::io::stderr().write_all(&vec![b'!'; usize::try_from(number()).unwrap()]).unwrap();
            say(out, &reply(text(format!("noise {id}"))));
        }
        _ => say(out, &reply(text(format!("echo {id}")))),
    }
}
