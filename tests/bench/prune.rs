//! What a session leaves on disk; thousands of them in one audit directory: the list, a prune of all but one, and what recovery
//! says then.
//!
//! `-- --sessions N` for another number than 5 000.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use assay_support::{
    rig::{rig, stderr},
    sessions::Plan,
};
use serde_json::json;
use std::{fs, path::Path, time::Instant};

fn bytes(dir: &Path) -> u64 {
    let size = |path: &Path| if path.is_dir() { bytes(path) } else { path.metadata().unwrap().len() };
    fs::read_dir(dir).unwrap().map(|entry| size(&entry.unwrap().path())).sum()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let given = args.iter().position(|arg| arg == "--sessions").map(|at| args[at + 1].parse().unwrap());
    let sessions: u64 = given.unwrap_or(5_000);
    let rig = rig!();
    const CALLS: u64 = 1000;
    let calls: Vec<_> = (0..CALLS).map(|_| json!({"name": "echo", "arguments": {"text": "x".repeat(100)}})).collect();
    rig.record("disk", &[], &calls);
    println!("{CALLS} calls of 100 bytes: {} bytes on disk for each", bytes(&rig.at("disk")) / CALLS);
    for seed in 1..=sessions {
        let started_ms = 1_773_574_200_000 + seed.cast_signed() * 1000;
        let pack = rig.pack(&Plan { seed, calls: 3, started_ms, ..Plan::default() });
        // As sealing does.
        let stem = pack.file_name().unwrap().to_str().unwrap().strip_prefix("proof_pack_").unwrap().to_owned();
        fs::remove_file(rig.audit.join(format!("audit/segment_{stem}.jsonl"))).unwrap();
        fs::remove_file(rig.audit.join(format!("receipts/session_{stem}.jsonl"))).unwrap();
    }
    let audit = rig.audit.to_str().unwrap();
    for args in [
        &["packs", "--audit-dir", audit, "--json"][..],
        &["packs", "--audit-dir", audit, "--json"],
        &["prune", "--audit-dir", audit, "--keep", "1", "--dry-run", "--json"],
        &["prune", "--audit-dir", audit, "--keep", "1", "--yes", "--json"],
        &["recover", "--audit-dir", audit],
        &["packs", "--audit-dir", audit, "--json"],
    ] {
        let begun = Instant::now();
        let out = rig.run(args);
        let took = begun.elapsed();
        assert!(out.status.success(), "{args:?}: {}", stderr(&out));
        let flags: Vec<&str> = args.iter().copied().filter(|arg| *arg != audit && *arg != "--audit-dir").collect();
        println!("{sessions} sessions: assay {:40} {:6.0} ms", flags.join(" "), took.as_secs_f64() * 1e3);
    }
    assert_eq!(fs::read_dir(rig.audit.join("packs")).unwrap().count(), 1);
}
