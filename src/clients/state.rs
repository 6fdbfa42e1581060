//! Whether a server leaves evidence.

use super::{
    command::{Wrapped, is_named_assay},
    entry::{Entry, Transport},
};
use crate::files;
use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// What becomes of a server's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// They are recorded.
    Recorded,
    /// They are recorded, and a policy is enforced.
    Guarded,
    /// The entry leads through a program that is gone, or that is another one of our name.
    Stale,
    /// They leave no evidence.
    Unrecorded,
    /// A local program goes to a URL; it can be recorded.
    Bridge,
    /// Another recorder or gateway stands in front; it can be recorded outside of that.
    Other,
    /// The server is reached by a URL.
    Remote,
    /// It is part of the client.
    Builtin,
    /// The entry is no declaration of a server.
    Unreadable,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Recorded,
        Self::Guarded,
        Self::Stale,
        Self::Unrecorded,
        Self::Bridge,
        Self::Other,
        Self::Remote,
        Self::Builtin,
        Self::Unreadable,
    ];

    /// Its name in lists and documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Guarded => "guarded",
            Self::Stale => "stale",
            Self::Unrecorded => "unrecorded",
            Self::Bridge => "bridge",
            Self::Other => "other",
            Self::Remote => "remote",
            Self::Builtin => "builtin",
            Self::Unreadable => "unreadable",
        }
    }

    /// Whether it leaves evidence.
    #[must_use]
    pub const fn is_recorded(self) -> bool {
        matches!(self, Self::Recorded | Self::Guarded)
    }

    /// Whether it runs here and leaves none.
    #[must_use]
    pub const fn is_missing(self) -> bool {
        matches!(self, Self::Stale | Self::Unrecorded | Self::Bridge | Self::Other)
    }
}

/// Programs that lead from here to a URL.
const BRIDGES: [&str; 4] = ["mcp-remote", "supergateway", "mcp-proxy", "mcp-remote-client"];
/// Other recorders and gateways.
const OTHERS: [&str; 6] = ["mcpsnoop", "thv", "pipelock", "obsigna", "mcp-context-protector", "mcp-gateway"];

/// What is known of the programs of this machine, without starting any.
#[derive(Debug)]
pub struct Programs {
    search: Vec<PathBuf>,
    own: Option<(u64, u64)>,
    known: HashMap<PathBuf, bool>,
}

/// A word that every binary of ours has in it.
const SIGN: &[u8] = b"Evidence for every MCP tool call";
/// The largest program that is looked into, in bytes.
const LARGEST_PROGRAM: u64 = 1 << 30;

impl Programs {
    /// Those of this process's `PATH`.
    #[must_use]
    pub fn of_process() -> Self {
        let own = std::env::current_exe().ok().and_then(|exe| exe.metadata().ok()).map(|m| (m.dev(), m.ino()));
        Self::of(&std::env::var_os("PATH").unwrap_or_default(), own)
    }

    fn of(path: &OsStr, own: Option<(u64, u64)>) -> Self {
        Self {
            search: std::env::split_paths(path).filter(|dir| dir.is_absolute()).collect(),
            own,
            known: HashMap::new(),
        }
    }

    /// The file that a command names in `PATH`, if it can be executed.
    #[must_use]
    pub fn find(&self, program: &str) -> Option<PathBuf> {
        if program.contains('/') {
            return Some(PathBuf::from(program)).filter(|path| is_executable(path));
        }
        self.search.iter().map(|dir| dir.join(program)).find(|path| is_executable(path))
    }

    /// Whether the file is this program, or another build of it.
    pub fn is_ours(&mut self, path: &Path) -> bool {
        let Ok(meta) = path.metadata() else { return false };
        if self.own == Some((meta.dev(), meta.ino())) {
            return true;
        }
        if let Some(known) = self.known.get(path) {
            return *known;
        }
        let read = || files::read_all(files::named(path).ok()?, LARGEST_PROGRAM).ok();
        let ours =
            read().is_some_and(|bytes| !bytes.starts_with(b"#!") && memchr::memmem::find(&bytes, SIGN).is_some());
        self.known.insert(path.to_owned(), ours);
        ours
    }

