//! The second verifier (`assets/verifier/verify.mjs`), asked beside the first one. `ASSAY_SECOND` turns it on: it needs node.

use assay::pack::verify::{Integrity, Stage, StageStatus, VerifyOptions, VerifyReport};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

/// One process of node for all packs. It ends with its standard input.
pub struct Second {
    _child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Second {
    pub fn start() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/verifier/verify.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg("--batch").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node");
        let (asked, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { _child: child, asked, answers }
    }

    /// What it says of a pack or a proof.
    pub fn verify(&mut self, path: &Path, signers: &[String]) -> Value {
        writeln!(self.asked, "{}", json!({"path": path, "signers": signers})).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{}: {e}: {answer}", path.display()))
    }
}

/// Whether both say the same. Of a pack that is TAMPERED it is not asked what of the session is complete, nor, if it has checkpoints, who
/// certified what may not hold.
pub fn differs(report: &VerifyReport, second: &Value) -> Option<String> {
    let first = serde_json::to_value(report).unwrap();
    let same = |member: &str| first[member] == second[member];
    let tampered = report.integrity == Integrity::Tampered;
    let sealed = report.stage(Stage::VerifyCheckpoints).is_some_and(|s| s.status != StageStatus::Skipped);
    let all = same("integrity_verdict")
        && (tampered || same("completeness_verdict"))
        && (tampered && sealed || same("signer_verdict"));
    let of = |r: &Value| {
        let verdicts = ["integrity_verdict", "completeness_verdict", "signer_verdict"].map(|m| r[m].to_string());
        let found = r["errors"].as_array().into_iter().flatten().take(3);
        let found: Vec<String> = found.map(|e| format!("{}: {}", e["stage"], e["message"])).collect();
        format!("{} {found:?} {}", verdicts.join(" "), r["not_a_pack"])
    };
    (!all).then(|| format!("the first says {}\nthe second says {}", of(&first), of(second)))
}

/// If `ASSAY_SECOND` is set, asks the second verifier and holds it to what the first one said.
pub fn agrees(dir: &Path, options: &VerifyOptions, report: &VerifyReport) {
    static SECOND: LazyLock<Option<Mutex<Second>>> =
        LazyLock::new(|| std::env::var_os("ASSAY_SECOND").map(|_| Mutex::new(Second::start())));
    // It reads no lock files.
    let Some(second) = SECOND.as_ref().filter(|_| options.lock.is_none()) else { return };
    let said = second.lock().unwrap_or_else(PoisonError::into_inner).verify(dir, &options.signers);
    if let Some(how) = differs(report, &said) {
        panic!("the verifiers differ: {how}");
    }
}
