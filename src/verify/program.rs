//! The program `assay-verify`: its arguments, what it prints, its exit code.

use crate::{
    claims,
    dir_request::DirRequest,
    options::Progress,
    proof_request::ProofRequest,
    request::{self, Anchors, ELSEWHERE, Request, RequestError, Said},
    terminal::{self, ProgressLine, Style},
    text::visible,
    words::Exit,
};
use assay_evidence::note::key_of_user;
use lexopt::{Arg, Parser, ValueExt as _};
use std::{
    ffi::OsString,
    io::{self, Write},
    ops::ControlFlow,
    path::PathBuf,
};

/// What it is called.
pub const NAME: &str = "assay-verify";

const OF_PACK: &str = "\
Verify what the MCP Flight Recorder has signed

Usage: assay-verify [OPTIONS] PACK
       assay-verify verify-dir [OPTIONS] DIR
       assay-verify verify-proof [OPTIONS] PROOF

The first verifies a proof pack; of the others, verify-dir --help and verify-proof --help tell more.

Arguments:
  PACK  Directory of the pack

Options:
      --json                       Print one JSON document
      --strict                     Do not accept files that the manifest does not list, or a signer
                                   that is not pinned
      --signer FPR                 Fingerprint of a key that may have signed: SHA-256 of the public
                                   key, 64 hex digits; may be repeated
      --approver FPR               Fingerprint of a key whose approvals of a surface count for
                                   mcp_surface_approved; may be repeated (default: any)
      --lock FILE                  Lock file of assay-ai: signers, cards and formats that are
                                   accepted
      --cards CARDS                Claim cards to evaluate, separated by commas; list shows them
      --max-age-hours HOURS        Do not accept a pack whose last receipt is older than this
      --require-claim-pass         Claims must have been evaluated, and hold
      --check-expiry               Do not accept a pack whose `valid_until` has passed
      --require-ci-binding         Do not accept a pack that does not say which CI run built it
      --expected-commit-sha SHA    The CI run that built it was of this commit: 40 hex digits
      --state FILE                 Your memory: compare the pack with the one of its session that
                                   you have seen before
      --update-state               Remember the pack, if none of its session is known
      --policy FILE                Whose anchors count: which witnesses there are, and how many it
                                   takes
      --anchor FILE                An anchor of the pack that is kept elsewhere; may be repeated
      --require-anchor             The pack must be anchored
      --anchored-before TIME       It must have been anchored before this time:
                                   2026-03-15T11:30:00Z
      --out FILE                   Also write the report as JSON to a new file
  -h, --help                       Print help
  -V, --version                    Print version

Example:
  assay-verify --signer 4f1c…e2 proof_pack_20260315T113000Z_0123456789abcdef

This program does the same as assay verify-pack, and prints the same. A pack that is checked only
against the key inside it is UNPINNED: it is intact, but anyone can have made it. Get the
fingerprint another way and give it to --signer.

Exit codes: 0 intact and every demand is met; 1 intact, but a demand is not met;
2 TAMPERED, UNTRUSTED or FORK; 3 not a readable pack, or UNSUPPORTED: a later version wrote
part of it
";

const OF_DIR: &str = "\
Verify a whole audit directory: its ledger, every session, every pack

Usage: assay-verify verify-dir [OPTIONS] DIR

Arguments:
  DIR  Audit directory

Options:
      --json                       Print one JSON document
      --packs all|none             Verify every pack (all), or only compare them with the ledger
                                   (none) (default: all)
      --signer FPR                 Fingerprint of a key that may have signed: SHA-256 of the public
                                   key, 64 hex digits; may be repeated
      --log-key VKEY               Key that may have signed the ledger, as assay ledger vkey prints
                                   it; may be repeated (default: those of packs)
      --state FILE                 Your memory: compare the directory with what you have seen before
      --update-state               Remember what was seen, where it does not contradict what was
                                   remembered
      --policy FILE                Whose anchors count: which witnesses there are, and how many it
                                   takes
      --anchor FILE                An anchor that is kept elsewhere; may be repeated
      --require-anchor             The ledger must be anchored
      --anchored-before TIME       The ledger must have been anchored before this time:
                                   2026-03-15T11:30:00Z
  -h, --help                       Print help

