//! `assay surface approve`, `block`, `revoke`, `request`, `import`, `lock`: what is decided, and by whom.

use super::{
    ApproveArgs, Asked, BlockArgs, Deciding, Desk, ImportArgs, LockArgs, RequestArgs, RevokeArgs, Where, view,
};
use crate::{
    approvals::{
        decide::{Refused, Wish, decide, draft},
        lockfile::{SurfaceLock, named},
        observed::{Observed, Seen},
        request::{self, Request},
        store::write_contents,
        summary::Summary,
    },
    cli::out::{self, Style, Tone, short},
    error::{Exit, Failure},
    files,
    model::surface::{Approval, Approver, Decision, Facet, Identity},
    pack::keys::{KeyStore, Signer, SignerId},
    paths,
    text::{counted, visible},
};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write as _, path::Path};

/// The key that signs, made on first use, and who that is.
fn who(named: Option<&SignerId>) -> Result<(Signer, Approver), Failure> {
    let store = KeyStore::of_user()?;
    // A key that somebody named is theirs; the recorder's own key says only which user it was.
    let (signer, auth) = match named {
        Some(id) => (store.load(id)?, "key"),
        None => (store.load_or_generate(&store.active()?)?, "local_user"),
    };
    let name = match auth {
        "key" => signer.id().to_string(),
        _ => paths::user_name(),
    };
    let signer = signer.patiently();
    Ok((signer, Approver { auth: auth.to_owned(), name, via: "cli".to_owned() }))
}

fn take(
    at: &Where,
    deciding: &Deciding,
    server: &str,
    decision: Decision,
    items: &[(Facet, String)],
    check: impl FnOnce(&Desk, &Seen, &Summary) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let seen = desk.seen(server, deciding.snapshot.as_deref())?;
        let (summary, approved) = desk.summary(&seen.snapshot)?;
        check(&desk, &seen, &summary)?;
        let (signer, approver) = who(deciding.signer.as_ref())?;
        let wish = Wish {
            decision,
            items: items.to_vec(),
            expect: deciding.expect.clone(),
            reason: deciding.reason.clone(),
            approver,
        };
        let drafted = match draft(&seen, &summary, &approved, wish) {
            // What is so already is no fault.
            Err(Refused::Nothing) => return nothing(at, server),
            drafted => drafted?,
        };
        let approval = decide(&desk.dir, (&seen, &desk.chain), drafted, &signer)?;
        said(at, &approval, desk.approvers.as_ref().is_none_or(|keys| keys.contains(&signer.fingerprint())))?;
        Ok(Exit::Ok)
    })
}

fn nothing(at: &Where, server: &str) -> Result<Exit, Failure> {
    if at.json {
        out::json(&json!({"server_id": server, "decision": null, "note": Refused::Nothing.to_string()}))?;
    } else {
        out::stdout(format!("{}: {}\n", visible(server), Refused::Nothing).as_bytes())?;
    }
    Ok(Exit::Ok)
}

/// What was decided, in words.
fn said(at: &Where, a: &Approval, counts: bool) -> Result<(), Failure> {
    if at.json {
        return out::json(&view::approval(a));
    }
    let style = Style::of_stdout();
    let what = match a.decision {
        Decision::Approve | Decision::FirstUse => style.paint(Tone::Good, "approved"),
        Decision::Block => style.paint(Tone::Bad, "blocked"),
        Decision::Revoke => style.paint(Tone::Bad, "revoked"),
    };
    // Of one name there may be several definitions.
    let mut items: BTreeMap<(Facet, &str), usize> = BTreeMap::new();
    for item in &a.items {
        *items.entry((item.facet, &item.name)).or_default() += 1;
    }
    let mut text = format!("{what} {} of {}: {}\n", counted(items.len(), "item"), short(&a.server_id), a.approval_id);
    if items.len() <= 10 {
        for ((facet, name), definitions) in items {
            let several = if definitions > 1 { format!("  {definitions} definitions") } else { String::new() };
            let _ = writeln!(text, "  {}{several}", short(&named(facet, name)));
        }
    }
    let _ =
        writeln!(text, "  root    {}", a.root.as_deref().map_or_else(|| "none: part of the surface".to_owned(), short));
    let _ = writeln!(text, "  signer  {} {}", short(&a.signer.id), a.signer.fingerprint);
    if !counts && matches!(a.decision, Decision::Approve | Decision::FirstUse) {
        let _ = writeln!(text, "  this key is none of the approvers that you named: for them it does not count");
    }
    out::stdout(text.as_bytes())
}

