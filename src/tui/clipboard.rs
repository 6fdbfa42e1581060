//! Copying: to the system's own clipboard where there is one, through the terminal (OSC 52) elsewhere and under SSH, into a file
//! when it is too much for that.

use crate::paths;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    io::{self, Write as _},
    path::Path,
    process::{Command, Stdio},
};

/// What terminals take with OSC 52, bytes of text; xterm and tmux stop at 100 000 of base64.
const OSC52_MAX: usize = 74_000;

/// How something was copied.
#[derive(Debug, PartialEq, Eq)]
pub enum Copied {
    /// A program of the system has it.
    System(&'static str),
    /// The terminal is asked to keep it: the bytes that do.
    Terminal(Vec<u8>),
    /// It is in a file.
    File(std::path::PathBuf),
}

/// Copies text. `env` gives environment variables, a file may be written in `home`.
///
/// # Errors
/// It is too much for a terminal, and no file could be written either.
pub fn copy(text: &str, env: &dyn Fn(&str) -> Option<String>, home: &Path) -> io::Result<Copied> {
    let set = |name: &str| env(name).is_some_and(|v| !v.is_empty());
    let remote = set("SSH_TTY") || set("SSH_CONNECTION");
    if !remote {
        let programs: [(bool, &'static str, &[&str]); 3] = [
            (cfg!(target_os = "macos"), "pbcopy", &[]),
            (set("WAYLAND_DISPLAY"), "wl-copy", &[]),
            (set("DISPLAY"), "xclip", &["-selection", "clipboard"]),
        ];
        for (here, program, args) in programs {
            if here && given(program, args, text).is_ok() {
                return Ok(Copied::System(program));
            }
        }
    }
    if text.len() <= OSC52_MAX {
        return Ok(Copied::Terminal(format!("\u{1b}]52;c;{}\u{1b}\\", STANDARD.encode(text)).into_bytes()));
    }
    paths::write_dated(&home.join("copied"), "txt", text.as_bytes()).map(Copied::File)
}

fn given(program: &str, args: &[&str], text: &str) -> io::Result<()> {
    let mut child =
        Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    if child.wait()?.success() { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_terminal_gets_what_it_can_take_and_a_file_the_rest() {
        let home = tempfile::tempdir().unwrap();
        let ssh = |name: &str| (name == "SSH_TTY" || name == "DISPLAY").then(|| "x".to_owned());
        let copied = copy("héllo", &ssh, home.path()).unwrap();
        assert_eq!(copied, Copied::Terminal(b"\x1b]52;c;aMOpbGxv\x1b\\".to_vec()));
        let long = "x".repeat(OSC52_MAX + 1);
        let Copied::File(path) = copy(&long, &|_| None, home.path()).unwrap() else { panic!("no file") };
        assert_eq!(std::fs::read_to_string(&path).unwrap(), long);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
