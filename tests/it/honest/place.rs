//! One session in directories of its own, and what both verifiers say of its pack.

use assay::{
    error::Exit,
    model::{AuditEvent, Direction, EventKind},
    pack::verify::{self, Integrity, VerifyOptions},
};
use assay_support::rig::{Rig, rig};
use std::{
    ffi::{OsStr, OsString},
    fs,
    ops::ControlFlow,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Sessions of a property that has `short` of them in CI.
pub fn cases(short: u32) -> proptest::test_runner::Config {
    let cases = std::env::var("ASSAY_HONEST_CASES").map_or(short, |n| n.parse().unwrap());
    proptest::test_runner::Config { cases, failure_persistence: None, max_shrink_iters: 60, ..Default::default() }
}

/// Where a session runs and what surrounds it.
pub struct Place {
    rig: Rig,
    /// Name of the directory that everything lies in.
    pub name: OsString,
    pub env: Vec<(OsString, OsString)>,
    pub flags: Vec<OsString>,
    /// Name of the server's program.
    pub server: OsString,
    /// Arguments of the server that it does not look at.
    pub arguments: Vec<OsString>,
    /// What the proxy said on stderr.
    pub said: std::cell::RefCell<String>,
}

impl Place {
    pub fn new() -> Self {
        Self {
            rig: rig!(),
            name: "w".into(),
            env: vec![],
            flags: vec![],
            server: "server".into(),
            arguments: vec![],
            said: std::cell::RefCell::default(),
        }
    }

    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(OsString::from));
        self
    }

    /// A policy that allows everything, under guard.
    pub fn guarded(self) -> Self {
        let policy = self.rig.file("policy.yaml", "version: \"1\"\ndefault: allow\n");
        self.flags(&["--profile", "guard", "--policy", &policy])
    }

    pub fn root(&self) -> PathBuf {
        self.rig.root.join(&self.name)
    }

    /// Runs a session with these lines, and gives its pack. Neither the proxy nor a verifier finds anything wrong with it.
    pub fn pack(&self, lines: &[Vec<u8>]) -> PathBuf {
        let root = self.root();
        fs::create_dir_all(root.join("run")).unwrap();
        let program = root.join(&self.server);
        std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
        let input = root.join("input");
        fs::write(&input, lines.iter().flat_map(|l| l.iter().copied().chain([b'\n'])).collect::<Vec<u8>>()).unwrap();
        let out = self
            .program(&["mcp-proxy"])
            .args(["--audit-dir".as_ref(), root.join("audit").as_os_str()])
            .args(&self.flags)
            .arg("--")
            .arg(&program)
            .args(["-c", "exec cat", "x"])
            .args(&self.arguments)
            .stdin(fs::File::open(&input).unwrap())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        self.said.replace(said.clone());
        let packs: Vec<PathBuf> = fs::read_dir(root.join("audit/packs"))
            .map(|all| all.map(|e| e.unwrap().path()).collect())
            .unwrap_or_default();
        assert_eq!(packs.len(), 1, "one pack\n{said}");
        self.verified(&packs[0], &said);
        let code = out.status.code().unwrap();
        assert!(code != i32::from(Exit::BadInput.code()) && code != 101, "exit code {code}\n{said}");
        packs.into_iter().next().unwrap()
    }

    /// The program in these surroundings, ready to be started.
    pub fn program(&self, args: &[&str]) -> Command {
        let root = self.root();
        let mut command = self.rig.program(args);
        command
            .env_remove("NO_COLOR")
            .current_dir(&root)
            .env("HOME", &root)
            .env("XDG_RUNTIME_DIR", root.join("run"))
            .env("ASSAY_HOME", root.join("home"))
            .env_remove("GITHUB_ACTIONS")
            .envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    fn verified(&self, pack: &Path, said: &str) {
        let report = verify::verify(pack, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(report.integrity, Integrity::Pass, "{:#?}\n{said}", report.errors);
        // The verifier as a process, in the same surroundings.
        let out = self.program(&["verify-pack"]).arg(pack).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(matches!(out.status.code(), Some(0 | 1)) && !text.contains("TAMPERED"), "{text}\n{said}");
        let out = self.program(&["explain"]).arg(pack).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        foreign(pack, &self.rig.root);
    }
}

/// assay-ai as it is installed for the tests with real peers.
#[cfg(feature = "interop")]
fn foreign(pack: &Path, scratch: &Path) {
    let base = Path::new(env!("CARGO_MANIFEST_DIR"));
    let there = std::env::var_os("ASSAY_INTEROP_DIR").map_or_else(|| base.join("target/interop"), PathBuf::from);
    let out = Command::new(there.join("venv/bin/python"))
        .arg(base.join("tests/interop/assay_ai.py"))
        .arg("verify")
        .arg(pack)
        .env("HOME", scratch)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; tests/run.sh installs it", there.display()));
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "assay-ai refuses the pack: {said}{}", String::from_utf8_lossy(&out.stderr));
}

#[cfg(not(feature = "interop"))]
fn foreign(_: &Path, _: &Path) {}

/// The audit events of a pack.
pub fn events(pack: &Path) -> Vec<AuditEvent> {
    let text = fs::read(pack.join("audit_log.jsonl")).unwrap();
    text.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect()
}

/// Requests of the client in the order in which they crossed.
pub fn requests(pack: &Path) -> Vec<AuditEvent> {
    let mut all = events(pack);
    all.retain(|e| e.event == EventKind::RequestReceived && e.direction == Some(Direction::ClientToServer));
    all
}

/// Bytes as they stand in an environment or a path: no NUL, no slash.
pub fn name(bytes: &[u8]) -> OsString {
    let clean: Vec<u8> = bytes.iter().copied().filter(|b| !matches!(b, 0 | b'/')).take(120).collect();
    match clean.as_slice() {
        [] | b"." | b".." => OsString::from("w"),
        clean => OsStr::from_bytes(clean).to_owned(),
    }
}
