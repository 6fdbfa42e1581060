//! A server that takes for a call whatever could be one: members in any case, the last of several, batches, lines that end at
//! a carriage return, values behind a byte order mark, behind garbage and beside each other.

use assay_support::guard::lenient;
use serde_json::json;
use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

/// Where it writes down what it did.
pub fn executed(log: &Path) -> PathBuf {
    log.with_extension("executed")
}

/// Speaks on fd 3, as the other server does.
pub fn serve(log: &Path) -> ! {
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut out = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    let mut done = OpenOptions::new().create(true).append(true).open(executed(log)).unwrap();
    let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut held = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = input.read(&mut buffer) {
        log.write_all(&buffer[..n]).unwrap();
        held.extend_from_slice(&buffer[..n]);
        while let Some(end) = held.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            for name in lenient::calls(&line) {
                writeln!(done, "{name}").unwrap();
            }
            // One answer per line that has an id where a strict reader finds one: for the client to go on.
            if let Ok(message) = serde_json::from_slice::<serde_json::Value>(&line)
                && message["method"].is_string()
                && !message["id"].is_null()
            {
                let info = json!({"name": "lenient", "version": "1"});
                let result =
                    json!({"content": [], "protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info});
                let _ = writeln!(out, "{}", json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
            }
        }
    }
    for name in lenient::calls(&held) {
        writeln!(done, "{name}").unwrap();
    }
    std::process::exit(0);
}
