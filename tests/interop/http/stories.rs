//! The Python SDK's stories over HTTP: pairs of a client and a server that check themselves, OAuth among them.

use super::{Profile, bridge};
use crate::{
    install,
    suites::{Outcomes, no_pack_is_tampered, outcomes, sdist, with_outcome},
};
use serde_json::json;
use std::path::Path;

fn run(way: &str, profile: Profile, flags: &[&str], temp: &Path) -> Outcomes {
    let dir = temp.join(format!("{way}{}", flags.concat()));
    let mut proxy = bridge(profile, "", &dir);
    // Each story has a URL of its own.
    proxy.pop();
    if way == "listener" && profile == Profile::Guard {
        // What a guard does not read passes only where it is told so.
        let oauth = ["--pass-path", "/token", "--pass-path", "/register"].map(str::to_owned);
        proxy.splice(2..2, oauth);
    }
    // All stories share an audit directory: for it they are one server, which changes with each of them.
    proxy.iter_mut().filter(|word| *word == "report").for_each(|word| "off".clone_into(word));
    let out = dir.join("outcomes.json");
    let mut stories = install::python("stories_http.py");
    stories.arg(sdist().join("examples")).arg(&out).args([way, &json!(proxy).to_string()]).args(flags);
    stories.current_dir(temp);
    let found = outcomes(stories, &dir, &out);
    no_pack_is_tampered(&dir.join("audit"), &dir);
    found
}

/// All stories of this way pass: so many, and of those that speak in either era, so many in the older one.
fn all_pass(way: &str, profile: Profile, stories: usize, in_either_era: usize) {
    let _shared = install::MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let temp = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for (flags, expected) in [(&[][..], stories), (&["--legacy"], in_either_era)] {
            let temp = temp.path();
            scope.spawn(move || {
                let found = run(way, profile, flags, temp);
                assert_eq!(with_outcome(&found, "passed").len(), expected, "{flags:?}: {found:#?}");
                assert_eq!(found.len(), expected, "{flags:?}: {found:#?}");
            });
        }
    });
}

#[test]
fn the_python_sdks_stories_pass_through_the_listener() {
    for profile in Profile::ALL {
        all_pass("listener", profile, 32, 18);
    }
}

#[test]
fn the_python_sdks_stories_pass_over_the_bridge() {
    for profile in Profile::ALL {
        all_pass("bridge", profile, 27, 14);
    }
}
