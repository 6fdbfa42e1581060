//! `assay mcp-proxy`: its flags, checked.

pub(super) mod http;

use self::http::HttpArgs;
use super::redact;
use crate::{
    error::{Exit, Failure},
    files,
    model::Profile,
    pack::keys::SignerId,
    paths::{self, DEFAULT_AUDIT_DIR},
    proxy::{Compared, Options, SurfaceOptions},
    prune::Keep,
    record::{
        opening::PackInterval,
        redact::{Cleartext, Redactor},
    },
    surface::{
        gate::{First, Quarantine},
        rules::{MAX_RULES, Rules},
    },
};
use clap::{ArgAction, Args, ValueEnum};
use std::{ffi::OsString, num::NonZeroU64, path::PathBuf, sync::Arc, time::Duration};

/// Arguments of `assay mcp-proxy`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay mcp-proxy -- npx -y @modelcontextprotocol/server-filesystem ~/work\n  \
                  assay mcp-proxy --audit-dir ~/evidence --pack-interval 15m -- python server.py\n  \
                  assay mcp-proxy --upstream-url https://mcp.example.com/mcp\n  \
                  assay mcp-proxy --listen 127.0.0.1:8080 --upstream-url http://127.0.0.1:3000/mcp\n\n\
                  In a client's configuration, the command becomes assay, with the arguments\n  \
                  [\"mcp-proxy\", \"--\", \"python\", \"server.py\"]\n\n\
                  The server sees every byte as the client sent it, and the client as the server sent it.\n\
                  Standard output belongs to the protocol; messages from assay go to standard error.\n\n\
                  Exit codes: 0 clean; 1 policy violations were recorded; 2 incomplete or failed; 3 bad input;\n\
                  130 interrupted. Any other code, and also 1 to 3, can be the server's own, if it ended by itself")]
