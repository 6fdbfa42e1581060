//! The loop: what happens goes into the app, what it asks for is done, and what changed is drawn: at once after a key, else at
//! most 30 times a second.

use super::{
    app::{App, Start},
    clipboard::{self, Copied},
    msg::{Effect, Job, Msg},
    paint::size,
    term::{self, Term},
};
use crate::{
    error::{Exit, Failure},
    live::{
        client::Update,
        watcher::{self, Wanted},
    },
    model::WallTime,
    paths,
};
use crossterm::event::{Event, EventStream, KeyEventKind};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc as blocking,
    },
    thread,
    time::Duration,
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_stream::StreamExt as _;

/// Time between two frames that nobody asked for by a key.
const FRAME: Duration = Duration::from_millis(33);
/// How often clocks on the screen move.
const CLOCK: Duration = Duration::from_millis(100);
/// Messages that wait; then whoever sends them waits.
const WAITING: usize = 4096;
/// Messages that are taken before the screen is looked at again.
const BATCH: usize = 512;
/// Events before the present that are told of a live session.
const BACKLOG: u64 = 4 * crate::live::state::WINDOW as u64;

/// What is done beside the dashboard while it runs.
pub type BesideWork = Box<dyn FnOnce(&Beside) + Send>;

/// How work beside the dashboard knows of it.
#[derive(Debug)]
pub struct Beside {
    messages: mpsc::Sender<Msg>,
    stop: Arc<AtomicBool>,
}

impl Beside {
    /// Asks the dashboard for something.
    pub fn ask(&self, effect: Effect) {
        let _ = self.messages.blocking_send(Msg::Ask(effect));
    }

    /// Waits; `false` once the dashboard has been left.
    #[must_use]
    pub fn pause(&self, time: Duration) -> bool {
        let until = std::time::Instant::now() + time;
        while !self.stop.load(Ordering::Relaxed) {
            let rest = until.saturating_duration_since(std::time::Instant::now());
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
/// There is no terminal, or it went away in an unusual manner.
pub fn run(start: Start, wanted: Wanted) -> Result<Exit, Failure> {
    run_beside(start, wanted, None)
}

/// As [`run`], with work of its own beside it, which has ended when this returns.
///
/// # Errors
/// As [`run`].
pub fn run_beside(start: Start, wanted: Wanted, work: Option<BesideWork>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::failed(format_args!("the dashboard cannot start: {e}")))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (messages, inbox) = mpsc::channel(WAITING);
    if start.live {
        listen(wanted, &messages, &stop).map_err(|e| Failure::failed(format_args!("no thread for following: {e}")))?;
    }
    let beside = Beside { messages: messages.clone(), stop: Arc::clone(&stop) };
    let mut term =
        Term::take(start.mouse).map_err(|e| Failure::failed(format_args!("the terminal cannot be used: {e}")))?;
    let work = work.map(|work| thread::Builder::new().name("assay-beside".into()).spawn(move || work(&beside)));
    let work = work.transpose().map_err(|e| Failure::failed(format_args!("no thread for the demo: {e}")))?;
    let result: io::Result<(Exit, String)> = runtime.block_on(async {
        let size = term.size()?;
        let (app, effects) = App::new(start, size.0, size.1, WallTime::now());
        let mut shell = Shell { app, term: &mut term, messages, leave: None };
        let ran = shell.run(inbox, effects).await;
        // Whatever ended it, what was typed is kept.
        let draft = keep_draft(&shell.app);
        if let (Err(_), Some(draft)) = (&ran, &draft) {
            crate::cli::out::stderr(draft);
        }
        ran?;
        let said = [shell.app.farewell(), draft.unwrap_or_default()];
        Ok((shell.leave.unwrap_or(Exit::Ok), said.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("\n")))
    });
    stop.store(true, Ordering::Relaxed);
    drop(term);
    if let Some(work) = work {
        let _ = work.join();
    }
    runtime.shutdown_background();
    match result {
        Ok((exit, farewell)) => {
            if !farewell.is_empty() {
                crate::cli::out::stderr(&farewell);
            }
            Ok(exit)
        }
        // The terminal has been closed: nobody is there to be told.
        Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof) => Ok(Exit::Ok),
        Err(e) if e.raw_os_error() == Some(5) => Ok(Exit::Ok),
        Err(e) => Err(Failure::failed(format_args!("the terminal: {e}"))),
    }
}

/// Writes down a policy whose changes are in no file; what there is to say about it.
fn keep_draft(app: &App) -> Option<String> {
    let (path, text) = app.policy.unsaved()?;
    let file = crate::text::visible(&path.to_string_lossy()).into_owned();
    let dir = paths::assay_home().unwrap_or_default().join("drafts");
    Some(match paths::write_dated(&dir, "yaml", text.as_bytes()) {
        Ok(kept) => format!("assay: changes of {file} were not written: they are in {}", kept.display()),
        Err(e) => format!("assay: changes of {file} were not written, and {} cannot be: {e}", dir.display()),
    })
}

/// Follows live sessions on threads; a bounded channel each way, so that a slow screen is a slow subscriber and no more.
fn listen(wanted: Wanted, messages: &mpsc::Sender<Msg>, stop: &Arc<AtomicBool>) -> io::Result<()> {
    let (updates, heard) = blocking::sync_channel::<Update>(WAITING);
    watcher::watch(wanted, BACKLOG, updates, Arc::clone(stop))?;
    let messages = messages.clone();
    thread::Builder::new().name("assay-hear".into()).spawn(move || {
        while let Ok(update) = heard.recv() {
            if messages.blocking_send(Msg::Live(update)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

struct Shell<'a> {
    app: App,
    term: &'a mut Term,
    messages: mpsc::Sender<Msg>,
    leave: Option<Exit>,
}

impl Shell<'_> {
    async fn run(&mut self, mut inbox: mpsc::Receiver<Msg>, first: Vec<Effect>) -> io::Result<()> {
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut keys = EventStream::new();
        let mut clock = interval(CLOCK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.act(first)?;
        let mut drawn = Instant::now();
        self.draw()?;
        while self.leave.is_none() {
            if self.app.is_dirty() && drawn.elapsed() >= FRAME {
                self.draw()?;
                drawn = Instant::now();
            }
            tokio::select! {
                biased;
                _ = hang_up.recv() => self.leave = Some(Exit::Ok),
                _ = terminate.recv() => self.leave = Some(Exit::Ok),
                _ = interrupt.recv() => self.leave = Some(Exit::Interrupted),
                event = keys.next() => {
                    match event {
                        Some(Ok(event)) => self.input(event)?,
                        // The terminal is gone.
                        Some(Err(_)) | None => return Ok(()),
                    }
                    if self.app.is_dirty() && self.leave.is_none() {
                        self.draw()?;
                        drawn = Instant::now();
                    }
                }
                Some(msg) = inbox.recv() => {
                    self.take(msg)?;
                    for _ in 0..BATCH {
                        let Ok(msg) = inbox.try_recv() else { break };
                        self.take(msg)?;
                    }
                }
                _ = clock.tick() => {
                    if let Some(defect) = term::defect() {
                        self.act(vec![Effect::Warn(defect)])?;
                    }
                    self.take(Msg::Tick(WallTime::now()))?;
                }
                () = sleep_until(drawn + FRAME), if self.app.is_dirty() => {}
            }
        }
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
        let spawned = thread.spawn(move || job.run(move |told| messages.blocking_send(Msg::Told(told)).is_ok()));
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
