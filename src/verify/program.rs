//! The program `assay-verify`: its arguments, what it prints, its exit code.

use crate::{
    claims,
    request::{self, ELSEWHERE, Request},
    terminal::{self, ProgressLine, Style},
    text::visible,
    words::Exit,
};
use lexopt::{Arg, Parser, ValueExt as _};
use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
};

/// What it is called.
pub const NAME: &str = "assay-verify";

const HELP: &str = "\
Verify a proof pack of the MCP Flight Recorder

Usage: assay-verify [OPTIONS] PACK

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
      --lock FILE                  Lock file of assay-ai: signers, cards and formats that are accepted
      --cards CARDS                Claim cards to evaluate, separated by commas; list shows them
      --max-age-hours HOURS        Do not accept a pack whose last receipt is older than this
      --require-claim-pass         Claims must have been evaluated, and hold
      --check-expiry               Do not accept a pack whose `valid_until` has passed
      --require-ci-binding         Do not accept a pack that does not say which CI run built it
      --expected-commit-sha SHA    The CI run that built it was of this commit: 40 hex digits
      --state FILE                 Your memory: compare the pack with the one of its session that
                                   you have seen before
      --update-state               Remember the pack, if none of its session is known
      --policy FILE                Whose anchors count: which witnesses there are, and how many it takes
      --anchor FILE                An anchor of the pack that is kept elsewhere; may be repeated
      --require-anchor             The pack must be anchored
      --anchored-before TIME       It must have been anchored before this time: 2026-03-15T11:30:00Z
      --out FILE                   Also write the report as JSON to a new file
  -h, --help                       Print help
  -V, --version                    Print version

Example:
  assay-verify --signer 4f1c…e2 proof_pack_20260315T113000Z_0123456789abcdef

This program does the same as assay verify-pack, and prints the same. A pack that is checked only
against the key inside it is UNPINNED: it is intact, but anyone can have made it. Get the fingerprint
another way and give it to --signer.

Exit codes: 0 intact and every demand is met; 1 intact, but a demand is not met;
2 TAMPERED, UNTRUSTED or FORK; 3 not a readable pack, or UNSUPPORTED: a later version wrote
part of it
";

/// What the arguments ask for.
#[derive(Debug)]
enum Asked {
    Help,
    Version,
    Cards,
    Verify(Box<Request>),
}

/// Runs the program; `args` are those after its name. Gives the exit code.
pub fn run(args: Vec<OsString>, style: Style, stdout: &mut dyn Write, stderr: &mut dyn Write) -> u8 {
    let mut print = |text: &str| match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A reader that closed the pipe has seen what it wanted.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    };
    let mut fail = |what: &str, hint: Option<&str>| {
        let hint = hint.map_or_else(String::new, |hint| format!("\n  hint: {}", visible(hint)));
        // A closed stderr is not an error.
        let _ = writeln!(stderr, "{NAME}: error: {}{hint}", visible(what));
    };
    let request = match parse(args) {
        Ok(Asked::Verify(request)) => request,
        Ok(Asked::Help) => return done(print(HELP), Exit::Ok, &mut fail),
        Ok(Asked::Cards) => return done(print(&claims::listing()), Exit::Ok, &mut fail),
        Ok(Asked::Version) => {
            let version = format!("{NAME} {}\n", env!("CARGO_PKG_VERSION"));
            return done(print(&version), Exit::Ok, &mut fail);
        }
        Err(e) => {
            fail(&e.to_string(), Some("assay-verify --help lists the options"));
            return Exit::BadInput.code();
        }
    };
    let mut progress = ProgressLine::new();
    let answer = request.answer(NAME, style, &mut |p| progress.show(p));
    progress.clear();
    let (text, exit) = match answer {
        Ok(answer) => (answer.text, answer.exit),
        Err(e) => {
            fail(&e.to_string(), e.hint());
            let document = terminal::json_failure(&e.to_string(), e.hint(), e.exit().code());
            (document.ok().filter(|_| request.json).unwrap_or_default(), e.exit())
        }
    };
    done(print(&text), exit, &mut fail)
}

/// The exit code, or that of an answer that could not be printed.
fn done(printed: Result<(), String>, exit: Exit, fail: &mut dyn FnMut(&str, Option<&str>)) -> u8 {
    match printed {
        Ok(()) => exit.code(),
        Err(what) => {
            fail(&what, None);
            Exit::Failed.code()
        }
    }
}

