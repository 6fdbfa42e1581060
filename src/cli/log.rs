//! `ASSAY_LOG`: how much the recorder writes to its log, and other commands to standard error.

use super::{Command, out};
use crate::proxy::log_level;
use std::io::IsTerminal as _;

/// Lets a command say what it does, if `ASSAY_LOG` asks for it. The proxy has a log of its own, and a dashboard has the screen.
pub(super) fn start(command: Option<&Command>) {
    let is_gateway = matches!(command, Some(Command::Gateway(args)) if args.is_run());
    if is_gateway || matches!(command, Some(Command::McpProxy(_) | Command::DemoServer(_))) {
        return;
    }
    let level = match log_level() {
        Ok(Some(level)) => level,
        Ok(None) => return,
        Err(what) => return out::stderr(&format!("assay: warning: {what}")),
    };
    let may_draw = matches!(
        command,
        None | Some(Command::Watch(_) | Command::Open(_) | Command::Policy(_) | Command::Surface(_) | Command::Demo(_))
    );
    if may_draw && std::io::stderr().is_terminal() {
        return out::stderr("assay: warning: ASSAY_LOG has no effect here: send standard error to a file, 2>log.txt");
    }
    let subscriber =
        tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_max_level(level).finish();
    // Only the first one in a process counts.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
