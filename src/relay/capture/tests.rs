use super::*;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::Path;

const SESSION: &str = "0123456789abcdef";

fn capture(dir: &Path, capacity: usize) -> (Producer, Consumer, Placement) {
    let dirs = [dir.join("ring")];
    Capture::create(&dirs, SESSION, Direction::ServerToClient, capacity, &Arc::new(Waker::new())).unwrap()
}

fn put(producer: &mut Producer, bytes: &[u8], ns: u64) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = producer.reserve();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        producer.commit(n, ns);
        producer.wrote(n, ns + 1);
        rest = &rest[n..];
    }
}

#[test]
fn what_is_committed_is_available_and_stays_until_released() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, placement) = capture(dir.path(), 4096);
    let path = placement.path.unwrap();
    assert_eq!(path, dir.path().join("ring").join("0123456789abcdef.s2c.ring"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    producer.reserve()[..5].copy_from_slice(b"hello");
    assert_eq!(consumer.available(), b"");
    producer.commit(5, 10);
    assert_eq!(consumer.available(), b"hello");
    assert_eq!(producer.pending(), b"hello");
    assert_eq!((consumer.tail(), consumer.head(), consumer.written()), (0, 5, 0));
    producer.wrote(2, 20);
    assert_eq!(producer.pending(), b"llo");
    assert_eq!(consumer.written(), 2);
    consumer.advance(5);
    assert_eq!((consumer.tail(), consumer.available()), (5, &b""[..]));
    assert!(!consumer.is_closed());
    drop(producer);
    assert!(consumer.is_closed());
    consumer.remove().unwrap();
    consumer.remove().unwrap();
    assert!(!path.exists());
}

#[test]
fn marks_tell_when_each_byte_was_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, _) = capture(dir.path(), 4096);
    assert_eq!(consumer.read_mark(0), None);
    put(&mut producer, b"abc", 100);
    put(&mut producer, b"de", 200);
    producer.reserve()[0] = b'f';
    producer.commit(1, 300);
    let read: Vec<_> = (0..7).map(|at| consumer.read_mark(at)).collect();
    assert_eq!(read, [Some(100), Some(100), Some(100), Some(200), Some(200), Some(300), None]);
    let written: Vec<_> = (0..6).map(|at| consumer.write_mark(at)).collect();
    assert_eq!(written, [Some(101), Some(101), Some(101), Some(201), Some(201), None]);
    consumer.advance(4);
    assert_eq!((consumer.read_mark(1), consumer.write_mark(4)), (Some(100), Some(201)), "marks outlive a release");
}

#[test]
fn lost_marks_answer_with_an_upper_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, _) = capture(dir.path(), 4096);
    let count = layout::MARKS * 2 + 5;
    for i in 0..count {
        put(&mut producer, b"x", i * 10);
        consumer.advance(1);
    }
    let oldest = count - layout::MARKS + 1;
    assert_eq!(consumer.read_mark(0), Some(oldest * 10));
    assert_eq!(consumer.read_mark(oldest + 7), Some((oldest + 7) * 10));
    let late = [0, oldest - 1, oldest + 1, count].map(|at| consumer.is_read_mark_late(at));
    assert_eq!(late, [true, true, false, false]);
    assert_eq!(consumer.write_mark(count - 1), Some((count - 1) * 10 + 1));
    assert_eq!(consumer.read_mark(count), None);
}

#[test]
fn a_mark_found_while_new_ones_are_made_is_never_from_another_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, _) = capture(dir.path(), 4096);
    let count = layout::MARKS * 6;
    let relay = std::thread::spawn(move || {
        for i in 0..count {
            put(&mut producer, b"x", i * 10);
        }
    });
    while consumer.head() < count {
        let at = consumer.tail();
        let n = consumer.available().len();
        if n > 0 {
            let mark = consumer.read_mark(at).unwrap();
            assert_eq!(mark, at * 10);
            consumer.advance(n);
        }
    }
    relay.join().unwrap();
}