Example:
  assay-verify verify-dir --signer 4f1c…e2 --state ~/assay.state --update-state /srv/audit

It does the same as assay verify-dir, and prints the same.

Exit codes: 0 nothing is wrong; 1 a demand is not met, or a session has no end; 2 something is
missing, changed, rolled back or signed by another key; 3 bad input, or a later version wrote
part of it. The worst decides: 2, then 3, then 1
";

const OF_PROOF: &str = "\
Verify a proof of one call, without the pack

Usage: assay-verify verify-proof [OPTIONS] PROOF

Arguments:
  PROOF  The proof

Options:
      --json                       Print one JSON document
      --signer FPR                 Fingerprint of a key that may have signed: SHA-256 of the public
                                   key, 64 hex digits; may be repeated
      --policy FILE                Whose anchors count: which witnesses there are, and how many it
                                   takes
      --require-anchor             The ledger's line in the proof must be anchored
      --anchored-before TIME       It must have been anchored before this time:
                                   2026-03-15T11:30:00Z
  -h, --help                       Print help

Example:
  assay-verify verify-proof --signer 4f1c…e2 call.tlog-proof

It does the same as assay verify-proof, and prints the same.

Exit codes: 0 it holds; 1 it holds, but a demand is not met; 2 it does not hold, or another key
signed; 3 not a readable proof, or a later version wrote it
";

/// What the arguments ask for.
#[derive(Debug)]
enum Asked {
    Help(&'static str),
    Version,
    Cards,
    Pack(Box<Request>),
    Dir(Box<DirRequest>),
    Proof(ProofRequest),
}

impl Asked {
    fn is_json(&self) -> bool {
        match self {
            Self::Pack(request) => request.json,
            Self::Dir(request) => request.json,
            Self::Proof(request) => request.json,
            Self::Help(_) | Self::Version | Self::Cards => false,
        }
    }

    fn answer(
        &self,
        style: Style,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Said, RequestError> {
        let text = match self {
            Self::Pack(request) => {
                return request.answer(NAME, style, progress).map(|said| Said { text: said.text, exit: said.exit });
            }
            Self::Dir(request) => return request.answer(style, progress),
            Self::Proof(request) => return request.answer(style),
            Self::Help(text) => (*text).to_owned(),
            Self::Cards => claims::listing(),
            Self::Version => format!("{NAME} {}\n", env!("CARGO_PKG_VERSION")),
        };
        Ok(Said { text, exit: Exit::Ok })
    }
}

/// Runs the program; `args` are those after its name. Gives the exit code.
pub fn run(args: Vec<OsString>, style: Style, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8 {
    let mut fail = |what: &str, hint: Option<&str>| {
        let hint = hint.map_or_else(String::new, |hint| format!("\n  hint: {}", visible(hint)));
        // A closed stderr is not an error.
        let _ = writeln!(stderr, "{NAME}: error: {}{hint}", visible(what));
    };
    let asked = match parse(args) {
        Ok(asked) => asked,
        Err(e) => {
            fail(&e.to_string(), Some("assay-verify --help lists the options"));
            return Exit::BadInput.code();
        }
    };
    let mut progress = ProgressLine::new();
    let answer = asked.answer(style, &mut |p| progress.show(p));
    progress.clear();
    let Said { text, exit } = answer.unwrap_or_else(|e| {
        fail(&e.to_string(), e.hint());
        let document = terminal::json_failure(&e.to_string(), e.hint(), e.exit().code());
        Said { text: document.ok().filter(|_| asked.is_json()).unwrap_or_default(), exit: e.exit() }
    });
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that closed the pipe has seen what it wanted.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("standard output: {e}"), None);
            Exit::Failed.code()
        }
        _ => exit.code(),
    }
}

fn parse(mut args: Vec<OsString>) -> Result<Asked, lexopt::Error> {
    let command = args.first().and_then(|arg| arg.to_str()).unwrap_or_default();
    match command {
        "verify-dir" => of_dir(args.split_off(1)),
        "verify-proof" => of_proof(args.split_off(1)),
        "verify-pack" => of_pack(args.split_off(1)),
        _ => of_pack(args),
    }
}

