//! `assay.toml`: options of `assay mcp-proxy` that hold for every session of a user, or of a project; the one that the
//! environment can set; and `assay config`.

use super::{Cli, out};
use crate::{
    clients::read::place,
    error::{Exit, Failure},
    files,
    paths::{self, IN_REPOSITORY},
    redact::PRESET,
    text::{fit, visible, width},
};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory as _, parser::ValueSource};
use serde::Serialize;
use std::{
    any::TypeId,
    ffi::OsString,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};
use toml_edit::{Item, Value};

/// Its name.
const FILE: &str = "assay.toml";
/// The command that it has options of, and the name of their table.
pub(super) const PROXY: &str = "mcp-proxy";
/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// `schema` of the document.
const SCHEMA: &str = "assay.config.v1";
/// Options that name one server or belong to one run.
const OF_A_RUN: [&str; 5] = ["json", "listen", "server-id", "upstream-url", "wrapped"];
/// What a project's file may say. It comes with a repository, so it can demand more than the user does, and nothing else.
const OF_PROJECT: [&str; 7] =
    ["audit-dir", "pack-interval", "policy", "profile", "quarantine", "surface", "surface-first"];
/// Options that mean something for a listener alone.
const OF_LISTENER: [&str; 7] =
    ["allow-host", "allow-origin", "allow-remote", "endpoint", "pass-path", "token-env", "token-file"];
/// Options whose values can be secrets.
const SECRET: [&str; 2] = ["header", "proxy"];

/// Arguments of `assay config`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay config\n  assay config --all --json\n\n\
                  Options of assay mcp-proxy may stand in assay.toml, in $ASSAY_HOME (else ~/.assay) for all your\n\
                  sessions, and in a project for those that are started there:\n\n  \
                  [mcp-proxy]\n  store-args = true\n  pack-interval = \"15m\"\n\n\
                  The command line comes first, then $ASSAY_AUDIT_DIR for audit-dir, then your file, then the\n\
                  project's. A project's file may only demand more: a policy, guard, surface enforce, and an audit\n\
                  directory as repo:DIR.\n\n\
                  Exit codes: 0 shown; 3 a file cannot be used")]
pub struct ConfigArgs {
    /// Show the options that no file sets, too, with their defaults
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Who sets an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Whose {
    Environment,
    User,
    Project,
    Default,
}

impl Whose {
    const fn word(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::User => "user",
            Self::Project => "project",
            Self::Default => "default",
        }
    }
}

/// A file that may be there.
#[derive(Debug, Serialize)]
struct Source {
    scope: Whose,
    path: PathBuf,
    exists: bool,
}

/// An option that a file or the environment sets.
#[derive(Debug)]
struct Setting {
    name: String,
    from: Whose,
    values: Vec<String>,
    /// As arguments of the command line.
    words: Vec<OsString>,
}

/// What the environment sets.
fn of_environment() -> Option<Setting> {
    let dir = paths::audit_dir_of_environment()?;
    let mut word = OsString::from("--audit-dir=");
    word.push(&dir);
    let values = vec![dir.to_string_lossy().into_owned()];
    Some(Setting { name: "audit-dir".to_owned(), from: Whose::Environment, values, words: vec![word] })
}

/// The files that count here: the user's, and the nearest of the project.
fn sources() -> Vec<Source> {
    let here = std::env::current_dir().unwrap_or_default();
    let user = paths::assay_home().ok().map(|home| home.join(FILE));
    let root = paths::repository(&here).unwrap_or(&here);
    let mut dirs = here.ancestors().take_while(|dir| dir.starts_with(root)).map(|dir| dir.join(FILE));
    let project = dirs.find(|path| path.symlink_metadata().is_ok()).unwrap_or_else(|| root.join(FILE));
    let user = user.map(|path| (Whose::User, path));
    // Who works in their user directory has one file.
    let project =
        Some((Whose::Project, project)).filter(|(_, path)| user.as_ref().is_none_or(|(_, known)| known != path));
    let source = |(scope, path): (Whose, PathBuf)| Source { scope, exists: path.symlink_metadata().is_ok(), path };
    user.into_iter().chain(project).map(source).collect()
}

/// Reads the files; what somebody before has set is left out.
fn settings(sources: &[Source], proxy: &Command) -> Result<Vec<Setting>, Failure> {
    let mut all: Vec<Setting> = of_environment().into_iter().collect();
    for source in sources.iter().filter(|source| source.exists) {
        let read = read(source, proxy)?;
        all.extend(read.into_iter().filter(|one| all.iter().all(|known| known.name != one.name)).collect::<Vec<_>>());
    }
    Ok(all)
}