fn parse(args: Vec<OsString>) -> Result<Asked, lexopt::Error> {
    let mut parser = Parser::from_args(args);
    let mut request = Request::default();
    let mut pack = None;
    let mut seen: Vec<String> = Vec::new();
    while let Some(arg) = parser.next()? {
        let option = match arg {
            Arg::Short('h') => return Ok(Asked::Help),
            Arg::Short('V') => return Ok(Asked::Version),
            Arg::Long(name) => name.to_owned(),
            Arg::Value(dir) if pack.is_none() && !dir.is_empty() => {
                pack = Some(PathBuf::from(dir));
                continue;
            }
            arg => return Err(arg.unexpected()),
        };
        if !matches!(option.as_str(), "signer" | "approver" | "cards" | "anchor") && seen.contains(&option) {
            return Err(format!("--{option} was given twice").into());
        }
        let demands = &mut request.demands;
        match option.as_str() {
            "help" => return Ok(Asked::Help),
            "version" => return Ok(Asked::Version),
            "json" => request.json = true,
            "strict" => demands.strict = true,
            "require-claim-pass" => demands.require_claim_pass = true,
            "check-expiry" => demands.check_expiry = true,
            "require-ci-binding" => demands.require_ci_binding = true,
            "signer" => demands.signers.push(value(&mut parser)?.parse_with(request::fingerprint)?),
            "approver" => demands.approvers.push(value(&mut parser)?.parse_with(request::fingerprint)?),
            "cards" => demands.cards.extend(request::cards(&value(&mut parser)?.string()?)),
            "max-age-hours" => demands.max_age_hours = Some(value(&mut parser)?.parse_with(request::hours)?),
            "expected-commit-sha" => {
                demands.expected_commit_sha = Some(value(&mut parser)?.parse_with(request::commit)?);
            }
            "lock" => request.lock = Some(path(&mut parser)?),
            "out" => request.out = Some(path(&mut parser)?),
            "policy" => request.anchors.policy = Some(path(&mut parser)?),
            "anchor" => request.anchors.kept.push(path(&mut parser)?),
            "require-anchor" => request.anchors.is_required = true,
            "anchored-before" => {
                request.anchors.before = Some(value(&mut parser)?.parse_with(request::time)?);
            }
            "state" => request.state = Some((path(&mut parser)?, false)),
            "update-state" => {}
            other => {
                let known = ELSEWHERE.iter().find(|known| known.name == other);
                let known = known.ok_or_else(|| lexopt::Error::from(format!("unknown option --{other}")))?;
                if known.takes_value {
                    value(&mut parser)?.string()?;
                }
                request.elsewhere.push(known.name);
            }
        }
        seen.push(option);
    }
    if request.demands.cards == [claims::LIST] {
        return Ok(Asked::Cards);
    }
    if seen.iter().any(|option| option == "update-state") {
        request.state.as_mut().ok_or("--update-state needs --state FILE")?.1 = true;
    }
    request.pack = pack.ok_or("the directory of a pack is missing")?;
    Ok(Asked::Verify(Box::new(request)))
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
            Asked::Verify(request) => Ok(*request),
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
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(run(vec!["--help".into()], Style::plain(), &mut out, &mut err), 0);
        let help = String::from_utf8(out).unwrap();
        for option in help.lines().filter_map(|l| l.trim_start().strip_prefix("--")) {
            let mut words = option.split_whitespace();
            let name = format!("--{}", words.next().unwrap());
            let value = words.next().filter(|w| w.chars().all(char::is_uppercase));
            let value = value.map(|v| match v {
                "FPR" => "a".repeat(64),
                "SHA" => "a".repeat(40),
                "HOURS" => "1".to_owned(),
                "TIME" => "2026-03-15T11:30:00Z".to_owned(),
                other => other.to_owned(),
            });
            // An option that means nothing alone, and what it goes with.
            let with = if name == "--update-state" { &["--state", "file"][..] } else { &[] };
            let args: Vec<&str> =
                ["dir", name.as_str()].into_iter().chain(value.as_deref()).chain(with.iter().copied()).collect();
            assert!(asked(&args).is_ok(), "{args:?}");
        }
    }
}
