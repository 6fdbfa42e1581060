//! What every registry does, whatever it keeps things in.

use super::{
    Adopted, Approved, Checked, DATABASE, Declared, Found, ManagedBy, NewSnapshot, Registry, ServiceRow,
    SqliteRegistry, State, TokenRow,
};
use crate::{db::DbError, model::WallTime};
use std::path::Path;

fn at(second: i64) -> WallTime {
    WallTime::from_millis(1_700_000_000_000 + second * 1000)
}

fn declared(name: &str) -> Declared {
    Declared {
        name: name.to_owned(),
        upstream_url: format!("http://{name}/mcp"),
        endpoint: format!("sha256:{name}"),
        enabled: true,
        check_frequency_minutes: 60,
        made: None,
    }
}

fn checked(found: Found, snapshot: Option<(&str, char, Approved)>) -> Checked {
    Checked {
        found,
        reason: (!found.is_whole()).then(|| "no answer".to_owned()),
        ms: 12,
        snapshot: snapshot.map(|(json, digit, approved)| NewSnapshot {
            json: json.to_owned(),
            hash: digit.to_string().repeat(64),
            approved,
        }),
        next_due: Some(at(3600)),
    }
}

fn names(all: &[ServiceRow]) -> Vec<(&str, State)> {
    all.iter().map(|s| (s.name.as_str(), s.state)).collect()
}

/// The contract: `open` opens the same registry each time.
fn holds(open: &dyn Fn() -> Box<dyn Registry>) {
    let mut r = open();
    assert!(r.services().unwrap().is_empty() && r.service("a").unwrap().is_none());

    // The configuration says which services there are.
    let off = Declared { enabled: false, ..declared("b") };
    let adopted = r.adopt(&[declared("a"), off.clone()], "config", at(0)).unwrap();
    assert_eq!(adopted, Adopted { added: vec!["a".into(), "b".into()], ..Adopted::default() });
    assert_eq!(names(&r.services().unwrap()), [("a", State::Pending), ("b", State::DisabledAdmin)]);
    assert_eq!(r.adopt(&[declared("a"), off], "config", at(1)).unwrap(), Adopted::default(), "nothing is new");
    assert_eq!(r.service("a").unwrap().unwrap().updated_at, at(0).to_string());

    // A check that has not ended is known; one that has, with what it saw.
    r.check_begins("a", at(2)).unwrap();
    assert_eq!(open().service("a").unwrap().unwrap().check_started_at, Some(at(2).to_string()));
    r.check_dropped("a", at(2)).unwrap();
    let a = r.service("a").unwrap().unwrap();
    assert_eq!((a.check_started_at, a.next_due_at, a.last_check_at), (None, Some(at(2).to_string()), None));
    r.check_begins("a", at(2)).unwrap();
    r.check_ends("a", &checked(Found::Identical, Some(("{}", 'a', Approved::ByUser))), at(3)).unwrap();
    assert!(r.turn("a", State::Enabled, None, "system", at(3)).unwrap());
    assert!(!r.turn("a", State::Enabled, None, "system", at(4)).unwrap(), "it stands so already");
    assert!(!r.turn("nobody", State::Enabled, None, "system", at(4)).unwrap());
    let a = r.service("a").unwrap().unwrap();
    assert!(a.enabled && a.check_started_at.is_none() && a.failures == 0);
    assert_eq!(
        (a.since, a.last_success_at, a.next_due_at),
        (at(3).to_string(), Some(at(3).to_string()), Some(at(3600).to_string()))
    );
    assert_eq!((a.approved.clone(), a.latest), (Some("a".repeat(64)), a.approved));

    // What could not be seen is counted, and changes nothing that was seen.
    for n in 0..2 {
        r.check_begins("a", at(10 + n)).unwrap();
        r.check_ends("a", &checked(Found::Unreachable, None), at(20 + n)).unwrap();
    }
    let a = r.service("a").unwrap().unwrap();
    assert_eq!((a.failures, a.last_error.as_deref(), a.state), (2, Some("no answer"), State::Enabled));
    assert_eq!((a.last_check_at, a.last_success_at), (Some(at(21).to_string()), Some(at(3).to_string())));

    // A repeated snapshot has the text of the first; one that differs is approved only as what was seen.
    r.check_ends("a", &checked(Found::Identical, Some(("{}", 'a', Approved::BySystem))), at(30)).unwrap();
    r.check_ends("a", &checked(Found::Changed, Some(("{\"b\":1}", 'b', Approved::Not))), at(31)).unwrap();
    assert!(r.turn("a", State::DisabledDrift, Some("1 change"), "system", at(31)).unwrap());
    let seen = r.snapshots("a", None, 10).unwrap();
    assert_eq!(
        seen.iter().map(|s| s.approved).collect::<Vec<_>>(),
        [Approved::Not, Approved::BySystem, Approved::ByUser]
    );
    let text = |n: usize| r.snapshot_json(seen[n].id).unwrap();
    assert_eq!((text(0).as_deref(), text(1), text(2).as_deref()), (Some("{\"b\":1}"), text(2), Some("{}")));
    assert_eq!((r.snapshots("a", None, 1).unwrap().len(), r.snapshots("b", None, 9).unwrap().len()), (1, 0));
    assert!(r.snapshot_json(9999).unwrap().is_none());
    assert!(!r.approve("a", &"a".repeat(64), "user:me", at(32)).unwrap(), "it is not the latest one");
    assert!(r.approve("a", &"b".repeat(64), "user:me", at(33)).unwrap());
    assert_eq!(r.snapshots("a", None, 1).unwrap()[0].approved, Approved::ByUser);
    assert_eq!(r.service("a").unwrap().unwrap().approved, Some("b".repeat(64)));
    r.due("a", None).unwrap();
    assert!(r.service("a").unwrap().unwrap().next_due_at.is_none());
    assert!(r.turn("a", State::Enabled, None, "user:me", at(34)).unwrap());

    // Another endpoint is another server; a service that is gone and comes back begins anew, and its snapshots stay.
    let moved = Declared { endpoint: "sha256:other".into(), ..declared("a") };
    assert_eq!(
        r.adopt(&[moved], "config", at(40)).unwrap(),
        Adopted { changed: vec!["a".into()], removed: vec!["b".into()], added: vec![] }
    );
    assert_eq!(names(&r.services().unwrap()), [("a", State::Pending)]);
    assert!(!r.turn("b", State::Enabled, None, "system", at(41)).unwrap(), "it is gone");
    r.adopt(&[], "config", at(42)).unwrap();
    assert_eq!(r.adopt(&[declared("a")], "config", at(43)).unwrap().added, ["a"]);
    assert_eq!(
        (names(&r.services().unwrap()), r.snapshots("a", None, 9).unwrap().len()),
        (vec![("a", State::Pending)], 3)
    );

    // All of it is there for who opens it next, and what was done is a chain.
    drop(r);
    let r = open();
    let done = r.audit(None, 100).unwrap();
    assert_eq!(r.check().unwrap(), done.len() as u64);
    assert_eq!(r.audit(Some(done[1].id), 2).unwrap(), done[2..4], "page by page");
    let actions: Vec<_> = done.iter().rev().map(|line| (line.actor.as_str(), line.action.as_str())).collect();
    let wanted = [
        ("config", "service_added"),
        ("config", "service_added"),
        ("system", "route_state"),
        ("system", "route_state"),
        ("user:me", "snapshot_approved"),
        ("user:me", "route_state"),
        ("config", "service_changed"),
        ("config", "service_removed"),
        ("config", "service_removed"),
        ("config", "service_added"),
    ];
    assert_eq!(actions, wanted);
    assert_eq!((done[0].details["name"].as_str(), r.audit(None, 1).unwrap().len()), (Some("a"), 1));
}

