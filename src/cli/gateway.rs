//! `assay gateway`: several servers behind one listener.

mod admin;

use super::out;
use crate::{
    error::{Exit, Failure},
    gateway::{
        backup::{self, Replaced},
        config::{CONFIG_FILE, Config, Service},
        data::registry_failure,
        reach::environment,
        registry::{DATABASE, Registry as _, ServiceRow, SqliteRegistry},
        run::Settings,
    },
    operate::{default_data, running},
    relay::{child, http::listen::ListenAddr},
    text::{counted, visible, width},
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{
    ffi::OsStr,
    fmt::Write as _,
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

/// How long a gateway has to say how it is.
const HEALTH: Duration = Duration::from_secs(5);

/// Arguments of `assay gateway`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway check-config --config assay.gateway.yaml\n  \
                        assay gateway run --config assay.gateway.yaml\n  assay gateway services\n\n\
                        A gateway serves several MCP servers under paths of their own; docs/gateway.md has a file to\n\
                        begin with")]
pub struct GatewayArgs {
    #[command(subcommand)]
    command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
enum GatewayCommand {
    /// Serve the servers of a configuration, until a signal ends it
    Run(RunArgs),
    /// Read a gateway's configuration, and say what it means
    CheckConfig(CheckConfigArgs),
    /// List the services of a gateway, and how each stands
    Services(ServicesArgs),
    /// Have a running gateway serve another server
    Add(admin::AddArgs),
    /// Change a service that was added
    Edit(admin::EditArgs),
    /// Remove a service that was added
    Remove(admin::RemoveArgs),
    /// Show what differs between what a service offers and what is approved
    Diff(admin::DiffArgs),
    /// Approve what a service offers, which opens its route
    Approve(admin::ApproveArgs),
    /// Block some of what a service offers
    Block(admin::BlockArgs),
    /// Have a service looked at now
    Check(admin::CheckArgs),
    /// Make, list and revoke tokens for the API
    Token(admin::TokenArgs),
    /// Ask a running gateway whether it is ready
    Health(HealthArgs),
    /// Copy the registry, which may be in use
    Backup(BackupArgs),
    /// Put a copy of the registry back
    Restore(RestoreArgs),
    /// Make the registry again, from the configuration and the approvals
    Rebuild(RebuildArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway backup --data /var/lib/assay\n\n\
                        A gateway makes a copy each day by itself, and keeps seven.\n\
                        Exit codes: 0 copied; 2 the registry is damaged, or it cannot be written; 3 bad input")]
struct BackupArgs {
    /// Copy it to this new file [default: a new one in backups/ of the data directory]
    #[arg(value_name = "FILE")]
    to: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway restore --data /var/lib/assay\n\n\
                        The gateway must not run. The registry that was there stays beside it. A route that was open\n\
                        waits for a check: what is approved may have changed since the copy was made.\n\
                        Exit codes: 0 put back; 2 it cannot be written; 3 bad input, or the copy cannot be used")]
struct RestoreArgs {
    /// Put this copy back [default: the newest in backups/ of the data directory]
    #[arg(value_name = "FILE")]
    from: Option<PathBuf>,
    #[command(flatten)]
    kept: Kept,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway rebuild --config assay.gateway.yaml --data /var/lib/assay\n\n\
                        The gateway must not run. The registry that was there stays beside it; what was done and seen is\n\
                        not in the new one. Each route waits for a check.\n\
                        Exit codes: 0 made; 2 it cannot be written; 3 bad input")]
struct RebuildArgs {
    #[command(flatten)]
    at: Configured,
    #[command(flatten)]
    kept: Kept,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway run --config assay.gateway.yaml --data /var/lib/assay\n\n\
                        SIGHUP has it read the configuration, the policies and the credentials again.\n\
                        Exit codes: 0 clean; 1 policy violations were recorded; 2 incomplete or failed; 3 bad input;\n\
                        130 interrupted")]
struct RunArgs {
    #[command(flatten)]
    at: Configured,
    #[command(flatten)]
    kept: Kept,
    /// Listen here in place of what the configuration says: an address with a port, localhost:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    listen: Option<ListenAddr>,
    /// Print status messages as JSON, one per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway services\n  assay gateway services search --json\n\n\
                        Exit codes: 0 listed; 2 the registry is damaged; 3 bad input, or there is no such service")]
struct ServicesArgs {
    /// Show all that is known of this one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    kept: Kept,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway health --data /var/lib/assay\n\n\
                        Exit codes: 0 ready; 2 not ready, or none runs there")]
struct HealthArgs {
    #[command(flatten)]
    kept: Kept,
}

#[derive(Debug, Args)]
struct Kept {
    /// Where the gateway keeps everything [default: ~/.assay/gateway]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Kept {
    fn data(&self) -> Result<PathBuf, Failure> {
        Ok(self.data.clone().map_or_else(default_data, Ok)?)
    }
}

#[derive(Debug, Args)]
struct Configured {
    /// The gateway's configuration
    #[arg(long, value_name = "FILE", default_value = CONFIG_FILE)]
    config: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway check-config --config assay.gateway.yaml\n\n\
                        Credentials are not read: it only says which of them are not there.\n\
                        Exit codes: 0 it can be used; 3 it cannot: what is wrong, with line and column")]
struct CheckConfigArgs {
    #[command(flatten)]
    at: Configured,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl GatewayArgs {
    /// Whether it is the gateway itself, which has a log of its own.
    pub(super) const fn is_run(&self) -> bool {
        matches!(self.command, GatewayCommand::Run(_))
    }
}

/// Runs `assay gateway`.
///
/// # Errors
/// Bad input, or what keeps the gateway from its work.
pub fn run(args: &GatewayArgs) -> Result<Exit, Failure> {
    match &args.command {
        GatewayCommand::Run(args) => crate::gateway::run::run(&Settings {
            config: args.at.config.clone(),
            data: args.kept.data()?,
            listen: args.listen.clone(),
            json: args.json,
        }),
        GatewayCommand::Services(args) => out::answering(args.json, || services(args)),
        GatewayCommand::Add(args) => admin::add(args),
        GatewayCommand::Edit(args) => admin::edit(args),
        GatewayCommand::Remove(args) => admin::remove(args),
        GatewayCommand::Diff(args) => admin::diff(args),
        GatewayCommand::Approve(args) => admin::approve(args),
        GatewayCommand::Block(args) => admin::block(args),
        GatewayCommand::Check(args) => admin::check(args),
        GatewayCommand::Token(args) => admin::token(args),
        GatewayCommand::Health(args) => health(args),
        GatewayCommand::Backup(args) => {
            let to = backup::backup(&args.kept.data()?, args.to.as_deref())?;
            say(&format!("the registry was copied to {}", to.display()))
        }
        GatewayCommand::Restore(args) => replaced(&backup::restore(&args.kept.data()?, args.from.as_deref())?),
        GatewayCommand::Rebuild(args) => {
            replaced(&backup::rebuild(&args.kept.data()?, &Config::load(&args.at.config)?)?)
        }
        GatewayCommand::CheckConfig(args) => out::answering(args.json, || check_config(args)),
    }
}

fn say(text: &str) -> Result<Exit, Failure> {
    out::stdout(format!("{}\n", visible(text)).as_bytes())?;
    Ok(Exit::Ok)
}

fn replaced(done: &Replaced) -> Result<Exit, Failure> {
    let what = match &done.from {
        Some(from) => format!("{} was put back", from.display()),
        None => "the registry was made again".to_owned(),
    };
    let before = done.before.as_ref().map(|path| format!("; the one before is {}", path.display())).unwrap_or_default();
    say(&format!("{what}, with {}{before}", counted(done.services, "service")))
}

/// The credentials and the program of a service that are not where its configuration says.
fn missing(service: &Service) -> Vec<String> {
    let mut missing: Vec<String> =
        service.headers.iter().filter_map(|(_, reference)| reference.header().err()).collect();
    if let Some(started) = &service.started {
        missing.extend(started.env.iter().filter_map(|one| environment(std::slice::from_ref(one)).err()));
        let program = started.command.first().map(OsStr::new).unwrap_or_default();
        missing.extend(child::find_command(program).err().map(|e| e.to_string()));
    }
    missing
}

fn check_config(args: &CheckConfigArgs) -> Result<Exit, Failure> {
    let config = Config::load(&args.at.config)?;
    if args.json {
        let services = config.services.iter().map(|s| {
            let headers: Vec<_> =
                s.headers.iter().map(|(name, r)| json!({"name": name.as_str(), "from": r.place.to_string()})).collect();
            json!({
                "name": s.name, "path": s.path(), "upstream_url": s.place(), "enabled": s.enabled,
                "profile": s.profile, "headers": headers, "inject": s.inject, "missing": missing(s),
            })
        });
        let token = config.token.as_ref().map(|token| token.place.to_string());
        out::json(&json!({
            "config": args.at.config, "listen": config.listen.to_string(), "token": token,
            "services": services.collect::<Vec<_>>(),
        }))?;
        return Ok(Exit::Ok);
    }
    let mut text = format!(
        "{}: valid\n  listens on {}, {}\n",
        visible(&args.at.config.display().to_string()),
        config.listen,
        counted(config.services.len(), "service")
    );
    let column = config.services.iter().map(|s| width(&s.path())).max().unwrap_or_default();
    for service in &config.services {
        let blank = " ".repeat(column - width(&service.path()));
        let off = if service.enabled { "" } else { "  disabled" };
        let url = service.place();
        let _ = writeln!(text, "  {}{blank}  {}  {}{off}", service.path(), visible(&url), service.profile.as_str());
        for why in missing(service) {
            let _ = writeln!(text, "    warning: {}", visible(&why));
        }
    }
    out::stdout(text.as_bytes())?;
    Ok(Exit::Ok)
}

fn services(args: &ServicesArgs) -> Result<Exit, Failure> {
    let data = args.kept.data()?;
    if !data.join(DATABASE).exists() {
        return Err(Failure::bad_input(format_args!("no gateway has run in {}", data.display()))
            .hint("name its directory with --data"));
    }
    let failed = |e| registry_failure(&data, &e);
    let mut all = SqliteRegistry::open(&data).and_then(|registry| registry.services()).map_err(failed)?;
    if let Some(name) = &args.name {
        all.retain(|service| service.name == *name);
        let Some(service) = all.first() else {
            return Err(Failure::bad_input(format_args!("there is no service {name}"))
                .hint("assay gateway services lists those that there are"));
        };
        if args.json {
            out::json(service)?;
        } else {
            out::stdout(shown(service).as_bytes())?;
        }
        return Ok(Exit::Ok);
    }
    if args.json {
        let runs = running(&data).map_err(Failure::failed)?;
        let (pid, url) = runs.unzip();
        out::json(&json!({"data": data, "pid": pid, "services": all, "url": url}))?;
        return Ok(Exit::Ok);
    }
    let column = all.iter().map(|s| width(&s.name)).max().unwrap_or_default();
    let mut text = String::new();
    for s in &all {
        let blank = " ".repeat(column - width(&s.name));
        let (state, health) = (s.state.as_str(), s.health());
        let _ = writeln!(text, "{}{blank}  {state:<14}  {health:<11}  {}", s.name, visible(&s.upstream_url));
    }
    if all.is_empty() {
        text.push_str("the configuration names no services\n");
    }
    out::stdout(text.as_bytes())?;
    Ok(Exit::Ok)
}

/// All that is known of a service, in words.
fn shown(s: &ServiceRow) -> String {
    let mut text = format!("{}  {}\n", s.name, s.state.as_str());
    for (name, value) in [
        ("path", Some(format!("/{}/mcp", s.name))),
        ("upstream", Some(s.upstream_url.clone())),
        ("managed by", Some(s.managed_by.as_str().to_owned())),
        ("endpoint", Some(s.endpoint.clone())),
        ("reason", s.reason.clone()),
        ("since", Some(s.since.clone())),
        ("made", Some(s.created_at.clone())),
        ("changed", Some(s.updated_at.clone())),
        ("approved", s.approved.clone()),
        ("latest", s.latest.clone()),
        ("checked", Some(s.last_check_at.clone().unwrap_or_else(|| "never".to_owned()))),
        ("seen whole", Some(s.last_success_at.clone().unwrap_or_else(|| "never".to_owned()))),
        ("next check", s.next_due_at.clone()),
        ("failures", (s.failures > 0).then(|| s.failures.to_string())),
        ("last error", s.last_error.clone()),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<11} {}", visible(&value));
        }
    }
    text
}

fn health(args: &HealthArgs) -> Result<Exit, Failure> {
    let data = args.kept.data()?;
    let runs = running(&data).map_err(Failure::failed)?;
    let Some((pid, url)) = runs.filter(|(_, url)| !url.is_empty()) else {
        return Err(Failure::failed(format_args!("no gateway runs in {}", data.display())));
    };
    let asked = ask(&url).map_err(|e| Failure::failed(format_args!("process {pid} at {url} does not answer: {e}")))?;
    let (head, body) = asked.split_once("\r\n\r\n").unwrap_or((&asked, ""));
    out::stdout(format!("{}\n", visible(body.trim_end())).as_bytes())?;
    let ready = head.split(' ').nth(1) == Some("200");
    Ok(if ready { Exit::Ok } else { Exit::Failed })
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Asks a gateway whether it is ready; its answer as it came.
fn ask(url: &str) -> io::Result<String> {
    let authority = url.strip_prefix("http://").unwrap_or_default().trim_end_matches('/');
    let mut stream: Box<dyn Stream> = if let Some(path) = url.strip_prefix("unix:") {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(HEALTH))?;
        Box::new(stream)
    } else {
        let stream = TcpStream::connect(authority)?;
        stream.set_read_timeout(Some(HEALTH))?;
        Box::new(stream)
    };
    write!(
        stream,
        "GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        if authority.is_empty() { "localhost" } else { authority }
    )?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer)?;
    Ok(answer)
}