pub struct ProxyArgs {
    /// Where receipts, audit events and packs are written
    ///
    /// repo:DIR is DIR below the root of the repository that the working directory is in; outside a repository it is
    /// ~/.assay/mcp.
    #[arg(long, value_name = "DIR", default_value = DEFAULT_AUDIT_DIR)]
    pub audit_dir: PathBuf,
    /// Directory to put in front of the server's PATH; may be repeated
    #[arg(long, value_name = "DIR")]
    pub path: Vec<PathBuf>,
    /// Mark of an entry that assay wrap wrote, for assay unwrap; without effect here.
    #[arg(long, value_name = "MARK", num_args = 0..=1, require_equals = true, default_missing_value = "1", hide = true)]
    pub wrapped: Option<String>,
    /// Record without interfering (audit), or enforce a policy (guard)
    #[arg(long, value_enum, value_name = "PROFILE", default_value_t = ProfileArg::Audit, hide_possible_values = true)]
    pub profile: ProfileArg,
    /// Policy file that judges every call; under guard, denied calls never reach the server
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Do not resolve host names in arguments; receipts then say what deny_private_hosts could not check
    #[arg(long)]
    pub no_dns: bool,
    /// Largest message of the client that guard forwards (bytes, or with K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "10M", value_parser = max_message)]
    pub max_message: u64,
    /// What is done about tools, prompts and instructions that are not approved: enforce keeps them back, report lets
    /// them pass and says so in the evidence, off compares nothing [default: enforce under guard, else report, if anything
    /// was decided about this server]
    #[arg(long, value_enum, value_name = "off|report|enforce", hide_possible_values = true)]
    pub surface: Option<SurfaceArg>,
    /// While nothing was decided about a server: take what it offers first for the baseline (tofu), or let nothing pass
    /// before somebody approved it (approve)
    #[arg(long, value_enum, value_name = "tofu|approve", default_value_t = FirstArg::Tofu, hide_possible_values = true)]
    pub surface_first: FirstArg,
    /// What is kept back where something is not approved: the item, or everything of the server
    #[arg(long, value_enum, value_name = "item|server", default_value_t = QuarantineArg::Item, hide_possible_values = true)]
    pub quarantine: QuarantineArg,
    /// Rules of what is pinned and what is tolerated (assay.surface.yaml)
    #[arg(long, value_name = "FILE")]
    pub surface_rules: Option<PathBuf>,
    /// Build, sign and verify a proof pack when the session ends
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = ArgAction::Set, hide_possible_values = true)]
    pub auto_pack: bool,
    /// One pack per session, or one every N minutes (Nm) or N receipts (Nr)
    #[arg(long, value_name = "session|Nm|Nr", default_value = "session", value_parser = interval)]
    pub pack_interval: PackInterval,
    /// When a session has ended, remove the oldest ones of this directory beyond these limits: an age, a size, a number
    ///
    /// As assay prune does: a line in the ledger names each. With several limits, what breaks any of them goes.
    #[arg(long, value_name = "90d,10G,1000")]
    pub keep: Option<Keep>,
    /// Store the arguments of tool calls in cleartext, on disk and in packs; otherwise only their hashes
    #[arg(long)]
    pub store_args: bool,
    /// Of the calls of a tool, store these arguments in cleartext, and the others as their hashes; may be repeated
    #[arg(long, value_name = "TOOL=FIELD[,FIELD]", value_parser = Cleartext::entry)]
    pub cleartext: Vec<(String, Vec<String>)>,
    /// Store the results of tool calls in cleartext, on disk and in packs; otherwise only their hashes
    #[arg(long)]
    pub store_results: bool,
    /// Rules that take secrets out of contents before anything is stored or shown: a file, or preset:secrets; may be repeated
    #[arg(long, value_name = "FILE|preset:NAME")]
    pub redact: Vec<PathBuf>,
    /// Store the server's command line in cleartext, on disk and in packs; otherwise only its hash
    #[arg(long)]
    pub store_command: bool,
    /// Show what messages hold in your dashboards while they watch, at most 4 KiB of each; it is written nowhere
    #[arg(long)]
    pub live_content: bool,
    /// Largest content to store in receipts; larger content stays in the investigation log, or with --redact nowhere (bytes,
    /// or with K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = size)]
    pub store_limit: u64,
    /// Name of the server in receipts: letters, digits, '.', '_', '-' [default: derived from the command]
    #[arg(long, value_name = "ID", value_parser = server_id)]
    pub server_id: Option<String>,
    /// A session that grew has a signed checkpoint at least so often (seconds, from 1 to 3600)
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = checkpoint_every)]
    pub checkpoint_every: Duration,
    /// Seconds that calls in flight have to finish after the client hangs up or a signal arrives
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub shutdown_timeout: Duration,
    /// Print status messages as JSON, one per line
    #[arg(long)]
    pub json: bool,
    /// URL of the server's MCP endpoint, in place of a command; without --listen the client stays on stdio
    #[arg(long, value_name = "URL", help_heading = "Servers over HTTP")]
    pub upstream_url: Option<String>,
    /// The rest for servers that are reached over HTTP.
    #[command(flatten)]
    pub http: HttpArgs,
    /// The server's command and its arguments, after -- or from the first word that is not an option
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `--profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProfileArg {
    /// Observe without interfering.
    Audit,
    /// Enforce a policy.
    Guard,
    /// Reserved for a transaction protocol: refused with a hint.
    #[value(hide = true)]
    Escrow,
}

/// `--surface`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SurfaceArg {
    /// Everything passes, and is compared with nothing.
    Off,
    /// Everything passes, and the evidence says what is not approved.
    Report,
    /// What is not approved is kept back.
    Enforce,
}

/// `--surface-first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FirstArg {
    /// What is seen first becomes the baseline.
    Tofu,
    /// Nothing passes before a person approved it.
    Approve,
}

/// `--quarantine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QuarantineArg {
    /// The item.
    Item,
    /// The server.
    Server,
}

/// Reads `session`, `Nm` or `Nr`.
pub(super) fn interval(text: &str) -> Result<PackInterval, String> {
    if text == "session" {
        return Ok(PackInterval::Session);
    }
    let bad = || "expected session, or a number above 0 with m (minutes) or r (receipts), as in 15m or 500r".to_owned();
    let (digits, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(bad)?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let number: NonZeroU64 = digits.parse().map_err(|_| bad())?;
    match unit {
        "m" => number.get().checked_mul(60).map(|s| PackInterval::Every(Duration::from_secs(s))).ok_or_else(bad),
        "r" => Ok(PackInterval::Receipts(number.get())),
        _ => Err(bad()),
    }
}

/// Bytes, with `K`, `M`, `G` for powers of 1024; `KiB` and `k` too.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("expected a number of bytes, or one with K, M or G".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "expected a number of bytes".to_owned())?;
    number.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

fn max_message(text: &str) -> Result<u64, String> {
    const RANGE: std::ops::RangeInclusive<u64> = 1 << 10..=256 << 20;
    let bytes = size(text)?;
    if RANGE.contains(&bytes) { Ok(bytes) } else { Err("expected 1K to 256M".to_owned()) }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0 to 86400 seconds".to_owned())
    }
}

