//! What is written into an entry, and which entries are left alone.

use super::{
    command::{self, SUBCOMMAND, Wrapped},
    entry::{Entry, Transport},
    names::Names,
    remote::has_variable,
    splice::Ours,
    state::{Programs, Seen, State, is_executable},
    table::{Client, Scope},
};
use crate::paths::{DEFAULT_AUDIT_DIR, IN_REPOSITORY};
use std::path::{Path, PathBuf};

/// What the user asks for; what is not given stays as an entry has it, or is the default.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// `--profile`.
    pub profile: Option<String>,
    /// `--policy`, absolute.
    pub policy: Option<String>,
    /// `--audit-dir`, as it is to be written.
    pub audit_dir: Option<String>,
    /// `--server-id`.
    pub server_id: Option<String>,
    /// `--pack-interval`.
    pub pack_interval: Option<String>,
    /// `--assay`, absolute.
    pub assay: Option<String>,
    /// `--path`, absolute.
    pub path: Vec<String>,
    /// `--remote`: entries by URL become commands of the bridge.
    pub remote: bool,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The proxy goes in front.
    Wrap(Ours),
    /// A URL becomes the command of the bridge.
    Bridge(Ours),
    /// Our part is replaced.
    Rewrap(Ours),
    /// It is as it is wanted.
    Nothing,
    /// It is left alone, for this reason.
    Skip(String),
}

/// The program for files of the user: the `assay` of `PATH` if that is this program, else this program.
///
/// # Errors
/// It is in a directory from which it may vanish.
pub fn own_program(programs: &mut Programs) -> Result<String, String> {
    let own = std::env::current_exe().map_err(|e| format!("this program cannot be found: {e}"))?;
    let same = |path: &PathBuf| path.canonicalize().ok() == own.canonicalize().ok();
    let path = programs.find("assay").filter(same).unwrap_or(own);
    if let Some(why) = passing(&path) {
        return Err(format!(
            "{} is in {why}, and will be gone one day; name a lasting one with --assay",
            path.display()
        ));
    }
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| format!("{} is not UTF-8; name another with --assay", path.display()))
}

/// Why a program will not stay where it is.
fn passing(path: &Path) -> Option<&'static str> {
    let names: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let has = |one: &str| names.contains(&one);
    let has_two = |one: &str, two: &str| names.windows(2).any(|pair| pair == [one, two]);
    let temporary = [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
    if has_two("target", "debug") || has_two("target", "release") {
        Some("a build directory")
    } else if temporary.iter().any(|dir| path.starts_with(dir)) {
        Some("a temporary directory")
    } else if has(".cache") || has("_npx") || has(".npm") || has("Caches") || has("_cacache") {
        Some("a package cache")
    } else {
        None
    }
}

/// A program that the user names for entries.
///
/// # Errors
/// It would not be found, or not be taken for ours.
pub fn named_program(path: &Path) -> Result<String, String> {
    if path == Path::new("assay") {
        return Ok("assay".to_owned());
    }
    let absolute = std::path::absolute(path).map_err(|e| format!("--assay {}: {e}", path.display()))?;
    if !is_executable(&absolute) {
        return Err(format!("--assay {}: there is no program", path.display()));
    }
    if absolute.file_name().is_none_or(|name| name != "assay") {
        return Err(format!(
            "--assay {}: the program must be called assay, or unwrap does not know it",
            path.display()
        ));
    }
    absolute.to_str().map(str::to_owned).ok_or_else(|| format!("--assay {}: this is not UTF-8", path.display()))
}

/// Options of the proxy for a new entry.
fn flags(entry: &Entry, ground: &Ground<'_>) -> Result<Vec<String>, String> {
    let Ground { scope, home, wishes, .. } = *ground;
    let audit_dir = match (&wishes.audit_dir, scope) {
        (Some(dir), _) => dir.clone(),
        (None, Scope::Project) => format!("{IN_REPOSITORY}{DEFAULT_AUDIT_DIR}"),
        (None, _) => home
            .and_then(|home| home.join(DEFAULT_AUDIT_DIR).to_str().map(str::to_owned))
            .ok_or("no home directory: set HOME, or give --audit-dir")?,
    };
    let id = wishes.server_id.clone().unwrap_or_else(|| ground.names.id(entry, scope, ground.file));
    let mut flags = vec!["--audit-dir".to_owned(), audit_dir, "--server-id".to_owned(), id];
    for (name, value) in
        [("--profile", &wishes.profile), ("--policy", &wishes.policy), ("--pack-interval", &wishes.pack_interval)]
    {
        if let Some(value) = value {
            flags.extend([name.to_owned(), value.clone()]);
        }
    }
    for dir in &wishes.path {
        flags.extend(["--path".to_owned(), dir.clone()]);
    }
    Ok(flags)
}

