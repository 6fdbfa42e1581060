//! The configuration of the gateway (`assay.gateway.yaml`).
//!
//! ```yaml
//! version: "1"
//! listen: 127.0.0.1:8484
//! services:
//!   search:
//!     url: https://mcp.example.com/mcp
//!     headers: { Authorization: { env: SEARCH_TOKEN, prefix: "Bearer " } }
//! ```
//!
//! A file may hold a credential by mistake, so errors tell its line and column, and never quote it.

mod started;

pub use started::{Started, Variable, duration};

use super::credential::{Place as SecretPlace, Reference, is_variable};
use crate::{
    clients::command::is_of_connection,
    error::Failure,
    files,
    model::{Profile, surface::First, version},
    pack::verify::request,
    policy::Policy,
    prune::{self, Keep},
    relay::http::{access, connect, listen::ListenAddr},
    surface::rules::{MAX_RULES, Rules},
    yaml::{Error, Node, Place, Source},
};
use http::HeaderName;
use started::{is_of_commands, own_url};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};
use url::Url;

/// Version of a gateway's configuration: `N`, or `N.M` for a later minor one.
///
/// | version | change |
/// |---|---|
/// | 1 | first |
pub const CONFIG_VERSION: &str = "1";

/// Where it is looked for.
pub const CONFIG_FILE: &str = "assay.gateway.yaml";

/// Bytes of the largest file that is read.
const MAX_CONFIG: u64 = 1 << 20;
/// Services of one gateway: each has threads and files of its own.
pub const MAX_SERVICES: usize = 256;
/// Bytes of the longest name of a service.
const MAX_NAME: usize = 63;
/// First parts of paths that are the gateway's own.
const RESERVED: [&str; 7] = ["admin", "api", "metrics", "livez", "readyz", "static", ".well-known"];

const KEYS: [&str; 12] = [
    "version",
    "listen",
    "admin_listen",
    "allow_remote",
    "allow_hosts",
    "allow_origins",
    "token",
    "admin",
    "metrics",
    "policies",
    "defaults",
    "services",
];
const ADMIN: [&str; 3] = ["token", "approvers", "credentials"];
const DEFAULTS: [&str; 6] = ["profile", "policy", "check_frequency_minutes", "surface_first", "surface_rules", "keep"];
const SERVICE: [&str; 15] = [
    "url",
    "command",
    "env",
    "cwd",
    "sessions",
    "enabled",
    "headers",
    "inject",
    "cacert",
    "profile",
    "policy",
    "check_frequency_minutes",
    "surface_first",
    "surface_rules",
    "keep",
];
/// What the place of a service begins with that is started by a command.
pub const COMMAND: &str = "command:";
/// Minutes from one check to the next that can be asked for, besides 0.
const FREQUENCY: std::ops::RangeInclusive<u64> = 5..=43_200;
/// The same where nobody says how often.
pub const USUAL_FREQUENCY: u32 = 60;

/// What a gateway is asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect to.
    pub listen: ListenAddr,
    /// Whether other machines may.
    pub allow_remote: bool,
    /// More values of Host.
    pub hosts: Vec<String>,
    /// More values of Origin.
    pub origins: Vec<String>,
    /// The token that clients send.
    pub token: Option<Reference>,
    /// Where the API and the pages are, if not beside the routes.
    pub admin_listen: Option<ListenAddr>,
    /// Who may do what there.
    pub admin: Admin,
    /// Who may read the metrics.
    pub metrics: MetricsFor,
    /// Policies that services made by the API may name.
    pub policies: BTreeMap<String, PathBuf>,
    /// What services have that say nothing else.
    pub defaults: Defaults,
    /// The directory from which paths count.
    pub dir: PathBuf,
    /// The services, by name.
    pub services: Vec<Service>,
}

