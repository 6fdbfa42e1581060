use super::*;
use assay_support::sessions::{self, Plan};
use std::os::unix::fs::PermissionsExt as _;

struct Fixture {
    tmp: tempfile::TempDir,
    home: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let home = tmp.path().join("home");
        Self { tmp, home }
    }

    fn session(&self, audit: &str, seed: u64, calls: u64) -> (AuditDir, SessionPaths) {
        let dir = AuditDir::at(self.tmp.path().join(audit));
        let plan = Plan { seed, calls, error_every: 4, ..Plan::default() };
        let segment = sessions::write(&plan, dir.root()).unwrap().paths.segment;
        let paths = dir.session_of_segment(segment.file_name().unwrap().to_str().unwrap()).unwrap();
        (dir, paths)
    }

    fn noted(&self, audit: &str, seed: u64, calls: u64) {
        let (dir, paths) = self.session(audit, seed, calls);
        note(&self.home, &dir, &paths).unwrap();
    }

    fn open(&self) -> History {
        History::open(&self.home, PATIENCE).unwrap()
    }
}

/// All that a history says.
fn said(
    h: &History,
) -> (Vec<SessionRow>, Vec<crate::pack::analysis::AnalysisRow>, Vec<crate::pack::analysis::AnalysisRow>) {
    let a = h.analysis().unwrap();
    (h.sessions().unwrap(), a.by_tool(), a.by_day())
}

#[test]
fn a_rebuilt_history_is_the_one_that_grew() {
    let f = Fixture::new();
    for (audit, seed) in [("one", 1), ("two", 2), ("one", 3)] {
        f.noted(audit, seed, 20 + seed);
    }
    let grown = said(&f.open());
    assert_eq!(grown.0.len(), 3);
    assert!(grown.0.iter().all(|s| s.complete && s.end_reason == "client_closed"), "{:?}", grown.0);
    assert_eq!(grown.1.iter().map(|r| r.calls).sum::<u64>(), 66);
    let (rebuilt, refreshed) = rebuild(&f.home).unwrap();
    assert_eq!((refreshed.directories, refreshed.indexed, refreshed.problems.len()), (2, 3, 0));
    assert_eq!(said(&rebuilt), grown);
    let mut again = f.open();
    assert_eq!(refresh(&mut again, &f.home).unwrap().indexed, 0);
}