fn read(source: &Source, proxy: &Command) -> Result<Vec<Setting>, Failure> {
    let bad = |what: &str| Failure::bad_input(format_args!("{}: {what}", source.path.display()));
    let bytes = match files::named(&source.path).and_then(|file| files::read_all(file, LARGEST)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| bad(&e.to_string()))?,
    };
    let text = String::from_utf8(bytes).map_err(|_| bad("this is not UTF-8"))?;
    let document = toml_edit::Document::parse(text.as_str()).map_err(|e| bad(&e.to_string()))?;
    let at = |span: Option<std::ops::Range<usize>>, what: &str| {
        let (line, column) = place(&text, span.map_or(0, |span| span.start));
        Failure::bad_input(format_args!("{}:{line}:{column}: {what}", source.path.display()))
    };
    let table = document.as_table();
    if let Some((name, item)) = table.iter().find(|(name, _)| *name != PROXY) {
        let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
        return Err(at(span, &format!("`{name}` is not known here"))
            .hint(format_args!("options of assay {PROXY} stand in the table [{PROXY}]")));
    }
    let Some(item) = table.get(PROXY) else { return Ok(Vec::new()) };
    let options = item.as_table_like().ok_or_else(|| at(item.span(), &format!("`{PROXY}` is not a table")))?;
    let mut all = Vec::new();
    for (name, item) in options.iter() {
        let span = options.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
        let arg = known(proxy, name).ok_or_else(|| {
            at(span.clone(), &format!("`{name}` is no option for this file"))
                .hint(format_args!("assay {PROXY} --help lists the options; they stand here without the dashes"))
        })?;
        let dir = source.path.parent().unwrap_or(Path::new("."));
        let values =
            values(arg, item, dir).map_err(|what| at(item.span().or(span.clone()), &format!("`{name}` {what}")))?;
        if source.scope == Whose::Project {
            of_project(name, &values).map_err(|(what, hint)| at(span, &what).hint(hint))?;
        }
        let words = match (arg.get_action().takes_values(), values.as_slice()) {
            (true, values) => values.iter().map(|value| format!("--{name}={value}").into()).collect(),
            (false, [value]) if value == "true" => vec![format!("--{name}").into()],
            (false, _) => Vec::new(),
        };
        all.push(Setting { name: name.to_owned(), from: source.scope, values, words });
    }
    Ok(all)
}

/// An option that may stand in a file.
fn known<'c>(proxy: &'c Command, name: &str) -> Option<&'c Arg> {
    let options = proxy.get_arguments().filter(|arg| !arg.is_hide_set() && !OF_A_RUN.contains(&name));
    options.into_iter().find(|arg| arg.get_long() == Some(name) && name != "help")
}

/// Refuses what a repository must not decide.
fn of_project(name: &str, values: &[String]) -> Result<(), (String, &'static str)> {
    if !OF_PROJECT.contains(&name) {
        return Err((format!("`{name}` cannot be set by a project"), "put it into ~/.assay/assay.toml"));
    }
    let (fits, what) = match name {
        "audit-dir" => (values[0].starts_with(IN_REPOSITORY), "repo:DIR, which is below the root of the repository"),
        "profile" => (values[0] == "guard", "guard"),
        "surface" => (values[0] == "enforce", "enforce"),
        "surface-first" => (values[0] == "approve", "approve"),
        "quarantine" => (values[0] == "server", "server"),
        _ => (true, ""),
    };
    if fits {
        return Ok(());
    }
    Err((format!("`{name}` of a project can only be {what}"), "what is less strict belongs into ~/.assay/assay.toml"))
}

/// The values of an option, as the command line takes them. Relative paths are those from the file's directory.
fn values(arg: &Arg, item: &Item, dir: &Path) -> Result<Vec<String>, String> {
    let takes = arg.get_action().takes_values();
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let one = |value: &Value| -> Result<String, String> {
        let text = match value {
            Value::Boolean(flag) => return Ok(flag.value().to_string()),
            _ if !takes => return Err("is true or false".to_owned()),
            Value::String(text) => text.value().clone(),
            Value::Integer(number) => number.value().to_string(),
            Value::Float(number) => number.value().to_string(),
            _ => return Err(format!("cannot be {}", item.type_name())),
        };
        Ok(if is_path { resolved(&text, dir) } else { text })
    };
    match item.as_value() {
        Some(Value::Array(list)) if matches!(arg.get_action(), ArgAction::Append) => list.iter().map(one).collect(),
        Some(Value::Array(_)) => Err("takes one value, not a list".to_owned()),
        Some(value) => Ok(vec![one(value)?]),
        None => Err(format!("cannot be {}", item.type_name())),
    }
}

fn resolved(text: &str, dir: &Path) -> String {
    if text.starts_with(IN_REPOSITORY) || text.starts_with(PRESET) {
        return text.to_owned();
    }
    let path = match (text.strip_prefix("~/"), paths::home()) {
        (Some(below), Some(home)) => home.join(below),
        _ => dir.join(text),
    };
    path.to_str().unwrap_or(text).to_owned()
}