#[test]
fn a_stuck_recorder_is_bypassed_and_every_byte_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, _) = capture(dir.path(), 4096);
    producer.set_stall_bound(Duration::from_millis(1));
    put(&mut producer, &[1; 4096], 1);
    assert!(consumer.is_full());
    put(&mut producer, &[2; 100], 50);
    put(&mut producer, &[2; 23], 60);
    assert!(producer.is_bypassing());
    assert_eq!(consumer.gap_bytes(), 123);
    assert_eq!(consumer.gaps(), [CaptureGap { offset: 4096, bytes: 123, first_ns: 50, last_ns: 60 }]);
    assert_eq!(consumer.head(), 4096, "uncaptured bytes have no offset");
    assert_eq!(producer.pending(), b"");
    consumer.advance(4096);
    put(&mut producer, &[3; 10], 70);
    assert!(!producer.is_bypassing());
    assert_eq!((consumer.available(), consumer.tail(), consumer.head()), (&[3; 10][..], 4096, 4106));
    assert_eq!(consumer.read_mark(4096), Some(70));
}

#[test]
fn more_gaps_than_slots_are_merged_and_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, _) = capture(dir.path(), 4096);
    producer.set_stall_bound(Duration::ZERO);
    for i in 0..100u64 {
        put(&mut producer, &[1; 4096], i * 10);
        put(&mut producer, &[2; 7], i * 10 + 5);
        consumer.advance(4096);
    }
    let gaps = consumer.gaps();
    assert_eq!(gaps.len(), layout::GAPS);
    assert_eq!(gaps[0], CaptureGap { offset: 4096, bytes: 7, first_ns: 5, last_ns: 5 });
    let last = gaps[layout::GAPS - 1];
    assert_eq!(last, CaptureGap { offset: 64 * 4096, bytes: 37 * 7, first_ns: 635, last_ns: 995 });
    assert_eq!(consumer.gap_bytes(), 700);
}

#[test]
fn held_bytes_are_never_overtaken_by_a_bypass() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, _consumer, _) = capture(dir.path(), 4096);
    producer.set_stall_bound(Duration::ZERO);
    let n = producer.reserve().len();
    producer.commit(n, 1);
    assert!(producer.reserve().is_empty());
    producer.wrote(96, 2);
    assert!(producer.reserve().is_empty(), "the recorder has not released it");
    producer.discard(4000);
    assert_eq!(producer.reserve().len(), 64 * 1024, "nothing held: bypass");
}

#[test]
fn a_ring_of_the_dead_that_is_swept_for_a_moment_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (_producer, _consumer, placement) = capture(dir.path(), 4096);
    let copy = dir.path().join("copy");
    std::fs::copy(placement.path.unwrap(), &copy).unwrap();
    let file = std::fs::File::options().write(true).open(&copy).unwrap();
    // No process has such a number.
    file.write_all_at(&u64::from(u32::MAX >> 1).to_le_bytes(), 8 * layout::a::OWNER as u64).unwrap();
    assert_eq!(crate::files::try_lock(&file).unwrap(), crate::files::Lock::Taken);
    assert_eq!(Consumer::open_within(&copy, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let waiting = std::thread::spawn({
        let copy = copy.clone();
        move || Consumer::open_within(&copy, Duration::MAX).map(|_| ())
    });
    std::thread::sleep(Duration::from_millis(20));
    drop(file);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_ring_left_behind_tells_everything() {
    let dir = tempfile::tempdir().unwrap();
    let (mut producer, mut consumer, placement) = capture(dir.path(), 4096);
    let path = placement.path.unwrap();
    put(&mut producer, &[7; 4000], 5);
    consumer.advance(4000);
    put(&mut producer, b"left behind", 6);
    consumer.set_spool_start(Some(3999));
    consumer.set_wall_offset(-12);
    consumer.set_note(3, 99);
    consumer.set_note(NOTES, 1);
    assert_eq!(Consumer::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let mut left = Consumer::open(&copy).unwrap();
    assert_eq!((left.session(), left.direction()), (SESSION, Direction::ServerToClient));
    assert_eq!(left.owner().0, std::process::id());
    assert_eq!((left.tail(), left.available()), (4000, &b"left behind"[..]));
    assert_eq!((left.read_mark(4000), left.write_mark(4010)), (Some(6), Some(7)));
    assert_eq!((left.spool_start(), left.wall_offset(), left.note(3)), (Some(3999), -12, 99));
    assert_eq!((left.note(NOTES), left.is_closed()), (0, false));
    left.set_spool_start(None);
    left.advance(5);
    drop(left);
    let left = Consumer::open(&copy).unwrap();
    assert_eq!((left.available(), left.spool_start()), (&b"behind"[..], None));
    drop((producer, consumer));
    assert!(Consumer::open(&path).unwrap().is_closed());
}

#[test]
fn decisions_and_logs_of_a_version_that_had_none_or_others_are_refused_and_streams_are_not() {
    let tmp = tempfile::tempdir().unwrap();
    let waker = Arc::new(Waker::new());
    let dirs = [tmp.path().join("ring")];
    for (direction, versions) in
        [(Direction::ServerToClient, 1..=VERSION), (Direction::Decisions, 3..=VERSION), (Direction::Log, 6..=VERSION)]
    {
        let made = Capture::create(&dirs, SESSION, direction, 4096, &waker).unwrap();
        let path = made.2.path.unwrap();
        drop((made.0, made.1));
        for version in 0..=VERSION + 1 {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &version.to_le_bytes(), 8).unwrap();
            assert_eq!(Consumer::open(&path).is_ok(), versions.contains(&version), "{direction:?} {version}");
        }
    }
}

#[test]
fn a_directory_that_is_not_ours_alone_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let open = dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let link = dir.path().join("link");
    let good = dir.path().join("good");
    std::fs::create_dir(&good).unwrap();
    std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&good, &link).unwrap();
    let dirs = [open.clone(), file, link, dir.path().join("no/parent"), good.clone()];
    let waker = Arc::new(Waker::new());
    let make = || Capture::create(&dirs, SESSION, Direction::ClientToServer, 4096, &waker);
    let (_p, _c, placement) = make().unwrap();
    assert_eq!(placement.path, Some(good.join("0123456789abcdef.c2s.ring")));
    assert_eq!(placement.refused.len(), 4);
    assert_eq!(placement.refused[0].0, open);
    // The name is taken now, and nothing is overwritten: an anonymous ring takes over.
    let (mut p, c, placement) = make().unwrap();
    assert_eq!((placement.path, placement.refused.len()), (None, 5));
    put(&mut p, b"works", 1);
    assert_eq!(c.available(), b"works");
    assert_eq!(c.path(), None);
    c.remove().unwrap();
}

