//! What does not change while a session is recorded.

use crate::{
    canon,
    model::{Profile, SessionId, Transport},
    record::{
        chain::Chain,
        redact::{Cleartext, Redactor},
        witness::Witness,
    },
    surface::feed::SurfaceFeed,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What does not change while a session is recorded.
#[derive(Debug, Clone)]
pub struct Setup {
    /// How the policy was applied: audit or guard.
    pub profile: Profile,
    /// How the server is spoken to.
    pub transport: Transport,
    /// The server's id: from `--server-id`, or derived from its command or URL.
    pub server_id: String,
    /// Where the server is.
    pub origin: Origin,
    /// What the session was bound by; `None` over stdio.
    pub http: Option<HttpBinding>,
    /// Store tool arguments in cleartext.
    pub store_args: bool,
    /// Of which tools which arguments are kept in cleartext, and the others as their hashes.
    pub cleartext: Cleartext,
    /// Store tool results in cleartext.
    pub store_results: bool,
    /// Content over this many bytes stays in the investigation log; with `redact` it is stored nowhere.
    pub store_limit: usize,
    /// What is taken out of contents before they are stored or shown.
    pub redact: Option<Arc<dyn Redactor>>,
    /// `sha256:` of the policy file in force when the proxy began.
    pub policy_hash: Option<String>,
    /// The decisions that the server's surface is compared with; `None` where it is compared with nothing.
    pub surface: Option<Arc<SurfaceFeed>>,
    /// Who counts what is recorded.
    pub witness: Option<Arc<dyn Witness>>,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It is started by a command.
    Command {
        /// `sha256:` of the RFC 8785 form of the command.
        digest: String,
        /// The command; `None` unless it may be stored (`--store-command`).
        argv: Option<Vec<String>>,
    },
    /// It has a URL.
    Url {
        /// `sha256:` of the RFC 8785 form of the URL without user information, query and fragment.
        digest: String,
        /// That URL; `None` unless it may be stored (`--store-args`).
        url: Option<String>,
    },
    /// It is this process, which records itself.
    Process {
        /// `sha256:` of the RFC 8785 form of the command that started it.
        digest: String,
    },
}

/// What a session over HTTP was bound by when it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpBinding {
    /// `c` and 8 hex digits of the client's key; `None` for what is no MCP.
    pub client: Option<String>,
    /// Several people may be this client: nothing tells them apart.
    pub client_may_be_shared: bool,
    /// Its client had begun it before the recorder saw it.
    pub joined_midway: bool,
    /// Digest of the MCP session id, if it was known then: 16 hex digits.
    pub mcp_session: Option<String>,
    /// The session that it continues, which had been ended.
    #[serde(default)]
    pub continues: Option<SessionId>,
    /// Digests are made with the user's key, and so those of several processes can be compared.
    #[serde(default)]
    pub key_lasts: bool,
}

impl Setup {
    /// Whether a server records itself.
    #[must_use]
    pub const fn is_library(&self) -> bool {
        matches!(self.origin, Origin::Process { .. })
    }

    /// A chain, with events of the version that such a session has.
    pub(super) fn chain(&self, chain: Chain) -> Chain {
        match (&self.surface, self.is_library()) {
            (_, true) => chain.of_server(),
            (Some(_), false) => chain.judged(),
            (None, false) => chain,
        }
    }
}

impl Origin {
    /// A server that is started by this command; `store`: the command may be stored.
    #[must_use]
    pub fn of_command(argv: Vec<String>, store: bool) -> Self {
        Self::Command { digest: command_digest(&argv), argv: store.then_some(argv) }
    }

    /// A server at this URL; `store`: what remains of the URL without its secrets may be stored.
    #[must_use]
    pub fn of_url(url: &str, store: bool) -> Self {
        let url = bare(url);
        Self::Url { digest: digest(&url), url: store.then_some(url) }
    }

    /// This process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let argv: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        Self::Process { digest: command_digest(&argv) }
    }

    /// `sha256:` of what is said of it.
    #[must_use]
    pub fn digest(&self) -> &str {
        match self {
            Self::Command { digest, .. } | Self::Url { digest, .. } | Self::Process { digest } => digest,
        }
    }

    /// The command, if there is one and it may be stored.
    #[must_use]
    pub const fn command(&self) -> Option<&Vec<String>> {
        match self {
            Self::Command { argv, .. } => argv.as_ref(),
            Self::Url { .. } | Self::Process { .. } => None,
        }
    }

    /// The URL, if there is one and it may be stored.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Command { .. } | Self::Process { .. } => None,
            Self::Url { url, .. } => url.as_deref(),
        }
    }
}