/// Who may do what by the API and the pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admin {
    /// A token for everything, besides those that the registry has.
    pub token: Option<Reference>,
    /// Fingerprints of the keys whose approvals count; any does if there are none.
    pub approvers: BTreeSet<String>,
    /// Credentials that services made by the API may name. Over the Unix socket they may name any.
    pub credentials: Vec<SecretPlace>,
}

/// Who may read the metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum MetricsFor {
    /// Nobody.
    #[default]
    Nobody,
    /// Who has this token.
    Token(Reference),
    /// Everybody who can connect.
    Everybody,
}

/// A server behind the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name: the first part of its path.
    pub name: String,
    /// Its MCP endpoint. The query may be a secret. Of a command, the endpoint at which the gateway itself serves it; the digest
    /// of the command is part of it.
    pub url: Url,
    /// What starts it, if it has no URL of its own.
    pub started: Option<Started>,
    /// Whether it is wanted.
    pub enabled: bool,
    /// Credentials for it.
    pub headers: Vec<(HeaderName, Reference)>,
    /// Whether requests of clients get the headers, too, in place of what they have.
    pub inject: bool,
    /// More certificates to trust.
    pub cacert: Option<PathBuf>,
    /// Whether a policy is enforced.
    pub profile: Profile,
    /// The policy.
    pub policy: Option<PathBuf>,
    /// Minutes from one look at what it offers to the next; 0: it is looked at until it was seen, and then no more.
    pub check_frequency_minutes: u32,
    /// What is done while nothing was decided about it.
    pub first: First,
    /// What of it is pinned.
    pub rules: Rules,
    /// Which of its sessions stay; all of them without it.
    pub keep: Option<Keep>,
}

impl Service {
    /// The path under which clients find it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}/mcp", self.name)
    }

    /// Where it is, without what may be a secret: a URL, or `command:` and the name of a program.
    #[must_use]
    pub fn place(&self) -> String {
        let program = self.started.as_ref().and_then(|started| started.command.first());
        program.map_or_else(
            || connect::without_secrets(&self.url),
            |program| format!("{COMMAND}{}", program.rsplit('/').next().unwrap_or_default()),
        )
    }
}

impl Config {
    /// Reads the file. Paths in it count from the directory that it is in; the policies that it names are read, too.
    ///
    /// # Errors
    /// What is not understood, at its place; exit code 3.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        let read = files::named(path).and_then(|file| files::read_all(file, MAX_CONFIG));
        let text = read.map_err(|e| {
            Failure::bad_input(format_args!("cannot read {}: {e}", path.display()))
                .hint("name the file with --config; docs/gateway.md has one to begin with")
        })?;
        let dir = path.parent().unwrap_or(Path::new(""));
        let config = Self::parse(&text, &path.to_string_lossy(), dir).map_err(Failure::bad_input)?;
        let policies = config.services.iter().filter_map(|s| Some((s.name.as_str(), s.policy.as_ref()?)));
        for (name, policy) in policies.chain(config.policies.iter().map(|(name, policy)| (name.as_str(), policy))) {
            // It may be another file by mistake, one with a secret.
            Policy::load_if_quiet(policy).map_err(|e| {
                let e = Error { excerpt: None, ..e };
                Failure::bad_input(format_args!("the policy of {name}: {e}"))
            })?;
        }
        Ok(config)
    }

    /// Reads the text of a file; errors give `name` in place of a path.
    ///
    /// # Errors
    /// What is not understood, at its place.
    pub fn parse(text: &[u8], name: &str, dir: &Path) -> Result<Self, Error> {
        let read = || Reader { source: Source::of(name, text)?, dir }.config();
        read().map_err(|e| Error { excerpt: None, ..e })
    }
}

/// What services have that say nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Whether a policy is enforced.
    pub profile: Option<Profile>,
    /// The policy.
    pub policy: Option<PathBuf>,
    /// Minutes between checks.
    pub check_frequency_minutes: Option<u32>,
    /// What is done while nothing was decided.
    pub first: Option<First>,
    /// What is pinned.
    pub rules: Option<Rules>,
    /// Which sessions stay.
    pub keep: Option<Keep>,
}

