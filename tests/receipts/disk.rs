//! Disks that are full, cannot be written, or are gone: every call is answered, and what is missing is said.

use super::*;
use rustix::process::{Pid, Resource, Rlimit};
use std::os::unix::fs::{PermissionsExt as _, chown};

/// A disk that can be full.
enum Disk {
    /// A limit on file sizes stands in for it: it needs no privileges, and cuts a write in the middle as a full disk does.
    Limited,
    /// A small file system of its own, unmounted on drop.
    Small(PathBuf),
}

impl Disk {
    /// A real one, below the place's evidence; nothing if we may not mount, which only root may.
    fn small(place: &Place) -> Option<Self> {
        let dir = place.audit();
        fs::create_dir(&dir).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "assay-test"]).arg(&dir).stderr(Stdio::null());
        let is_mounted = mount.status().unwrap().success();
        assert!(is_mounted || !rustix::process::geteuid().is_root(), "root cannot mount");
        is_mounted.then_some(Self::Small(dir))
    }

    fn limit(client: &Client, bytes: Option<u64>) {
        let pid = Pid::from_child(&client.server);
        rustix::process::prlimit(Some(pid), Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    }

    /// Only a hundred bytes more fit, or nothing.
    fn fill(&self, place: &Place, client: &Client) {
        match self {
            Self::Limited => {
                let files = fs::read_dir(place.audit().join("receipts")).unwrap();
                let longest = files.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap();
                Self::limit(client, Some(longest + 100));
            }
            Self::Small(dir) => {
                let mut file = fs::File::create(dir.join("filler")).unwrap();
                while file.write_all(&[b'.'; 1024]).is_ok() {}
            }
        }
    }

    fn free(&self, client: &Client) {
        match self {
            Self::Limited => Self::limit(client, None),
            Self::Small(dir) => fs::remove_file(dir.join("filler")).unwrap(),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Self::Small(dir) = self {
            let _ = Command::new("umount").arg("-l").arg(dir).status();
        }
    }
}

impl Place {
    fn audit(&self) -> PathBuf {
        self.0.path().join("audit")
    }
}

impl Client {
    fn echo(&mut self, text: &str) -> Answer {
        self.call("echo", json!({"text": text}))
    }

    fn health(&mut self) -> String {
        let answer = self.call("health", json!({}));
        answer.value["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", answer.wire)).to_owned()
    }

    /// Makes this call until it runs.
    fn await_answer(&mut self, text: &str) {
        until(text, || self.echo(text).is_result.then_some(()));
    }
}

/// On each kind of disk that there is here.
fn on_disks(story: impl Fn(&Place, &Disk)) {
    let place = Place::new();
    story(&place, &Disk::Limited);
    let place = Place::new();
    if let Some(disk) = Disk::small(&place) {
        story(&place, &disk);
    }
}

#[test]
fn what_a_short_outage_of_the_disk_held_back_is_recorded_afterwards() {
    on_disks(|place, disk| {
        let mut client = Client::new(place, LEGACY, &[]);
        client.echo("before");
        disk.fill(place, &client);
        for n in 0..20 {
            assert!(client.echo(&n.to_string()).is_result);
        }
        let health = client.health();
        assert!(health.contains("disk_error: Some") && health.contains("lost: 0"), "{health}");
        disk.free(&client);
        client.echo("after");
        place.await_on_disk("\"after\"");
        client.close();
        assert_eq!(of(&place.receipts(), "executed").len(), 23);
    });
}

#[test]
fn what_a_long_outage_of_the_disk_cost_is_a_gap() {
    on_disks(|place, disk| {
        let mut client = Client::new(place, LEGACY, &["--store"]);
        client.echo("before");
        disk.fill(place, &client);
        // More than is kept in memory.
        let much = "x".repeat(900_000);
        for _ in 0..8 {
            assert!(client.echo(&much).is_result);
        }
        let health = client.health();
        assert!(health.contains("disk_error: Some") && !health.contains("lost: 0"), "{health}");
        if let Disk::Small(dir) = disk {
            // What waits needs room.
            let run = Command::new("mount").args(["-o", "remount,size=64m"]).arg(dir).status();
            assert!(run.unwrap().success());
        }
        disk.free(&client);
        // A call finds no room as long as what waits is not written.
        until("after", || {
            client.echo("after");
            contains(&place.audit(), b"\"after\"").then_some(())
        });
        client.close();
        let (report, all) = place.pack();
        assert_eq!(report.completeness, Completeness::Incomplete);
        assert!(all.iter().any(|receipt| receipt["type"] == "mcp.recorder_gap"));
    });
}