/// `sha256:` of the RFC 8785 form of a command.
#[must_use]
pub fn command_digest(argv: &[String]) -> String {
    digest(argv)
}

fn digest<T: serde::Serialize + ?Sized>(value: &T) -> String {
    format!("sha256:{}", canon::sha256_hex(&canon::to_vec(value).unwrap_or_default()))
}

/// The server's name as its command says it: the script or package after an interpreter or package runner, else the
/// program.
#[must_use]
pub fn server_id_of_command(argv: &[String]) -> String {
    const RUNNERS: [&str; 12] =
        ["npx", "node", "python", "python3", "uvx", "uv", "bunx", "bun", "deno", "pipx", "npm", "pnpm"];
    let base = |arg: &str| {
        let name = arg.trim_end_matches('/').rsplit('/').next().unwrap_or(arg);
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-@".contains(*c)).take(100).collect::<String>()
    };
    let program = argv.first().map(|p| base(p)).unwrap_or_default();
    let behind = argv.iter().skip(1).find(|a| !a.starts_with('-') && !matches!(a.as_str(), "run" | "exec" | "dlx"));
    let name = match behind {
        Some(arg) if RUNNERS.contains(&program.as_str()) => base(arg),
        _ => program,
    };
    if name.is_empty() { "server".to_owned() } else { name }
}

/// The id of a server at this URL, if it is given no other: its host.
#[must_use]
pub fn server_id_of_url(url: &str) -> String {
    let url = bare(url);
    let authority = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default());
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address.replace(':', "-"),
        None => authority.split(':').next().unwrap_or_default().to_owned(),
    };
    let id: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(100).collect();
    if id.is_empty() { "server".to_owned() } else { id }
}

/// A URL without user information, query and fragment; scheme and host are in lower case.
fn bare(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let Some((scheme, rest)) = url[..end].split_once("://") else { return String::new() };
    let (authority, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
    let path = if path.is_empty() { "/" } else { path };
    format!("{}://{host}{path}", scheme.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_ids_name_the_server_and_are_safe() {
        for (argv, id) in [
            (&["npx", "-y", "@modelcontextprotocol/server-everything"][..], "server-everything"),
            (&["/usr/bin/python3", "my_server.py"], "my_server.py"),
            (&["uv", "run", "server"], "server"),
            (&["/opt/x/mcp-server-git", "--repository", "/r"], "mcp-server-git"),
            (&["node"], "node"),
            (&["日本"], "server"),
        ] {
            let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
            assert_eq!(server_id_of_command(&argv), id);
        }
    }

    #[test]
    fn of_a_url_nothing_secret_is_kept_nor_hashed() {
        let plain = Origin::of_url("https://mcp.example.org:8443/a/mcp", true);
        assert_eq!(plain.url(), Some("https://mcp.example.org:8443/a/mcp"));
        for with_secrets in [
            "https://u:p@mcp.example.org:8443/a/mcp?key=k#f",
            "HTTPS://MCP.example.org:8443/a/mcp#x?y",
            "https://u@v@mcp.example.org:8443/a/mcp?a@b/c",
        ] {
            assert_eq!(Origin::of_url(with_secrets, true), plain, "{with_secrets}");
        }
        assert_ne!(Origin::of_url("https://mcp.example.org:8443/A/mcp", true), plain, "a path has its case");
        assert_eq!(Origin::of_url("https://h?k=v", true).url(), Some("https://h/"));
        let hidden = Origin::of_url("https://mcp.example.org:8443/a/mcp", false);
        assert_eq!((hidden.digest(), hidden.url(), hidden.command()), (plain.digest(), None, None));
    }

    #[test]
    fn a_server_with_a_url_is_called_as_its_host() {
        for (url, id) in [
            ("https://user:secret@Mcp.Example.org:8443/mcp?x", "mcp.example.org"),
            ("http://127.0.0.1:3000/mcp", "127.0.0.1"),
            ("http://[::1]:3000/", "--1"),
            ("http://", "server"),
            ("nonsense", "server"),
        ] {
            assert_eq!(server_id_of_url(url), id, "{url}");
        }
    }
}
