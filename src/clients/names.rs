//! Names of servers in receipts, told apart where several entries would have the same.

use super::{discover::Found, entry::Entry, read, scan, state::Programs, table::Scope};
use crate::model::sha256_hex;
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
};

/// Digits of a hash that tell names apart.
const DIGITS: usize = 6;

/// The name of a server in receipts: letters, digits, `.`, `_` and `-`. One that has to be changed gets a part of its hash.
#[must_use]
pub fn server_id(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let id: String = name.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    let id: String = id.trim_start_matches('.').chars().take(100).collect();
    if id == name && !id.is_empty() { id } else { with_hash(&id, name) }
}

fn with_hash(id: &str, of: &str) -> String {
    let hash = sha256_hex(of.as_bytes());
    let hash: String = hash.trim_start_matches("sha256:").chars().take(DIGITS).collect();
    format!("{}-{hash}", if id.is_empty() { "server" } else { id })
}

/// Which servers would have which name. The same command in files of several clients is one server.
#[derive(Debug, Default)]
pub struct Names {
    /// By name, and whether evidence is kept with the project: the commands.
    servers: HashMap<(String, bool), HashSet<Vec<String>>>,
    /// Those of clients that take one of several declarations of a name and warn if they differ.
    ranked: Vec<Declared>,
}

/// Where a server is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Id of the client.
    pub client: &'static str,
    /// Whose servers the file declares.
    pub scope: Scope,
    /// The file.
    pub file: PathBuf,
    /// Name of the server.
    pub name: String,
    /// The project, in a file that has several.
    pub project: Option<String>,
    /// Whether it leaves evidence.
    is_recorded: bool,
}

impl Names {
    /// Those of all these files, for who stands in this directory; what cannot be read has none.
    #[must_use]
    pub fn of(found: &[Found], here: &Path, programs: &mut Programs) -> Self {
        let mut names = Self::default();
        for one in found.iter().filter(|one| one.exists) {
            let read = scan::read_file(&one.file);
            let servers = read.and_then(|bytes| scan::servers(one, read::text(&bytes)?, programs));
            for (entry, seen) in servers.unwrap_or_default() {
                let key = (server_id(&entry.name), one.place.scope == Scope::Project);
                names.servers.entry(key).or_default().insert(entry.server());
                if one.client.ordered && entry.project.as_ref().is_none_or(|of| here.starts_with(of)) {
                    names.ranked.push(Declared {
                        client: one.client.id,
                        scope: one.place.scope,
                        file: one.file.clone(),
                        name: entry.name,
                        project: entry.project,
                        is_recorded: seen.state.is_recorded(),
                    });
                }
            }
        }
        names
    }

    /// The other declarations of a server that its client has, beside that in this file, and that leave no evidence.
    pub fn unrecorded_beside(
        &self,
        client: &str,
        name: &str,
        file: &Path,
        project: Option<&str>,
    ) -> impl Iterator<Item = &Declared> {
        self.ranked.iter().filter(move |other| {
            let is_itself = other.file == file && other.project.as_deref() == project;
            other.client == client && other.name == name && !other.is_recorded && !is_itself
        })
    }

    /// The name of this one: where another server has it, too, a part of a hash of the file tells them apart.
    #[must_use]
    pub fn id(&self, entry: &Entry, scope: Scope, file: &Path) -> String {
        let id = server_id(&entry.name);
        let server = entry.server();
        let same = self.servers.get(&(id.clone(), scope == Scope::Project));
        if same.is_none_or(|servers| servers.iter().all(|other| *other == server)) {
            return id;
        }
        let of = format!("{}\n{}\n{}", file.display(), entry.project.as_deref().unwrap_or_default(), entry.name);
        with_hash(&id, &of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_server_is_its_name_or_says_that_it_is_not() {
        assert_eq!(server_id("fs.1_a-b"), "fs.1_a-b");
        for (name, begins) in [("a b", "a-b-"), (".x", "x-"), ("", "server-"), ("日本", "---"), ("../x", "-x-")] {
            let id = server_id(name);
            assert!(id.starts_with(begins) && id.len() > begins.len() && !id.starts_with('.'), "{name}: {id}");
        }
        assert_ne!(server_id("a b"), server_id("a/b"));
    }
}
