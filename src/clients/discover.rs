//! Which files there are on this machine, and in this project.

use super::table::{Base, CLIENTS, Client, Place, Scope};
use std::{
    collections::HashSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What the places of files depend on.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The user's home.
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, if it is set and absolute.
    pub config: Option<PathBuf>,
    /// Whether this is macOS.
    pub mac: bool,
    /// The root of the file system.
    pub root: PathBuf,
    /// The variables that the table names.
    pub variables: Vec<(String, PathBuf)>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let mut variables = Vec::new();
        for place in CLIENTS.iter().flat_map(|client| client.places) {
            if let Base::Variable(name, _) | Base::File(name) = place.base
                && let Some(path) = absolute(name)
            {
                variables.push((name.to_owned(), path));
            }
        }
        Self {
            home: crate::paths::home(),
            config: absolute("XDG_CONFIG_HOME"),
            mac: cfg!(target_os = "macos"),
            root: PathBuf::from("/"),
            variables,
        }
    }

    fn base(&self, base: Base) -> Option<PathBuf> {
        let home = |dir: &str| self.home.as_ref().map(|home| home.join(dir));
        let config = || self.config.clone().or_else(|| home(".config"));
        let variable =
            |name: &str| self.variables.iter().find(|(known, _)| known == name).map(|(_, path)| path.clone());
        match base {
            Base::Home => self.home.clone(),
            Base::Support if self.mac => home("Library/Application Support"),
            Base::Config | Base::Support => config(),
            Base::Variable(name, dir) => variable(name).or_else(|| home(dir)),
            Base::File(name) => variable(name),
            Base::Project => None,
            Base::LinuxRoot => (!self.mac).then(|| self.root.clone()),
            Base::MacRoot => self.mac.then(|| self.root.clone()),
        }
    }
}

/// A file of a client, which may not be there.
#[derive(Debug, Clone)]
pub struct Found {
    /// Whose it is.
    pub client: &'static Client,
    /// What it is.
    pub place: Place,
    /// Where it is.
    pub file: PathBuf,
    /// Whether it is there.
    pub exists: bool,
}

/// Which files are wanted; an empty list wants all.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Ids of clients.
    pub clients: Vec<String>,
    /// Scopes.
    pub scopes: Vec<Scope>,
}

impl Wanted {
    fn takes(&self, client: &Client, place: &Place) -> bool {
        let client = self.clients.is_empty()
            || self.clients.iter().any(|id| id == client.id || place.also.contains(&id.as_str()));
        client && (self.scopes.is_empty() || self.scopes.contains(&place.scope))
    }
}

/// The files of the user, and those of a project: of all directories from `here` up to the root of its repository, and with
/// `below` of those below it that are not ignored. Below it, only files that are there are found.
#[must_use]
pub fn files(around: &Surroundings, wanted: &Wanted, here: &Path, below: bool) -> Vec<Found> {
    let mut found = Vec::new();
    let of_project: Vec<&str> = CLIENTS
        .iter()
        .flat_map(|client| client.places.iter().map(move |place| (client, place)))
        .filter(|(client, place)| place.base == Base::Project && wanted.takes(client, place))
        .map(|(_, place)| beginning(place.path))
        .collect();
    let (above, inside) = if of_project.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let is_project = |dir: &PathBuf| Some(dir) != around.home.as_ref();
        let above: Vec<PathBuf> = upwards(here).filter(is_project).collect();
        (above, if below { downwards(here, &of_project) } else { Vec::new() })
    };
    for client in CLIENTS {
        for place in client.places.iter().filter(|place| wanted.takes(client, place)) {
            let add = |paths: Vec<PathBuf>, only_there: bool, found: &mut Vec<Found>| {
                for file in paths {
                    let exists = file.exists();
                    if exists || !only_there {
                        found.push(Found { client, place: *place, file, exists });
                    }
                }
            };
            if place.base != Base::Project {
                let base = around.base(place.base);
                let paths = base.map(|base| if place.path.is_empty() { vec![base] } else { expand(&base, place.path) });
                add(paths.unwrap_or_default(), false, &mut found);
                continue;
            }
            for dir in &above {
                add(expand(dir, place.path), false, &mut found);
            }
            let begins =
                |(_, names): &&(PathBuf, Vec<OsString>)| names.iter().any(|name| name == beginning(place.path));
            for (dir, _) in inside.iter().filter(begins) {
                add(expand(dir, place.path), true, &mut found);
            }
        }
    }
    let mut seen = HashSet::new();
    found.retain(|one| seen.insert((one.client.id, one.file.clone(), one.place.scope, one.place.at)));
    found
}