#[test]
fn arguments_out_of_range_are_refused_and_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = [dir.path().join("ring")];
    let waker = Arc::new(Waker::new());
    for (session, capacity) in [
        ("", 4096),
        ("0123456789ABCDEF", 4096),
        ("../../../../../x", 4096),
        (SESSION, 4095),
        (SESSION, 2048),
        (SESSION, 2 << 30),
    ] {
        let made = Capture::create(&dirs, session, Direction::ServerStderr, capacity, &waker);
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{session:?} {capacity}");
    }
    assert_eq!(std::fs::read_dir(&dirs[0]).map_or(0, Iterator::count), 0);
}

#[test]
fn ring_dirs_end_with_the_fallback() {
    let dirs = ring_dirs(Path::new("/some/where"));
    assert_eq!(dirs.last().unwrap(), Path::new("/some/where"));
    assert!(dirs.iter().all(|dir| dir.is_absolute()));
}

#[test]
fn what_was_known_of_a_log_that_is_gone_is_swept_and_nothing_else_is() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("ring");
    let (_producer, _consumer, placement) = capture(tmp.path(), 4096);
    let ring = placement.path.unwrap();
    std::fs::rename(&ring, ring.with_file_name(format!("{SESSION}.log.ring"))).unwrap();
    let gone = "fedcba9876543210";
    let kept = [
        // Its log is there.
        format!("{SESSION}.log.state"),
        format!("{SESSION}.log.state.new"),
        // A later version keeps its log under another extension.
        "1111111111111111.log.state".to_owned(),
        "1111111111111111.log.later".to_owned(),
        // They are nobody's.
        "x.log.state".to_owned(),
        "3333333333333333.state".to_owned(),
        "new".to_owned(),
    ];
    let swept = [format!("{gone}.log.state"), "2222222222222222.log.state.new".to_owned(), format!("{gone}.place")];
    for name in kept.iter().chain(&swept) {
        std::fs::write(dir.join(name), "").unwrap();
    }
    sweep(std::slice::from_ref(&dir));
    let is_there = |name: &String| dir.join(name).exists();
    assert_eq!(kept.iter().filter(|name| !is_there(name)).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(swept.iter().filter(|name| is_there(name)).collect::<Vec<_>>(), [""; 0]);
}