#[test]
fn the_history_is_for_its_user_alone() {
    let f = Fixture::new();
    f.noted("one", 1, 3);
    for name in [DATABASE, DIRECTORIES, LOCK] {
        assert_eq!(f.home.join(name).metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn what_was_not_noted_is_found_and_what_is_gone_is_dropped() {
    let f = Fixture::new();
    f.noted("one", 1, 5);
    let (_, paths) = f.session("one", 2, 7);
    let mut h = f.open();
    assert_eq!(refresh(&mut h, &f.home).unwrap().indexed, 1);
    assert_eq!(h.analysis().unwrap().total().calls, 12);
    let mut journal = std::fs::OpenOptions::new().append(true).open(&paths.receipts).unwrap();
    journal.write_all(b"{\"torn").unwrap();
    assert_eq!(refresh(&mut h, &f.home).unwrap().indexed, 1);
    assert_eq!(h.analysis().unwrap().total().calls, 12);
    std::fs::remove_file(&paths.receipts).unwrap();
    assert_eq!(refresh(&mut h, &f.home).unwrap().dropped, 1);
    assert_eq!(h.analysis().unwrap().total().calls, 5);
    std::fs::rename(f.tmp.path().join("one"), f.tmp.path().join("unmounted")).unwrap();
    let refreshed = refresh(&mut h, &f.home).unwrap();
    assert_eq!((refreshed.dropped, refreshed.problems.len()), (0, 1));
    assert_eq!(h.analysis().unwrap().total().calls, 5);
}

#[test]
fn a_damaged_history_is_said_and_made_anew() {
    for damage in [0usize, 100, 4096] {
        let f = Fixture::new();
        f.noted("one", 1, 20);
        let before = said(&f.open());
        let path = f.home.join(DATABASE);
        let mut bytes = std::fs::read(&path).unwrap();
        let end = (damage + 2000).min(bytes.len());
        bytes[damage..end].fill(0xa5);
        std::fs::write(&path, bytes).unwrap();
        let opened = History::open(&f.home, PATIENCE).and_then(|h| h.check());
        assert!(matches!(opened, Err(HistoryError::Db(DbError::Damaged { .. }))), "{damage}: {opened:?}");
        let (rebuilt, _) = rebuild(&f.home).unwrap();
        rebuilt.check().unwrap();
        assert_eq!(said(&rebuilt), before, "{damage}");
    }
}

#[test]
fn a_newer_or_foreign_database_is_left_alone() {
    for (change, newer) in [
        ("PRAGMA user_version = 3", Some("3")),
        ("PRAGMA user_version = 65538; CREATE TABLE more (x)", Some("2.1")),
        ("PRAGMA user_version = 99", Some("99")),
        ("PRAGMA user_version = 2147483647", Some("65535.32767")),
        ("PRAGMA application_id = 7", None),
    ] {
        let f = Fixture::new();
        f.noted("one", 1, 2);
        let path = f.home.join(DATABASE);
        rusqlite::Connection::open(&path).unwrap().execute_batch(change).unwrap();
        let before = std::fs::read(&path).unwrap();
        for refused in [History::open(&f.home, PATIENCE).err(), rebuild(&f.home).err()] {
            match refused {
                Some(HistoryError::Db(DbError::Newer { source, .. })) => assert_eq!(Some(&*source.found), newer),
                Some(HistoryError::Db(DbError::Foreign { .. })) => assert_eq!(newer, None),
                other => panic!("{change}: {other:?}"),
            }
        }
        let (dir, paths) = f.session("one", 2, 2);
        assert!(note(&f.home, &dir, &paths).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn sessions_that_end_together_are_all_noted() {
    let f = Fixture::new();
    let all: Vec<_> = (0..12).map(|seed| f.session(&format!("audit{}", seed % 3), seed, 10)).collect();
    std::thread::scope(|scope| {
        let noting: Vec<_> = all.iter().map(|(dir, paths)| scope.spawn(|| note(&f.home, dir, paths))).collect();
        for thread in noting {
            thread.join().unwrap().unwrap();
        }
    });
    let h = f.open();
    assert_eq!((h.sessions().unwrap().len(), h.analysis().unwrap().total().calls), (12, 120));
    assert_eq!(directories(&f.home).unwrap().len(), 3);
}

#[test]
fn whoever_is_kept_waiting_gives_up() {
    let f = Fixture::new();
    f.noted("one", 1, 2);
    let open = f.open();
    assert!(matches!(store::wipe(&f.home, Duration::ZERO), Err(HistoryError::Db(DbError::Busy { .. }))));
    drop(open);
    let path = f.home.join(DATABASE);
    let writer = rusqlite::Connection::open(&path).unwrap();
    writer.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert!(matches!(History::open(&f.home, Duration::ZERO), Err(HistoryError::Db(DbError::Busy { .. }))));
}

#[test]
fn a_session_is_noted_once_however_often() {
    let f = Fixture::new();
    let (dir, paths) = f.session("one", 1, 6);
    for _ in 0..3 {
        note(&f.home, &dir, &paths).unwrap();
    }
    let h = f.open();
    assert_eq!((h.sessions().unwrap().len(), h.analysis().unwrap().total().calls), (1, 6));
    let row = &h.sessions().unwrap()[0];
    assert_eq!(row.pack.file_name(), paths.pack.file_name());
}

#[test]
fn sessions_of_servers_that_record_themselves_have_a_coverage_together() {
    use crate::model::InvocationId;
    let f = Fixture::new();
    f.noted("one", 1, 3);
    assert_eq!(f.open().coverage().unwrap(), None);
    for (seed, outcomes) in [(2, 1), (3, 2)] {
        let (dir, paths) = f.session("two", seed, 1);
        let mut summary = summarize(&paths).unwrap();
        for n in 0..3 {
            summary.accounts.asked(InvocationId::from_bits(n));
        }
        for n in 0..outcomes {
            summary.accounts.settled(Some(InvocationId::from_bits(n)), n == 1);
        }
        let root = register(&f.home, dir.root()).unwrap();
        f.open().put(&root, &paths, &summary).unwrap();
    }
    let covered = f.open().coverage().unwrap().unwrap();
    assert_eq!(covered.to_string(), "3 of 6 (50.0 %), 3 open");
}

#[test]
fn a_history_without_coverage_is_read_again() {
    let f = Fixture::new();
    f.noted("one", 1, 20);
    let grown = said(&f.open());
    let db = rusqlite::Connection::open(f.home.join(DATABASE)).unwrap();
    for column in ["requested", "executed", "refused", "stray"] {
        db.execute_batch(&format!("ALTER TABLE sessions DROP COLUMN {column}")).unwrap();
    }
    db.pragma_update(None, "user_version", 1).unwrap();
    drop(db);
    let mut again = f.open();
    assert_eq!(said(&again), grown);
    assert_eq!(refresh(&mut again, &f.home).unwrap().indexed, 1);
    assert_eq!(said(&again), grown);
    assert_eq!(refresh(&mut again, &f.home).unwrap().indexed, 0);
}
