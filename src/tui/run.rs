//! The loop: what happens goes into the app, what it asks for is done, and what changed is drawn: at once after a key, else at
//! most 30 times a second.

use super::{
    app::{App, Start},
    clipboard::{self, Copied},
    msg::{Effect, Job, Msg},
    term::{self, Term},
};
use crate::{
    error::{Exit, Failure},
    live::{
        client::Update,
        watcher::{self, Wanted},
    },
    model::WallTime,
    numbers::size,
    paths, print,
};
use crossbeam_channel::{Receiver, Sender, after, bounded, never, select_biased, tick};
use crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc as blocking,
    },
    thread,
    time::{Duration, Instant},
};

/// Time between two frames while no key is pressed.
const FRAME: Duration = Duration::from_millis(33);
/// How often clocks on the screen move.
const CLOCK: Duration = Duration::from_millis(100);
/// Messages that the channel holds; a thread that sends more blocks.
const WAITING: usize = 4096;
/// Messages that are taken before the screen is looked at again.
const BATCH: usize = 512;
/// How long nothing may be typed until the thread that waits for it sees whether the dashboard was left.
const TYPING: Duration = Duration::from_millis(200);
/// Number of past events that are loaded of a live session.
const BACKLOG: u64 = 4 * crate::live::state::WINDOW as u64;

/// What is done beside the dashboard while it runs.
pub type BesideWork = Box<dyn FnOnce(&Beside) + Send>;

/// How work beside the dashboard knows of it.
#[derive(Debug)]
pub struct Beside {
    messages: Sender<Msg>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    /// Asks the dashboard for something.
    pub fn ask(&self, effect: Effect) {
        let _ = self.messages.send(Msg::Ask(effect));
    }

    /// Waits; `false` once the dashboard has been left.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return true;
            }
            thread::sleep(rest.min(Duration::from_millis(50)));
        }
        false
    }
}

/// Runs the dashboard until the user leaves it.
///
/// # Errors
/// There is no terminal, or it failed in an unusual manner.
pub fn run(start: Start, wanted: Wanted) -> Result<Exit, Failure> {
    run_beside(start, wanted, None)
}

/// As [`run`], with work of its own beside it, which has ended when this returns.
///
/// # Errors
/// As [`run`].
pub fn run_beside(start: Start, wanted: Wanted, work: Option<BesideWork>) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (messages, inbox) = bounded(WAITING);
    if start.live {
        listen(wanted, &messages, &stop)
            .map_err(|e| Failure::failed(format_args!("cannot start a thread to follow sessions: {e}")))?;
    }
    let beside = Beside { messages: messages.clone(), stop: Arc::clone(&stop) };
    let signals = signals().map_err(|e| Failure::failed(format_args!("cannot handle signals: {e}")))?;
    let mut term =
        Term::take(start.mouse).map_err(|e| Failure::failed(format_args!("the terminal cannot be used: {e}")))?;
    let work = work.map(|work| thread::Builder::new().name("assay-beside".into()).spawn(move || work(&beside)));
    let work =
        work.transpose().map_err(|e| Failure::failed(format_args!("cannot start a thread for the demo: {e}")))?;
    let show = || -> io::Result<Left> {
        let size = term.size()?;
        let heard = Heard { signals, keys: keys(&stop)?, inbox };
        let (app, effects) = App::new(start, size.0, size.1, WallTime::now());
        let mut shell = Shell { app, term: &mut term, messages, leave: None, killed: None, continued: false };
        let ran = shell.run(heard, effects);
        // Whatever ended it, what was typed is kept.
        let draft = keep_draft(&shell.app);
        if let (Err(_), Some(draft)) = (&ran, &draft) {
            print::stderr(draft);
        }
        ran?;
        let said = [shell.app.farewell(), draft.unwrap_or_default()];
        let farewell = said.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("\n");
        Ok(Left { exit: shell.leave.unwrap_or(Exit::Ok), farewell, killed: shell.killed })
    };
    let result = show();
    stop.store(true, Ordering::Relaxed);
    drop(term);
    if let Some(work) = work {
        let _ = work.join();
    }
    match result {
        Ok(left) => {
            if !left.farewell.is_empty() {
                print::stderr(&left.farewell);
            }
            if let Some(signal) = left.killed {
                // Our parent process must see what ended us.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            Ok(left.exit)
        }
        // The terminal has been closed: there is nowhere to report it.
        Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof) => Ok(Exit::Ok),
        Err(e) if e.raw_os_error() == Some(5) => Ok(Exit::Ok),
        Err(e) => Err(Failure::failed(format_args!("the terminal: {e}"))),
    }
}

