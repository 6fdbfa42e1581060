//! Commands that people type and that are called otherwise here.

/// Words for a command, and what to type.
const MEANT: &[(&[&str], &str)] = &[
    (
        &["record", "rec", "proxy", "start", "exec", "serve", "mcp"],
        "a server is recorded with: assay mcp-proxy -- COMMAND; assay wrap puts that into the files of your clients",
    ),
    (
        &["install", "setup", "init", "add", "enable", "configure"],
        "assay wrap puts the recorder in front of your servers; assay policy init makes a policy",
    ),
    (&["uninstall", "remove", "disable"], "assay unwrap takes the recorder away; assay keys delete removes a key"),
    (
        &["list", "sessions", "session", "history", "recordings", "log", "logs"],
        "assay packs lists what was recorded; assay watch shows what is being recorded",
    ),
    (
        &["status", "ps", "live", "top", "tail"],
        "assay watch shows live sessions; assay scan says which servers are recorded",
    ),
    (&["tui", "ui", "gui", "dashboard", "monitor"], "assay, or assay watch, opens the dashboard"),
    (&["servers", "clients", "detect", "doctor"], "assay scan shows which servers of your clients are recorded"),
    (
        &["show", "view", "inspect", "cat", "read", "report"],
        "assay open PACK shows a pack, assay explain PACK says what is in it",
    ),
    (
        &["check", "validate", "audit"],
        "assay verify-pack PACK verifies a pack; assay policy check FILE checks a policy",
    ),
    (&["stats", "stat", "summary", "count", "metrics"], "assay analyze counts calls, errors and times"),
    (&["ci", "test"], "assay run -- COMMAND runs a command and verifies what was recorded meanwhile"),
    (&["compare"], "assay diff A B compares two packs"),
    (
        &["dump", "convert", "html", "csv", "har", "otlp", "print"],
        "assay export PACK --format FORMAT writes a session as html, json, csv, har or otlp",
    ),
    (
        &["mock", "stub", "play", "playback", "rerun", "resend"],
        "assay replay PACK answers a client from a recording; with --against it sends the calls to a server again",
    ),
    (&["repair", "fix", "resume"], "assay recover finishes sessions whose recorder died"),
    (
        &["key", "keygen", "sign"],
        "assay keys lists, makes, imports and exports keys; packs are signed when a session ends",
    ),
    (&["settings", "options", "env"], "assay config shows the options that files set"),
    (&["completion"], "assay completions SHELL"),
    (&["approve", "pin", "lock", "snapshot"], "assay surface approves, locks and shows what a server offers"),
    (&["version"], "assay --version"),
];

/// What to type in place of a command that there is not.
pub(super) fn instead(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    MEANT.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, instead)| *instead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn no_word_is_a_command_and_every_hint_names_commands_that_there_are() {
        let cli = Cli::command();
        for (words, hint) in MEANT {
            for word in *words {
                assert!(cli.find_subcommand(word).is_none(), "{word} is a command");
                assert_eq!(instead(&word.to_uppercase()), Some(*hint), "{word} stands twice");
            }
            let named = hint.split("assay ").skip(1).map(|rest| rest.split([' ', ',', ';']).next().unwrap());
            for name in
                named.filter(|name| !name.starts_with("--") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
            {
                assert!(cli.find_subcommand(name).is_some(), "{name}: {hint}");
            }
        }
        assert_eq!(instead("verifypack"), None);
    }
}