/// The arguments of this process with what files and the environment add to them, and the names of the options that files
/// have added.
///
/// # Errors
/// A file that cannot be used.
pub(super) fn added(
    cli: &Command,
    given: &ArgMatches,
    args: &[OsString],
) -> Result<(Vec<OsString>, Vec<String>), Failure> {
    let (Some(proxy), Some(given)) = (cli.find_subcommand(PROXY), given.subcommand_matches(PROXY)) else {
        return Ok((args.to_vec(), Vec::new()));
    };
    let is_given = |name: &str| {
        let arg = known(proxy, name).or_else(|| proxy.get_arguments().find(|arg| arg.get_long() == Some(name)));
        arg.is_some_and(|arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine))
    };
    let over_http = is_given("listen") || is_given("upstream-url");
    let matters = |name: &str| {
        let of_http = known(proxy, name).and_then(Arg::get_help_heading).is_some();
        !is_given(name) && (over_http || !of_http) && (is_given("listen") || !OF_LISTENER.contains(&name))
    };
    let (mut words, mut names) = (Vec::new(), Vec::new());
    for setting in settings(&sources(), proxy)?.into_iter().filter(|setting| matters(&setting.name)) {
        words.extend(setting.words);
        if setting.from != Whose::Environment {
            names.push(setting.name);
        }
    }
    // Behind the program and the command.
    let (before, behind) = args.split_at(args.len().min(2));
    Ok(([before, &words, behind].concat(), names))
}

/// An option in the document.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    /// `null` where there is none; of what can be a secret, never the value.
    value: Option<Vec<String>>,
    from: Whose,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: &'static str,
    files: Vec<Source>,
    options: Vec<Shown>,
}

/// Runs `assay config`.
///
/// # Errors
/// A file that cannot be used.
pub fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let cli = Cli::command();
        let proxy = cli.find_subcommand(PROXY).ok_or_else(|| Failure::failed("there is no proxy"))?;
        let files = sources();
        let set = settings(&files, proxy)?;
        let mut options = Vec::new();
        for arg in proxy.get_arguments() {
            let Some(arg) = arg.get_long().and_then(|name| known(proxy, name)) else { continue };
            let name = arg.get_long().unwrap_or_default().to_owned();
            let (value, from) = match set.iter().find(|one| one.name == name) {
                Some(one) if SECRET.contains(&name.as_str()) => (Some(vec!["(not shown)".to_owned()]), one.from),
                Some(one) => (Some(one.values.clone()), one.from),
                None => {
                    let values = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
                    (Some(values.collect()).filter(|values: &Vec<String>| !values.is_empty()), Whose::Default)
                }
            };
            options.push(Shown { name, value, from });
        }
        if !args.all && !args.json {
            options.retain(|one| one.from != Whose::Default);
        }
        let document = Document { schema: SCHEMA, files, options };
        if args.json {
            out::json(&document)?;
        } else {
            out::stdout(listed(&document).as_bytes())?;
        }
        Ok(Exit::Ok)
    })
}

fn listed(document: &Document) -> String {
    let mut text = String::new();
    for file in &document.files {
        let scope = file.scope.word();
        let there = if file.exists { "" } else { "  (not there)" };
        let _ = writeln!(text, "{scope:<8} {}{there}", visible(&file.path.display().to_string()));
    }
    text.push('\n');
    if document.options.is_empty() {
        let _ = writeln!(text, "nothing sets an option of assay {PROXY}; assay config --all shows the defaults");
    }
    let shown: Vec<(&Shown, String)> = document
        .options
        .iter()
        .map(|one| {
            (one, one.value.as_ref().map_or_else(|| "–".to_owned(), |all| visible(&all.join(", ")).into_owned()))
        })
        .collect();
    let column = shown.iter().map(|(_, value)| width(value).min(60)).max().unwrap_or_default();
    for (one, value) in &shown {
        let value = fit(value, 60);
        let blank = " ".repeat(column.saturating_sub(width(&value)));
        let _ = writeln!(text, "{:<18} {value}{blank}  {}", one.name, one.from.word());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn what_is_said_of_options_holds_for_those_that_there_are() {
        let cli = Cli::command();
        let proxy = cli.find_subcommand(PROXY).unwrap();
        for name in OF_PROJECT.iter().chain(&OF_LISTENER).chain(&SECRET) {
            assert!(known(proxy, name).is_some(), "{name}");
        }
        for name in OF_A_RUN {
            assert!(proxy.get_arguments().any(|arg| arg.get_long() == Some(name)), "{name}");
            assert!(known(proxy, name).is_none(), "{name}");
        }
        // What needs --listen is in the list of what is for a listener alone.
        for arg in proxy.get_arguments().filter(|arg| arg.get_help_heading().is_some()) {
            let Some(name) = arg.get_long().filter(|name| known(proxy, name).is_some()) else { continue };
            let given = if arg.get_action().takes_values() {
                // A value that the option takes, or else that is what is wrong.
                ["1", "/x", "https://a.example", "1s", "2M"].map(|value| format!("--{name}={value}")).to_vec()
            } else {
                vec![format!("--{name}")]
            };
            let refused =
                |given: &String| Cli::try_parse_from(["assay", PROXY, "--upstream-url=http://h/", given]).err();
            let needs = given.iter().filter_map(refused).any(|e| e.to_string().contains("--listen"));
            assert_eq!(needs, OF_LISTENER.contains(&name), "{name}");
        }
    }
}
