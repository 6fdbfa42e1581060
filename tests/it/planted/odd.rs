//! Paths and files that are allowed, and odd.

use super::{
    hex_of,
    prepared::{LINES, Prepared, names},
    said,
};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt as _,
};

/// Every command with every path that a command line can hold: none panics, whether such a path exists or not.
#[test]
fn no_path_on_the_command_line_panics() {
    let rig = Prepared::new();
    let ended = rig.finished_session();
    let pack = rig.audit.join("packs").join(format!("proof_pack_{ended}"));
    let long = "x".repeat(5000);
    let paths: [&[u8]; 12] = [
        b"",
        b".",
        b"/proc",
        b"..",
        b"\xff\xfe",
        b"a\xffb/\xc3",
        b"\n\x1b[31m",
        b"-",
        "\u{202e}\u{0}".trim_end_matches('\0').as_bytes(),
        long.as_bytes(),
        b"/dev/null",
        b"/dev/zero",
    ];
    let commands: [&[&str]; 30] = [
        &["recover", "--json", "--audit-dir", "P"],
        &["recover", "--audit-dir", "P"],
        &["analyze", "--json", "P"],
        &["analyze", "--history", "--json", "--audit-dir", "P"],
        &["analyze", "--history", "--rebuild", "--audit-dir", "P"],
        &["diff", "--json", "P", "P"],
        &["diff", "P", "PACK", "--gates", "P"],
        &["diff", "PACK", "PACK", "--gates", "P", "--json"],
        &["diff", "PACK", "PACK", "--report", "P/x.html"],
        &["explain", "--json", "P"],
        &["verify-pack", "--json", "P"],
        &["verify-pack", "--json", "PACK", "--lock", "P"],
        &["verify-pack", "--json", "PACK", "--pub-key", "P"],
        &["open", "--json", "P"],
        &["open", "--plain", "P", "--audit-dir", "P"],
        &["open", "--json", "PACK", "--policy", "P"],
        &["watch", "--json", "--audit-dir", "P/none"],
        &["watch", "--plain", "--audit-dir", "P/none"],
        &["watch", "--plain", "--policy", "P", "--audit-dir", "none"],
        &["policy", "check", "P"],
        &["policy", "check", "--json", "P"],
        &["policy", "dry-run", "--json", "policy.yaml", "--against", "P"],
        &["policy", "dry-run", "--json", "P", "--against", "PACK"],
        &["policy", "dry-run", "--json", "policy.yaml", "--against", "PACK", "--audit-dir", "P", "--cwd", "P"],
        &["policy", "init", "P"],
        &["keys", "list", "--json", "--keys-dir", "P"],
        &["keys", "export", "P"],
        &["mcp-proxy", "--audit-dir", "P", "--json", "--", "cat"],
        &["mcp-proxy", "--policy", "P", "--json", "--", "cat"],
        &["mcp-proxy", "--json", "--", "P"],
    ];
    for path in paths {
        for command in commands {
            let args: Vec<OsString> = command
                .iter()
                .map(|arg| match *arg {
                    "PACK" => pack.clone().into_os_string(),
                    arg => {
                        let (before, after) = arg.split_once('P').filter(|(b, _)| b.is_empty()).unwrap_or((arg, "\0"));
                        let mut text =
                            if after == "\0" { OsString::from(before) } else { OsStr::from_bytes(path).to_owned() };
                        text.push(if after == "\0" { "" } else { after });
                        text
                    }
                })
                .collect();
            let what = format!("{args:?}");
            rig.run(&what, &args, "");
        }
    }
}

/// A killed session's traffic lies in memory. Once nothing leads to it any more, the next proxy of this user removes it,
/// wherever that works; as long as something does, it stays.
#[test]
fn traffic_that_nothing_leads_to_any_more_does_not_stay_in_memory() {
    for gone in ["", "live", "CARD"] {
        let rig = Prepared::new();
        let died = rig.killed_session();
        let run = rig.root.join("run/assay");
        let rings = || names(&run).iter().filter(|n| n.ends_with(".ring") || n.ends_with(".place")).count();
        assert_eq!(rings(), 3, "two captures, and where they belong");
        let elsewhere = rig.root.join("elsewhere");
        let flags = ["--audit-dir", elsewhere.to_str().unwrap()];
        rig.proxy("elsewhere", &flags);
        assert_eq!(rings(), 3, "it is recovered from its own directory, and only there");
        let path = rig.audit.join(gone.replace("CARD", &format!("live/{}.json", hex_of(&died))));
        if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        rig.run("recover elsewhere", &["recover", flags[0], flags[1]], "");
        assert_eq!(rings(), 0, "without {gone}");
    }
    let rig = Prepared::new();
    rig.killed_session();
    assert_eq!(rig.run("recover", &["recover"], "").status.code(), Some(0));
    assert_eq!(names(&rig.root.join("run/assay")), [] as [&str; 0]);
    rig.finished_session();
    assert_eq!(names(&rig.root.join("run/assay")), [] as [&str; 0]);
}

/// An audit directory, a home and a working directory whose names are not text.
#[test]
fn a_directory_whose_name_is_no_text_is_recorded_in() {
    let rig = Prepared::new();
    for name in [&b"\xff\xfe"[..], b"line\nfeed", "\u{202e}".as_bytes()] {
        let dir = rig.work.join(OsStr::from_bytes(name));
        let args = ["mcp-proxy", "--json", "--audit-dir"].map(OsString::from);
        let rest = ["--", "cat"].map(OsString::from);
        let proxy = [&args[..], &[dir.clone().into_os_string()], &rest[..]].concat();
        let output = rig.run("odd name", &proxy, LINES);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        for line in said(&output).lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
        }
        let packs: Vec<_> = fs::read_dir(dir.join("packs")).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(packs.len(), 1);
        let what = "odd name, afterwards";
        let recover = [OsStr::new("recover"), "--json".as_ref(), "--audit-dir".as_ref(), dir.as_os_str()];
        assert_eq!(rig.run(what, &recover, "").status.code(), Some(0));
        for command in
            [&["verify-pack", "--json"][..], &["explain", "--json"], &["open", "--json"], &["analyze", "--json"]]
        {
            let mut args: Vec<OsString> = command.iter().map(OsString::from).collect();
            args.push(packs[0].clone().into_os_string());
            let output = rig.run(what, &args, "");
            assert!(matches!(output.status.code(), Some(0..=2)), "{command:?}: {}", said(&output));
            assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok(), "{command:?}: {output:?}");
        }
    }
}
