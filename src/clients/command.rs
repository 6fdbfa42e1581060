//! Command lines that lead through the proxy: `assay mcp-proxy FLAGS -- COMMAND`.

use std::path::Path;

/// The subcommand behind the program.
pub const SUBCOMMAND: &str = "mcp-proxy";
/// The option that marks what `assay wrap` wrote, with its `=`.
pub const MARK: &str = "--wrapped=";
/// The option with the URL of a server.
pub const UPSTREAM: &str = "--upstream-url";

/// Headers that the proxy makes itself, and so takes from nobody: those of a connection and of the framing, and `Host`.
const OF_CONNECTION: [&str; 9] = [
    "assay-token",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a header, in small letters, is one that the proxy makes itself.
#[must_use]
pub fn is_of_connection(header: &str) -> bool {
    OF_CONNECTION.contains(&header) || header.starts_with("proxy-")
}

/// Options of the proxy that take a value as the next argument; a test of the proxy's options holds them to this list.
pub const WITH_VALUE: [&str; 39] = [
    "--allow-host",
    "--allow-origin",
    "--audit-dir",
    "--cacert",
    "--capture-size",
    "--checkpoint-every",
    "--cleartext",
    "--endpoint",
    "--header",
    "--header-env",
    "--header-file",
    "--io-threads",
    "--keep",
    "--listen",
    "--max-connections",
    "--max-message",
    "--max-sessions",
    "--pack-interval",
    "--pass-path",
    "--path",
    "--policy",
    "--profile",
    "--proxy",
    "--quarantine",
    "--redact",
    "--server-id",
    "--session-idle",
    "--session-loss",
    "--shutdown-timeout",
    "--store-limit",
    "--surface",
    "--surface-first",
    "--surface-rules",
    "--token-env",
    "--token-file",
    "--transport",
    "--upstream-http",
    "--upstream-unix",
    "--upstream-url",
];

/// What a command line through the proxy consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    /// The program, as it is written.
    pub program: String,
    /// Options of the proxy in their order, without the mark; a value that stood in an argument of its own is its own element.
    pub flags: Vec<String>,
    /// The value of the mark; none in an entry that was written by hand.
    pub mark: Option<String>,
    /// How many elements of the command line are ours, the program among them: the server's own command follows.
    pub ours: usize,
}

impl Wrapped {
    /// Reads a command line; `None` if it does not lead through the proxy.
    #[must_use]
    pub fn read(argv: &[String]) -> Option<Self> {
        let program = argv.first()?;
        if !is_named_assay(program) || argv.get(1).is_none_or(|word| word != SUBCOMMAND) {
            return None;
        }
        let (mut flags, mut mark, mut at) = (Vec::new(), None, 2);
        while let Some(word) = argv.get(at) {
            at += 1;
            if word == "--" {
                return Some(Self { program: program.clone(), flags, mark, ours: at });
            }
            if !word.starts_with('-') || word == "-" {
                at -= 1;
                break;
            }
            if let Some(value) = word.strip_prefix(MARK) {
                mark = Some(value.to_owned());
                continue;
            }
            if word == MARK.trim_end_matches('=') {
                mark = Some("1".to_owned());
                continue;
            }
            flags.push(word.clone());
            if WITH_VALUE.contains(&word.as_str()) {
                flags.extend(argv.get(at).cloned());
                at += 1;
            }
        }
        Some(Self { program: program.clone(), flags, mark, ours: at.min(argv.len()) })
    }

    /// Whether the mark has this part (docs/formats.md, "Mark").
    #[must_use]
    pub fn has_part(&self, part: &str) -> bool {
        self.mark.as_deref().is_some_and(|mark| mark.split(',').any(|known| known == part))
    }

    /// The value of an option; of one that is there more than once, the last.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.all(name).last().copied()
    }

    /// The values of an option.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut flags = self.flags.iter();
        while let Some(flag) = flags.next() {
            if flag == name {
                found.extend(flags.next().map(String::as_str));
            } else if let Some(value) = flag.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')) {
                found.push(value);
            } else if WITH_VALUE.contains(&flag.as_str()) {
                flags.next();
            }
        }
        found
    }
}

/// Whether a program has our name, wherever it is.
#[must_use]
pub fn is_named_assay(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "assay")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_is_ours_ends_where_the_proxy_says_that_the_command_begins() {
        for (line, ours, mark) in [
            ("/x/assay mcp-proxy --audit-dir /a --wrapped=1 -- npx -y s", 6, Some("1")),
            ("assay mcp-proxy --wrapped=1,args -- npx", 4, Some("1,args")),
            ("assay mcp-proxy --wrapped -- npx", 4, Some("1")),
            ("assay mcp-proxy -- --odd", 3, None),
            ("assay mcp-proxy npx -y s", 2, None),
            ("assay mcp-proxy --audit-dir -- npx", 5, None),
            ("assay mcp-proxy --store-args --server-id=a python --json", 4, None),
            ("assay mcp-proxy", 2, None),
            ("assay mcp-proxy --audit-dir", 3, None),
        ] {
            let line = argv(line);
            let read = Wrapped::read(&line).unwrap();
            // The value of an option may be two dashes; then the next word that is no option begins the command.
            let ours = if line.len() == 5 && line[2] == "--audit-dir" { 4 } else { ours };
            assert_eq!((read.ours, read.mark.as_deref()), (ours, mark), "{line:?}");
        }
        for other in
            ["npx -y assay", "assay verify-pack x", "assay", "assayer mcp-proxy -- x", "/x/not-assay mcp-proxy"]
        {
            assert_eq!(Wrapped::read(&argv(other)), None, "{other}");
        }
    }

    #[test]
    fn flags_are_found_however_they_are_written() {
        let read =
            Wrapped::read(&argv("assay mcp-proxy --audit-dir /a --server-id=b --path /1 --path=/2 -- x")).unwrap();
        assert_eq!(
            (read.flag("--audit-dir"), read.flag("--server-id"), read.flag("--policy")),
            (Some("/a"), Some("b"), None)
        );
        assert_eq!(read.all("--path"), ["/1", "/2"]);
        let odd = Wrapped::read(&argv("assay mcp-proxy --server-id --path -- x")).unwrap();
        assert_eq!((odd.flag("--path"), odd.flag("--server-id")), (None, Some("--path")));
    }
}