/// Options of an entry that is wrapped, with those replaced that are wished for.
fn merged(wrapped: &Wrapped, wishes: &Wishes) -> Vec<String> {
    let mut flags = wrapped.flags.clone();
    for (name, value) in [
        ("--audit-dir", &wishes.audit_dir),
        ("--server-id", &wishes.server_id),
        ("--profile", &wishes.profile),
        ("--policy", &wishes.policy),
        ("--pack-interval", &wishes.pack_interval),
    ] {
        if let Some(value) = value.as_ref().filter(|value| wrapped.flag(name) != Some(value.as_str())) {
            without(&mut flags, name);
            flags.extend([name.to_owned(), value.clone()]);
        }
    }
    if !wishes.path.is_empty() && wrapped.all("--path") != wishes.path {
        without(&mut flags, "--path");
        for dir in &wishes.path {
            flags.extend(["--path".to_owned(), dir.clone()]);
        }
    }
    flags
}

/// Removes an option, however it is written.
fn without(flags: &mut Vec<String>, name: &str) {
    let mut kept = Vec::new();
    let mut words = std::mem::take(flags).into_iter();
    while let Some(word) = words.next() {
        let takes_next = command::WITH_VALUE.contains(&word.as_str());
        let value = if takes_next { words.next() } else { None };
        let same = word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
        if !same {
            kept.push(word);
            kept.extend(value);
        }
    }
    *flags = kept;
}

/// What the decision on an entry depends on, beside itself.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Who reads the file.
    pub client: &'static Client,
    /// The file.
    pub file: &'a Path,
    /// Whose servers it declares.
    pub scope: Scope,
    /// Which servers would have which name.
    pub names: &'a Names,
    /// The user's home.
    pub home: Option<&'a Path>,
    /// The program for files of the user, or why there is none.
    pub own: &'a Result<String, String>,
    /// What the user asks for.
    pub wishes: &'a Wishes,
    /// Whether files that somebody else brought are changed, too.
    pub force: bool,
}

/// Decides on an entry.
#[must_use]
pub fn decide(entry: &Entry, seen: &Seen, ground: &Ground<'_>) -> Step {
    let bridged = entry.transport == Transport::Remote && ground.wishes.remote;
    if let Some(why) = untouchable(entry, ground.scope, ground.force)
        .filter(|_| !bridged)
        .or_else(|| managed(ground.scope, ground.force))
    {
        return Step::Skip(why);
    }
    let program = || match (&ground.wishes.assay, ground.scope) {
        (Some(assay), _) => Ok(assay.clone()),
        // Whoever uses the repository has it somewhere else.
        (None, Scope::Project) => Ok("assay".to_owned()),
        (None, _) => ground.own.clone(),
    };
    if let Some(wrapped) = &seen.wrapped {
        let anew = seen.state == State::Stale || ground.wishes.assay.is_some();
        let program = if anew { program() } else { Ok(wrapped.program.clone()) };
        let ours = match program {
            Ok(program) => Ours { program, flags: merged(wrapped, ground.wishes) },
            Err(why) => return Step::Skip(why),
        };
        if ours.program == wrapped.program && ours.flags == wrapped.flags {
            return Step::Nothing;
        }
        return checked(ours, ground.client).map_or_else(Step::Skip, Step::Rewrap);
    }
    if let Some(why) = unfit(entry, ground.client) {
        return Step::Skip(why);
    }
    let step = if bridged { Step::Bridge } else { Step::Wrap };
    let ours = program().and_then(|program| {
        let flags = flags(entry, ground)?;
        checked(Ours { program, flags }, ground.client)
    });
    ours.map_or_else(Step::Skip, step)
}