fn checkpoint_every(text: &str) -> Result<Duration, String> {
    let whole = text.parse().ok().filter(|seconds| (1..=3600).contains(seconds));
    whole.map(Duration::from_secs).ok_or_else(|| "expected 1 to 3600 seconds".to_owned())
}

pub(super) fn server_id(text: &str) -> Result<String, String> {
    SignerId::parse(text)
        .map(|id| id.as_str().to_owned())
        .map_err(|_| "expected letters, digits, '.', '_' and '-', not starting with a dot".to_owned())
}

impl ProxyArgs {
    /// Refuses what cannot be recorded before anything is created.
    ///
    /// # Errors
    /// Bad input, exit code 3.
    pub fn check(&self) -> Result<(), Failure> {
        match self.profile {
            ProfileArg::Guard if self.policy.is_none() => return Err(crate::proxy::no_policy()),
            ProfileArg::Audit if self.surface == Some(SurfaceArg::Enforce) => {
                return Err(Failure::bad_input("--surface enforce needs --profile guard")
                    .hint("audit keeps nothing back: add --profile guard and --policy FILE"));
            }
            ProfileArg::Audit | ProfileArg::Guard => {}
            ProfileArg::Escrow => {
                return Err(Failure::bad_input("--profile escrow is reserved and not implemented")
                    .hint("--profile audit records without enforcing"));
            }
        }
        paths::named_audit_dir(&self.audit_dir).map_err(Failure::bad_input)?;
        if self.upstream_url.is_some() && !self.command.is_empty() {
            return Err(
                Failure::bad_input("there are two servers: --upstream-url and a command").hint("leave out one of them")
            );
        }
        if self.http.listen.is_some() {
            return if self.upstream_url.is_some() {
                Ok(())
            } else {
                Err(Failure::bad_input("--listen needs a server that is reached over HTTP")
                    .hint("give its endpoint: --upstream-url http://127.0.0.1:8000/mcp"))
            };
        }
        if self.upstream_url.is_none() && self.command.is_empty() {
            return Err(Failure::bad_input("no server command").hint("assay mcp-proxy -- python my_server.py"));
        }
        Ok(())
    }
}

/// Runs `assay mcp-proxy`.
///
/// # Errors
/// Bad input, or what keeps the session from being recorded.
pub fn run(args: &ProxyArgs) -> Result<Exit, Failure> {
    args.check()?;
    let options = options(args)?;
    match &args.upstream_url {
        Some(url) => crate::proxy::http::run(&options, &args.http.options(url)?),
        None => crate::proxy::run(&options),
    }
}

fn surface(args: &ProxyArgs) -> Result<SurfaceOptions, Failure> {
    let rules = match &args.surface_rules {
        None => Rules::default(),
        Some(path) => {
            let read = files::named(path).and_then(|file| files::read_all(file, MAX_RULES));
            let text = read.map_err(|e| Failure::bad_input(format!("{}: {e}", path.display())))?;
            Rules::parse(&text, &path.to_string_lossy()).map_err(|e| Failure::bad_input(e.to_string()))?
        }
    };
    Ok(SurfaceOptions {
        enforce: args.profile == ProfileArg::Guard
            && !matches!(args.surface, Some(SurfaceArg::Off | SurfaceArg::Report)),
        compared: match args.surface {
            None => Compared::IfDecided,
            Some(SurfaceArg::Off) => Compared::Never,
            Some(SurfaceArg::Report | SurfaceArg::Enforce) => Compared::Always,
        },
        first: match args.surface_first {
            FirstArg::Tofu => First::Tofu,
            FirstArg::Approve => First::Approve,
        },
        quarantine: match args.quarantine {
            QuarantineArg::Item => Quarantine::Item,
            QuarantineArg::Server => Quarantine::Server,
        },
        rules,
    })
}

