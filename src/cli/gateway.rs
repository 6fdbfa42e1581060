//! `assay gateway`: several servers behind one listener.

use super::out;
use crate::{
    error::{Exit, Failure},
    gateway::config::{CONFIG_FILE, Config, Service},
    relay::http::connect::without_secrets,
    text::{counted, visible, width},
};
use clap::{Args, Subcommand};
use serde_json::json;
use std::{fmt::Write as _, path::PathBuf};

/// Arguments of `assay gateway`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  assay gateway check-config --config assay.gateway.yaml\n\n\
                        A gateway serves several MCP servers under paths of their own; docs/gateway.md has a file to\n\
                        begin with")]
pub struct GatewayArgs {
    #[command(subcommand)]
    command: GatewayCommand,
}

#[derive(Debug, Subcommand)]
enum GatewayCommand {
    /// Read a gateway's configuration, and say what it means
    CheckConfig(CheckConfigArgs),
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

/// Runs `assay gateway`.
///
/// # Errors
/// Bad input, or what keeps the gateway from its work.
pub fn run(args: &GatewayArgs) -> Result<Exit, Failure> {
    match &args.command {
        GatewayCommand::CheckConfig(args) => out::answering(args.json, || check_config(args)),
    }
}

/// The credentials of a service that are not where its configuration says.
fn missing(service: &Service) -> Vec<String> {
    service.headers.iter().filter_map(|(_, reference)| reference.header().err()).collect()
}

fn check_config(args: &CheckConfigArgs) -> Result<Exit, Failure> {
    let config = Config::load(&args.at.config)?;
    if args.json {
        let services = config.services.iter().map(|s| {
            let headers: Vec<_> =
                s.headers.iter().map(|(name, r)| json!({"name": name.as_str(), "from": r.place.to_string()})).collect();
            json!({
                "name": s.name, "path": s.path(), "upstream_url": without_secrets(&s.url), "enabled": s.enabled,
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
        let url = without_secrets(&service.url);
        let _ = writeln!(text, "  {}{blank}  {}  {}{off}", service.path(), visible(&url), service.profile.as_str());
        for why in missing(service) {
            let _ = writeln!(text, "    warning: {}", visible(&why));
        }
    }
    out::stdout(text.as_bytes())?;
    Ok(Exit::Ok)
}
