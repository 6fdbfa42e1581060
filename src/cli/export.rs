//! `assay export`.

use super::{named, out, redact, replay};
use crate::{
    error::{Exit, Failure},
    export::{Export, csv, har, html, json, otlp, redacted},
    filter::{Facts, Filter},
    history::list::Places,
    pack::{
        stored::Call,
        verify::{request::check_out, source::PackDir},
    },
};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `assay export`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay export last --format html --out session.html\n  \
                  assay export 41e1 --format csv --filter 'tool:read outcome:error'\n\n\
                  What is exported is a copy and not evidence. It has the hashes of the pack, which is verified first,\n\
                  and arguments and results as far as they were stored. A filter is one of the dashboard's.\n\n\
                  Exit codes: 0 exported; 2 the pack is TAMPERED; 3 bad input, or no call passes the filter")]
pub struct ExportArgs {
    /// A pack: its directory, an archive of it, last, or a session's id or the beginning of that
    pack: PathBuf,
    /// Look for sessions here only [default: .assay/mcp, and every audit directory that you recorded in]
    #[arg(long, value_name = "DIR")]
    audit_dir: Option<PathBuf>,
    /// What is written
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Format,
    /// Only calls that pass, such as 'tool:read !outcome:forwarded ms>250'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Rules that take secrets out of contents: a file, or preset:secrets; may be repeated
    #[arg(long, value_name = "FILE|preset:NAME")]
    redact: Vec<PathBuf>,
    /// Write to a new file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One page for the browser, for reading and printing.
    Html,
    /// One document with the receipts as they are.
    Json,
    /// A table with one row for each call.
    Csv,
    /// The exchanges of a session over HTTP, as an HTTP Archive.
    Har,
    /// Spans, in the JSON of OpenTelemetry.
    Otlp,
}

/// Runs `assay export`.
///
/// # Errors
/// A pack that cannot be used, a filter that means nothing, a file that cannot be written.
pub fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    let text = args.filter.as_deref().unwrap_or_default();
    let filter =
        Filter::parse(text).map_err(|e| Failure::bad_input(format_args!("--filter: {e}\n{}", e.under(text))))?;
    let rules = redact::rules(&args.redact)?;
    let pack = named::pack(&args.pack, &Places::of_command(args.audit_dir.as_deref()))?;
    if let Some(file) = &args.out {
        check_out("--out", file, &pack.dir)?;
    }
    let (report, mut stored) = replay::stored(&pack)?;
    if let Some(rules) = &rules {
        redacted::take_out(&mut stored, rules);
    }
    let server = stored.session.as_ref().map(|s| s.server_id.clone()).unwrap_or_default();
    let passes = |call: &Call| {
        filter.passes(&Facts {
            tool: &call.tool,
            server: &server,
            verdict: call.verdict,
            outcome: call.outcome,
            ids: vec![call.receipt_id.clone(), call.invocation_id.clone()],
            us: call.took.and_then(|took| u64::try_from(took.as_micros()).ok()),
            ..Facts::default()
        })
    };
    let given = (!filter.is_empty()).then(|| text.to_owned());
    let mut export = Export::new(&stored, &report, pack.shown.display().to_string(), given, passes);
    export.source.redacted = rules.is_some();
    if export.calls.is_empty() && !filter.is_empty() {
        return Err(Failure::bad_input("no call passes the filter").hint("assay export without --filter exports all"));
    }
    let text = match args.format {
        Format::Html => html::page(&export),
        Format::Json => json::document(&export).map_err(Failure::failed)? + "\n",
        Format::Csv => csv::table(&export),
        Format::Otlp => otlp::document(&export) + "\n",
        Format::Har => {
            if stored.session.as_ref().is_none_or(|session| session.http.is_none()) {
                return Err(Failure::bad_input(
                    "this session was not over HTTP: it has no exchanges for an HTTP Archive",
                )
                .hint("--format json has its messages, --format otlp its times"));
            }
            let exchanges = har::exchanges(&PackDir::open(&pack.dir)?).map_err(Failure::failed)?;
            har::document(&export, &exchanges) + "\n"
        }
    };
    match &args.out {
        Some(file) => out::new_file(file, text.as_bytes())?,
        None => out::stdout(text.as_bytes())?,
    }
    Ok(Exit::Ok)
}
