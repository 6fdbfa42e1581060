//! `assets/action`: its steps, run as GitHub runs them, with this program and without a network.

use assay::yaml::Source;
use assay_support::rig::{INITIALIZE, Rig, call, files, rig, stderr, stdout};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
};

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/action")
}

fn action() -> Value {
    let text = fs::read(home().join("action.yml")).unwrap();
    Source::of("action.yml", &text).unwrap().read().unwrap().unwrap().to_json()
}

fn steps() -> Vec<Value> {
    action()["runs"]["steps"].as_array().unwrap().clone()
}

/// Shell text: a session behind the recorder, of one call.
fn session(tool: &str) -> String {
    format!(
        "printf '%s\\n' '{INITIALIZE}' '{}' | assay mcp-proxy --server-id demo -- assay demo-server",
        call(1, tool, 1)
    )
}

/// Runs the steps in a directory with these inputs, up to the first that fails.
fn act(rig: &Rig, inputs: &[(&str, &str)]) -> Vec<(String, Output)> {
    let mut given: BTreeMap<String, String> = BTreeMap::new();
    for (name, input) in action()["inputs"].as_object().unwrap() {
        given.insert(name.clone(), input["default"].as_str().unwrap_or_default().to_owned());
    }
    for (name, value) in inputs {
        *given.get_mut(*name).unwrap_or_else(|| panic!("no input {name}")) = (*value).to_owned();
    }
    let program = Path::new(rig.assay).parent().unwrap().to_owned();
    let path = env::join_paths([program].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap()))).unwrap();
    let mut ran = Vec::new();
    for step in steps() {
        if let Some(condition) = step["if"].as_str() {
            let name = condition.strip_prefix("inputs.").and_then(|c| c.strip_suffix(" != ''")).unwrap();
            if given[name].is_empty() {
                continue;
            }
        }
        let mut command = rig.command(step["shell"].as_str().unwrap());
        command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"].as_str().unwrap()]);
        command.env("PATH", &path).env("GITHUB_ACTION_PATH", home());
        for (name, value) in step["env"].as_object().unwrap() {
            let input =
                value.as_str().unwrap().strip_prefix("${{ inputs.").and_then(|v| v.strip_suffix(" }}")).unwrap();
            command.env(name, &given[input]);
        }
        let out = command.output().unwrap();
        let stop = !out.status.success();
        ran.push((step["name"].as_str().unwrap().to_owned(), out));
        if stop {
            break;
        }
    }
    ran
}

/// The name and the exit code of the step that was run last.
fn end(ran: &[(String, Output)]) -> (&str, Option<i32>) {
    let (name, out) = ran.last().unwrap();
    (name, out.status.code())
}

fn said(ran: &[(String, Output)]) -> String {
    ran.iter().map(|(name, out)| format!("{name}: {}{}", stdout(out), stderr(out))).collect()
}

#[test]
fn every_input_is_used_and_every_script_is_a_step() {
    let all = steps();
    let mut scripts = BTreeSet::new();
    let mut used = BTreeSet::new();
    for step in &all {
        let run = step["run"].as_str().unwrap();
        scripts.insert(run.trim_matches('"').strip_prefix("$GITHUB_ACTION_PATH/").unwrap().to_owned());
        assert!(!run.contains("${{"), "what somebody says is no part of a script: {run}");
        let values = step["env"].as_object().unwrap().values().map(|v| v.as_str().unwrap().to_owned());
        used.extend(values);
    }
    let is_script = |name: &str| Path::new(name).extension().is_some_and(|e| e == "sh");
    let there: Vec<PathBuf> = files(&home(), is_script);
    assert!(there.iter().all(|path| fs::metadata(path).unwrap().permissions().mode() & 0o111 == 0o111));
    let there: BTreeSet<String> = there.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(scripts, there);
    let inputs: BTreeSet<String> =
        action()["inputs"].as_object().unwrap().keys().map(|name| format!("${{{{ inputs.{name} }}}}")).collect();
    assert_eq!(used, inputs);
}

