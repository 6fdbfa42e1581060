//! A server that offers what a script says, which is read again for each request: a test changes it while the server runs.
//!
//! The script is a JSON object. Its keys are methods, those of later pages with `#` and the cursor behind them; its values
//!
//! | value | answer |
//! |---|---|
//! | a text | the result, byte for byte |
//! | a number | an error of this code |
//! | an object | the same in `answer`; the texts in `before` are sent first, line by line |
//! | none, or null | error -32601 |

use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::fd::AsFd as _,
    path::Path,
};

/// Serves on fd 3, as [`crate::peer::serve`].
pub fn serve(script: &Path, log: &Path) -> ! {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut out = fs::OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    let mut log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    for line in BufReader::new(input).lines() {
        let Ok(line) = line else { break };
        writeln!(log, "{line}").unwrap();
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let (Some(method), id) = (message["method"].as_str(), &message["id"]) else { continue };
        if id.is_null() {
            continue;
        }
        let script: Value = serde_json::from_slice(&fs::read(script).unwrap()).unwrap();
        let key = match message["params"]["cursor"].as_str() {
            Some(cursor) => format!("{method}#{cursor}"),
            None => method.to_owned(),
        };
        let value = &script[&key];
        for line in value["before"].as_array().into_iter().flatten() {
            let _ = writeln!(out, "{}", line.as_str().unwrap());
        }
        let answer = if value.is_object() { &value["answer"] } else { value };
        let said = match (answer.as_str(), answer.as_i64()) {
            (Some(result), _) => format!(r#""result":{result}"#),
            (None, code) => format!(r#""error":{{"code":{},"message":"scripted"}}"#, code.unwrap_or(-32601)),
        };
        let _ = writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},{said}}}"#);
    }
    std::process::exit(0)
}

/// A tool, as a listing has it.
pub fn tool(name: &str, description: &str) -> String {
    format!(r#"{{"name":"{name}","description":"{description}","inputSchema":{{"type":"object"}}}}"#)
}

/// A script of a server that speaks the older revisions and has these tools.
pub fn tools(all: &[String]) -> Value {
    let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"drift","version":"1"},"instructions":"use with care"}"#;
    serde_json::json!({"initialize": hello, "tools/list": format!(r#"{{"tools":[{}]}}"#, all.join(","))})
}