/// Why an entry is left alone whatever is wished.
#[must_use]
pub fn untouchable(entry: &Entry, scope: Scope, force: bool) -> Option<String> {
    if let Some(broken) = &entry.broken {
        return Some(broken.clone());
    }
    match entry.transport {
        Transport::Remote => Some(
            "it is reached by a URL: --remote makes it a command that records, where the client needs no login"
                .to_owned(),
        ),
        Transport::Builtin => Some("it is part of the client: there is no command".to_owned()),
        Transport::Stdio => managed(scope, force),
    }
}

fn managed(scope: Scope, force: bool) -> Option<String> {
    (scope == Scope::Managed && !force)
        .then(|| "an administrator or a plugin brought this file; --force changes it all the same".to_owned())
}

/// Why the command of an entry would mean something else as an argument.
fn unfit(entry: &Entry, client: &Client) -> Option<String> {
    let program = entry.argv.first()?;
    if program.contains(char::is_whitespace) && !Path::new(program).exists() {
        return Some("its command is a whole line; put the program into command, and the rest into args".to_owned());
    }
    if has_variable(program, client) {
        return Some(format!(
            "its command has a variable, and {} is not known to resolve those in arguments; write the path out, or by hand: \
             assay {SUBCOMMAND} -- sh -c 'exec {}'",
            client.name,
            crate::text::visible(program)
        ));
    }
    None
}

/// Our words, unless the client would break them.
fn checked(ours: Ours, client: &Client) -> Result<Ours, String> {
    let blank = std::iter::once(&ours.program).chain(&ours.flags).find(|word| word.contains(char::is_whitespace));
    match blank {
        Some(word) if client.splits_blanks => Err(format!(
            "{} splits arguments at blanks, and {word:?} has one; use --assay or --audit-dir without",
            client.name
        )),
        _ => Ok(ours),
    }
}

/// Whether the text of a file says that something writes it, or it lies where nothing is changed by hand.
#[must_use]
pub fn generated(real: &Path, text: &str) -> bool {
    let head: String = text.lines().take(5).collect::<Vec<_>>().join(" ").to_ascii_lowercase();
    let comment = head.trim_start().starts_with(['#', '/']);
    real.starts_with("/nix/store") || comment && head.contains("do not edit")
}

/// The directory that has an entry's program, if a client with a window would not look there.
#[must_use]
pub fn out_of_sight(entry: &Entry, client: &Client, programs: &Programs) -> Option<PathBuf> {
    let program = entry.argv.first().filter(|program| client.window && !program.contains('/'))?;
    let dir = programs.find(program)?.parent()?.to_owned();
    let usual = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    (!usual.iter().any(|usual| dir == Path::new(usual))).then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_will_not_stay_are_known() {
        for (path, stays) in [
            ("/usr/local/bin/assay", true),
            ("/home/me/.cargo/bin/assay", true),
            ("/home/me/assay/target/release/assay", false),
            ("/tmp/assay", false),
            ("/home/me/.cache/x/assay", false),
            ("/home/me/.npm/_npx/1/assay", false),
        ] {
            assert_eq!(passing(Path::new(path)).is_none(), stays, "{path}");
        }
    }

    #[test]
    fn only_what_is_wished_for_is_replaced() {
        let argv: Vec<String> =
            "assay mcp-proxy --audit-dir /a --store-args --server-id=x --profile guard --policy /p -- s"
                .split(' ')
                .map(str::to_owned)
                .collect();
        let wrapped = Wrapped::read(&argv).unwrap();
        assert_eq!(merged(&wrapped, &Wishes::default()), wrapped.flags);
        let same = Wishes { audit_dir: Some("/a".into()), server_id: Some("x".into()), ..Wishes::default() };
        assert_eq!(merged(&wrapped, &same), wrapped.flags);
        let other = Wishes { audit_dir: Some("/b".into()), server_id: Some("y".into()), ..Wishes::default() };
        assert_eq!(
            merged(&wrapped, &other).join(" "),
            "--store-args --profile guard --policy /p --audit-dir /b --server-id y"
        );
    }
}
