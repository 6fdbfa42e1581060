//! Clients of all SDKs with servers over HTTP, directly, through the listener and through the bridge.

use super::{Listener, Profile, Upstream, bridge};
use crate::{install, scenario::run_over_http, suites::no_pack_is_tampered};
use serde_json::Value;
use std::{fs, path::Path, time::Duration};

macro_rules! sessions {
    ($($name:ident: $file:literal, $clients:literal;)*) => {$(
        #[test]
        fn $name() {
            run_over_http($file, $clients);
        }
    )*};
}

sessions! {
    everything_with_the_python_client: "everything", "py:";
    everything_with_the_typescript_1_client: "everything", "ts1:";
    everything_with_the_typescript_2_client: "everything", "ts2:";
    a_cut_stream_is_resumed: "cut", "";
    fastmcp_with_the_python_client: "own", "py:";
    fastmcp_with_the_typescript_clients: "own", "ts";
}

/// What the inspector's command line prints.
fn inspect(target: &[String], words: &[&str], dir: &Path) -> String {
    let mut inspector = install::node("mcp-inspector");
    inspector.arg("--cli").args(words).arg("-q").args((target.len() > 1).then_some("--")).args(target);
    inspector.current_dir(dir).env("HOME", dir);
    let log = dir.join("inspector.log");
    let status = install::finish(inspector, &log, Duration::from_secs(60));
    assert!(status.success(), "{words:?}: {status}\n{}", install::tail(&log));
    fs::read_to_string(log).unwrap()
}

#[test]
fn the_inspector_calls_a_tool_and_many_at_once() {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    let server = install::root().join("node_modules/.bin/mcp-server-everything").display().to_string();
    let command = ["env", "PORT={port}", &server, "streamableHttp"].map(str::to_owned);
    let upstream = Upstream::start(&command, "/mcp", temp.path());
    let call = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=żółw"];
    let load =
        [&call[..], &["--load", "--load-requests", "40", "--load-concurrency", "8", "--format", "json"]].concat();
    let direct = inspect(std::slice::from_ref(&upstream.url), &call, temp.path());
    assert!(direct.contains("żółw"), "{direct}");
    let check = |target: &[String], dir: &Path| {
        assert_eq!(inspect(target, &call, dir), direct, "{target:?}");
        let told: Value = serde_json::from_str(&inspect(target, &load, dir)).unwrap();
        assert_eq!([&told["result"]["ok"], &told["result"]["errors"]], [40, 0], "{told}");
    };
    for profile in Profile::ALL {
        let dir = temp.path().join(format!("listener-{profile:?}"));
        let listener = Listener::start(profile, &upstream.url, &dir, &[]);
        check(std::slice::from_ref(&listener.url), &dir);
        no_pack_is_tampered(&listener.end(), &dir);
    }
    for profile in Profile::ALL {
        let dir = temp.path().join(format!("bridge-{profile:?}"));
        check(&bridge(profile, &upstream.url, &dir), &dir);
        no_pack_is_tampered(&dir.join("audit"), &dir);
    }
}
