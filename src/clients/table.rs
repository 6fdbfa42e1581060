//! The clients that are known: where each keeps its servers, in which shape, and what it refuses to read. Data alone.

use super::read::Dialect;

/// Whose servers a file declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// This user's, everywhere.
    User,
    /// Those of everybody who works on a project.
    Project,
    /// This user's, in one project.
    Local,
    /// Those that an administrator, or a plugin, brought.
    Managed,
}

impl Scope {
    /// Its name on the command line and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Local => "local",
            Self::Managed => "managed",
        }
    }
}

/// Where a path begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// The user's home.
    Home,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    Config,
    /// Where programs with a window keep what they need: `~/Library/Application Support`, or as [`Base::Config`].
    Support,
    /// The directory in this variable, else this one in the home.
    Variable(&'static str, &'static str),
    /// The file in this variable; the path is not used.
    File(&'static str),
    /// A directory of a project.
    Project,
    /// The root of the file system on Linux.
    LinuxRoot,
    /// The root of the file system on macOS.
    MacRoot,
}

/// Whether a client reads something that strict JSON has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// It does.
    Yes,
    /// It refuses the file.
    No,
    /// Nobody has tried.
    Unknown,
}

/// What a client takes in its JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// Comments.
    pub comments: Takes,
    /// A comma behind the last element.
    pub trailing_commas: Takes,
    /// A byte order mark.
    pub mark: Takes,
}

const fn reads(comments: Takes, trailing_commas: Takes, mark: Takes) -> Reads {
    Reads { comments, trailing_commas, mark }
}

use Takes::{No, Unknown, Yes};
const ALL: Reads = reads(Yes, Yes, Yes);
const JSONC: Reads = reads(Yes, Yes, Unknown);
const UNTRIED: Reads = reads(Unknown, Unknown, Unknown);
const STRICT: Reads = reads(No, No, No);
const STRICT_BUT_MARK: Reads = reads(No, No, Yes);
const STRICT_MARK_UNTRIED: Reads = reads(No, No, Unknown);
const COMMENTS_ALONE: Reads = reads(Yes, No, No);

/// A file of a client.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Whose servers it declares.
    pub scope: Scope,
    /// Where the path begins.
    pub base: Base,
    /// The path from there; `*` stands for any name.
    pub path: &'static str,
    /// The language.
    pub dialect: Dialect,
    /// Ways to what has the servers; `*` stands for every member.
    pub at: &'static [&'static [&'static str]],
    /// What the client takes in it.
    pub reads: Reads,
    /// Ids of other clients that read it, too.
    pub also: &'static [&'static str],
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its name on the command line and in documents.
    pub id: &'static str,
    /// Its name in words.
    pub name: &'static str,
    /// Whether it has a window, and so gives servers a short `PATH`.
    pub window: bool,
    /// Whether it writes its files again from memory while it runs.
    pub rewrites: bool,
    /// Whether it splits arguments at blanks.
    pub splits_blanks: bool,
    /// Beginnings of variables that it expands in arguments as well as in commands.
    pub expands: &'static [&'static str],
    /// Whether `url` needs a `type` beside it.
    pub url_needs_type: bool,
    /// Its files, in the order in which they win; [`Client::ordered`] says whether that is known.
    pub places: &'static [Place],
    /// Whether the order of the files is known.
    pub ordered: bool,
}

const SERVERS: &[&[&str]] = &[&["mcpServers"]];
/// Where VS Code kept them before it had a file for them.
const OLD_CODE: &[&[&str]] = &[&["mcp", "servers"], &["mcp.servers"]];
const OPENCODE: &[&[&str]] = &[&["mcp", "servers"], &["mcp"]];

