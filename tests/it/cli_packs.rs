//! `assay packs`, and the names and archives that every command takes for a pack, as a user types them.

use assay_support::{
    rig::{Rig, rig, stderr, stdout},
    sessions::Plan,
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

fn record(rig: &Rig, audit: &str, server: &str) {
    rig.record(
        audit,
        &["--server-id", server],
        &[json!({"name": "echo", "arguments": {"text": "x"}}), json!({"name": "fail", "arguments": {}})],
    );
}

fn sessions(rig: &Rig, args: &[&str]) -> Vec<Value> {
    rig.json(0, &[&["packs"], args].concat())["sessions"].as_array().unwrap().clone()
}

#[test]
fn sessions_of_all_directories_are_listed_and_named_from_anywhere() {
    let rig = rig!();
    let out = rig.run(&["packs"]);
    assert!(stdout(&out).contains("nothing was recorded"), "{}", stdout(&out));
    record(&rig, "one", "first");
    record(&rig, "two", "second");
    let all = sessions(&rig, &[]);
    let of = |one: &Value, member: &str| one[member].clone();
    let servers: Vec<Value> = all.iter().map(|s| of(s, "server_id")).collect();
    assert_eq!(servers, ["second", "first"], "the newest first: {all:?}");
    for one in &all {
        assert_eq!(one["state"], "complete", "{one}");
        assert_eq!((&one["calls"], &one["failed"], &one["denied"]), (&2.into(), &1.into(), &0.into()));
        assert!(one["bytes"].as_u64().unwrap() > 1000 && one["verdict"].is_null(), "{one}");
        assert!(one["client"].as_str().is_some_and(|name| !name.is_empty()), "{one}");
    }
    assert_eq!(sessions(&rig, &["--audit-dir", "one"]).len(), 1);
    assert_eq!(sessions(&rig, &["server:sec"])[0]["server_id"], "second");
    assert!(sessions(&rig, &["state:died"]).is_empty());
    let cut = rig.json(0, &["packs", "-n", "1"]);
    assert_eq!((cut["sessions"].as_array().unwrap().len(), &cut["omitted"]), (1, &1.into()));

    // Names lead to the same packs from a directory where nothing was recorded.
    let elsewhere = rig.at("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let there = |args: &[&str]| rig.program(args).current_dir(&elsewhere).output().unwrap();
    let id = all[1]["session_id"].as_str().unwrap();
    for name in [id, &id[4..], &id[4..12], "last~1"] {
        let out = there(&["verify", name]);
        assert_eq!(out.status.code(), Some(0), "{name}: {}", stderr(&out));
        assert!(stderr(&out).contains(&format!("{name} is {}", all[1]["pack"].as_str().unwrap())), "{}", stderr(&out));
        assert!(
            !stdout(&out).contains("--signer ") || stdout(&out).contains("--signer FINGERPRINT"),
            "{}",
            stdout(&out)
        );
    }
    for args in [&["explain", "last"][..], &["open", "--plain", "last"], &["analyze", "last", "last~1"]] {
        assert_eq!(there(args).status.code(), Some(0), "{args:?}");
    }
    assert_eq!(there(&["diff", "last~1", "last"]).status.code(), Some(0));
    let policy = rig.run(&["policy", "init"]);
    assert!(policy.status.success(), "{}", stderr(&policy));
    let dry = there(&["policy", "dry-run", rig.at("assay.mcp-policy.yaml").to_str().unwrap(), "--against", "last"]);
    assert!(stdout(&dry).contains("2 calls") || stdout(&dry).contains("calls"), "{}{}", stdout(&dry), stderr(&dry));

    // What was verified is remembered until the files change.
    let verified = sessions(&rig, &["server:first"]);
    assert_eq!(verified[0]["verdict"]["integrity"], "PASS", "{verified:?}");
    let pack = Path::new(verified[0]["pack"].as_str().unwrap());
    fs::write(pack.join("more.txt"), "x").unwrap();
    assert!(sessions(&rig, &["server:first"])[0]["verdict"].is_null());

    let text = stdout(&rig.run(&["ls"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("started (") && lines[1].contains("second") && lines[2].contains("first"), "{text}");
    assert!(lines[1].contains(&all[0]["session_id"].as_str().unwrap()[4..12]), "{text}");
}

#[test]
fn names_that_lead_nowhere_say_where_was_looked_and_what_there_is() {
    let rig = rig!();
    record(&rig, "one", "first");
    for (args, said) in [
        (&["verify", "0000000000000000"][..], "no session is called 0000000000000000; looked in "),
        (&["verify", "last~7"], "there is no last~7: 1 pack in "),
        (&["explain", "some/where"], "some/where does not exist"),
        (&["diff", "last", "lsat"], "lsat does not exist"),
        (&["verify", "one/audit/ledger.jsonl"], "neither a pack nor"),
        (&["packs", "tool:x"], "sessions have server:"),
        (&["packs", "--audit-dir", "gone"], "gone is not a directory"),
        (&["verify", "last", "--audit-dir", "gone"], "there is no last: 0 packs"),
        (&["open", "--plain", "one"], "one is an audit directory"),
    ] {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(3), "{args:?}: {}", stderr(&out));
        let text = stderr(&out);
        assert!(text.contains(said) && text.contains("hint: "), "{args:?}: {text}");
    }
    assert_eq!(rig.json(3, &["verify", "0000000000000000"])["status"], "error");
}

#[test]
fn several_packs_have_a_line_each_and_the_worst_decides() {
    let rig = rig!();
    let good = rig.pack(&Plan::default());
    let other = rig.pack(&Plan { seed: 2, ..Plan::default() });
    let audit = rig.audit.to_str().unwrap();
    let whole = rig.run(&["verify-pack", audit]);
    assert_eq!(whole.status.code(), Some(0), "{}", stderr(&whole));
    assert_eq!(stdout(&whole).lines().filter(|line| line.starts_with("PASS")).count(), 2, "{}", stdout(&whole));
    let path = |pack: &Path| pack.to_str().unwrap().to_owned();
    let strict = rig.run(&["verify-pack", "--strict", &path(&good), &path(&other)]);
    assert_eq!(strict.status.code(), Some(1), "{}", stdout(&strict));
    let missing = rig.run(&["verify-pack", &path(&good), "gone"]);
    assert_eq!(missing.status.code(), Some(3));
    let empty = rig.at("empty");
    fs::create_dir(&empty).unwrap();
    let none = rig.json(3, &["verify-pack", &path(&good), &path(&empty)]);
    assert_eq!((&none["schema"], &none["exit_code"]), (&"assay.verify_packs.v1".into(), &3.into()));
    assert_eq!(none["packs"][0]["report"]["integrity_verdict"], "PASS");
    assert!(none["packs"][1]["error"].as_str().unwrap().contains("pack_manifest.json"), "{none}");
    fs::write(other.join("receipt_pack.jsonl"), "{}\n").unwrap();
    let bad = rig.run(&["verify-pack", audit, &path(&empty)]);
    assert_eq!(bad.status.code(), Some(2), "{}", stdout(&bad));
    let text = stdout(&bad);
    assert!(text.contains("TAMPERED") && text.contains("\n  E_") && text.contains("NO VERDICT"), "{text}");
    let out = rig.run(&["verify-pack", audit, "--out", "report.json"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(stderr(&out).contains("--out is for one pack"), "{}", stderr(&out));
}

/// An archive that Python's own modules make.
fn archive(rig: &Rig, script: &str) {
    let made = Command::new("python3").args(["-c", script]).current_dir(&rig.root).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn packs_in_archives_are_verified_and_nothing_is_written_outside() {
    let rig = rig!();
    let pack = rig.pack(&Plan::default());
    rig.pack(&Plan { seed: 2, ..Plan::default() });
    let name = pack.file_name().unwrap().to_str().unwrap();
    archive(
        &rig,
        &format!(
            "import shutil\n\
             shutil.make_archive('whole', 'zip', 'audit/packs/{name}')\n\
             shutil.make_archive('below', 'gztar', '.', 'audit/packs/{name}')\n\
             shutil.make_archive('both', 'tar', 'audit', 'packs')\n\
             import zipfile, tarfile, io\n\
             z = zipfile.ZipFile('out.zip', 'w'); z.writestr('../evil', 'x'); z.close()\n\
             z = zipfile.ZipFile('none.zip', 'w'); z.writestr('a/b.txt', 'x'); z.close()\n\
             z = zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED)\n\
             [z.writestr(str(n), bytes(32 << 20)) for n in range(9)]; z.close()\n\
             z = zipfile.ZipFile('twice.zip', 'w'); z.writestr('a', 'x'); z.writestr('./a', 'y'); z.close()\n\
             t = tarfile.open('link.tar', 'w'); i = tarfile.TarInfo('l'); i.type = tarfile.SYMTYPE; i.linkname = '/etc'\n\
             t.addfile(i); t.close()\n\
             open('cut.zip', 'wb').write(open('whole.zip', 'rb').read()[:2000])\n"
        ),
    );
    for one in ["whole.zip", "below.tar.gz"] {
        let out = rig.run(&["verify", one]);
        assert_eq!(out.status.code(), Some(0), "{one}: {}{}", stdout(&out), stderr(&out));
        assert!(stdout(&out).contains("integrity     PASS") && stdout(&out).contains(one), "{one}: {}", stdout(&out));
        assert_eq!(rig.run(&["explain", one]).status.code(), Some(0), "{one}");
        assert_eq!(rig.run(&["open", "--plain", one]).status.code(), Some(0), "{one}");
    }
    assert_eq!(rig.run(&["diff", "whole.zip", "below.tar.gz"]).status.code(), Some(0));
    let both = rig.json(0, &["verify", "both.tar"]);
    assert_eq!(both["packs"].as_array().unwrap().len(), 2);
    let one = rig.run(&["explain", "both.tar"]);
    assert!(one.status.code() == Some(3) && stderr(&one).contains("has 2 packs"), "{}", stderr(&one));
    for (bad, said) in [
        ("out.zip", "leads out of the archive"),
        ("none.zip", "no pack is in this archive"),
        ("bomb.zip", "unpacks to more than 256.0 MiB"),
        ("twice.zip", "is in it twice"),
        ("link.tar", "neither a file nor a directory"),
        ("cut.zip", "cut.zip: "),
    ] {
        let out = rig.run(&["verify", bad]);
        assert_eq!(out.status.code(), Some(3), "{bad}: {}", stdout(&out));
        assert!(stderr(&out).contains(said), "{bad}: {}", stderr(&out));
    }
    assert!(!rig.at("evil").exists() && !rig.root.parent().unwrap().join("evil").exists());
}