/// The first name of a path.
fn beginning(path: &str) -> &str {
    path.split('/').next().unwrap_or_default()
}

/// The directories from here up to the root of the repository.
fn upwards(here: &Path) -> impl Iterator<Item = PathBuf> {
    let root = crate::paths::repository(here).unwrap_or(here);
    here.ancestors().take_while(move |dir| dir.starts_with(root)).map(Path::to_owned)
}

/// The directories below this one that are not ignored, each with those of these names that it has; without those that have none.
fn downwards(here: &Path, names: &[&str]) -> Vec<(PathBuf, Vec<OsString>)> {
    let walk = ignore::WalkBuilder::new(here)
        .hidden(false)
        .require_git(false)
        .filter_entry(|entry| {
            entry.file_type().is_some_and(|kind| kind.is_dir())
                && entry.file_name() != ".git"
                && entry.file_name() != "node_modules"
        })
        .build();
    let dirs = walk.filter_map(Result::ok).map(ignore::DirEntry::into_path).filter(|dir| dir != here);
    let has = |dir: &Path| -> Vec<OsString> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        entries.map(|entry| entry.file_name()).filter(|name| names.iter().any(|known| name == known)).collect()
    };
    dirs.map(|dir| (has(&dir), dir)).filter(|(has, _)| !has.is_empty()).map(|(has, dir)| (dir, has)).collect()
}