/// How the dashboard was left.
struct Left {
    exit: Exit,
    farewell: String,
    /// The signal that ended it, if it is one that ends a process by default.
    killed: Option<i32>,
}

/// Every signal that ends or stops a process, as it comes; those that were ignored when we began are left so.
fn signals() -> io::Result<Receiver<i32>> {
    use crate::sys::process;
    let mut wanted = process::forwarded_signals();
    wanted.extend([SIGHUP, SIGTERM, SIGINT, SIGTSTP, SIGCONT]);
    wanted.retain(|signal| !process::is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    let (tell, told) = bounded(16);
    thread::Builder::new().name("assay-signals".into()).spawn(move || {
        for signal in signals.forever() {
            if tell.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(told)
}

/// Reads input until the user leaves the dashboard or the terminal is closed; sends the reason, if there is one.
fn keys(stop: &Arc<AtomicBool>) -> io::Result<Receiver<io::Result<Event>>> {
    let (tell, told) = bounded(WAITING);
    let stop = Arc::clone(stop);
    thread::Builder::new().name("assay-keys".into()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let event = match event::poll(TYPING) {
                Ok(false) => continue,
                Ok(true) => event::read(),
                Err(e) => Err(e),
            };
            let ended = event.is_err();
            if tell.send(event).is_err() || ended {
                return;
            }
        }
    })?;
    Ok(told)
}

/// Saves a policy with unsaved changes to a file; returns a message about it.
fn keep_draft(app: &App) -> Option<String> {
    let (path, text) = app.policy.unsaved()?;
    let file = crate::text::visible(&path.to_string_lossy()).into_owned();
    let dir = paths::assay_home().unwrap_or_default().join("drafts");
    Some(match paths::write_dated(&dir, "yaml", text.as_bytes()) {
        Ok(kept) => format!("assay: changes to {file} were not written; they are kept in {}", kept.display()),
        Err(e) => {
            format!("assay: changes to {file} were not written, and {} cannot be written either: {e}", dir.display())
        }
    })
}

/// Follows live sessions on threads. The channel is bounded each way, so that a slow screen is only a slow subscriber.
fn listen(wanted: Wanted, messages: &Sender<Msg>, stop: &Arc<AtomicBool>) -> io::Result<()> {
    let (updates, heard) = blocking::sync_channel::<Update>(WAITING);
    watcher::watch(wanted, BACKLOG, updates, Arc::clone(stop))?;
    let messages = messages.clone();
    thread::Builder::new().name("assay-hear".into()).spawn(move || {
        while let Ok(update) = heard.recv() {
            if messages.send(Msg::Live(update)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Where everything that happens is heard, what is most urgent first.
struct Heard {
    signals: Receiver<i32>,
    keys: Receiver<io::Result<Event>>,
    inbox: Receiver<Msg>,
}

struct Shell<'a> {
    app: App,
    term: &'a mut Term,
    messages: Sender<Msg>,
    leave: Option<Exit>,
    killed: Option<i32>,
    /// The SIGCONT of our own stop is still to be heard.
    continued: bool,
}

impl Shell<'_> {
    fn run(&mut self, mut heard: Heard, first: Vec<Effect>) -> io::Result<()> {
        let clock = tick(CLOCK);
        self.act(first)?;
        let mut drawn = Instant::now();
        self.draw()?;
        while self.leave.is_none() {
            if self.app.is_dirty() && drawn.elapsed() >= FRAME {
                self.draw()?;
                drawn = Instant::now();
            }
            let frame = if self.app.is_dirty() { after(FRAME.saturating_sub(drawn.elapsed())) } else { never() };
            select_biased! {
                recv(heard.signals) -> signal => match signal {
                    Ok(signal) => self.signalled(signal)?,
                    Err(_) => heard.signals = never(),
                },
                recv(heard.keys) -> event => {
                    let Ok(Ok(event)) = event else {
                        // The terminal has been closed.
                        return Ok(());
                    };
                    self.input(event)?;
                    if self.app.is_dirty() && self.leave.is_none() {
                        self.draw()?;
                        drawn = Instant::now();
                    }
                }
                recv(heard.inbox) -> msg => for msg in msg.into_iter().chain(heard.inbox.try_iter()).take(BATCH) {
                    self.take(msg)?;
                },
                recv(clock) -> _ => {
                    if let Some(defect) = term::defect() {
                        self.act(vec![Effect::Warn(defect)])?;
                    }
                    self.take(Msg::Tick(WallTime::now()))?;
                }
                recv(frame) -> _ => {}
            }
        }
        Ok(())
    }

    fn signalled(&mut self, signal: i32) -> io::Result<()> {
        match signal {
            SIGHUP | SIGTERM => self.leave = Some(Exit::Ok),
            SIGINT => self.leave = Some(Exit::Interrupted),
            SIGTSTP => {
                term::give_back();
                self.continued = true;
                // Whether it comes from the key or from elsewhere; SIGTSTP itself would only be heard once more.
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
                self.come_back()?;
            }
            // Somebody stopped us without asking, and the shell has had the terminal since.
            SIGCONT if !std::mem::take(&mut self.continued) => self.come_back()?,
            SIGCONT => {}
            other => {
                self.killed = Some(other);
                self.leave = Some(Exit::Ok);
            }
        }
        Ok(())
    }

    fn come_back(&mut self) -> io::Result<()> {
        self.term.take_again(self.app.listens_to_mouse())?;
        let (columns, lines) = self.term.size()?;
        self.take(Msg::Resize(columns, lines))?;
        self.app.touch();
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        self.term.draw(&self.app)?;
        self.app.drawn();
        Ok(())
    }

    fn input(&mut self, event: Event) -> io::Result<()> {
        #[cfg(debug_assertions)]
        panic_for_a_test(&event);
        let msg = match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => Msg::Key(key),
            Event::Paste(text) => Msg::Paste(text),
            Event::Mouse(mouse) => Msg::Mouse(mouse),
            Event::Resize(columns, lines) => Msg::Resize(columns, lines),
            _ => return Ok(()),
        };
        self.take(msg)
    }

    fn take(&mut self, msg: Msg) -> io::Result<()> {
        let effects = self.app.update(msg);
        self.act(effects)
    }

    fn act(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        for effect in effects {
            match effect {
                Effect::Leave => self.leave = Some(Exit::Ok),
                Effect::Mouse(on) => self.term.mouse(on)?,
                Effect::Redraw => {
                    self.term.forget()?;
                    self.app.touch();
                }
                // All of the job stops, and the shell sees it stopped.
                Effect::Suspend => {
                    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
                }
                Effect::Copy { what, text } => self.copy(&what, &text)?,
                Effect::Start(job) => self.start(job),
                // These have been dealt with inside, unless they come from here.
                inside @ (Effect::Show(_)
                | Effect::Open(_)
                | Effect::Compare(..)
                | Effect::Say(_)
                | Effect::Warn(_)) => {
                    self.app.inside(vec![inside]);
                }
            }
        }
        Ok(())
    }

    fn copy(&mut self, what: &str, text: &str) -> io::Result<()> {
        let home = paths::assay_home().unwrap_or_default();
        let said = match clipboard::copy(text, &|name| std::env::var(name).ok(), &home) {
            Ok(Copied::System(program)) => Effect::Say(format!("copied {what} with {program}")),
            Ok(Copied::Terminal(bytes)) => {
                self.term.raw(&bytes)?;
                Effect::Say(format!("copied {what} ({}) through the terminal", size(text.len() as u64)))
            }
            Ok(Copied::File(path)) => {
                Effect::Say(format!("{what} is {}: written to {}", size(text.len() as u64), path.display()))
            }
            Err(e) => Effect::Warn(format!("{what} could not be copied: {e}")),
        };
        self.act(vec![said])
    }

    fn start(&mut self, job: Job) {
        let messages = self.messages.clone();
        let what = job.what;
        let thread = thread::Builder::new().name(format!("assay-{what}"));
        let spawned = thread.spawn(move || job.run(move |told| messages.send(Msg::Told(told)).is_ok()));
        if let Err(e) = spawned {
            self.app.inside(vec![Effect::Warn(format!("{what}: {e}"))]);
        }
    }
}

/// Builds for tests have a key that panics, so that a test can see the terminal being given back.
#[cfg(debug_assertions)]
fn panic_for_a_test(event: &Event) {
    let key = matches!(event, Event::Key(key) if key.code == crossterm::event::KeyCode::F(12));
    let asked = key && std::env::var_os("ASSAY_TEST_PANIC_KEY").is_some();
    assert!(!asked, "a test asked for it");
}