#[test]
fn a_server_that_requires_evidence_refuses_calls_while_the_disk_is_full() {
    on_disks(|place, disk| {
        let mut client = Client::new(place, LEGACY, &["--require-evidence"]);
        assert!(client.echo("before").is_result);
        disk.fill(place, &client);
        // A file system may still have room at the end of a page.
        until("a refusal", || (!client.echo("full").is_result).then_some(()));
        for _ in 0..3 {
            let refused = client.echo("full");
            assert_eq!(refused.value["code"], -32001, "{}", refused.wire);
            assert_eq!(refused.value["data"]["rule"], "recorder_unavailable", "{}", refused.wire);
        }
        disk.free(&client);
        client.await_answer("after");
        client.close();
        let all = place.receipts();
        assert!(of(&all, "denied").len() >= 3);
        assert!(of(&all, "denied").iter().all(|receipt| receipt["policy_reason"] == "recorder_unavailable"));
        assert!(of(&all, "executed").len() >= 2);
    });
}

#[test]
fn a_directory_that_cannot_be_written_costs_the_evidence_and_no_call() {
    const NOBODY: u32 = 65534;
    for flags in [&[][..], &["--require-evidence"]] {
        let place = Place::new();
        fs::create_dir(place.audit()).unwrap();
        fs::create_dir(place.0.path().join("home")).unwrap();
        // Root may write everywhere.
        let starter: &[&str] = match rustix::process::geteuid().is_root() {
            true => &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
            false => &[],
        };
        if !starter.is_empty() {
            for dir in ["", "home", "audit"] {
                chown(place.0.path().join(dir), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let may_write = |yes: bool| {
            let mode = if yes { 0o700 } else { 0o500 };
            fs::set_permissions(place.audit(), fs::Permissions::from_mode(mode)).unwrap();
        };
        may_write(false);
        let mut client = Client::of(place.server_by(starter, flags), LEGACY);
        let answer = client.echo("read-only");
        assert_eq!(answer.is_result, flags.is_empty(), "{}", answer.wire);
        if flags.is_empty() {
            let health = client.health();
            assert!(health.contains("disk_error: Some"), "{health}");
        }
        may_write(true);
        client.await_answer("writable");
        place.await_on_disk("\"writable\"");
        let said = client.close();
        assert!(said.contains("cannot be used"), "{said}");
        assert!(!of(&place.receipts(), "executed").is_empty());
    }
}

#[test]
fn a_recording_whose_files_were_taken_away_is_followed_by_one_that_says_so() {
    let removed = |place: &Place, _: &Path| fs::remove_dir_all(place.audit()).unwrap();
    let cut = |_: &Place, segment: &Path| fs::File::options().write(true).open(segment).unwrap().set_len(10).unwrap();
    let replaced = |place: &Place, segment: &Path| {
        let copy = place.0.path().join("copy");
        fs::copy(segment, &copy).unwrap();
        fs::rename(copy, segment).unwrap();
    };
    for meddle in [&removed as &dyn Fn(&Place, &Path), &cut, &replaced] {
        let place = Place::new();
        let mut client = Client::new(&place, LEGACY, &["--store"]);
        client.echo("before");
        place.await_on_disk("\"before\"");
        let files = fs::read_dir(place.audit().join("audit")).unwrap().map(|entry| entry.unwrap().path());
        let is_segment = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("segment_");
        let segments: Vec<_> = files.filter(is_segment).collect();
        let [segment] = &segments[..] else { panic!("{segments:?}") };
        meddle(&place, segment);
        until("another recording", || {
            assert!(client.echo("meanwhile").is_result);
            contains(&place.audit(), b"evidence_damaged").then_some(())
        });
        client.echo("after");
        let said = client.close();
        assert!(said.contains("another recording is begun"), "{said}");
        let (report, all) = place.pack();
        assert_eq!(report.completeness, Completeness::Incomplete);
        assert!(all.iter().any(|r| r["type"] == "mcp.recorder_gap" && r["reason"] == "evidence_damaged"), "{all:?}");
        assert_eq!(of(&all, "requested").len(), of(&all, "executed").len());
        assert!(of(&all, "executed").iter().any(|r| r["result_content"].to_string().contains("after")));
    }
}