/// The path below a base; of one with `*`, all that are there.
fn expand(base: &Path, path: &str) -> Vec<PathBuf> {
    let mut dirs = vec![base.to_owned()];
    let wild = path.contains('*');
    for part in path.split('/') {
        let Some((before, behind)) = part.split_once('*') else {
            for dir in &mut dirs {
                dir.push(part);
            }
            continue;
        };
        let mut next = Vec::new();
        for entry in dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().filter_map(Result::ok) {
            let name = entry.file_name();
            let fits = name.to_str().is_some_and(|name| {
                name.len() >= before.len() + behind.len() && name.starts_with(before) && name.ends_with(behind)
            });
            next.extend(fits.then(|| entry.path()));
        }
        next.sort();
        dirs = next;
    }
    if wild {
        dirs.retain(|dir| dir.exists());
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{
        read::Dialect,
        scan::scan,
        state::State,
        table::{ANYWHERE, named_place},
    };
    use std::fs;

    /// A file with one server, in the shape that a place wants.
    fn sample(place: &Place) -> String {
        let way = place.at[0];
        match place.dialect {
            Dialect::Toml => format!("[{}.s]\ncommand = \"npx\"\nargs = [\"-y\", \"p\"]\n", way.join(".")),
            Dialect::Yaml if way == ["extensions"] => "extensions:\n  s:\n    args: [-y, p]\n    cmd: npx\n".to_owned(),
            Dialect::Yaml => "mcpServers:\n- name: s\n  command: npx\n  args: [-y, p]\n".to_owned(),
            Dialect::Json => {
                let entry = "{\"s\": {\"command\": \"npx\", \"args\": [\"-y\", \"p\"]}}".to_owned();
                way.iter().rev().fold(entry, |inner, key| format!("{{\"{}\": {inner}}}", key.replace('*', "/p")))
            }
        }
    }

    #[test]
    fn every_row_of_the_table_finds_its_file_and_reads_its_shape() {
        let mut rows = 0;
        for mac in [false, true] {
            for client in CLIENTS {
                for (n, place) in client.places.iter().enumerate() {
                    let tmp = tempfile::tempdir().unwrap();
                    let root = tmp.path().canonicalize().unwrap();
                    let (home, project) = (root.join("home"), root.join("home/project/sub"));
                    fs::create_dir_all(&project).unwrap();
                    fs::create_dir(root.join("home/project/.git")).unwrap();
                    let mut around = Surroundings {
                        home: Some(home.clone()),
                        config: None,
                        mac,
                        root: root.clone(),
                        variables: Vec::new(),
                    };
                    let file = match place.base {
                        Base::LinuxRoot if mac => continue,
                        Base::MacRoot if !mac => continue,
                        Base::LinuxRoot | Base::MacRoot => root.join(place.path),
                        Base::Home => home.join(place.path.replace('*', "x")),
                        Base::Support if mac => home.join("Library/Application Support").join(place.path),
                        Base::Config | Base::Support => home.join(".config").join(place.path),
                        Base::Variable(_, dir) => home.join(dir).join(place.path),
                        Base::File(name) => {
                            around.variables.push((name.to_owned(), home.join("named")));
                            home.join("named")
                        }
                        Base::Project => home.join("project").join(place.path.replace('*', "x")),
                    };
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    fs::write(&file, sample(place)).unwrap();
                    let found = files(&around, &Wanted::default(), &project, false);
                    let one: Vec<_> = found
                        .iter()
                        .filter(|one| one.client.id == client.id && one.place.scope == place.scope && one.file == file)
                        .collect();
                    assert_eq!(one.len(), 1, "{} {n} {}", client.id, file.display());
                    assert!(one[0].exists);
                    let seen = scan(&[one[0].clone()], &project, false);
                    let server = &seen.clients[0].servers[0];
                    assert_eq!((server.name.as_str(), server.state), ("s", State::Unrecorded), "{}", client.id);
                    assert_eq!((server.program.as_deref(), server.package.as_deref()), (Some("npx"), Some("p")));
                    // A file of that shape can be named, whoever reads it.
                    let named = Found { place: named_place(place.dialect), ..one[0].clone() };
                    assert_eq!(named.place.at, ANYWHERE);
                    assert_eq!(scan(&[named], &project, false).clients[0].servers.len(), 1, "{}", client.id);
                    rows += 1;
                }
            }
        }
        assert!(rows > 60, "{rows}");
    }

    #[test]
    fn variables_lead_elsewhere_and_what_is_ignored_is_not_walked() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        let at = |path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
            root.join(path)
        };
        let (one, two) = (at("r/a/.mcp.json", "{}"), at("r/.vscode/mcp.json", "{}"));
        for hidden in ["r/node_modules/x/.mcp.json", "r/out/.mcp.json", "r/.git/x/.mcp.json"] {
            at(hidden, "{}");
        }
        at("r/.gitignore", "out/\n");
        let codex = at("codex/config.toml", "");
        let around = Surroundings {
            home: Some(root.join("home")),
            config: Some(root.join("xdg")),
            mac: false,
            root: root.join("none"),
            variables: vec![("CODEX_HOME".to_owned(), root.join("codex"))],
        };
        let there = |below| {
            let found = files(&around, &Wanted::default(), &root.join("r"), below);
            let mut there: Vec<PathBuf> = found.into_iter().filter(|one| one.exists).map(|one| one.file).collect();
            there.sort();
            there
        };
        let mut all = vec![one, two.clone(), codex.clone()];
        all.sort();
        assert_eq!(there(true), all);
        let mut near = vec![two, codex];
        near.sort();
        assert_eq!(there(false), near);
    }
}