struct Reader<'a> {
    source: Source<'a>,
    dir: &'a Path,
}

impl Reader<'_> {
    fn config(&self) -> Result<Config, Error> {
        let source = &self.source;
        let start = Place { line: 1, column: 1, width: 1 };
        let root = source.read()?.ok_or_else(|| source.error(start, "it is empty").hint("write version: \"1\""))?;
        let mut config = Config {
            listen: ListenAddr::Tcp(([127, 0, 0, 1], 8484).into()),
            allow_remote: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            token: None,
            admin_listen: None,
            admin: Admin::default(),
            metrics: MetricsFor::Nobody,
            policies: BTreeMap::new(),
            defaults: Defaults::default(),
            dir: self.dir.to_owned(),
            services: Vec::new(),
        };
        let (mut defaults, mut services, mut has_version) = (Defaults::default(), None, false);
        let (mut listen_at, mut admin_at) = (start, start);
        for (key, value) in source.mapping(&root, "the file")? {
            match key.text().unwrap_or_default() {
                "version" => {
                    self.version(value)?;
                    has_version = true;
                }
                "listen" => {
                    listen_at = value.place;
                    config.listen =
                        source.string(value, "listen")?.parse().map_err(|e: String| source.error(value.place, e))?;
                }
                "admin_listen" => {
                    admin_at = value.place;
                    let text = source.string(value, "admin_listen")?;
                    config.admin_listen = Some(text.parse().map_err(|e: String| source.error(value.place, e))?);
                }
                "admin" => config.admin = self.admin(value)?,
                "policies" => {
                    for (name, value) in source.mapping(value, "policies")? {
                        let name = name.text().unwrap_or_default().to_owned();
                        config.policies.insert(name, self.path(value, "policies")?);
                    }
                }
                "allow_remote" => config.allow_remote = source.flag(value, "allow_remote")?,
                "allow_hosts" => {
                    for host in source.sequence(value, "allow_hosts")? {
                        config.hosts.push(source.string(host, "allow_hosts")?.to_owned());
                    }
                }
                "allow_origins" => {
                    for origin in source.sequence(value, "allow_origins")? {
                        let text = source.string(origin, "allow_origins")?;
                        let bad = || source.error(origin.place, "expected an origin, as in https://app.example.com");
                        config.origins.push(access::origin(text).ok_or_else(bad)?);
                    }
                }
                "token" => config.token = Some(self.reference(value, "token", false)?),
                "metrics" => config.metrics = self.metrics(value)?,
                "defaults" => {
                    for (key, value) in source.mapping(value, "defaults")? {
                        match key.text().unwrap_or_default() {
                            "profile" => defaults.profile = Some(self.profile(value)?),
                            "policy" => defaults.policy = Some(self.path(value, "policy")?),
                            "check_frequency_minutes" => {
                                defaults.check_frequency_minutes = Some(self.frequency(value)?);
                            }
                            "surface_first" => defaults.first = Some(self.first(value)?),
                            "surface_rules" => defaults.rules = Some(self.rules(value)?),
                            "keep" => defaults.keep = self.keep(value)?,
                            _ => return Err(source.unknown(key, &DEFAULTS)),
                        }
                    }
                }
                "services" => services = Some(value),
                _ => return Err(source.unknown(key, &KEYS)),
            }
        }
        if !has_version {
            return Err(source.error(start, "`version` is missing").hint("write version: \"1\""));
        }
        if !config.listen.is_local() {
            let (what, hint) = match (config.allow_remote, &config.token) {
                (false, _) => ("other machines could connect there", "write allow_remote: true, and a token"),
                (true, None) => ("other machines could connect there without a token", "write token: { file: PATH }"),
                (true, Some(_)) => ("", ""),
            };
            if !what.is_empty() {
                return Err(source.error(listen_at, what).hint(hint));
            }
        }
        if !config.allow_remote && config.admin_listen.as_ref().is_some_and(|listen| !listen.is_local()) {
            return Err(source
                .error(admin_at, "other machines could connect there")
                .hint("write allow_remote: true, and have TLS in front of it"));
        }
        config.defaults = defaults.clone();
        if let Some(node) = services {
            let pairs = source.mapping(node, "services")?;
            if pairs.len() > MAX_SERVICES {
                return Err(source.error(node.place, format!("more than {MAX_SERVICES} services")));
            }
            for (name, value) in pairs {
                config.services.push(self.service(name, value, &defaults)?);
            }
        }
        config.services.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(config)
    }

    fn admin(&self, node: &Node) -> Result<Admin, Error> {
        let source = &self.source;
        let mut admin = Admin::default();
        for (key, value) in source.mapping(node, "admin")? {
            match key.text().unwrap_or_default() {
                "token" => admin.token = Some(self.reference(value, "token", false)?),
                "approvers" => {
                    for key in source.sequence(value, "approvers")? {
                        let fingerprint = request::fingerprint(source.string(key, "approvers")?);
                        admin.approvers.insert(fingerprint.map_err(|why| source.error(key.place, why))?);
                    }
                }
                "credentials" => {
                    for place in source.sequence(value, "credentials")? {
                        admin.credentials.push(self.reference(place, "credentials", false)?.place);
                    }
                }
                _ => return Err(source.unknown(key, &ADMIN)),
            }
        }
        Ok(admin)
    }

    fn version(&self, value: &Node) -> Result<(), Error> {
        let text = value.text();
        if text == Some(CONFIG_VERSION) {
            return Ok(());
        }
        Err(match text.and_then(|text| version::newer_text("gateway's configuration", text, CONFIG_VERSION)) {
            Some(e) => self.source.error(value.place, e.to_string()),
            None => self.source.error(value.place, "this version is unknown").hint("write version: \"1\""),
        })
    }

    fn service(&self, name: &Node, node: &Node, defaults: &Defaults) -> Result<Service, Error> {
        let source = &self.source;
        let text = name.text().unwrap_or_default();
        is_name(text).map_err(|why| source.error(name.place, why))?;
        let pairs = source.mapping(node, text)?;
        let of = |key: &str| pairs.iter().find(|(name, _)| name.text() == Some(key));
        let (url, started) = match (of("url"), of("command")) {
            (Some((_, url)), None) => (self.url(url)?, None),
            (None, Some((_, command))) => {
                let started = self.started(command, pairs)?;
                (own_url(&started.command).map_err(|e| source.error(command.place, e))?, Some(started))
            }
            (Some(_), Some((command, _))) => {
                return Err(source.error(command.place, "`url` and `command` exclude each other"));
            }
            (None, None) => {
                return Err(source
                    .error(name.place, format!("`url` of {text} is missing"))
                    .hint("or give a `command`"));
            }
        };
        let is_command = started.is_some();
        let mut service = Service {
            name: text.to_owned(),
            url,
            started,
            enabled: true,
            headers: Vec::new(),
            inject: false,
            cacert: None,
            profile: defaults.profile.unwrap_or(Profile::Audit),
            policy: defaults.policy.clone(),
            check_frequency_minutes: defaults.check_frequency_minutes.unwrap_or(USUAL_FREQUENCY),
            first: defaults.first.unwrap_or(First::Tofu),
            rules: defaults.rules.clone().unwrap_or_default(),
            keep: defaults.keep,
        };
        let mut profile_at = name.place;
        for (key, value) in pairs {
            match key.text().unwrap_or_default() {
                "url" | "command" => {}
                "env" | "cwd" | "sessions" if is_command => {}
                known @ ("headers" | "inject" | "cacert" | "env" | "cwd" | "sessions")
                    if is_command != is_of_commands(known) =>
                {
                    let whose = if is_command { "a command" } else { "a server with a URL" };
                    return Err(source.error(key.place, format!("`{known}` means nothing for {whose}")));
                }
                "enabled" => service.enabled = source.flag(value, "enabled")?,
                "headers" => {
                    for (name, value) in source.mapping(value, "headers")? {
                        service.headers.push((self.header_name(name)?, self.reference(value, "headers", true)?));
                    }
                }
                "inject" => service.inject = source.flag(value, "inject")?,
                "cacert" => service.cacert = Some(self.path(value, "cacert")?),
                "profile" => {
                    profile_at = value.place;
                    service.profile = self.profile(value)?;
                }
                "policy" => service.policy = Some(self.path(value, "policy")?),
                "check_frequency_minutes" => service.check_frequency_minutes = self.frequency(value)?,
                "surface_first" => service.first = self.first(value)?,
                "surface_rules" => service.rules = self.rules(value)?,
                "keep" => service.keep = self.keep(value)?,
                _ => return Err(source.unknown(key, &SERVICE)),
            }
        }
        if service.profile == Profile::Guard && service.policy.is_none() {
            return Err(source
                .error(profile_at, format!("{text} is guarded and has no policy"))
                .hint("write policy: FILE; assay policy init makes a first one"));
        }
        Ok(service)
    }

    fn url(&self, node: &Node) -> Result<Url, Error> {
        let text = self.source.string(node, "url")?;
        connect::endpoint(text).map_err(|why| {
            self.source
                .error(node.place, format!("`url` {why}"))
                .hint("give the server's MCP endpoint, as in https://mcp.example.com/mcp; credentials go into headers")
        })
    }

    fn header_name(&self, node: &Node) -> Result<HeaderName, Error> {
        let text = self.source.string(node, "headers")?;
        let name: HeaderName =
            text.parse().map_err(|_| self.source.error(node.place, "this is no name of a header"))?;
        if is_of_connection(name.as_str()) {
            return Err(self.source.error(node.place, format!("{name} belongs to the connection, which assay makes")));
        }
        Ok(name)
    }

    /// A secret is never in the file: `{ env: NAME }` or `{ file: PATH }`, with a prefix where it is for a header.
    fn reference(&self, node: &Node, key: &str, prefixed: bool) -> Result<Reference, Error> {
        const HINT: &str = "say where it is: { env: NAME } or { file: PATH }";
        let source = &self.source;
        if node.text().is_some() {
            return Err(source.error(node.place, format!("`{key}` has a credential in the file itself")).hint(HINT));
        }
        let (mut place, mut prefix) = (None, String::new());
        for (key, value) in source.mapping(node, key)? {
            let given = match key.text().unwrap_or_default() {
                "env" => {
                    let name = source.string(value, "env")?;
                    if !is_variable(name) {
                        return Err(source.error(value.place, "this is no name of an environment variable").hint(HINT));
                    }
                    SecretPlace::Env(name.to_owned())
                }
                "file" => SecretPlace::File(self.path(value, "file")?),
                "prefix" if prefixed => {
                    source.string(value, "prefix")?.clone_into(&mut prefix);
                    continue;
                }
                _ if prefixed => return Err(source.unknown(key, &["env", "file", "prefix"])),
                _ => return Err(source.unknown(key, &["env", "file"])),
            };
            if place.replace(given).is_some() {
                return Err(source.error(key.place, "`env` and `file` exclude each other"));
            }
        }
        let place = place.ok_or_else(|| source.error(node.place, format!("`{key}` names no place")).hint(HINT))?;
        Ok(Reference { place, prefix })
    }

    fn metrics(&self, node: &Node) -> Result<MetricsFor, Error> {
        let source = &self.source;
        let (mut token, mut public) = (None, false);
        for (key, value) in source.mapping(node, "metrics")? {
            match key.text().unwrap_or_default() {
                "public" => public = source.flag(value, "public")?,
                "token" => token = Some(self.reference(value, "token", false)?),
                _ => return Err(source.unknown(key, &["public", "token"])),
            }
        }
        match token {
            Some(_) if public => Err(source.error(node.place, "`public` metrics need no `token`")),
            Some(token) => Ok(MetricsFor::Token(token)),
            None if public => Ok(MetricsFor::Everybody),
            None => Ok(MetricsFor::Nobody),
        }
    }

    fn profile(&self, node: &Node) -> Result<Profile, Error> {
        match self.source.string(node, "profile")? {
            "audit" => Ok(Profile::Audit),
            "guard" => Ok(Profile::Guard),
            _ => Err(self.source.error(node.place, "`profile` is audit or guard")),
        }
    }

    fn frequency(&self, node: &Node) -> Result<u32, Error> {
        let minutes = self.source.count(node, "check_frequency_minutes")?;
        let bad = |why: String| {
            self.source
                .error(node.place, format!("`check_frequency_minutes` {why}"))
                .hint("a day has 1440 minutes, a week 10080")
        };
        is_frequency(minutes).map_err(bad)
    }

    fn first(&self, node: &Node) -> Result<First, Error> {
        match self.source.string(node, "surface_first")? {
            "tofu" => Ok(First::Tofu),
            "approve" => Ok(First::Approve),
            _ => Err(self.source.error(node.place, "`surface_first` is tofu or approve")),
        }
    }

    fn rules(&self, node: &Node) -> Result<Rules, Error> {
        let path = self.path(node, "surface_rules")?;
        let text = files::named(&path).and_then(|file| files::read_all(file, MAX_RULES));
        let text = text.map_err(|e| self.source.error(node.place, format!("cannot read {}: {e}", path.display())))?;
        Rules::parse(&text, &path.to_string_lossy())
    }

    /// Limits on what is kept; `{}` sets none, whatever the defaults say.
    fn keep(&self, node: &Node) -> Result<Option<Keep>, Error> {
        let source = &self.source;
        let mut keep = Keep::default();
        for (key, value) in source.mapping(node, "keep")? {
            match key.text().unwrap_or_default() {
                "days" => {
                    let days = source.count(value, "days")?;
                    let limit = days.checked_mul(24 * 60 * 60).filter(|_| days > 0);
                    let limit = limit.ok_or_else(|| source.error(value.place, "`days` is a number from 1 on"))?;
                    keep.age = Some(Duration::from_secs(limit));
                }
                "bytes" => {
                    let limit = prune::bytes(source.string(value, "bytes")?);
                    keep.bytes = Some(limit.map_err(|why| source.error(value.place, why))?);
                }
                "sessions" => keep.sessions = Some(source.count(value, "sessions")?),
                _ => return Err(source.unknown(key, &["days", "bytes", "sessions"])),
            }
        }
        Ok(Some(keep).filter(|keep| !keep.is_everything()))
    }

    fn path(&self, node: &Node, key: &str) -> Result<PathBuf, Error> {
        Ok(self.dir.join(self.source.string(node, key)?))
    }
}