/// The same of what the API does.
fn holds_for_the_api(open: &dyn Fn() -> Box<dyn Registry>) {
    let mut r = open();
    let made = Declared { made: Some("{\"a\":1}".into()), ..declared("made") };
    r.adopt(&[made.clone(), declared("a")], "user:me", at(0)).unwrap();
    let row = |r: &dyn Registry, name: &str| r.service(name).unwrap().unwrap();
    let first = row(&*r, "made");
    assert_eq!((first.managed_by, first.made.as_deref(), first.version), (ManagedBy::Api, Some("{\"a\":1}"), 1));
    assert_eq!((row(&*r, "a").managed_by, row(&*r, "a").made), (ManagedBy::File, None));
    // What it is made of is a change, though nothing else is.
    let other = Declared { made: Some("{\"a\":2}".into()), ..made };
    assert_eq!(r.adopt(&[other, declared("a")], "user:me", at(1)).unwrap().changed, ["made"]);
    assert_eq!((row(&*r, "made").version, row(&*r, "made").state), (2, State::Pending));
    assert!(r.turn("made", State::Enabled, None, "system", at(2)).unwrap());
    assert_eq!(row(&*r, "made").version, 3, "how it stands is of it, too");
    // The configuration takes over what it names.
    r.adopt(&[declared("made"), declared("a")], "config", at(3)).unwrap();
    assert_eq!((row(&*r, "made").managed_by, row(&*r, "made").state), (ManagedBy::File, State::Enabled));

    let token = TokenRow { name: "ci".into(), role: "viewer".into(), digest: [7; 32], created_at: at(4).to_string() };
    assert!(r.add_token(&token, "user:me", at(4)).unwrap());
    assert!(
        !r.add_token(&TokenRow { digest: [8; 32], ..token.clone() }, "user:me", at(5)).unwrap(),
        "the name is taken"
    );
    r.note("user:me", "surface_blocked", &serde_json::json!({"name": "a"}), at(6)).unwrap();
    drop(r);
    let mut r = open();
    assert_eq!(r.tokens().unwrap(), [token]);
    assert!(r.remove_token("ci", "user:me", at(7)).unwrap() && !r.remove_token("ci", "user:me", at(8)).unwrap());
    assert!(r.tokens().unwrap().is_empty());
    let done: Vec<String> = r.audit(None, 3).unwrap().into_iter().map(|line| line.action).collect();
    assert_eq!(done, ["token_revoked", "surface_blocked", "token_created"]);
    assert_eq!(r.check().unwrap(), r.audit(None, 100).unwrap().len() as u64);
}

