//! Files that are well-formed and lie: cards that name files of the user, and much else.

use super::{
    NEVER, nothing_foreign_is_signed,
    prepared::{Prepared, hex_of},
    read_everything,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// A card as the recorder writes it, of a session that never was.
fn card(live: &Path, hex: &str) -> Value {
    let at = |name: &str| live.join(format!("{hex}.{name}"));
    json!({
        "client_info": null, "command": null, "command_digest": format!("sha256:{}", "0".repeat(64)), "continues": null,
        "decisions": null, "pid": 4_000_000, "pid_started": 1, "policy_hash": null, "profile": "audit",
        "rings": [at("c2s.ring"), at("s2c.ring")], "server_id": "s", "server_info": null,
        "session_id": format!("mcp_{hex}"), "socket": null, "spools": [at("c2s.spool"), at("s2c.spool")],
        "started_at": "2026-01-01T00:00:00.000Z", "started_mono_ns": 1, "v": 1,
    })
}

fn with(base: &Value, changes: Value) -> Value {
    let mut card = base.clone();
    for (name, value) in changes.as_object().unwrap() {
        card[name] = value.clone();
    }
    card
}

/// Every lie, with a card of the session that died and one of a session that never was to begin with.
fn lies(base: &Value, rig: &Prepared) -> Vec<Value> {
    let (key, dir) = (rig.outside.join("key"), rig.outside.join("dir"));
    let document = rig.outside.join("dir/document");
    let climb = rig.audit.join("live/../../../../outside/key");
    let mut all = vec![base.clone()];
    for target in
        [&key, &document, &dir, &climb, Path::new("/dev/zero"), Path::new("../../../outside/key"), Path::new("")]
            .map(|p: &Path| p.to_str().unwrap().to_owned())
    {
        all.extend([
            with(base, json!({ "spools": [target, target] })),
            with(base, json!({ "rings": [target, target] })),
            with(base, json!({ "rings": [null, null], "spools": [target, target] })),
            with(
                base,
                json!({ "rings": [target, null], "decisions": target, "spools": [target, target], "socket": target }),
            ),
        ]);
    }
    all.extend([
        with(base, json!({ "pid": std::process::id(), "pid_started": null, "rings": [null, null] })),
        with(base, json!({ "pid": u32::MAX, "started_mono_ns": u64::MAX })),
        with(base, json!({ "started_at": "9999-12-31T23:59:59.999Z" })),
        with(base, json!({ "started_at": "0000-01-01T00:00:00.000Z" })),
        with(base, json!({ "continues": base["session_id"] })),
        with(base, json!({ "command": vec!["x"; 10_000], "server_id": "x".repeat(100_000) })),
        with(base, json!({ "session_id": "mcp_../../../../etc/passwd" })),
        with(base, json!({ "session_id": "mcp_ffffffffffffffff" })),
        with(base, json!({ "v": u32::MAX })),
        json!([base.clone()]),
        json!(null),
    ]);
    all
}

#[test]
fn no_path_of_a_card_is_opened_written_or_removed() {
    let rig = Prepared::new();
    let ended = rig.finished_session();
    let died = rig.killed_session();
    let live = rig.audit.join("live");
    let own: Value = serde_json::from_slice(&fs::read(live.join(format!("{}.json", hex_of(&died)))).unwrap()).unwrap();
    let planted = card(&live, NEVER);
    let stop = rig.audit.join("kept");
    fs::create_dir(&stop).unwrap();
    for base in [&planted, &own] {
        for (n, lie) in lies(base, &rig).iter().enumerate() {
            let hex = base["session_id"].as_str().unwrap().trim_start_matches("mcp_").to_owned();
            let what = format!("lie {n} about {hex}: {lie:.200}");
            fs::write(live.join(format!("{hex}.json")), lie.to_string()).unwrap();
            if n % 8 == 0 {
                read_everything(&what, &rig, &died, &ended);
            }
            rig.run(&what, &["recover", "--json"], "");
            if n % 8 == 1 {
                rig.proxy(&what, &[]);
            }
        }
    }
    nothing_foreign_is_signed("lies", &rig, &[died, ended]);
}

/// A card of the run directory says where a session can be watched: only its own socket and its own files are opened.
#[test]
fn no_path_of_a_run_card_is_opened() {
    let rig = Prepared::new();
    let ended = rig.finished_session();
    let run = rig.root.join("run/assay");
    let _ = fs::DirBuilder::new().mode(0o700).create(&run);
    let fifo = rig.root.join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let key = rig.outside.join("key");
    for (n, target) in [key.as_path(), fifo.as_path(), Path::new("/dev/zero"), Path::new("")].iter().enumerate() {
        let hex = format!("{:016x}", 0xff + n);
        let mut run_card = card(&run, &hex);
        run_card["socket"] = json!(target);
        let audit_dirs = [rig.audit.clone(), target.to_path_buf(), rig.outside.clone()];
        for (m, audit_dir) in audit_dirs.iter().enumerate() {
            let text = with(
                &run_card,
                json!({
                    "audit_dir": audit_dir, "receipts": target, "segment": target, "card": run_card,
                }),
            );
            let path = run.join(format!("{hex}.json"));
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
            file.write_all(text.to_string().as_bytes()).unwrap();
            // While it is locked its proxy lives.
            file.lock().unwrap();
            let what = format!("run card {n}.{m}");
            for args in [&["watch", "--json"][..], &["watch", "--plain"]] {
                rig.run_for_a_while(&what, args);
            }
            rig.run(&what, &["open", "--json", &ended], "");
            rig.run(&what, &["recover"], "");
            rig.proxy(&what, &[]);
        }
    }
}