/// How often a service can be looked at.
///
/// # Errors
/// Why not, as a fragment.
pub fn is_frequency(minutes: u64) -> Result<u32, String> {
    if minutes == 0 || FREQUENCY.contains(&minutes) {
        return Ok(minutes as u32);
    }
    Err(format!("is 0, or {} to {}", FREQUENCY.start(), FREQUENCY.end()))
}

/// Whether a service can have this name.
///
/// # Errors
/// Why not, as a fragment.
pub fn is_name(text: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_plain = text.bytes().next().is_some_and(plain) && text.bytes().all(|b| plain(b) || b"._-".contains(&b));
    if !is_plain || text.len() > MAX_NAME {
        return Err(format!(
            "a service's name has 1 to {MAX_NAME} small letters, digits, '.', '_' and '-', and begins with a letter or digit"
        ));
    }
    if RESERVED.contains(&text) {
        return Err(format!("the path /{text} is the gateway's own: take another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, Error> {
        Config::parse(text.as_bytes(), "g.yaml", Path::new("/etc/assay"))
    }

    #[test]
    fn a_whole_file_is_read() {
        let config = parse(
            "version: \"1\"\nlisten: 0.0.0.0:8484\nallow_remote: true\nallow_hosts: [gw.example]\n\
             allow_origins: [https://app.example/]\ntoken: { file: token }\nmetrics: { public: true }\ndefaults: { profile: guard, policy: all.yaml, keep: { days: 90, bytes: 10G } }\n\
             services:\n  web:\n    url: https://b.example/mcp?k=1\n    profile: audit\n    enabled: false\n  files.2:\n    \
             url: http://127.0.0.1:9/mcp\n    headers: { Authorization: { env: T, prefix: \"Bearer \" } }\n    inject: true\n    \
             cacert: /ca.pem\n    check_frequency_minutes: 10080\n    surface_first: approve\n    keep: {}\n",
        )
        .unwrap();
        assert_eq!(config.listen, ListenAddr::Tcp("0.0.0.0:8484".parse().unwrap()));
        assert_eq!((&config.hosts[0][..], &config.origins[0][..]), ("gw.example", "https://app.example"));
        assert_eq!(config.metrics, MetricsFor::Everybody);
        assert_eq!(config.token.unwrap().place.to_string(), "file:/etc/assay/token");
        let [files, web] = &config.services[..] else { panic!("{:?}", config.services) };
        assert_eq!(
            (&files.name[..], files.path().as_str(), files.profile),
            ("files.2", "/files.2/mcp", Profile::Guard)
        );
        assert_eq!(files.policy.as_deref(), Some(Path::new("/etc/assay/all.yaml")));
        assert_eq!(files.cacert.as_deref(), Some(Path::new("/ca.pem")));
        let (name, value) = &files.headers[0];
        assert_eq!(
            (name.as_str(), value.place.to_string(), &value.prefix[..]),
            ("authorization", "env:T".into(), "Bearer ")
        );
        assert!(files.enabled && files.inject && !web.enabled && !web.inject);
        assert_eq!((files.check_frequency_minutes, files.first), (10_080, First::Approve));
        assert_eq!((web.check_frequency_minutes, web.first), (60, First::Tofu));
        let keep = Keep { age: Some(Duration::from_hours(90 * 24)), bytes: Some(10 << 30), sessions: None };
        assert_eq!((web.keep, files.keep), (Some(keep), None));
        assert_eq!((web.profile, web.url.query()), (Profile::Audit, Some("k=1")));
        let least = parse("version: \"1\"").unwrap();
        assert_eq!((least.listen.to_string().as_str(), least.services.len()), ("127.0.0.1:8484", 0));
    }

    #[test]
    fn what_is_not_understood_is_an_error_at_its_place_which_quotes_nothing() {
        for (text, place, said) in [
            ("", "1:1", "it is empty"),
            ("listen: localhost:1\n", "1:1", "`version` is missing"),
            ("version: \"2\"\n", "1:10", "it needs a later assay"),
            ("version: \"1\"\nlisten: nowhere\n", "2:9", "expected an address with a port"),
            ("version: \"1\"\nlisten: 0.0.0.0:1\n", "2:9", "other machines could connect there"),
            ("version: \"1\"\nallow_remote: true\nlisten: 0.0.0.0:1\n", "3:9", "without a token"),
            ("version: \"1\"\nlisten: 0.0.0.0:1\nallow_remote: true\ntoken: c4n4ry\n", "4:8", "in the file itself"),
            ("version: \"1\"\nmetrics: { token: c4n4ry }\n", "2:19", "in the file itself"),
            ("version: \"1\"\nmetrics: { public: true, token: { env: A } }\n", "2:10", "need no `token`"),
            ("version: \"1\"\nallow_origins: [app]\n", "2:17", "expected an origin"),
            ("version: \"1\"\nservice: {}\n", "2:1", "did you mean `services`?"),
            ("version: \"1\"\nservices:\n  Big: { url: http://x/ }\n", "3:3", "small letters"),
            ("version: \"1\"\nservices:\n  api: { url: http://x/ }\n", "3:3", "the gateway's own"),
            ("version: \"1\"\nservices:\n  a: { enabled: true }\n", "3:3", "`url` of a is missing"),
            ("version: \"1\"\nservices:\n  a: { url: \"http://u:c4n4ry@x/\" }\n", "3:13", "a user name or a password"),
            ("version: \"1\"\nservices:\n  a: { url: ftp://x/ }\n", "3:13", "no http:// or https:// URL"),
            ("version: \"1\"\nservices:\n  a: { url: http://x/?c4n4ry, urls: 1 }\n", "3:31", "unknown key `urls`"),
            ("version: \"1\"\nservices:\n  a: { url: http://x/, profile: guard }\n", "3:33", "has no policy"),
            ("version: \"1\"\nservices:\n  a: { url: http://x/, profile: escrow }\n", "3:33", "is audit or guard"),
            ("version: \"1\"\ndefaults: { check_frequency_minutes: 4 }\n", "2:38", "is 0, or 5 to 43200"),
            ("version: \"1\"\ndefaults: { keep: { days: 0 } }\n", "2:27", "from 1 on"),
            ("version: \"1\"\ndefaults: { keep: { bytes: 10X } }\n", "2:28", "is no size"),
            ("version: \"1\"\ndefaults: { keep: { day: 1 } }\n", "2:21", "did you mean `days`?"),
            ("version: \"1\"\ndefaults: { surface_first: ask }\n", "2:28", "is tofu or approve"),
            ("version: \"1\"\ndefaults: { surface_rules: none.yaml }\n", "2:28", "cannot read /etc/assay/none.yaml"),
            (
                "version: \"1\"\nservices:\n  a: { url: http://x/, headers: { X: c4n4ry } }\n",
                "3:38",
                "in the file itself",
            ),
            (
                "version: \"1\"\nservices:\n  a: { url: http://x/, headers: { Host: { env: A } } }\n",
                "3:35",
                "belongs to the",
            ),
            ("version: \"1\"\nservices:\n  a: { url: http://x/, headers: { X: {} } }\n", "3:38", "names no place"),
            (
                "version: \"1\"\nservices:\n  a: { url: http://x/, headers: { X: { env: \"Bearer c4n4ry\" } } }\n",
                "3:45",
                "no name of an environment variable",
            ),
            ("version: \"1\"\nservices:\n  a: { url: \"user:c4n4ry@h/mcp\" }\n", "3:13", "no http:// or https:// URL"),
            (
                "version: \"1\"\nservices:\n  a: { url: http://x/, headers: { X: { env: A, file: B } } }\n",
                "3:48",
                "exclude",
            ),
            ("version: \"1\"\nservices:\n  a: { url: http://x/ }\n  a: { url: http://y/ }\n", "4:3", "occurs twice"),
            ("version: \"1\"\nservices:\n  a: { url: http://x/, command: [c4n4ry] }\n", "3:24", "exclude each other"),
            ("version: \"1\"\nservices:\n  a: { url: http://x/, cwd: / }\n", "3:24", "nothing for a server with a URL"),
            ("version: \"1\"\nservices:\n  a: { command: [x], inject: true }\n", "3:22", "nothing for a command"),
            ("version: \"1\"\nservices:\n  a: { command: [] }\n", "3:17", "is empty"),
            ("version: \"1\"\nservices:\n  a: { command: [x], env: { A: c4n4ry } }\n", "3:32", "in the file itself"),
            ("version: \"1\"\nservices:\n  a: { command: [x], sessions: { max: 0 } }\n", "3:39", "from 1 to 1024"),
            ("version: \"1\"\nservices:\n  a: { command: [x], sessions: { idle: 15d } }\n", "3:40", "as in 30m"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(&format!("g.yaml:{place}")), "{text}: {error}");
            assert!(!error.contains("c4n4ry"), "{error}");
        }
    }
}
