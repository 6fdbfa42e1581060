//! The workflow of the example server, step by step as it stands in its file, without a network; and its reports, read by
//! programs that others wrote.

use crate::{
    install::{assay, python, root, venv},
    receipted::{built, example},
};
use assay::yaml::Source;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// What of the example is not there where it is only run.
const SOURCE: [&str; 3] = ["Cargo.toml", "bin", "main.rs"];

fn workflow() -> Value {
    let text = fs::read(example().join("ci.yml")).unwrap();
    Source::of("ci.yml", &text).unwrap().read().unwrap().unwrap().to_json()
}

/// A runner: a checkout of the example, and a cargo that has built and installed everything before.
struct Runner(tempfile::TempDir);

impl Runner {
    fn new() -> Self {
        let runner = Self(tempfile::tempdir().unwrap());
        fs::create_dir(runner.at("bin")).unwrap();
        let programs = built("test-client").parent().unwrap().to_owned();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in\n'install --locked --path assay') ln -s '{}' '{}' ;;\n\
             'build --bins') mkdir target && ln -s '{}' target/debug ;;\n*) exit 9 ;;\nesac\n",
            assay().display(),
            runner.at("bin/assay").display(),
            programs.display()
        );
        fs::write(runner.at("bin/cargo"), script).unwrap();
        fs::set_permissions(runner.at("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        copy(&example(), &runner.at("checkout"), &SOURCE);
        runner
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a step as the service does.
    fn step(&self, run: &str) -> Output {
        let path = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-e", "-c", run]).current_dir(self.at("checkout")).env("PATH", path);
        command.env("HOME", self.0.path()).env("ASSAY_HOME", self.at("home")).env_remove("ASSAY_AUDIT_DIR");
        command.env("GITHUB_ACTIONS", "true").env("GITHUB_SHA", COMMIT);
        command.output().unwrap()
    }

    /// Runs the steps whose names pass; each must succeed.
    fn steps(&self, wanted: impl Fn(&str) -> bool) {
        for step in workflow()["jobs"]["audit"]["steps"].as_array().unwrap() {
            let (Some(run), Some(name)) = (step["run"].as_str(), step["name"].as_str()) else { continue };
            if wanted(name) {
                let out = self.step(run);
                let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
                assert!(out.status.success(), "{name}: {text}");
            }
        }
    }

    fn pack(&self) -> PathBuf {
        let entries = fs::read_dir(self.at("checkout")).unwrap().map(|entry| entry.unwrap().path());
        let is_pack = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("proof_pack_");
        let packs: Vec<PathBuf> = entries.filter(is_pack).collect();
        let [pack] = &packs[..] else { panic!("{packs:?}") };
        pack.clone()
    }
}

fn copy(from: &Path, to: &Path, without: &[&str]) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if without.contains(&&*name) {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(name), &[]);
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

/// Fails unless others read all reports in a directory, and there are as many.
fn read_by_others(dir: &Path, count: usize) {
    let mut reports: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    reports.retain(|path| path.extension().is_some_and(|e| e == "xml" || e == "sarif"));
    assert_eq!(reports.len(), count, "{reports:?}");
    let schema = root().join("node_modules/@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json");
    let out = python("reports.py").arg(schema).args(&reports).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn the_workflow_of_the_example_runs_from_its_file() {
    let first = Runner::new();
    first.steps(|name| name == "Install" || name.starts_with("Run"));
    let second = Runner::new();
    fs::rename(first.pack(), second.at("checkout/baseline_pack")).unwrap();
    second.steps(|_| true);
    read_by_others(&second.at("checkout"), 6);
    let kept = workflow()["jobs"]["audit"]["steps"].as_array().unwrap().last().unwrap()["with"]["path"].clone();
    for pattern in kept.as_str().unwrap().lines() {
        assert!(second.step(&format!("ls -d {pattern}")).status.success(), "{pattern}");
    }

    // What fails is read by others too.
    let checkout = second.at("checkout");
    fs::create_dir(checkout.join("failed")).unwrap();
    fs::write(checkout.join("strict.yaml"), "max_denied: 0\nmax_errors: 0\nrequire_pinned: true\n").unwrap();
    let diff = "assay diff baseline_pack proof_pack_* --gates strict.yaml --junit failed/d.xml --sarif failed/d.sarif";
    assert_eq!(second.step(diff).status.code(), Some(1));
    let receipts = second.pack().join("receipt_pack.jsonl");
    let text = fs::read_to_string(&receipts).unwrap();
    fs::write(&receipts, text.replacen("\"seq\":3", "\"seq\":4", 1)).unwrap();
    let verify = "assay verify-pack proof_pack_* --junit failed/v.xml --sarif failed/v.sarif";
    assert_eq!(second.step(verify).status.code(), Some(2));
    let run = "assay run --junit failed/r.xml --sarif failed/r.sarif -- false";
    assert_eq!(second.step(run).status.code(), Some(2));
    read_by_others(&checkout.join("failed"), 6);
}

#[test]
fn workflow_and_action_are_such_files() {
    for (schema, file) in [
        ("vendor.github-workflows", example().join("ci.yml")),
        ("vendor.github-actions", Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/action/action.yml")),
    ] {
        let mut command = Command::new(venv().join("check-jsonschema"));
        let out = command.args(["--builtin-schema", schema]).arg(&file).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}