    /// What is wrong with the program that an entry leads through.
    fn fault(&mut self, program: &str) -> Option<&'static str> {
        // What a client expands cannot be looked up.
        if program.contains(['$', '{', '~']) {
            return None;
        }
        match self.find(program) {
            Some(path) if self.is_ours(&path) => None,
            Some(_) => Some("the program is another one called assay"),
            None if Path::new(program).exists() => Some("the program cannot be executed"),
            None => Some("the program is gone"),
        }
    }
}

/// Whether it is a file that may be executed.
#[must_use]
pub fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The state of an entry, and what is behind it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// What becomes of its calls.
    pub state: State,
    /// How it leads through us.
    pub wrapped: Option<Wrapped>,
    /// The bridge, recorder or gateway that stands in front.
    pub behind: Option<String>,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// Looks at an entry.
pub fn look(entry: &Entry, programs: &mut Programs) -> Seen {
    let mut seen = Seen { state: State::Unrecorded, wrapped: None, behind: None, problems: Vec::new() };
    seen.state = if let Some(broken) = &entry.broken {
        seen.problems.push(broken.clone());
        State::Unreadable
    } else {
        match entry.transport {
            Transport::Remote => State::Remote,
            Transport::Builtin => State::Builtin,
            Transport::Stdio => local(entry, programs, &mut seen),
        }
    };
    seen
}

fn local(entry: &Entry, programs: &mut Programs, seen: &mut Seen) -> State {
    if let Some(wrapped) = Wrapped::read(&entry.argv) {
        let fault = programs.fault(&wrapped.program);
        let no_server = entry.argv.len() <= wrapped.ours && wrapped.flag("--upstream-url").is_none();
        let guarded = wrapped.flag("--profile") == Some("guard");
        seen.wrapped = Some(wrapped);
        if no_server {
            seen.problems.push("there is no server's command behind the proxy's options".to_owned());
            return State::Stale;
        }
        if let Some(fault) = fault {
            seen.problems.push(fault.to_owned());
            return State::Stale;
        }
        return if guarded { State::Guarded } else { State::Recorded };
    }
    let command = Command::of(&entry.argv);
    let named = |names: &[&str]| {
        [Some(command.program.as_str()), command.package.as_deref()]
            .into_iter()
            .flatten()
            .find_map(|word| names.iter().find(|name| is_package(word, name)).map(|name| (*name).to_owned()))
    };
    let docker_gateway = command.program == "docker" && entry.argv.get(1).is_some_and(|word| word == "mcp");
    seen.behind = if docker_gateway { Some("docker mcp".to_owned()) } else { named(&OTHERS) };
    if seen.behind.is_some() {
        return State::Other;
    }
    seen.behind = named(&BRIDGES);
    if seen.behind.is_some() { State::Bridge } else { State::Unrecorded }
}

/// Whether a program or package is this one, whatever its version and scope.
fn is_package(word: &str, name: &str) -> bool {
    let last = word.rsplit('/').next().unwrap_or(word);
    let bare = last.split(['@', '=', '[', ':']).next().unwrap_or(last);
    bare == name
}

/// What may be said of a command: the program, and for package runners the package. Never an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name of the program, without its directory.
    pub program: String,
    /// Name of the package that it runs.
    pub package: Option<String>,
}

impl Command {
    /// Of a command line.
    #[must_use]
    pub fn of(argv: &[String]) -> Self {
        let Some(first) = argv.first() else { return Self { program: String::new(), package: None } };
        // A command that is a whole line may have anything behind its first word.
        let word = if Path::new(first).exists() { first } else { first.split_whitespace().next().unwrap_or_default() };
        let program = base(word).to_owned();
        let arguments: Vec<&str> = argv[1..].iter().map(String::as_str).collect();
        if matches!(program.as_str(), "cmd" | "cmd.exe")
            && arguments.first().is_some_and(|flag| flag.eq_ignore_ascii_case("/c"))
        {
            let inner = Self::of(&argv[2..]);
            return Self { program, package: inner.package };
        }
        let package = package(&program, &arguments).filter(|word| is_sayable(word)).map(str::to_owned);
        Self { program, package }
    }
}

fn base(program: &str) -> &str {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    name.strip_suffix(".cmd").or_else(|| name.strip_suffix(".exe")).unwrap_or(name)
}

/// A package's name, and nothing that could be a secret: no URL, nothing with a `=` but a version.
fn is_sayable(word: &str) -> bool {
    !word.contains("://")
        && word.len() <= 214
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "@/._-~^=<>[]:+".contains(c))
}