/// Arguments that were read.
enum Read {
    Help,
    Version,
    /// What is verified, if it is named, and the options that were there.
    Given(Option<PathBuf>, Vec<String>),
}

/// Reads arguments; `option` takes each option and its value. Only those of `many` may be there more than once.
fn read(
    args: Vec<OsString>,
    many: &[&str],
    option: &mut dyn FnMut(&str, &mut Parser) -> Result<(), lexopt::Error>,
) -> Result<Read, lexopt::Error> {
    let mut parser = Parser::from_args(args);
    let (mut place, mut seen) = (None, Vec::new());
    while let Some(arg) = parser.next()? {
        let name = match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Read::Help),
            Arg::Short('V') | Arg::Long("version") => return Ok(Read::Version),
            Arg::Long(name) => name.to_owned(),
            Arg::Value(named) if place.is_none() && !named.is_empty() => {
                place = Some(PathBuf::from(named));
                continue;
            }
            arg => return Err(arg.unexpected()),
        };
        if !many.contains(&name.as_str()) && seen.contains(&name) {
            return Err(format!("--{name} was given twice").into());
        }
        option(&name, &mut parser)?;
        seen.push(name);
    }
    Ok(Read::Given(place, seen))
}

fn unknown(name: &str) -> lexopt::Error {
    format!("unknown option --{name}").into()
}

fn of_pack(args: Vec<OsString>) -> Result<Asked, lexopt::Error> {
    let mut request = Request::default();
    let read = read(args, &["signer", "approver", "cards", "anchor"], &mut |name, parser| {
        let demands = &mut request.demands;
        match name {
            "json" => request.json = true,
            "strict" => demands.strict = true,
            "require-claim-pass" => demands.require_claim_pass = true,
            "check-expiry" => demands.check_expiry = true,
            "require-ci-binding" => demands.require_ci_binding = true,
            "signer" => demands.signers.push(value(parser)?.parse_with(request::fingerprint)?),
            "approver" => demands.approvers.push(value(parser)?.parse_with(request::fingerprint)?),
            "cards" => demands.cards.extend(request::cards(&value(parser)?.string()?)),
            "max-age-hours" => demands.max_age_hours = Some(value(parser)?.parse_with(request::hours)?),
            "expected-commit-sha" => demands.expected_commit_sha = Some(value(parser)?.parse_with(request::commit)?),
            "lock" => request.lock = Some(path(parser)?),
            "out" => request.out = Some(path(parser)?),
            "state" => request.state = Some((path(parser)?, false)),
            "update-state" => {}
            other if of_anchors(other, parser, &mut request.anchors)? => {}
            other => {
                let known = ELSEWHERE.iter().find(|known| known.name == other).ok_or_else(|| unknown(other))?;
                if known.takes_value {
                    value(parser)?.string()?;
                }
                request.elsewhere.push(known.name);
            }
        }
        Ok(())
    })?;
    let (pack, seen) = match read {
        Read::Help => return Ok(Asked::Help(OF_PACK)),
        Read::Version => return Ok(Asked::Version),
        Read::Given(..) if request.demands.cards == [claims::LIST] => return Ok(Asked::Cards),
        Read::Given(pack, seen) => (pack, seen),
    };
    remember(&mut request.state, &seen)?;
    request.pack = pack.ok_or("the directory of a pack is missing")?;
    Ok(Asked::Pack(Box::new(request)))
}

fn of_dir(args: Vec<OsString>) -> Result<Asked, lexopt::Error> {
    let mut request = DirRequest::default();
    let read = read(args, &["signer", "log-key", "anchor"], &mut |name, parser| {
        match name {
            "json" => request.json = true,
            "packs" => {
                request.without_packs = match value(parser)?.to_str() {
                    Some("all") => false,
                    Some("none") => true,
                    _ => return Err("--packs: expected all or none".into()),
                }
            }
            "signer" => request.signers.push(value(parser)?.parse_with(request::fingerprint)?),
            "log-key" => request.log_keys.push(value(parser)?.parse_with(key_of_user)?),
            "state" => request.state = Some((path(parser)?, false)),
            "update-state" => {}
            other if of_anchors(other, parser, &mut request.anchors)? => {}
            other => return Err(unknown(other)),
        }
        Ok(())
    })?;
    let (dir, seen) = match read {
        Read::Help => return Ok(Asked::Help(OF_DIR)),
        Read::Version => return Ok(Asked::Version),
        Read::Given(dir, seen) => (dir, seen),
    };
    remember(&mut request.state, &seen)?;
    request.dir = dir.ok_or("the audit directory is missing")?;
    Ok(Asked::Dir(Box::new(request)))
}

