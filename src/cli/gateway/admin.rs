//! `assay gateway add`, `edit`, `remove`, `approve`, `block`, `check`, `diff`, `token`: what is changed of a gateway that runs.

use super::Kept;
use crate::{
    cli::out::{self, Style, Tone, short},
    error::{Exit, Failure},
    files,
    gateway::{
        api::{
            auth::Role,
            manage::{is_token_name, make_token},
        },
        data::registry_failure,
        registry::{Registry, SqliteRegistry},
    },
    model::WallTime,
    operate::{Gateway, part},
    paths,
    text::{counted, visible, width},
};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};
use std::{fmt::Write as _, path::PathBuf};

/// Bytes of a decision that was signed elsewhere.
const MAX_APPROVAL: u64 = 4 << 20;
/// Names of one group of changes that are printed.
const NAMES: usize = 6;
/// Characters of a text that are printed.
const TEXT: usize = 400;

/// A header, and where its value is.
#[derive(Debug, Clone)]
struct Header {
    name: String,
    value: Value,
}

fn header(text: &str) -> Result<Header, String> {
    let expected =
        || "expected NAME=env:VARIABLE, NAME=file:PATH, or with a prefix NAME=Bearer env:VARIABLE".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(expected)?;
    let found = ["env", "file"].into_iter().filter_map(|kind| Some((value.find(&format!("{kind}:"))?, kind))).min();
    let (at, kind) = found.ok_or_else(expected)?;
    let place = &value[at + kind.len() + 1..];
    if name.is_empty() || place.is_empty() {
        return Err(expected());
    }
    let mut value_of = json!({kind: place});
    if at > 0 {
        value_of["prefix"] = json!(value[..at]);
    }
    Ok(Header { name: name.to_owned(), value: value_of })
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileWord {
    Audit,
    Guard,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FirstWord {
    Tofu,
    Approve,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleWord {
    Viewer,
    Approver,
    Admin,
}

/// What a service is made of, besides its URL.
#[derive(Debug, Args)]
struct Made {
    /// A credential for the server, and where it is: NAME=env:VARIABLE or NAME=file:PATH, with a prefix as in
    /// 'Authorization=Bearer env:TOKEN'
    #[arg(long = "header", value_name = "NAME=PLACE", value_parser = header)]
    headers: Vec<Header>,
    /// Requests of clients get the headers, too, in place of what they have
    #[arg(long)]
    inject: bool,
    /// Minutes between checks: 0, or 5 to 43200
    #[arg(long, value_name = "MINUTES")]
    check_every: Option<u32>,
    /// Whether the policy is enforced
    #[arg(long, value_name = "PROFILE")]
    profile: Option<ProfileWord>,
    /// The policy, by its name in `policies` of the configuration
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// What is done while nothing was decided about the server
    #[arg(long, value_name = "HOW")]
    surface_first: Option<FirstWord>,
}

impl Made {
    fn members(&self) -> Map<String, Value> {
        let mut all = Map::new();
        if !self.headers.is_empty() {
            let headers: Map<String, Value> = self.headers.iter().map(|h| (h.name.clone(), h.value.clone())).collect();
            all.insert("headers".to_owned(), headers.into());
        }
        if self.inject {
            all.insert("inject".to_owned(), json!(true));
        }
        let word = |value: Option<String>| value.map(Value::from);
        let profile = self.profile.and_then(|p| p.to_possible_value()).map(|v| v.get_name().to_owned());
        let first = self.surface_first.and_then(|f| f.to_possible_value()).map(|v| v.get_name().to_owned());
        for (name, value) in [
            ("check_frequency_minutes", self.check_every.map(Value::from)),
            ("profile", word(profile)),
            ("policy", word(self.policy.clone())),
            ("surface_first", word(first)),
        ] {
            all.extend(value.map(|value| (name.to_owned(), value)));
        }
        all
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway add search https://mcp.example.com/mcp\n  \
                        assay gateway add search https://mcp.example.com/mcp \\\n    \
                        --header 'Authorization=Bearer env:SEARCH_TOKEN' --inject\n\n\
                        The server is asked what it offers, and that is approved: look at it before with\n\
                        assay surface snapshot --url URL.\n\
                        Exit codes: 0 made; 1 there is one of this name; 2 the server cannot be seen; 3 bad input")]
pub struct AddArgs {
    /// Its name, the first part of its path
    #[arg(value_name = "NAME")]
    name: String,
    /// The server's MCP endpoint
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    made: Made,
    /// Do not want it yet: nobody looks at it
    #[arg(long)]
    disabled: bool,
    /// Make it also if it cannot be seen whole now; it waits until it was
    #[arg(long)]
    pending: bool,
    #[command(flatten)]
    kept: Kept,
    /// Print the service as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway edit search --check-every 1440\n  \
                        assay gateway edit search --disable\n\n\
                        At another URL it is looked at, and its route is closed until that is approved.\n\
                        Exit codes: 0 changed; 1 the configuration says what it is, or it has to be approved first;\n\
                        3 bad input")]
pub struct EditArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    /// Another MCP endpoint
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    made: Made,
    /// Take the credential for this header away
    #[arg(long, value_name = "NAME")]
    no_header: Vec<String>,
    /// Want it
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Want it no longer: its route is closed, and nobody looks at it
    #[arg(long)]
    disable: bool,
    #[command(flatten)]
    kept: Kept,
    /// Print the service as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway remove search\n\n\
                        What was recorded of it stays in the gateway's directory.\n\
                        Exit codes: 0 gone; 1 the configuration says that there is one; 3 bad input")]
pub struct RemoveArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    kept: Kept,
}

/// What a decision holds for.
#[derive(Debug, Args)]
struct Deciding {
    /// Only if the latest snapshot is this one: the hash that assay gateway diff printed
    #[arg(long, value_name = "HASH")]
    expect: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    kept: Kept,
    /// Print the service as JSON
    #[arg(long)]
    json: bool,
}

impl Deciding {
    fn expected(&self) -> String {
        self.expect
            .as_ref()
            .map_or_else(|| "*".to_owned(), |hash| format!("\"{}\"", hash.trim_start_matches("sha256:")))
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway diff search\n  \
                        assay gateway approve search --expect HASH --reason 'read the diff'\n\n\
                        Exit codes: 0 approved; 1 something else is there by now, or it cannot be approved;\n\
                        3 bad input")]
pub struct ApproveArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    /// Only this of what it offers, as in tools/search
    #[arg(long = "item", value_name = "ITEM")]
    items: Vec<String>,
    /// Bring in this decision, which assay surface approve --out wrote elsewhere
    #[arg(long, value_name = "FILE", conflicts_with = "items")]
    approval: Option<PathBuf>,
    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway block search --item tools/delete --reason 'nobody needs it'\n\n\
                        A guard cuts what is blocked out; where nobody guards, the route is closed.\n\
                        Exit codes: 0 blocked; 1 something else is there by now; 3 bad input")]
pub struct BlockArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    /// This of what it offers, as in tools/search
    #[arg(long = "item", value_name = "ITEM", required = true)]
    items: Vec<String>,
    #[command(flatten)]
    deciding: Deciding,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway check search\n\n\
                        Exit codes: 0 it is what is approved; 1 it changed; 2 it cannot be seen whole; 3 bad input")]
pub struct CheckArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    kept: Kept,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway diff search\n  assay gateway diff search --from 12 --to 15\n\n\
                        Exit codes: 0 nothing differs, or only what is tolerated; 1 it differs; 3 bad input")]
pub struct DiffArgs {
    /// The service
    #[arg(value_name = "NAME")]
    name: String,
    /// Compare with this: approved, or the number of a snapshot
    #[arg(long, value_name = "WHAT", default_value = "approved")]
    from: String,
    /// Compare this: latest, or the number of a snapshot
    #[arg(long, value_name = "WHAT", default_value = "latest")]
    to: String,
    #[command(flatten)]
    kept: Kept,
    /// Print the differences as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `assay gateway token`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway token create alice --role approver\n  assay gateway token list\n  \
                        assay gateway token revoke alice\n\n\
                        A token is shown once, and kept as its SHA-256.")]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Make a token for the API, and print it
    Create(CreateArgs),
    /// List the tokens, without what they are
    List(ListArgs),
    /// Take a token away
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway token create alice --role approver\n\n\
                        viewer looks; approver also approves, blocks and has services checked; admin also makes,\n\
                        changes and removes services and tokens.\n\
                        Exit codes: 0 made; 1 there is one of this name; 3 bad input")]
struct CreateArgs {
    /// Whose it is: decisions and the audit log name it
    #[arg(value_name = "NAME")]
    name: String,
    /// What it is good for
    #[arg(long, value_name = "ROLE")]
    role: RoleWord,
    #[command(flatten)]
    kept: Kept,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway token list --json\n\n\
                        Exit codes: 0 listed; 3 bad input")]
struct ListArgs {
    #[command(flatten)]
    kept: Kept,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway token revoke alice\n\n\
                        Exit codes: 0 gone; 3 there is none of this name")]
struct RevokeArgs {
    /// The token
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    kept: Kept,
}

fn at(name: &str, rest: &str) -> String {
    format!("/services/{}{rest}", part(name))
}

/// Says how a service stands now.
fn told(json: bool, document: &Value, service: &Value, what: &str) -> Result<Exit, Failure> {
    if json {
        out::json(document)?;
        return Ok(Exit::Ok);
    }
    let text = |name: &str| visible(service[name].as_str().unwrap_or_default());
    let why = service["reason"].as_str().map(|why| format!(": {}", visible(why))).unwrap_or_default();
    let mut said = format!("{what} {}: {}{why}\n", text("name"), text("state"));
    if let Some(latest) = service["latest"].as_str() {
        let _ = writeln!(said, "  latest    {latest}");
    }
    if let Some(approved) = service["approved"].as_str() {
        let _ = writeln!(said, "  approved  {approved}");
    }
    out::stdout(said.as_bytes())?;
    Ok(Exit::Ok)
}

pub fn add(args: &AddArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let mut body = args.made.members();
        body.insert("name".to_owned(), json!(args.name));
        body.insert("upstream_url".to_owned(), json!(args.url));
        body.insert("enabled".to_owned(), json!(!args.disabled));
        if args.pending {
            body.insert("on_unreachable".to_owned(), json!("pending"));
        }
        let gateway = Gateway::needed(&args.kept.data()?)?;
        let made = gateway.ask("POST", "/services", None, Some(&body.into()))?.body;
        told(args.json, &made, &made, "made")
    })
}

pub fn edit(args: &EditArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let mut patch = args.made.members();
        patch.extend(args.url.iter().map(|url| ("upstream_url".to_owned(), json!(url))));
        if args.enable || args.disable {
            patch.insert("enabled".to_owned(), json!(args.enable));
        }
        if !args.no_header.is_empty() {
            let headers = patch.entry("headers").or_insert_with(|| json!({}));
            for name in &args.no_header {
                headers[name] = Value::Null;
            }
        }
        if patch.is_empty() {
            return Err(
                Failure::bad_input("nothing is to be changed").hint("assay gateway edit --help says what can be")
            );
        }
        let gateway = Gateway::needed(&args.kept.data()?)?;
        let changed = gateway.ask("PATCH", &at(&args.name, ""), None, Some(&patch.into()))?.body;
        told(args.json, &changed, &changed, "changed")
    })
}

pub fn remove(args: &RemoveArgs) -> Result<Exit, Failure> {
    let gateway = Gateway::needed(&args.kept.data()?)?;
    gateway.ask("DELETE", &at(&args.name, ""), None, None)?;
    out::stdout(format!("removed {}; what was recorded of it stays\n", visible(&args.name)).as_bytes())?;
    Ok(Exit::Ok)
}

fn decide(deciding: &Deciding, name: &str, verb: &str, what: &str, mut body: Value) -> Result<Exit, Failure> {
    out::answering(deciding.json, || {
        if let Some(reason) = &deciding.reason {
            body["reason"] = json!(reason);
        }
        let gateway = Gateway::needed(&deciding.kept.data()?)?;
        let path = at(name, &format!("/{verb}"));
        let decided = gateway.ask("POST", &path, Some(&deciding.expected()), Some(&body))?.body;
        told(deciding.json, &decided, &decided["service"], what)
    })
}

pub fn approve(args: &ApproveArgs) -> Result<Exit, Failure> {
    let mut body = json!({});
    if !args.items.is_empty() {
        body["items"] = json!(args.items);
    }
    if let Some(path) = &args.approval {
        let read = files::named(path).and_then(|file| files::read_all(file, MAX_APPROVAL));
        let read = read.map_err(|e| Failure::bad_input(format_args!("{}: {e}", path.display())))?;
        let text = String::from_utf8(read);
        body["approval"] =
            json!(text.map_err(|_| Failure::bad_input(format_args!("{} is no decision", path.display())))?);
    }
    decide(&args.deciding, &args.name, "approve", "approved", body)
}

pub fn block(args: &BlockArgs) -> Result<Exit, Failure> {
    decide(&args.deciding, &args.name, "block", "blocked", json!({"items": args.items}))
}

pub fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let gateway = Gateway::needed(&args.kept.data()?)?;
        let found = gateway.ask("POST", &at(&args.name, "/check"), None, None)?.body;
        let outcome = found["outcome"].as_str().unwrap_or_default().to_owned();
        told(args.json, &found, &found["service"], &outcome)?;
        Ok(match outcome.as_str() {
            "identical" | "equivalent" => Exit::Ok,
            "changed" => Exit::Violation,
            _ => Exit::Failed,
        })
    })
}

pub fn diff(args: &DiffArgs) -> Result<Exit, Failure> {
    out::answering(args.json, || {
        let gateway = Gateway::needed(&args.kept.data()?)?;
        let path = at(&args.name, &format!("/diff?from={}&to={}", part(&args.from), part(&args.to)));
        let diff = gateway.ask("GET", &path, None, None)?.body;
        if args.json {
            out::json(&diff)?;
        } else {
            out::stdout(words(&diff).as_bytes())?;
        }
        Ok(if diff["outcome"] == "changed" { Exit::Violation } else { Exit::Ok })
    })
}

fn bounded(text: &str) -> String {
    let text = visible(text);
    let all = text.chars().count();
    if all <= TEXT {
        return text.into_owned();
    }
    let shown: String = text.chars().take(TEXT).collect();
    format!("{shown} … ({} more)", counted(all - TEXT, "character"))
}

/// What differs, in words.
fn words(diff: &Value) -> String {
    let style = Style::of_stdout();
    let text = |value: &Value| visible(value.as_str().unwrap_or_default()).into_owned();
    let mut said =
        format!("{}  {}\n  snapshot  {}\n", text(&diff["service"]), text(&diff["outcome"]), text(&diff["to"]));
    for group in diff["groups"].as_array().into_iter().flatten() {
        let tone = match group["severity"].as_str() {
            Some("critical" | "high") => Tone::Bad,
            Some("medium") => Tone::Warn,
            _ => Tone::Dim,
        };
        let severity = style.paint(tone, &format!("{:<8}", text(&group["severity"])));
        let place = text(&group["facet"]) + &text(&group["path"]);
        let names: Vec<String> = group["names"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|n| !n.is_empty())
            .map(short)
            .collect();
        let shown = names[..names.len().min(NAMES)].join(", ");
        let more = names.len().saturating_sub(NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(said, "  {severity} {}  {place}  {shown}{more}", text(&group["kind"]));
        for (mark, value, tone) in [("-", &group["before"], Tone::Bad), ("+", &group["after"], Tone::Good)] {
            if let Some(value) = value.as_str() {
                let _ = writeln!(said, "           {}", style.paint(tone, &format!("{mark} {}", bounded(value))));
            }
        }
    }
    if diff["outcome"] == "changed" && diff["from"] == "approved" {
        let _ = writeln!(
            said,
            "to approve it:  assay gateway approve {} --expect {}",
            text(&diff["service"]),
            text(&diff["to"])
        );
    }
    said
}

/// A token of a gateway that does not run: in its registry.
fn registry(args: &Kept) -> Result<(SqliteRegistry, PathBuf), Failure> {
    let data = args.data()?;
    paths::create_private_dir(&data)?;
    let opened = SqliteRegistry::open(&data).map_err(|e| registry_failure(&data, &e))?;
    Ok((opened, data))
}

pub fn token(args: &TokenArgs) -> Result<Exit, Failure> {
    match &args.command {
        TokenCommand::Create(args) => out::answering(args.json, || create(args)),
        TokenCommand::List(args) => out::answering(args.json, || list(args)),
        TokenCommand::Revoke(args) => revoke(args),
    }
}

fn create(args: &CreateArgs) -> Result<Exit, Failure> {
    is_token_name(&args.name).map_err(Failure::bad_input)?;
    let role = match args.role {
        RoleWord::Viewer => Role::Viewer,
        RoleWord::Approver => Role::Approver,
        RoleWord::Admin => Role::Admin,
    };
    let token = if let Some(gateway) = Gateway::of(&args.kept.data()?)? {
        let body = json!({"name": args.name, "role": role.as_str()});
        let made = gateway.ask("POST", "/tokens", None, Some(&body))?.body;
        made["token"].as_str().unwrap_or_default().to_owned()
    } else {
        let (mut registry, _) = registry(&args.kept)?;
        let actor = format!("user:{}", paths::user_name());
        let made = make_token(&mut registry, &args.name, role, &actor).map_err(|e| Failure::failed(e.detail))?;
        let taken = || Failure { exit: Exit::Violation, ..Failure::failed("there is a token of this name") };
        (*made.ok_or_else(taken)?).clone()
    };
    if args.json {
        out::json(&json!({"name": args.name, "role": role.as_str(), "token": token}))?;
    } else {
        out::stdout(format!("{token}\n").as_bytes())?;
        out::stderr(&format!("a token of {} ({}): it is shown this once", args.name, role.as_str()));
    }
    Ok(Exit::Ok)
}

fn list(args: &ListArgs) -> Result<Exit, Failure> {
    let tokens = if let Some(gateway) = Gateway::of(&args.kept.data()?)? {
        gateway.ask("GET", "/tokens?limit=200", None, None)?.body["items"].take()
    } else {
        let (registry, data) = registry(&args.kept)?;
        let rows = registry.tokens().map_err(|e| registry_failure(&data, &e))?;
        rows.iter().map(|t| json!({"name": t.name, "role": t.role, "created_at": t.created_at})).collect()
    };
    if args.json {
        out::json(&json!({"tokens": tokens}))?;
        return Ok(Exit::Ok);
    }
    let text = |value: &Value| visible(value.as_str().unwrap_or_default()).into_owned();
    let all: Vec<(String, String, String)> = tokens
        .as_array()
        .into_iter()
        .flatten()
        .map(|t| (text(&t["name"]), text(&t["role"]), text(&t["created_at"])))
        .collect();
    let column = all.iter().map(|(name, ..)| width(name)).max().unwrap_or_default();
    let mut said = String::new();
    for (name, role, made) in &all {
        let _ = writeln!(said, "{name}{}  {role:<8}  {made}", " ".repeat(column - width(name)));
    }
    if all.is_empty() {
        said.push_str("there are no tokens: the API is on the gateway's socket alone\n");
    }
    out::stdout(said.as_bytes())?;
    Ok(Exit::Ok)
}

fn revoke(args: &RevokeArgs) -> Result<Exit, Failure> {
    if let Some(gateway) = Gateway::of(&args.kept.data()?)? {
        gateway.ask("DELETE", &format!("/tokens/{}", part(&args.name)), None, None)?;
    } else {
        let (mut registry, data) = registry(&args.kept)?;
        let actor = format!("user:{}", paths::user_name());
        let removed = registry.remove_token(&args.name, &actor, WallTime::now());
        if !removed.map_err(|e| registry_failure(&data, &e))? {
            return Err(Failure::bad_input("no token has this name").hint("assay gateway token list names them"));
        }
    }
    out::stdout(format!("revoked {}\n", visible(&args.name)).as_bytes())?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_where_its_value_is() {
        let read = |text: &str| header(text).map(|h| (h.name, h.value));
        assert_eq!(read("X-Key=env:KEY").unwrap(), ("X-Key".into(), json!({"env": "KEY"})));
        let bearer = ("Authorization".into(), json!({"file": "/run/env:t", "prefix": "Bearer "}));
        assert_eq!(read("Authorization=Bearer file:/run/env:t").unwrap(), bearer);
        for bad in ["X", "X=", "X=c4n4ry", "=env:A", "X=env:"] {
            assert!(!read(bad).unwrap_err().contains("c4n4ry"), "{bad}");
        }
    }
}
