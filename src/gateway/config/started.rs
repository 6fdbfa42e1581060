//! Servers that are commands, in the configuration.

use super::Reader;
use crate::{
    gateway::credential::Reference,
    record::recorder::Origin,
    yaml::{Error, Node},
};
use std::{path::PathBuf, time::Duration};
use url::Url;

/// Processes of a command at the same time, if nobody says how many; and at most.
const PROCESSES: (u64, u64) = (32, 1024);
/// How long a session stays whose client is not heard of, if nobody says how long.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// What starts a server that has no URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables of its environment, besides those that every program needs.
    pub env: Vec<(String, Variable)>,
    /// Its directory; that of the gateway without it.
    pub cwd: Option<PathBuf>,
    /// Processes at the same time.
    pub max: usize,
    /// How long a session stays whose client is not heard of.
    pub idle: Duration,
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Variable {
    /// A secret.
    Secret(Reference),
    /// What is no secret.
    Plain(String),
}

impl Reader<'_> {
    /// What starts a service: its command, and what else is said of it.
    pub(super) fn started(&self, command: &Node, pairs: &[(Node, Node)]) -> Result<Started, Error> {
        let source = &self.source;
        let mut argv = Vec::new();
        for part in source.sequence(command, "command")? {
            let text = source.string(part, "command")?;
            if text.contains('\0') {
                return Err(source.error(part.place, "no argument can have this"));
            }
            argv.push(text.to_owned());
        }
        match argv.first_mut() {
            None => {
                return Err(source
                    .error(command.place, "`command` is empty")
                    .hint("as in [mcp-server-git, --repository, .]"));
            }
            Some(program) if program.is_empty() => {
                return Err(source.error(command.place, "`command` names no program"));
            }
            Some(program) if program.contains('/') => {
                let path = std::path::absolute(self.dir.join(&*program));
                let path = path.map_err(|e| source.error(command.place, format!("`command` has no place: {e}")))?;
                *program = path.to_str().unwrap_or(program).to_owned();
            }
            Some(_) => {}
        }
        let mut started = Started { command: argv, env: Vec::new(), cwd: None, max: PROCESSES.0 as usize, idle: IDLE };
        for (key, value) in pairs {
            match key.text().unwrap_or_default() {
                "env" => {
                    for (name, value) in source.mapping(value, "env")? {
                        let text = source.string(name, "env")?;
                        if text.is_empty() || text.contains(['=', '\0']) {
                            return Err(source.error(name.place, "this is no name of a variable"));
                        }
                        started.env.push((text.to_owned(), self.variable(value)?));
                    }
                }
                "cwd" => started.cwd = Some(self.path(value, "cwd")?),
                "sessions" => {
                    for (key, value) in source.mapping(value, "sessions")? {
                        match key.text().unwrap_or_default() {
                            "max" => {
                                let max = source.count(value, "max")?;
                                if !(1..=PROCESSES.1).contains(&max) {
                                    let why = format!("`max` is a number from 1 to {}", PROCESSES.1);
                                    return Err(source.error(value.place, why));
                                }
                                started.max = max as usize;
                            }
                            "idle" => {
                                let idle = duration(source.string(value, "idle")?);
                                started.idle = idle.map_err(|why| source.error(value.place, why))?;
                            }
                            _ => return Err(source.unknown(key, &["max", "idle"])),
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(started)
    }

    /// `{ env: NAME }`, `{ file: PATH }`, or `{ value: TEXT }` for what is no secret.
    fn variable(&self, node: &Node) -> Result<Variable, Error> {
        if node.text().is_none()
            && let [(key, value)] = self.source.mapping(node, "env")?
            && key.text() == Some("value")
        {
            return Ok(Variable::Plain(self.source.string(value, "value")?.to_owned()));
        }
        Ok(Variable::Secret(self.reference(node, "env", false)?))
    }
}

/// Whether a key of a service is one of those that are started by a command.
pub(super) fn is_of_commands(key: &str) -> bool {
    matches!(key, "env" | "cwd" | "sessions")
}

/// Where the gateway serves a command: another command is another endpoint.
pub(super) fn own_url(command: &[String]) -> Result<Url, String> {
    let digest = Origin::of_command(command.to_vec(), false).digest().replace(':', "-");
    Url::parse(&format!("http://localhost/{digest}/mcp")).map_err(|e| e.to_string())
}

/// A time as people write it: a number with s, m or h.
///
/// # Errors
/// What was expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    let bad = || "expected a number above 0 with s, m or h, as in 30m".to_owned();
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(bad)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(bad()),
    };
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|n| is_number && (1..=1_000_000).contains(n)).ok_or_else(bad)?;
    Ok(Duration::from_secs(number * unit))
}

#[cfg(test)]
mod tests {
    use crate::gateway::config::Config;
    use std::path::Path;

    #[test]
    fn a_command_is_read_with_all_that_it_needs() {
        let parse = |service: &str| {
            let text = format!("version: \"1\"\nservices:\n  a: {service}\n");
            Config::parse(text.as_bytes(), "g.yaml", Path::new("/etc/assay")).unwrap().services.remove(0)
        };
        let service = parse(
            "{ command: [./bin/server, /srv], env: { KEY: { file: key }, LEVEL: { value: debug } }, cwd: data, \
             sessions: { max: 4, idle: 90s } }",
        );
        let place = service.place();
        let started = service.started.unwrap();
        assert_eq!(
            (place.as_str(), &started.command[..]),
            ("command:server", &["/etc/assay/bin/server", "/srv"].map(String::from)[..])
        );
        assert_eq!(
            format!("{:?}", started.env),
            r#"[("KEY", Secret(file:/etc/assay/key)), ("LEVEL", Plain("debug"))]"#
        );
        assert_eq!(
            (started.cwd.as_deref(), started.max, started.idle.as_secs()),
            (Some(Path::new("/etc/assay/data")), 4, 90)
        );
        // Another command is another endpoint; nothing else is.
        let url = |service: &str| parse(service).url;
        assert_eq!(url("{ command: [x, a], cwd: / }"), url("{ command: [x, a] }"));
        assert_ne!(url("{ command: [x, a] }"), url("{ command: [x, b] }"));
        assert!(url("{ command: [x] }").as_str().starts_with("http://localhost/sha256-"));
    }
}
