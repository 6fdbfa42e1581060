//! The surface is a fingerprint of what the server said: neither its size nor our flags change that, and what did not fit is
//! said wherever a pack is looked at.

use super::place::Place;
use assay::{
    model::{
        WallTime,
        receipt::PeerInfo,
        sha256_hex,
        surface::{Identity, Snapshot},
    },
    pack::{
        build::{Input, build},
        keys::{Signer, SignerId},
    },
};
use assay_support::{
    rig::{rig, stderr, stdout},
    sessions::{self, Plan},
};
use serde_json::Value;
use std::path::Path;

fn lists(tools: &str, resources: &str) -> Vec<Vec<u8>> {
    let exchange = |id: u8, method: &str, list: &str, entries: &str| {
        [
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#).into_bytes(),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"{list}":[{entries}]}}}}"#).into_bytes(),
        ]
    };
    let (tools, resources) =
        (exchange(1, "tools/list", "tools", tools), exchange(2, "resources/list", "resources", resources));
    [tools, resources].concat()
}

fn json(pack: &Path, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(pack.join(file)).unwrap()).unwrap()
}

/// The hashes of the facets of a session's surface, and the surface.
fn observed(flags: &[&str], lines: &[Vec<u8>]) -> (Value, Value) {
    let place = Place::new().flags(flags);
    let pack = place.pack(lines);
    let session = json(&pack, "session.json");
    let bytes = std::fs::read(pack.join("surface.json")).unwrap();
    assert_eq!(session["surface_hash"], sha256_hex(&bytes));
    let surface = json(&pack, "surface.json");
    (surface["facets"].clone(), surface)
}

#[test]
fn flags_do_not_change_the_fingerprint() {
    let lines = lists(r#"{"name":"t"}"#, r#"{"uri":"file:///a"},{"uri":"file:///b","n":-0}"#);
    let (plain, surface) = observed(&[], &lines);
    assert_eq!(surface["resources"]["items"].as_array().unwrap().len(), 2);
    for flags in [
        &["--store-results"][..],
        &["--store-args", "--store-results", "--store-limit", "1"],
        &["--store-command", "--pack-interval", "9r", "--server-id", "x"],
    ] {
        assert_eq!(observed(flags, &lines).0, plain, "{flags:?}");
    }
}

#[test]
fn lists_of_any_length_have_all_their_names_and_tell_servers_apart() {
    let entries = |n: usize, last: &str| {
        let mut all: Vec<_> = (0..n).map(|i| format!(r#"{{"name":"t{i:06}","d":"{}"}}"#, "x".repeat(180))).collect();
        all.push(format!(r#"{{"name":"{last}"}}"#));
        all.join(",")
    };
    // Below and above what is read from memory and what is read from a file.
    for n in [10, 4_000, 9_999] {
        let (a, surface) = observed(&[], &lists(&entries(n, "x"), ""));
        let tools = &surface["tools"]["items"];
        assert_eq!(tools.as_array().unwrap().len(), n + 1);
        assert_eq!((&surface["truncated"], &tools[n]["name"]), (&false.into(), &"x".into()));
        assert_ne!(a, observed(&[], &lists(&entries(n, "y"), "")).0, "{n}");
    }
    let (facets, surface) = observed(&[], &lists(&entries(10_000, "x"), ""));
    assert_eq!((&facets["tools"], &surface["tools"]["reason"]), (&Value::Null, &"too_many_items".into()));
}

#[test]
fn a_surface_that_did_not_fit_is_said_by_verify_diff_and_explain() {
    let packs = [false, true].map(|is_cut| {
        let tmp = tempfile::tempdir().unwrap();
        let mut written = sessions::write(&Plan::default(), tmp.path().join("audit")).unwrap();
        // As in the session that it comes to lie beside.
        let seen = Snapshot {
            identity: Identity { endpoint: written.doc.command_digest.clone(), id: written.doc.server_id.clone() },
            server_info: Some(PeerInfo { name: "synthetic-server".into(), version: None }),
            protocol_version: Some("2025-11-25".into()),
            ..Snapshot::default()
        };
        let mut document = seen.document().unwrap();
        if is_cut {
            let text = String::from_utf8(document).unwrap();
            document = text.replace("\"truncated\":false", "\"truncated\":true").into_bytes();
        }
        written.doc.surface_hash = Some(sha256_hex(&document));
        let signer = Signer::from_seed(SignerId::parse("test").unwrap(), &[7; 32]);
        let input = Input {
            paths: &written.paths,
            session: &written.doc,
            policies: None,
            surface: Some(&document),
            decisions: None,
            signer: &signer,
            ci_binding: None,
            now: WallTime::now(),
        };
        let dir = build(&input).unwrap().dir;
        (tmp, dir)
    });
    let rig = rig!();
    let said = |args: &[&str]| {
        let out = rig.run(args);
        assert_eq!(out.status.code(), Some(0), "{}{}", stdout(&out), stderr(&out));
        stdout(&out).contains("surface.json is not whole")
    };
    let [whole, cut] = [&packs[0].1, &packs[1].1].map(|p| p.to_str().unwrap());
    for (pack, is) in [(whole, false), (cut, true)] {
        assert_eq!(said(&["verify-pack", pack]), is);
        assert_eq!(said(&["verify-pack", "--json", pack]), is);
        assert_eq!(said(&["explain", pack]), is);
        assert_eq!(said(&["diff", whole, pack]), is);
        let summary = std::fs::read_to_string(Path::new(pack).join("_unsigned/PACK_SUMMARY.md")).unwrap();
        assert_eq!(summary.contains("surface.json is not whole"), is);
        let report = packs[0].0.path().join(format!("{is}.html"));
        said(&["diff", "--report", report.to_str().unwrap(), whole, pack]);
        assert_eq!(std::fs::read_to_string(&report).unwrap().contains("surface.json is not whole"), is);
    }
}