fn of_proof(args: Vec<OsString>) -> Result<Asked, lexopt::Error> {
    let mut request = ProofRequest::default();
    let read = read(args, &["signer"], &mut |name, parser| {
        match name {
            "json" => request.json = true,
            "signer" => request.signers.push(value(parser)?.parse_with(request::fingerprint)?),
            other if other != "anchor" && of_anchors(other, parser, &mut request.anchors)? => {}
            other => return Err(unknown(other)),
        }
        Ok(())
    })?;
    let proof = match read {
        Read::Help => return Ok(Asked::Help(OF_PROOF)),
        Read::Version => return Ok(Asked::Version),
        Read::Given(proof, _) => proof,
    };
    request.proof = proof.ok_or("the proof is missing")?;
    Ok(Asked::Proof(request))
}

/// Options about anchors; `false` if it is none of them.
fn of_anchors(name: &str, parser: &mut Parser, anchors: &mut Anchors) -> Result<bool, lexopt::Error> {
    match name {
        "policy" => anchors.policy = Some(path(parser)?),
        "anchor" => anchors.kept.push(path(parser)?),
        "require-anchor" => anchors.is_required = true,
        "anchored-before" => anchors.before = Some(value(parser)?.parse_with(request::time)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// `--update-state`, which means nothing without `--state`.
fn remember(state: &mut Option<(PathBuf, bool)>, seen: &[String]) -> Result<(), lexopt::Error> {
    if seen.iter().any(|option| option == "update-state") {
        state.as_mut().ok_or("--update-state needs --state FILE")?.1 = true;
    }
    Ok(())
}

/// The value of an option. A value that begins with a dash must follow `=`.
fn value(parser: &mut Parser) -> Result<OsString, lexopt::Error> {
    if let Some(value) = parser.optional_value() {
        return Ok(value);
    }
    let next = parser.try_raw_args().and_then(|args| args.peek().map(|arg| arg.as_encoded_bytes().to_owned()));
    if next.is_some_and(|arg| arg.len() > 1 && arg.starts_with(b"-")) {
        return Err("an option needs a value".into());
    }
    parser.value()
}

fn path(parser: &mut Parser) -> Result<PathBuf, lexopt::Error> {
    let value = value(parser)?;
    if value.is_empty() { Err("an option needs the name of a file".into()) } else { Ok(value.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<Request, String> {
        match parse(args.iter().map(Into::into).collect()).map_err(|e| e.to_string())? {
            Asked::Pack(request) => Ok(*request),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn arguments_become_demands_in_any_order() {
        let upper = format!("--signer=sha256:{}", "AB".repeat(32));
        let r = asked(&["--strict", &upper, "dir", "--cards", "a, b", "--cards=c", "--max-age-hours", "0.5"]).unwrap();
        assert_eq!((r.pack, r.demands.strict), (PathBuf::from("dir"), true));
        assert_eq!(r.demands.signers, ["ab".repeat(32)]);
        assert_eq!((r.demands.cards, r.demands.max_age_hours), (vec!["a".into(), "b".into(), "c".into()], Some(0.5)));
        assert_eq!(asked(&["--", "--json"]).unwrap().pack, PathBuf::from("--json"));
        assert_eq!(asked(&["--out=-x", "dir"]).unwrap().out, Some(PathBuf::from("-x")));
        assert_eq!(asked(&["verify-pack", "dir"]).unwrap().pack, PathBuf::from("dir"));
        assert_eq!(asked(&["./verify-dir"]).unwrap().pack, PathBuf::from("./verify-dir"));
    }

    #[test]
    fn arguments_of_directories_and_proofs_become_demands() {
        let parsed = |args: &[&str]| parse(args.iter().map(Into::into).collect()).map_err(|e| e.to_string());
        let key = "assay/ledger/0123456789abcdef0123456789abcdef";
        let key = assay_evidence::note::Key::new(key, [7; 32]).unwrap().to_string();
        let args =
            ["verify-dir", "--packs=none", "d", "--log-key", &key, "--state", "s", "--update-state", "--policy", "p"];
        let more = ["--anchor", "a", "--anchor=b", "--require-anchor", "--anchored-before", "2026-03-15T11:30:00Z"];
        let Ok(Asked::Dir(r)) = parsed(&[&args[..], &more].concat()) else { panic!("no directory") };
        assert_eq!((r.dir, r.without_packs, r.log_keys.len()), (PathBuf::from("d"), true, 1));
        assert_eq!((r.state, r.anchors.kept.len()), (Some((PathBuf::from("s"), true)), 2));
        assert!(r.anchors.is_required && r.anchors.before.is_some());
        let signer = "a".repeat(64);
        let Ok(Asked::Proof(r)) = parsed(&["verify-proof", "f", "--json", "--signer", &signer]) else {
            panic!("no proof")
        };
        assert_eq!((r.proof, r.json, r.signers), (PathBuf::from("f"), true, vec![signer]));
        for (bad, why) in [
            (&["verify-dir"][..], "missing"),
            (&["verify-dir", "a", "b"], "unexpected"),
            (&["verify-dir", "d", "--strict"], "unknown option"),
            (&["verify-dir", "d", "--packs", "some"], "all or none"),
            (&["verify-proof", "f", "--anchor", "a"], "unknown option"),
            (&["verify-dir", "d", "--update-state"], "--state"),
            (&["verify-dir", "d", "--log-key", "x"], "verifier key"),
            (&["verify-dir", "d", "--anchored-before", "today", "--policy", "p"], "a time"),
            (&["verify-proof"], "missing"),
            (&["verify-proof", "f", "--state", "s"], "unknown option"),
            (&["verify-proof", "f", "--json", "--json"], "twice"),
        ] {
            let said = parsed(bad).unwrap_err();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
    }

    #[test]
    fn arguments_that_mean_nothing_are_refused() {
        for bad in [
            &[][..],
            &[""],
            &["a", "b"],
            &["a", "--no-such"],
            &["a", "-x"],
            &["a", "--strict=1"],
            &["a", "--strict", "--strict"],
            &["a", "--signer"],
            &["a", "--signer", "--json"],
            &["a", "--out", ""],
            &["a", "--lock", "x", "--lock", "y"],
        ] {
            assert!(asked(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn help_names_every_option_that_is_taken() {
        for command in [&[][..], &["verify-dir"], &["verify-proof"]] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let args = command.iter().chain(&["--help"]).map(Into::into).collect();
            assert_eq!(run(args, Style::plain(), &mut out, &mut err), 0);
            let help = String::from_utf8(out).unwrap();
            assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
            let options: Vec<&str> = help.lines().filter_map(|l| l.trim_start().strip_prefix("--")).collect();
            assert!(options.len() >= 2, "{help}");
            for option in options {
                let mut words = option.split_whitespace();
                let name = format!("--{}", words.next().unwrap());
                let value = words.next().map(|v| match v {
                    "FPR" => "a".repeat(64),
                    "SHA" => "a".repeat(40),
                    "HOURS" => "1".to_owned(),
                    "TIME" => "2026-03-15T11:30:00Z".to_owned(),
                    "VKEY" => assay_evidence::note::Key::new("l", [7; 32]).unwrap().to_string(),
                    "all|none" => "none".to_owned(),
                    other => other.to_owned(),
                });
                let value = value.filter(|_| option.split("  ").next().unwrap().contains(' '));
                // An option that means nothing alone, and what it goes with.
                let with = match name.as_str() {
                    "--update-state" => &["--state", "file"][..],
                    "--anchor" | "--require-anchor" | "--anchored-before" => &["--policy", "file"],
                    _ => &[],
                };
                let args = command.iter().copied().chain(["dir", name.as_str()]);
                let args: Vec<&str> = args.chain(value.as_deref()).chain(with.iter().copied()).collect();
                assert!(parse(args.iter().map(Into::into).collect()).is_ok(), "{args:?}");
            }
        }
    }
}