pub fn approve(at: &Where, args: &ApproveArgs) -> Result<Exit, Failure> {
    if let (Some(file), Some(to)) = (&args.request, &args.out) {
        return sign(at, args, file, to);
    }
    let server = args.server.as_deref().unwrap_or_default();
    take(at, &args.deciding, server, Decision::Approve, &args.item, |desk, seen, summary| {
        let Some(like) = &args.like else { return Ok(()) };
        let mut counted = desk.chain.counted(desk.approvers.as_ref());
        let root = counted.rfind(|a| a.server_id == *like).and_then(|last| {
            let there = Identity { endpoint: last.endpoint.clone(), id: like.clone() };
            let in_force = desk.chain.in_force(&there, desk.approvers.as_ref());
            let holds = in_force.approved().next().is_some();
            in_force.root.filter(|_| holds)
        });
        like_equal(like, root.as_deref(), &seen.snapshot.identity.id, summary)
    })
}

fn like_equal(like: &str, root: Option<&str>, server: &str, summary: &Summary) -> Result<(), Failure> {
    let refused = |what: String| Failure { exit: Exit::Violation, ..Failure::failed(what) };
    let Some(root) = root else {
        return Err(refused(format!("no whole surface of {like} is approved; nothing was written")));
    };
    match &summary.root {
        Ok(found) if found == root => Ok(()),
        Ok(found) => Err(refused(format!(
            "the root of {server} is {found}, that of {like} is {root}: they are not alike; nothing was written"
        ))),
        Err(why) => Err(refused(format!("the surface of {server} is incomplete: {why}; nothing was written"))),
    }
}

pub fn block(at: &Where, args: &BlockArgs) -> Result<Exit, Failure> {
    take(at, &args.deciding, &args.server, Decision::Block, &args.item, |_, _, _| Ok(()))
}

pub fn revoke(at: &Where, args: &RevokeArgs) -> Result<Exit, Failure> {
    take(at, &args.deciding, &args.server, Decision::Revoke, &args.item, |_, _, _| Ok(()))
}

pub fn request(at: &Where, args: &RequestArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let seen = desk.seen(&args.server, None)?;
        let (summary, approved) = desk.summary(&seen.snapshot)?;
        let decision = match args.decision {
            Asked::Approve => Decision::Approve,
            Asked::Block => Decision::Block,
            Asked::Revoke => Decision::Revoke,
        };
        if decision == Decision::Block && args.item.is_empty() {
            return Err(Failure::bad_input("--decision block needs --item").hint("--item tools/NAME"));
        }
        // Whoever signs says who they are.
        let approver = Approver { auth: "key".to_owned(), name: String::new(), via: "file".to_owned() };
        let wish = Wish { decision, items: args.item.clone(), expect: None, reason: args.reason.clone(), approver };
        let (draft, contents) = match draft(&seen, &summary, &approved, wish) {
            Err(Refused::Nothing) => return nothing(at, &args.server),
            drafted => drafted?,
        };
        // The decision comes back without them.
        write_contents(&desk.dir, &contents)?;
        let request = Request::new(draft, &contents, &desk.chain);
        out::new_file(&args.out, &request.to_bytes().map_err(Failure::failed)?)?;
        if at.json {
            out::json(
                &json!({"server_id": args.server, "file": args.out, "items": request.items.len(), "root": request.root}),
            )?;
        } else {
            let text = format!(
                "wrote {}: {} of {}\n  next, where the key is:  assay surface approve --request FILE --signer NAME --out FILE\n  \
                 then here:               assay surface import FILE\n",
                visible(&args.out.display().to_string()),
                counted(request.items.len(), "item"),
                short(&args.server)
            );
            out::stdout(text.as_bytes())?;
        }
        Ok(Exit::Ok)
    })
}

