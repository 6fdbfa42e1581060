//! What people expect of any program: completions, manual pages, a log that can be turned up, errors that lead somewhere.

use assay_support::{
    rig::{Client, INITIALIZE, call, rig, stderr, stdout},
    sessions::Plan,
    tty::Tty,
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

#[test]
fn shells_complete_what_there_is() {
    let rig = rig!();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let out = rig.run(&["completions", shell]);
        assert!(out.status.success(), "{shell}: {}", stderr(&out));
        let script = stdout(&out);
        assert!(script.contains("verify-pack") && script.contains("pack-interval"), "{shell}");
        for hidden in ["demo-server", "--wrapped", "require-witness"] {
            assert!(!script.contains(hidden), "{shell} completes {hidden}, which help hides");
        }
    }
    // As the shell does it when somebody presses Tab.
    fs::write(rig.at("assay.bash"), rig.run(&["completions", "bash"]).stdout).unwrap();
    let complete = |words: &str| {
        let ask = format!(
            "source assay.bash; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _assay assay \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let out = rig.command("bash").args(["-c", &ask]).output().unwrap();
        assert!(out.status.success(), "{}", stderr(&out));
        stdout(&out)
    };
    assert_eq!(complete("assay verify-pa"), "verify-pack\n");
    assert!(complete("assay keys im").contains("import"));
    assert!(complete("assay mcp-proxy --pack-").contains("--pack-interval"));
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let rig = rig!();
    assert_eq!(rig.run(&["man", "pages"]).status.code(), Some(3), "there is no such directory");
    fs::create_dir(rig.at("pages")).unwrap();
    let out = rig.run(&["man", "pages"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let page = |name: &str| fs::read_to_string(rig.at("pages").join(name)).unwrap();
    assert!(page("assay.1").contains("assay\\-mcp\\-proxy(1)"), "{}", page("assay.1"));
    assert!(page("assay-mcp-proxy.1").contains("pack\\-interval"));
    assert!(page("assay-keys-import.1").contains("PKCS"));
    assert!(rig.run(&["man", "pages"]).status.success(), "pages are replaced");
    fs::write(rig.at("file"), "").unwrap();
    assert_eq!(rig.run(&["man", "file"]).status.code(), Some(3));
}

#[test]
fn commands_that_are_called_otherwise_here_are_named() {
    let rig = rig!();
    for (word, hint) in [
        ("record", "assay mcp-proxy -- COMMAND"),
        ("Logs", "assay packs"),
        ("status", "assay watch"),
        ("tui", "assay watch"),
        ("install", "assay wrap"),
        ("uninstall", "assay unwrap"),
        ("show", "assay open"),
    ] {
        let out = rig.run(&[word]);
        assert_eq!(out.status.code(), Some(3), "{word}");
        let said = stderr(&out);
        assert!(said.starts_with(&format!("assay: error: there is no command {word}\n  hint: ")), "{said}");
        assert!(said.contains(hint), "{said}");
    }
    assert!(stderr(&rig.run(&["verfy-pack"])).contains("verify-pack"), "letters count, too");
    for packless in [&["verify"][..], &["open"], &["diff"], &["diff", "last"], &["explain"], &["export"], &["prove"]] {
        let said = stderr(&rig.run(packless));
        assert!(said.contains("last is the newest pack") && said.contains("assay packs"), "{packless:?}: {said}");
    }
    assert!(!stderr(&rig.run(&["policy", "check"])).contains("last is"), "only where a pack is missing");
    let whole_line = rig.run(&["mcp-proxy", "--", "npx -y @scope/server --flag"]);
    assert_eq!(whole_line.status.code(), Some(3));
    let hint = "without quotes it is: assay mcp-proxy -- npx -y @scope/server --flag";
    assert!(stderr(&whole_line).contains(hint), "{}", stderr(&whole_line));
}

#[test]
fn the_log_says_as_much_as_it_is_asked() {
    let rig = rig!();
    let log = |level: Option<&str>| {
        let _ = fs::remove_file(rig.audit.join("recorder.log"));
        let argv = ["mcp-proxy", "--audit-dir", rig.audit.to_str().unwrap(), "--", rig.assay, "demo-server"];
        let mut program = rig.program(&argv);
        if let Some(level) = level {
            program.env("ASSAY_LOG", level);
        }
        let mut client = Client::start(program);
        client.send(INITIALIZE);
        client.send(&call(1, "echo", 1));
        client.await_lines(2);
        assert!(client.end().success(), "{}", client.said());
        (fs::read_to_string(rig.audit.join("recorder.log")).unwrap_or_default(), client.said())
    };
    assert!(log(None).0.contains("INFO"));
    assert_eq!(log(Some("off")).0, "");
    assert!(!log(Some("error")).0.contains("INFO"));
    let (text, said) = log(Some("loud"));
    assert!(text.contains("INFO") && said.contains("expected off, error, warn, info, debug or trace"), "{said}");
    let out = rig.program(&["keys", "list"]).env("ASSAY_LOG", "loud").output().unwrap();
    assert!(out.status.success() && stderr(&out).contains("ASSAY_LOG is loud"), "{}", stderr(&out));
    let plain = rig.program(&["keys", "list"]).env("ASSAY_LOG", "debug").output().unwrap();
    assert_eq!((plain.status.code(), stderr(&plain)), (Some(0), String::new()));
}

#[test]
fn claim_cards_are_listed_with_their_claims() {
    let rig = rig!();
    let out = rig.run(&["verify-pack", "--cards", "list"]);
    assert!(out.status.success(), "{}", stderr(&out));
    for word in ["mcp_session_completeness\n", "  every_call_has_receipt ", "mcp_escrow_completeness\n", " warning "] {
        assert!(stdout(&out).contains(word), "{word}: {}", stdout(&out));
    }
    let wrong = rig.run(&["verify-pack", "--cards", "nothing", rig.pack(&Plan::default()).to_str().unwrap()]);
    assert!(stderr(&wrong).contains("--cards list shows them"), "{}", stderr(&wrong));
    let none = rig.run(&["verify-pack", "--cards", "mcp_session_completeness"]);
    assert_eq!(none.status.code(), Some(3));
    assert!(stderr(&none).contains("no pack is named"), "{}", stderr(&none));
}

#[test]
fn what_became_of_a_pack_on_its_way_is_said() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    let spoil = |file: &str, change: &dyn Fn(&[u8]) -> Vec<u8>| {
        let copy = rig.at("copy");
        let _ = fs::remove_dir_all(&copy);
        copied(&pack, &copy);
        let bytes = fs::read(copy.join(file)).unwrap();
        fs::write(copy.join(file), change(&bytes)).unwrap();
        let verified = rig.run(&["verify-pack", copy.to_str().unwrap()]);
        assert_eq!(verified.status.code(), Some(2), "{file}: {}", stdout(&verified));
        stdout(&verified)
    };
    let crlf = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace('\n', "\r\n").into_bytes();
    let marked = |bytes: &[u8]| [b"\xef\xbb\xbf", bytes].concat();
    let pointer = |_: &[u8]| b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n".to_vec();
    for file in ["pack_manifest.json", "receipt_pack.jsonl", "audit_log.jsonl"] {
        for (change, said) in [
            (&crlf as &dyn Fn(&[u8]) -> Vec<u8>, "its lines end in CR LF"),
            (&marked, "it begins with a byte order mark"),
            (&pointer, "it is a Git LFS pointer"),
        ] {
            let text = spoil(file, change);
            assert!(text.contains(&format!("{file}: {said}")), "{file} {said}: {text}");
        }
    }
    // Whoever really changes a pack is not excused.
    let text = spoil("receipt_pack.jsonl", &|bytes| [bytes, b"{}\n"].concat());
    assert!(!text.contains("CR LF"), "{text}");
    let copy = rig.at("copy");
    fs::write(copy.join("pack_manifest.json"), pointer(&[])).unwrap();
    let explained = rig.run(&["explain", copy.to_str().unwrap()]);
    assert!(stderr(&explained).contains("it is a Git LFS pointer"), "{}", stderr(&explained));
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn a_key_from_elsewhere_is_imported_and_one_is_deleted_only_when_somebody_says_so() {
    let rig = rig!();
    let pem = rig.file(
        "ci.pem",
        "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n",
    );
    let import = ["keys", "import", "--signer", "ci", &pem, "--activate"];
    fs::set_permissions(&pem, fs::Permissions::from_mode(0o644)).unwrap();
    let open = rig.run(&import);
    assert_eq!(open.status.code(), Some(3));
    assert!(stderr(&open).contains("others can read it"), "{}", stderr(&open));
    fs::set_permissions(&pem, fs::Permissions::from_mode(0o600)).unwrap();
    let done = rig.run(&[&import[..], &["--json"]].concat());
    assert!(done.status.success(), "{}", stderr(&done));
    let key: Value = serde_json::from_slice(&done.stdout).unwrap();
    // The public key of RFC 8410, section 10.1.
    assert_eq!(key["public_key"], "Gb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=");
    assert_eq!(rig.run(&import).status.code(), Some(3), "a key is never replaced");
    let wrong = rig.file("ssh", "-----BEGIN OPENSSH PRIVATE KEY-----\nxxxx\n-----END OPENSSH PRIVATE KEY-----\n");
    fs::set_permissions(&wrong, fs::Permissions::from_mode(0o600)).unwrap();
    let refused = rig.run(&["keys", "import", "--signer", "ssh", &wrong]);
    assert!(stderr(&refused).contains("openssl genpkey"), "{}", stderr(&refused));
    // It signs.
    rig.record("audit", &[], &[]);
    let fingerprint = key["fingerprint"].as_str().unwrap();
    assert!(rig.run(&["verify-pack", "--signer", fingerprint, "audit"]).status.success());
    // Nobody is there to be asked.
    let silent = rig.run(&["keys", "delete", "ci"]);
    assert_eq!(silent.status.code(), Some(3));
    for (answer, there) in [("n\n", true), ("y\n", false)] {
        let mut tty = Tty::start(&rig, &["keys", "delete", "ci"], 100, 20);
        tty.wait("delete it? [y/N]");
        let (code, screen) = tty.quit(answer);
        assert_eq!(code, 0, "{screen}");
        assert_eq!(rig.at("home/keys/ci.key").exists(), there, "{screen}");
    }
    assert_eq!(rig.run(&["keys", "delete", "ci", "--yes"]).status.code(), Some(3));
    // Its packs still verify, and the next session makes a key.
    assert!(rig.run(&["verify-pack", "--signer", fingerprint, "audit"]).status.success());
    rig.record("audit", &[], &[]);
}

#[test]
fn times_are_local_in_what_people_read_and_universal_in_what_machines_read() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    let explain = |args: &[&str]| {
        let mut program: Command = rig.program(&[&["explain", pack.to_str().unwrap()], args].concat());
        stdout(&program.env("TZ", "<+0530>-5:30").output().unwrap())
    };
    let (text, json) = (explain(&[]), explain(&["--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    let started = json["session"]["started_at"].as_str().unwrap();
    assert!(started.ends_with('Z') && !text.contains(started), "{text}");
    assert!(text.contains(" +0530 to ") && text.contains("Recorded "), "{text}");
    let summary = fs::read_to_string(pack.join("_unsigned/PACK_SUMMARY.md")).unwrap();
    assert!(summary.contains(&started[..19]) && !summary.contains("+0530"), "{summary}");
}

#[test]
fn what_servers_and_clients_call_themselves_stands_beside_their_ids() {
    let rig = rig!();
    rig.record("audit", &["--server-id", "mine"], &[serde_json::json!({"name": "echo", "arguments": {"text": "x"}})]);
    let listed = rig.json(0, &["packs", "--audit-dir", "audit"]);
    let session = &listed["sessions"][0];
    let own = session["server"].as_str().unwrap();
    assert!(session["server_id"] == "mine" && own.len() > 3 && session["client"] == "crash-client 1", "{session}");
    let text = stdout(&rig.run(&["packs", "--audit-dir", "audit"]));
    assert!(text.contains(&format!("mine ({}", &own[..3])) && text.contains("crash-client 1"), "{text}");
    for of in [&["analyze", "audit"][..], &["analyze", "--audit-dir", "audit", "--history"]] {
        let text = stdout(&rig.run(of));
        assert!(text.contains(&format!("  own name of mine: {own}\n")), "{text}");
        assert_eq!(rig.json(0, of)["server_names"]["mine"], own);
    }
}
