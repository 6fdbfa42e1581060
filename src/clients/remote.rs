//! Servers that a client reaches by a URL: what of such an entry can become the command of the bridge, and what cannot.

use super::{
    command::is_of_connection,
    table::Client,
    tree::{Found, Kind, Member, Node},
};
use std::collections::HashSet;
use url::Url;

/// Names of a URL.
pub const URLS: [&str; 5] = ["url", "serverUrl", "httpUrl", "uri", "endpoint"];
/// Names of what says how the server is spoken with.
const KINDS: [&str; 2] = ["type", "transport"];
/// Members, beside those that begin with `oauth` or `auth`, from which a client makes credentials itself.
const LOGINS: [&str; 5] = ["scopes", "headersHelper", "bearer_token_env_var", "env_http_headers", "requestOptions"];

/// How entries of a client name their members: those of a server by URL, and those of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The values of headers.
    pub headers: &'static str,
    /// The command.
    pub command: &'static str,
    /// Its arguments; none where the command is one list.
    pub args: Option<&'static str>,
    /// The environment.
    pub env: &'static str,
    /// The type of a server that is started with a command.
    pub local: &'static str,
}

const PLAIN: Shape = Shape { headers: "headers", command: "command", args: Some("args"), env: "env", local: "stdio" };
const CODEX: Shape = Shape { headers: "http_headers", ..PLAIN };
const GOOSE: Shape = Shape { command: "cmd", env: "envs", ..PLAIN };
const OPENCODE: Shape = Shape { args: None, env: "environment", local: "local", ..PLAIN };

/// The members of an entry by URL that change.
#[derive(Debug)]
pub struct Remote<'n> {
    /// How they are named.
    pub shape: Shape,
    /// The URL.
    pub url: &'n Member,
    /// The type, or transport.
    pub kind: Option<&'n Member>,
    /// The headers.
    pub headers: Option<&'n Member>,
}

/// The member that says how the server is spoken with.
pub fn kind(map: &Node) -> Option<&Member> {
    KINDS.iter().find_map(|key| match map.find(key) {
        Found::One(member) => Some(member),
        _ => None,
    })
}

/// Reads an entry by URL.
///
/// # Errors
/// Why it cannot become the command of the bridge, and what to do.
pub fn read<'n>(map: &'n Node, client: &Client) -> Result<Remote<'n>, String> {
    let members = map.members().ok_or("it is no object")?;
    let mut urls = members.iter().filter(|member| URLS.contains(&member.key.as_str()));
    let url = urls.next().ok_or("it has no URL")?;
    if let Some(other) = urls.next() {
        return Err(format!("it has two URLs, `{}` and `{}`; remove one", url.key, other.key));
    }
    let kind = kind(map);
    let word = kind.and_then(|kind| kind.value.as_text());
    let shape = match (word, url.key.as_str()) {
        (Some("remote"), _) => OPENCODE,
        (_, "uri") => GOOSE,
        _ if map.get(CODEX.headers).is_some() => CODEX,
        _ => PLAIN,
    };
    if let Some(kind) = kind.filter(|_| word.is_none_or(|word| word.contains([',', '=']))) {
        return Err(format!("`{}` is not a word", kind.key));
    }
    if let Some(login) = members.iter().find(|member| logs_in(member)) {
        return Err(format!(
            "`{}` makes the client log in, or make credentials, itself; leave its URL to the client, and record it with \
             assay mcp-proxy --listen",
            login.key
        ));
    }
    let taken = [shape.command, shape.env].into_iter().chain(shape.args);
    if let Some(key) = taken.into_iter().find(|key| map.get(key).is_some()) {
        return Err(format!("it has a URL and `{key}`; remove one of them"));
    }
    let address = url.value.as_text().ok_or_else(|| format!("`{}` is not a string", url.key))?;
    expanded(&format!("`{}`", url.key), address, client)?;
    fit(address)?;
    let headers = members.iter().find(|member| member.key == shape.headers);
    if let Some(headers) = headers {
        values(headers.value.members().ok_or("its headers are no object")?, client)?;
    }
    Ok(Remote { shape, url, kind, headers })
}

/// Refuses headers that cannot be given by the environment.
fn values(headers: &[Member], client: &Client) -> Result<(), String> {
    let mut seen = HashSet::new();
    for header in headers {
        let name = header.key.to_ascii_lowercase();
        let Some(value) = header.value.as_text().filter(|value| !value.is_empty()) else {
            return Err(format!("the header {name} has no text for a value"));
        };
        if !is_token(&name) || is_of_connection(&name) {
            return Err(format!("the header {name} cannot be given to assay"));
        }
        expanded(&format!("the header {name}"), value, client)?;
        if !seen.insert(name) {
            return Err(format!("the header {} is there twice; remove one", header.key));
        }
    }
    Ok(())
}

/// Whether it is a name of a header (RFC 9110, 5.6.2).
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Whether a member says that the client makes credentials itself. What is switched off says nothing.
fn logs_in(member: &Member) -> bool {
    let key = member.key.to_ascii_lowercase();
    let is_login = key.starts_with("oauth")
        || key.starts_with("auth") && key != "authorization"
        || LOGINS.iter().any(|login| login.eq_ignore_ascii_case(&key));
    is_login && !matches!(member.value.kind, Kind::Flag(false) | Kind::Null)
}

/// Refuses what would not be resolved as it is now.
fn expanded(what: &str, text: &str, client: &Client) -> Result<(), String> {
    if has_variable(text, client) {
        return Err(format!(
            "{what} has a variable, and {} is not known to resolve those in arguments and env; change it by hand",
            client.name
        ));
    }
    Ok(())
}

/// Whether there is a variable in a text that the client is not known to resolve in arguments, too.
#[must_use]
pub fn has_variable(text: &str, client: &Client) -> bool {
    let mut rest = text.to_owned();
    for begin in client.expands {
        while let Some(at) = rest.find(begin) {
            let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
            rest.replace_range(at..end, "");
        }
    }
    rest.starts_with('~') || rest.contains('$') || rest.contains("{env:")
}

/// Refuses a URL that the bridge would not take, or that would show a secret among arguments.
fn fit(address: &str) -> Result<(), String> {
    if address.contains("${") || address.contains("{env:") {
        // Whatever the client puts there: what is written here is no secret.
        return Ok(());
    }
    let url = Url::parse(address).map_err(|e| format!("its URL is none: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("it is spoken with over {}, not over HTTP", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err("its URL has a user, a password or a query, and other users of this machine can read arguments; \
                    put the secret into a header, or change it by hand"
            .to_owned());
    }
    Ok(())
}
