//! Attacks on packs and directories: each is a row of data with the verdict that it must get.
#![allow(clippy::pedantic, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anchors;
mod bits;
mod checkpoints;
mod demands;
mod directory;
mod filesystem;
mod junk;
mod lies;
mod proofs;
mod rows;
mod surface;
mod versions;

/// What `assay-verify` answers as JSON, and its exit code: every row about directories and proofs is its row as well.
fn by_assay_verify(args: &[&str]) -> (u8, serde_json::Value) {
    use assay::pack::verify::{program::run, terminal::Style};
    let args = args.iter().chain(&["--json"]).map(Into::into).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, Style::plain(), &mut out, &mut err);
    (code, serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&err))))
}