/// Reads a file that somebody named.
fn bytes_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let read = files::named(path).and_then(|file| files::read_all(file, request::MAX_FILE));
    read.map_err(|e| Failure::bad_input(format_args!("{}: {e}", path.display())))
}

fn sign(at: &Where, args: &ApproveArgs, file: &Path, to: &Path) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let bad = |e: request::RequestError| Failure::bad_input(format_args!("{}: {e}", file.display()));
        let request = Request::parse(&bytes_of(file)?).map_err(bad)?;
        let (signer, _) = who(args.deciding.signer.as_ref())?;
        let shown = request.clone();
        let line = request.sign(&signer, args.deciding.reason.clone()).map_err(bad)?;
        out::new_file(to, &line)?;
        if at.json {
            out::json(&json!({
                "file": to, "server_id": shown.server_id, "decision": shown.decision.as_str(), "root": shown.root,
                "items": shown.items, "changes": shown.changes, "signer": signer.id().as_str(),
                "fingerprint": signer.fingerprint(),
            }))?;
            return Ok(Exit::Ok);
        }
        let items = counted(shown.items.len(), "item");
        let mut text = format!("signed: {} {items} of {}\n", shown.decision.as_str(), short(&shown.server_id));
        let _ = writeln!(text, "  root    {}", shown.root.as_deref().map_or_else(|| "none".to_owned(), short));
        let _ = writeln!(text, "  signer  {} {}", short(signer.id().as_str()), signer.fingerprint());
        for change in &shown.changes {
            let place = change.facet.map(|f| named(f, &change.name)).unwrap_or_default();
            let _ = writeln!(text, "  {:<8} {}  {}", change.severity.as_str(), change.kind, short(&place));
        }
        let _ = writeln!(text, "wrote {}; bring it in with: assay surface import", visible(&to.display().to_string()));
        out::stdout(text.as_bytes())?;
        Ok(Exit::Ok)
    })
}

pub fn import(at: &Where, args: &ImportArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        let approval = request::import(&desk.dir, &bytes_of(&args.file)?, desk.approvers.as_ref())?;
        said(at, &approval, true)?;
        Ok(Exit::Ok)
    })
}

pub fn lock(at: &Where, args: &LockArgs) -> Result<Exit, Failure> {
    out::answering(at.json, || {
        let desk = Desk::open(at)?;
        // A client may have asked for less than all since.
        let whole = Observed::newest_whole(&desk.dir, &args.server).map_err(|e| desk.unreadable(&e))?;
        let seen = whole.map_or_else(|| desk.seen(&args.server, None), Ok)?;
        let (summary, _) = desk.summary(&seen.snapshot)?;
        let drift = summary.items.iter().find(|i| !i.state.passes());
        if let Some(item) = drift {
            let what = format!(
                "{} of {} is {}: only what is approved is locked; nothing was written",
                named(item.pin.facet, &item.pin.name),
                args.server,
                item.state.as_str()
            );
            let failure = Failure { exit: Exit::Violation, ..Failure::failed(what) };
            return Err(failure.hint(format_args!("assay surface diff {0}; assay surface approve {0}", args.server)));
        }
        let lock = SurfaceLock::of(&seen.snapshot).map_err(|e| {
            let failure =
                Failure { exit: Exit::Violation, ..Failure::failed(format_args!("{e}; nothing was written")) };
            failure.hint("assay surface snapshot asks the server for all of it")
        })?;
        let bytes = lock.to_bytes().map_err(Failure::failed)?;
        let mut staged = args.out.clone().into_os_string();
        staged.push(".tmp");
        let failed = |e: std::io::Error| Failure::bad_input(format_args!("{}: {e}", args.out.display()));
        files::replace(staged.as_ref(), &args.out, &bytes, files::sync_all).map_err(failed)?;
        if at.json {
            out::json(
                &json!({"file": args.out, "server_id": args.server, "root": lock.root, "items": lock.items.len()}),
            )?;
        } else {
            let text = format!(
                "wrote {}: {} of {}, root {}\n",
                visible(&args.out.display().to_string()),
                counted(lock.items.len(), "item"),
                short(&args.server),
                lock.root
            );
            out::stdout(text.as_bytes())?;
        }
        Ok(Exit::Ok)
    })
}