fn open(dir: &Path) -> SqliteRegistry {
    SqliteRegistry::open(dir).unwrap()
}

#[test]
fn sqlite_holds_the_contract() {
    let tmp = tempfile::tempdir().unwrap();
    holds(&|| Box::new(open(tmp.path())));
    let tmp = tempfile::tempdir().unwrap();
    holds_for_the_api(&|| Box::new(open(tmp.path())));
}

#[test]
fn one_of_the_first_version_is_brought_to_this_one_with_all_that_it_has() {
    let tmp = tempfile::tempdir().unwrap();
    let mut r = open(tmp.path());
    r.adopt(&[declared("a")], "config", at(0)).unwrap();
    r.0.write()
        .execute_batch(
            "DROP TABLE api_tokens; ALTER TABLE mcp_services DROP COLUMN version; PRAGMA user_version = 1;
             ALTER TABLE mcp_services DROP COLUMN config_json; ALTER TABLE mcp_services DROP COLUMN managed_by;",
        )
        .unwrap();
    drop(r);
    let r = open(tmp.path());
    let row = r.service("a").unwrap().unwrap();
    assert_eq!((row.managed_by, row.version, row.made), (ManagedBy::File, 1, None));
    assert!(r.tokens().unwrap().is_empty() && r.check().unwrap() == 1);
    assert!(tmp.path().join(format!("{DATABASE}.v1")).exists(), "a copy stays beside it");
}

#[test]
fn old_checks_and_snapshots_go_and_what_is_still_needed_stays() {
    let tmp = tempfile::tempdir().unwrap();
    let mut r = open(tmp.path());
    r.adopt(&[declared("a")], "config", at(0)).unwrap();
    r.check_ends("a", &checked(Found::Identical, Some(("{}", 'a', Approved::ByUser))), at(1)).unwrap();
    r.check_ends("a", &checked(Found::Changed, Some(("{\"b\":1}", 'b', Approved::Not))), at(2)).unwrap();
    // As many as are kept, at once.
    let db = r.0.write();
    db.execute_batch(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
         INSERT INTO mcp_snapshots (service_id, snapshot_json, snapshot_hash, approved_status, created_at)
         SELECT 1, i, printf('%064x', i), 'unapproved', '' FROM n;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1100)
         INSERT INTO checks (service_id, started_at, ms, outcome) SELECT 1, '', 1, 'unreachable' FROM n;",
    )
    .unwrap();
    r.check_ends("a", &checked(Found::Identical, Some(("{}", 'a', Approved::BySystem))), at(3)).unwrap();
    let count = |r: &SqliteRegistry, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        r.0.read().query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    // The first is what the last one repeats.
    assert_eq!((count(&r, "mcp_snapshots"), count(&r, "checks")), (1001, 1000));
    let newest = &r.snapshots("a", None, 1).unwrap()[0];
    assert_eq!(r.snapshot_json(newest.id).unwrap().as_deref(), Some("{}"));
}

#[test]
fn what_was_changed_behind_its_back_is_found() {
    let tmp = tempfile::tempdir().unwrap();
    let mut r = open(tmp.path());
    r.adopt(&[declared("a"), declared("b")], "config", at(0)).unwrap();
    assert_eq!(r.check().unwrap(), 2);
    r.0.write().execute("UPDATE audit_log SET actor = 'user:other' WHERE id = 1", []).unwrap();
    let e = r.check().unwrap_err();
    assert!(e.to_string().contains("line 1 of what was done"), "{e}");
    r.0.write().execute("UPDATE mcp_services SET state = 'open' WHERE name = 'a'", []).unwrap();
    assert!(matches!(r.services(), Err(DbError::Damaged { .. })));
}

#[test]
fn nobody_else_may_read_it_and_one_of_a_later_version_is_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let tmp = tempfile::tempdir().unwrap();
    let mut r = open(tmp.path());
    r.adopt(&[declared("a")], "config", at(0)).unwrap();
    let file = tmp.path().join(DATABASE);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    r.0.write().pragma_update(None, "user_version", 9).unwrap();
    drop(r);
    let before = std::fs::read(&file).unwrap();
    let e = SqliteRegistry::open(tmp.path()).unwrap_err();
    assert!(matches!(e, DbError::Newer { .. }), "{e}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}