fn cleartext(args: &ProxyArgs) -> Cleartext {
    let mut all = Cleartext::default();
    for (tool, fields) in &args.cleartext {
        all.keep(tool, fields.iter().map(String::as_str));
    }
    all
}

fn options(args: &ProxyArgs) -> Result<Options, Failure> {
    Ok(Options {
        command: args.command.clone(),
        audit_dir: args.audit_dir.clone(),
        path: args.path.clone(),
        profile: match args.profile {
            ProfileArg::Guard => Profile::Guard,
            ProfileArg::Audit | ProfileArg::Escrow => Profile::Audit,
        },
        policy: args.policy.clone(),
        dns: !args.no_dns,
        max_message: usize::try_from(args.max_message).unwrap_or(usize::MAX),
        server_id: args.server_id.clone(),
        store_args: args.store_args,
        cleartext: cleartext(args),
        store_results: args.store_results,
        redact: redact::rules(&args.redact)?.map(|rules| Arc::new(rules) as Arc<dyn Redactor>),
        store_command: args.store_command,
        live_content: args.live_content,
        witness: None,
        store_limit: usize::try_from(args.store_limit).unwrap_or(usize::MAX),
        auto_pack: args.auto_pack,
        keep: args.keep,
        interval: args.pack_interval,
        checkpoint_every: args.checkpoint_every,
        shutdown_timeout: args.shutdown_timeout,
        json: args.json,
        surface: surface(args)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn parse(args: &[&str]) -> Result<ProxyArgs, clap::Error> {
        match Cli::try_parse_from([&["assay", "mcp-proxy"], args].concat())?.command {
            Some(Command::McpProxy(args)) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_flags_of_a_whole_command_line_are_read() {
        let args = parse(&[
            "--audit-dir",
            "x",
            "--auto-pack=false",
            "--pack-interval",
            "15m",
            "--store-limit",
            "4MiB",
            "--server-id",
            "fs.1",
            "--shutdown-timeout",
            "2.5",
            "--checkpoint-every",
            "5",
            "--",
            "python",
            "--version",
            "--json",
        ])
        .unwrap();
        assert!(!args.auto_pack && !args.json && !args.store_args);
        assert_eq!(args.pack_interval, PackInterval::Every(Duration::from_mins(15)));
        assert_eq!(args.checkpoint_every, Duration::from_secs(5));
        for bad in ["0", "0.5", "3601", "x"] {
            assert!(parse(&["--checkpoint-every", bad, "--", "x"]).is_err(), "{bad}");
        }
        assert_eq!((args.store_limit, args.shutdown_timeout), (4 << 20, Duration::from_millis(2500)));
        assert_eq!(args.command, ["python", "--version", "--json"]);
        args.check().unwrap();
        let plain = parse(&["--auto-pack", "--", "x"]).unwrap();
        assert!(plain.auto_pack);
        assert_eq!((plain.store_limit, plain.pack_interval), (1 << 20, PackInterval::Session));
        assert_eq!(plain.audit_dir, PathBuf::from(DEFAULT_AUDIT_DIR));
        assert_eq!(parse(&["--pack-interval", "500r", "--", "x"]).unwrap().pack_interval, PackInterval::Receipts(500));
    }

    #[test]
    fn what_wrap_writes_is_read() {
        let args =
            parse(&["--audit-dir", "repo:.assay/mcp", "--path", "/a", "--path=/b", "--wrapped=1,args", "--", "x"]);
        let args = args.unwrap();
        assert_eq!(args.path, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(args.command, ["x"]);
        // Without a value it does not take the command for one.
        assert_eq!(parse(&["--wrapped", "x", "y"]).unwrap().command, ["x", "y"]);
    }

    /// Wrap reads command lines without this parser.
    #[cfg(feature = "tui")]
    #[test]
    fn the_options_that_take_a_value_are_known_to_those_who_read_command_lines() {
        use clap::CommandFactory as _;
        let cli = Cli::command();
        let command = cli.find_subcommand("mcp-proxy").unwrap();
        let takes = |arg: &&clap::Arg| {
            let range = arg.get_num_args().unwrap_or_default();
            arg.get_long().is_some()
                && arg.get_action().takes_values()
                && !arg.is_require_equals_set()
                && range.min_values() > 0
        };
        let mut names: Vec<String> =
            command.get_arguments().filter(takes).map(|arg| format!("--{}", arg.get_long().unwrap())).collect();
        names.sort();
        assert_eq!(names, crate::clients::command::WITH_VALUE, "the list in src/clients/command.rs lacks one");
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        for bad in [
            "0m",
            "0r",
            "m",
            "",
            "5",
            "5h",
            "-1m",
            "+5m",
            "1.5m",
            "99999999999999999999m",
            "18446744073709551615m",
            "5é",
        ] {
            assert!(parse(&["--pack-interval", bad, "--", "x"]).is_err(), "{bad}");
        }
        for bad in ["", "x", "-1", "1T", "99999999999999999999", "18446744073709551615G"] {
            assert!(parse(&["--store-limit", bad, "--", "x"]).is_err(), "{bad}");
        }
        for bad in ["-1", "nan", "inf", "x", "1e9"] {
            assert!(parse(&["--shutdown-timeout", bad, "--", "x"]).is_err(), "{bad}");
        }
        for bad in ["", "x", "1,2", "90", "d", "1d,", "-1d", "1.5d", "1d,2w", "99999999999999999999d", "1P"] {
            assert_eq!(parse(&["--keep", bad, "--", "x"]).is_ok(), bad == "90", "{bad}");
        }
        let keep = parse(&["--keep", "90d,10G,1000", "--", "x"]).unwrap().keep.unwrap();
        assert_eq!((keep.age, keep.bytes), (Some(Duration::from_hours(90 * 24)), Some(10 << 30)));
        assert_eq!(keep.sessions, Some(1000));
        for bad in ["../x", ".x", "a b", ""] {
            assert!(parse(&["--server-id", bad, "--", "x"]).is_err(), "{bad}");
        }
        assert!(parse(&["--auto-pack=maybe", "--", "x"]).is_err());
    }

    #[test]
    fn the_command_begins_at_the_first_word_that_is_no_option() {
        for (given, command) in [
            (&["npx", "-y", "server"][..], &["npx", "-y", "server"][..]),
            (&["--", "npx", "-y", "server"], &["npx", "-y", "server"]),
            (&["--store-args", "python", "--json", "--audit-dir", "y"], &["python", "--json", "--audit-dir", "y"]),
            (&["--audit-dir", "x", "sh", "-c", "a -- b", "--", "c"], &["sh", "-c", "a -- b", "--", "c"]),
            (&["--", "--", "x"], &["--", "x"]),
            (&["--auto-pack", "python", "--help"], &["python", "--help"]),
            (&["python", "--version"], &["python", "--version"]),
            (&["--", "--odd-name"], &["--odd-name"]),
        ] {
            let args = parse(given).unwrap_or_else(|e| panic!("{given:?}: {e}"));
            assert_eq!(args.command, command, "{given:?}");
            assert!(!args.json);
            args.check().unwrap();
        }
        // What looks like an option of ours and is none is a slip, no command.
        assert!(parse(&["--audti-dir", "x", "--", "python"]).is_err());
        assert!(parse(&["-y", "python"]).is_err());
    }

    #[test]
    fn what_this_version_cannot_do_does_not_stand_in_help() {
        use clap::CommandFactory as _;
        let mut cli = Cli::command();
        let help = cli.find_subcommand_mut("mcp-proxy").unwrap().render_long_help().to_string();
        for absent in ["escrow", "reserved"] {
            assert!(!help.contains(absent), "{absent}");
        }
        let refused = parse(&["--profile", "x", "--", "x"]).unwrap_err().to_string();
        assert!(!refused.contains("escrow"), "{refused}");
    }

    #[test]
    fn what_this_version_cannot_do_is_said() {
        for (args, what) in [
            (&[][..], "no server command"),
            (&["--profile", "escrow", "--", "x"], "escrow is reserved"),
            (&["--profile", "guard", "--", "x"], "needs --policy"),
            (&["--upstream-url", "http://localhost", "--", "x"], "there are two servers"),
            (&["--listen", "127.0.0.1:0"], "needs a server that is reached over HTTP"),
            (&["--listen", "127.0.0.1:0", "--", "x"], "needs a server that is reached over HTTP"),
        ] {
            let failure = parse(args).unwrap().check().unwrap_err();
            assert!(failure.what.contains(what), "{failure}");
            assert_eq!(failure.exit, Exit::BadInput);
            assert!(failure.hint.is_some());
        }
    }
}