#[test]
fn a_run_is_verified_judged_and_compared() {
    let rig = rig!();
    let run = session("echo");
    let ran = act(&rig, &[("run", &run)]);
    assert_eq!(end(&ran), ("Run and verify", Some(0)), "{}", said(&ran));
    let packs = files(&rig.at("assay-evidence"), |name| name.starts_with("proof_pack_"));
    fs::rename(&packs[0], rig.at("baseline_pack")).unwrap();
    fs::remove_dir_all(rig.at("assay-evidence")).unwrap();
    let signer = rig.json(0, &["keys", "show"])["fingerprint"].as_str().unwrap().to_owned();
    rig.file("gates.yaml", "max_denied: 0\nmax_new_tools: 0\nrequire_complete: true\nrequire_pinned: true\n");
    rig.file("policy.yaml", "version: \"1\"\ndefault: deny\nallowlist: [echo]\n");
    let cards = "receipt_completeness, mcp_session_completeness";
    let all = [
        ("run", &*run),
        ("cards", cards),
        ("baseline", "baseline_pack"),
        ("gates", "gates.yaml"),
        ("policy", "policy.yaml"),
        ("signer", &*signer),
    ];
    let ran = act(&rig, &all);
    assert_eq!((ran.len(), end(&ran)), (5, ("Compare with the baseline", Some(0))), "{}", said(&ran));
    for report in ["run.xml", "run.sarif", "signer.xml", "signer.sarif", "diff.xml", "diff.sarif", "gate_report.html"] {
        assert!(rig.at("assay-evidence").join(report).is_file(), "{report}");
    }
    // What is there already is not mixed with what comes.
    let again = act(&rig, &all);
    assert_eq!(end(&again).0, "Run and verify");
    assert!(said(&again).contains("assay-evidence"), "{}", said(&again));
}

#[test]
fn each_step_fails_by_itself_and_no_input_is_run_but_the_command() {
    let rig = rig!();
    rig.file("deny.yaml", "version: \"1\"\ndefault: deny\n");
    rig.file("bad.yaml", "default: perhaps\n");
    rig.file("gates.yaml", "max_new_tools: 0\n");
    let (run, other) = (session("echo"), session("fail"));
    assert_eq!(end(&act(&rig, &[("run", &run)])), ("Run and verify", Some(0)));
    let packs = files(&rig.at("assay-evidence"), |name| name.starts_with("proof_pack_"));
    fs::rename(&packs[0], rig.at("baseline_pack")).unwrap();
    let evil = "$(touch pwned)`touch pwned`; touch pwned";
    let stranger = "ab".repeat(32);
    let two = format!("{run}; {run}");
    for (inputs, step, code) in [
        (&[("run", &*run), ("policy", "bad.yaml")][..], "Check the policy", 3),
        (&[("run", "true")], "Run and verify", 2),
        (&[("run", &run), ("cards", "mcp_escrow_completeness")], "Run and verify", 1),
        (&[("run", &run), ("cards", evil)], "Run and verify", 3),
        (&[("run", &run), ("signer", &stranger)], "Verify the signer", 2),
        (&[("run", &run), ("signer", evil)], "Verify the signer", 3),
        (&[("run", &run), ("policy", "deny.yaml")], "Judge by the policy", 1),
        (&[("run", &run), ("policy", evil)], "Check the policy", 3),
        (&[("run", &other), ("baseline", "baseline_pack"), ("gates", "gates.yaml")], "Compare with the baseline", 1),
        (&[("run", &two), ("baseline", "baseline_pack")], "Compare with the baseline", 3),
        (&[("run", &run), ("baseline", evil)], "Compare with the baseline", 3),
        (&[("run", &run), ("baseline", "baseline_pack"), ("gates", evil)], "Compare with the baseline", 3),
    ] {
        if rig.at("assay-evidence").exists() {
            fs::remove_dir_all(rig.at("assay-evidence")).unwrap();
        }
        let ran = act(&rig, inputs);
        assert_eq!(end(&ran), (step, Some(code)), "{inputs:?} {}", said(&ran));
    }
    assert!(!rig.at("pwned").exists());
}
