//! A terminal with a program on it.

use crate::rig::{Rig, until};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::{
    io::{Read as _, Write},
    num::NonZeroU16,
    sync::{Arc, Mutex},
    thread,
};

/// What came out of it.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    closed: bool,
    /// Told of the screen after each change.
    eye: Option<Eye>,
}

/// Sees the screen after each change.
pub type Eye = Box<dyn FnMut(&vt100::Screen) + Send>;

pub struct Tty {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    seen: Arc<Mutex<Seen>>,
}

fn cells(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

const fn size(columns: u16, lines: u16) -> PtySize {
    PtySize { rows: lines, cols: columns, pixel_width: 0, pixel_height: 0 }
}

impl Tty {
    pub fn start(rig: &Rig, args: &[&str], columns: u16, lines: u16) -> Self {
        Self::start_with(rig, args, columns, lines, &[])
    }

    pub fn start_with(rig: &Rig, args: &[&str], columns: u16, lines: u16, env: &[(&str, &str)]) -> Self {
        let pair = native_pty_system().openpty(size(columns, lines)).unwrap();
        let mut command = CommandBuilder::new(rig.assay);
        command.args(args);
        command.cwd(&rig.root);
        command.env_clear();
        let own = [
            ("ASSAY_HOME", rig.root.join("home").display().to_string()),
            ("HOME", rig.root.display().to_string()),
            ("XDG_RUNTIME_DIR", rig.root.join("run").display().to_string()),
            ("LANG", "C.UTF-8".to_owned()),
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("TERM", "xterm-256color".to_owned()),
        ];
        own.iter().for_each(|(name, value)| command.env(name, value));
        env.iter().for_each(|(name, value)| command.env(name, value));
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let parser = vt100::Parser::new(cells(lines), cells(columns), 0);
        let seen = Arc::new(Mutex::new(Seen { parser, bytes: Vec::new(), closed: false, eye: None }));
        let mut screen = pair.master.try_clone_reader().unwrap();
        let eye = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let n = screen.read(&mut buffer).unwrap_or(0);
                let mut seen = eye.lock().unwrap();
                if n == 0 {
                    seen.closed = true;
                    return;
                }
                seen.bytes.extend_from_slice(&buffer[..n]);
                let seen = &mut *seen;
                seen.parser.process(&buffer[..n]);
                if let Some(eye) = &mut seen.eye {
                    eye(seen.parser.screen());
                }
            }
        });
        let keyboard = pair.master.take_writer().unwrap();
        Self { master: pair.master, child, keyboard, seen }
    }

    /// Lets `eye` see the screen after each change from now on.
    pub fn watch(&self, eye: Eye) {
        self.seen.lock().unwrap().eye = Some(eye);
    }

    /// The dashboard's process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Whether the normal screen is shown.
    pub fn is_normal(&self) -> bool {
        !self.seen.lock().unwrap().parser.screen().alternate_screen()
    }

    pub fn contents(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    /// Waits until the text is on the screen.
    pub fn wait(&self, text: &str) {
        self.wait_any(&[text]);
    }

    /// Waits until one of the texts is on the screen.
    pub fn wait_any(&self, texts: &[&str]) {
        let last = std::cell::RefCell::new(String::new());
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&format!("{texts:?} on the screen"), || {
                *last.borrow_mut() = self.contents();
                texts.iter().any(|text| last.borrow().contains(text)).then_some(())
            });
        }));
        assert!(found.is_ok(), "{texts:?} is not on the screen:\n{}", last.borrow());
    }

    pub fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.seen.lock().unwrap().parser.set_size(cells(lines), cells(columns));
        self.master.resize(size(columns, lines)).unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Frames drawn so far.
    pub fn frames(&self) -> usize {
        memchr::memmem::find_iter(&self.seen.lock().unwrap().bytes, b"\x1b[?2026h").count()
    }

    /// Everything that was written.
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().unwrap().bytes.clone()
    }

    /// Presses keys that end it; its exit code and what is on the normal screen then.
    pub fn quit(&mut self, keys: &str) -> (u32, String) {
        self.keys(keys);
        self.ended()
    }

    /// Waits for its end, and looks whether the terminal is as it was.
    pub fn ended(&mut self) -> (u32, String) {
        let status = until("the dashboard to end", || self.child.try_wait().unwrap());
        until("all of its output", || {
            let seen = self.seen.lock().unwrap();
            // Linux says so with an error, others with an end of file.
            seen.closed.then_some(())
        });
        let seen = self.seen.lock().unwrap();
        let screen = seen.parser.screen();
        assert!(!screen.alternate_screen(), "the other screen is still shown");
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bracketed_paste(), "pastes are still marked");
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        let left = memchr::memmem::find_iter(&seen.bytes, b"\x1b[?1049l").count();
        let entered = memchr::memmem::find_iter(&seen.bytes, b"\x1b[?1049h").count();
        assert_eq!(left, entered, "given back exactly once");
        (status.exit_code(), screen.contents())
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