/// The first word of the arguments of a package runner that names a package.
fn package<'a>(program: &str, arguments: &[&'a str]) -> Option<&'a str> {
    let (skip, with_value): (usize, &[&str]) = match (program, arguments.first().copied(), arguments.get(1).copied()) {
        ("npx" | "bunx" | "pnpx", ..) => {
            (0, &["--registry", "--cache", "--prefix", "--userconfig", "-w", "-c", "--call"])
        }
        ("uvx", ..) => (0, &["--python", "-p", "--with", "--index-url", "--index", "--extra-index-url", "--directory"]),
        ("pnpm" | "yarn", Some("dlx"), _) | ("npm", Some("exec" | "x"), _) | ("bun", Some("x"), _) => {
            (1, &["--registry"])
        }
        ("uv", Some("tool"), Some("run")) => (2, &["--python", "-p", "--with", "--index-url"]),
        ("pipx", Some("run"), _) => (1, &["--python", "--index-url", "--pip-args"]),
        ("docker" | "podman", Some("run"), _) => (
            1,
            &[
                "-e",
                "--env",
                "-v",
                "--volume",
                "--mount",
                "--name",
                "--network",
                "-p",
                "--env-file",
                "-w",
                "-u",
                "--user",
                "--entrypoint",
                "-l",
                "--label",
                "--add-host",
                "--platform",
                "--workdir",
                "--publish",
                "--net",
            ],
        ),
        _ => return None,
    };
    let mut words = arguments.get(skip..)?.iter();
    while let Some(word) = words.next() {
        match *word {
            "--package" | "--from" | "--spec" => return words.next().copied(),
            "-p" if program != "docker" && program != "podman" && !with_value.contains(&"-p") => {
                return words.next().copied();
            }
            word if word.starts_with("--package=") || word.starts_with("--from=") || word.starts_with("--spec=") => {
                return word.split_once('=').map(|(_, package)| package);
            }
            word if with_value.contains(&word) => {
                words.next();
            }
            word if word.starts_with('-') => {}
            word => return Some(word),
        }
    }
    None
}

/// Whether an entry's program has our name without leading through the proxy, for messages.
#[must_use]
pub fn is_assay_itself(argv: &[String]) -> bool {
    argv.first().is_some_and(|program| is_named_assay(program)) && Wrapped::read(argv).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> (String, Option<String>) {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let command = Command::of(&argv);
        (command.program, command.package)
    }

    #[test]
    fn only_the_program_and_the_package_of_a_runner_are_said() {
        for (line, program, package) in [
            (
                "npx -y @modelcontextprotocol/server-github@1.2 --token SECRET",
                "npx",
                Some("@modelcontextprotocol/server-github@1.2"),
            ),
            ("/usr/bin/npx --package=a b", "npx", Some("a")),
            ("npx -p a b", "npx", Some("a")),
            ("uvx --from mcp-server-git mcp-server-git --repository x", "uvx", Some("mcp-server-git")),
            ("uvx --with a mcp-server-fetch", "uvx", Some("mcp-server-fetch")),
            ("uv tool run x", "uv", Some("x")),
            ("uv run secret.py", "uv", None),
            (
                "docker run -i --rm -e TOKEN=SECRET ghcr.io/github/github-mcp-server:1",
                "docker",
                Some("ghcr.io/github/github-mcp-server:1"),
            ),
            ("cmd /c npx -y a", "cmd", Some("a")),
            ("npx git+https://user:SECRET@host/x", "npx", None),
            ("python server.py --key SECRET", "python", None),
            ("node", "node", None),
        ] {
            assert_eq!(command(line), (program.to_owned(), package.map(str::to_owned)), "{line}");
        }
        let line = ["npx -y server --token SECRET".to_owned()];
        assert_eq!(Command::of(&line).program, "npx");
    }

    #[test]
    fn bridges_and_other_recorders_are_known_by_name() {
        for (word, name, is) in [
            ("mcp-remote@0.1.2", "mcp-remote", true),
            ("@scope/supergateway", "supergateway", true),
            ("/usr/bin/thv", "thv", true),
            ("mcp-proxy==1.0", "mcp-proxy", true),
            ("mcp-remotely", "mcp-remote", false),
        ] {
            assert_eq!(is_package(word, name), is, "{word}");
        }
    }
}