const fn place(
    scope: Scope,
    base: Base,
    path: &'static str,
    at: &'static [&'static [&'static str]],
    reads: Reads,
) -> Place {
    Place { scope, base, path, dialect: Dialect::Json, at, reads, also: &[] }
}

const fn user(base: Base, path: &'static str, reads: Reads) -> Place {
    place(Scope::User, base, path, SERVERS, reads)
}

const fn project(path: &'static str, reads: Reads) -> Place {
    place(Scope::Project, Base::Project, path, SERVERS, reads)
}

const fn within(at: &'static [&'static [&'static str]], place: Place) -> Place {
    Place { at, ..place }
}

const fn written_in(dialect: Dialect, place: Place) -> Place {
    Place { dialect, ..place }
}

const PLAIN: Client = Client {
    id: "",
    name: "",
    window: false,
    rewrites: false,
    splits_blanks: false,
    expands: &[],
    url_needs_type: false,
    places: &[],
    ordered: false,
};

/// All of them.
pub const CLIENTS: &[Client] = &[
    Client {
        id: "claude-desktop",
        name: "Claude Desktop",
        window: true,
        rewrites: true,
        places: &[user(Base::Support, "Claude/claude_desktop_config.json", STRICT_MARK_UNTRIED)],
        ..PLAIN
    },
    Client {
        id: "claude-code",
        name: "Claude Code",
        rewrites: true,
        expands: &["${"],
        url_needs_type: true,
        ordered: true,
        places: &[
            place(Scope::Local, Base::Home, ".claude.json", &[&["projects", "*", "mcpServers"]], STRICT_BUT_MARK),
            Place { also: &["copilot-cli"], ..project(".mcp.json", STRICT_BUT_MARK) },
            user(Base::Home, ".claude.json", STRICT_BUT_MARK),
            place(Scope::Managed, Base::LinuxRoot, "etc/claude-code/managed-mcp.json", SERVERS, STRICT_BUT_MARK),
            place(
                Scope::Managed,
                Base::MacRoot,
                "Library/Application Support/ClaudeCode/managed-mcp.json",
                SERVERS,
                STRICT_BUT_MARK,
            ),
            place(Scope::Managed, Base::Home, ".claude/plugins/cache/*/*/*/.mcp.json", SERVERS, STRICT_BUT_MARK),
        ],
        ..PLAIN
    },
    Client {
        id: "cursor",
        name: "Cursor",
        window: true,
        splits_blanks: true,
        expands: &["${"],
        places: &[user(Base::Home, ".cursor/mcp.json", UNTRIED), project(".cursor/mcp.json", UNTRIED)],
        ..PLAIN
    },
    Client {
        id: "vscode",
        name: "VS Code",
        window: true,
        expands: &["${"],
        places: &[
            within(&[&["servers"]], user(Base::Support, "Code/User/mcp.json", JSONC)),
            within(&[&["servers"]], user(Base::Support, "Code - Insiders/User/mcp.json", JSONC)),
            within(&[&["servers"]], user(Base::Support, "VSCodium/User/mcp.json", JSONC)),
            within(&[&["servers"]], user(Base::Home, ".vscode-server/data/User/mcp.json", JSONC)),
            within(OLD_CODE, user(Base::Support, "Code/User/settings.json", JSONC)),
            within(OLD_CODE, user(Base::Support, "Code - Insiders/User/settings.json", JSONC)),
            within(OLD_CODE, user(Base::Support, "VSCodium/User/settings.json", JSONC)),
            within(&[&["servers"]], project(".vscode/mcp.json", JSONC)),
        ],
        ..PLAIN
    },
    Client {
        id: "copilot-cli",
        name: "Copilot CLI",
        places: &[
            user(Base::Variable("COPILOT_HOME", ".copilot"), "mcp-config.json", ALL),
            project(".github/mcp.json", STRICT_MARK_UNTRIED),
        ],
        ..PLAIN
    },
    Client {
        id: "windsurf",
        name: "Windsurf",
        window: true,
        places: &[
            user(Base::Home, ".codeium/windsurf/mcp_config.json", UNTRIED),
            user(Base::Home, ".codeium/mcp_config.json", UNTRIED),
        ],
        ..PLAIN
    },
    Client {
        id: "zed",
        name: "Zed",
        window: true,
        places: &[
            within(&[&["context_servers"]], user(Base::Config, "zed/settings.json", JSONC)),
            within(&[&["context_servers"]], project(".zed/settings.json", JSONC)),
        ],
        ..PLAIN
    },
    Client {
        id: "codex",
        name: "Codex",
        places: &[
            written_in(
                Dialect::Toml,
                within(&[&["mcp_servers"]], user(Base::Variable("CODEX_HOME", ".codex"), "config.toml", ALL)),
            ),
            written_in(Dialect::Toml, within(&[&["mcp_servers"]], project(".codex/config.toml", ALL))),
        ],
        ..PLAIN
    },
    Client {
        id: "gemini",
        name: "Gemini CLI",
        places: &[
            user(Base::Home, ".gemini/settings.json", COMMENTS_ALONE),
            project(".gemini/settings.json", COMMENTS_ALONE),
        ],
        ..PLAIN
    },
    Client {
        id: "opencode",
        name: "OpenCode",
        expands: &["{env:"],
        places: &[
            within(OPENCODE, user(Base::Config, "opencode/opencode.json", ALL)),
            within(OPENCODE, user(Base::Config, "opencode/opencode.jsonc", ALL)),
            within(OPENCODE, user(Base::File("OPENCODE_CONFIG"), "", ALL)),
            within(OPENCODE, project("opencode.json", ALL)),
            within(OPENCODE, project("opencode.jsonc", ALL)),
        ],
        ..PLAIN
    },
    Client {
        id: "goose",
        name: "Goose",
        places: &[written_in(Dialect::Yaml, within(&[&["extensions"]], user(Base::Config, "goose/config.yaml", ALL)))],
        ..PLAIN
    },
    Client {
        id: "continue",
        name: "Continue",
        window: true,
        places: &[
            written_in(Dialect::Yaml, user(Base::Home, ".continue/config.yaml", ALL)),
            written_in(Dialect::Yaml, project(".continue/config.yaml", ALL)),
            written_in(Dialect::Yaml, project(".continue/mcpServers/*.yaml", ALL)),
            written_in(Dialect::Yaml, project(".continue/mcpServers/*.yml", ALL)),
            project(".continue/mcpServers/*.json", UNTRIED),
        ],
        ..PLAIN
    },
    Client {
        id: "cline",
        name: "Cline",
        window: true,
        places: &[
            user(
                Base::Support,
                concat!("Code/User/globalStorage/saoudrizwan.claude-dev/settings/", "cline_mcp_settings.json"),
                UNTRIED,
            ),
            user(
                Base::Support,
                concat!(
                    "Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/",
                    "cline_mcp_settings.json"
                ),
                UNTRIED,
            ),
            user(
                Base::Support,
                concat!("VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/", "cline_mcp_settings.json"),
                UNTRIED,
            ),
            user(
                Base::Support,
                concat!("Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/", "cline_mcp_settings.json"),
                UNTRIED,
            ),
            user(Base::File("CLINE_MCP_SETTINGS_PATH"), "", UNTRIED),
        ],
        ..PLAIN
    },
    Client {
        id: "kiro",
        name: "Kiro",
        window: true,
        places: &[user(Base::Home, ".kiro/settings/mcp.json", UNTRIED), project(".kiro/settings/mcp.json", UNTRIED)],
        ..PLAIN
    },
    Client {
        id: "lmstudio",
        name: "LM Studio",
        window: true,
        places: &[user(Base::Home, ".lmstudio/mcp.json", UNTRIED)],
        ..PLAIN
    },
    Client {
        id: "amp",
        name: "Amp",
        places: &[within(&[&["amp.mcpServers"]], user(Base::Config, "amp/settings.json", UNTRIED))],
        ..PLAIN
    },
    Client {
        id: "antigravity",
        name: "Antigravity",
        window: true,
        places: &[user(Base::Home, ".gemini/antigravity/mcp_config.json", UNTRIED)],
        ..PLAIN
    },
    Client { id: "amazon-q", name: "Amazon Q", places: &[user(Base::Home, ".aws/amazonq/mcp.json", STRICT)], ..PLAIN },
];

/// A file that the user names: it may have any of the shapes, and whoever reads it may read anything.
pub const NAMED: Client = Client { id: "file", name: "the client that reads this file", places: &[], ..PLAIN };

/// Every way to servers, for files that the user names; longer ones first.
pub const ANYWHERE: &[&[&str]] = &[
    &["mcpServers"],
    &["projects", "*", "mcpServers"],
    &["amp.mcpServers"],
    &["context_servers"],
    &["mcp_servers"],
    &["extensions"],
    &["mcp.servers"],
    &["mcp", "servers"],
    &["mcp"],
    &["servers"],
];

/// What such a file is taken for.
#[must_use]
pub const fn named_place(dialect: Dialect) -> Place {
    Place { dialect, ..within(ANYWHERE, user(Base::Project, "", UNTRIED)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_client_has_a_name_of_its_own_and_at_least_one_file() {
        let ids: BTreeSet<_> = CLIENTS.iter().map(|client| client.id).collect();
        let names: BTreeSet<_> = CLIENTS.iter().map(|client| client.name).collect();
        assert_eq!((ids.len(), names.len()), (CLIENTS.len(), CLIENTS.len()));
        for client in CLIENTS {
            assert!(!client.places.is_empty(), "{}", client.id);
            for place in client.places {
                assert!(place.also.iter().all(|id| ids.contains(id)), "{}", client.id);
                assert_eq!(place.base == Base::Project, place.scope == Scope::Project, "{} {}", client.id, place.path);
            }
        }
    }
}
