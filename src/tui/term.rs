//! The terminal: taken over as a whole, written once per frame, and restored exactly once, whatever happens.

use crossterm::{
    cursor::Show,
    event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture},
    execute, queue,
    style::force_color_output,
    terminal::{
        BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode,
    },
};
use ratatui::{Terminal, backend::CrosstermBackend, layout::Rect};
use std::{
    cell::RefCell,
    io::{self, Write},
    rc::Rc,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
};

/// Whether the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// What went wrong on a thread that does not draw.
static DEFECT: Mutex<Option<String>> = Mutex::new(None);

/// Holds what is written until the frame is whole.
#[derive(Debug, Clone, Default)]
struct Frame(Rc<RefCell<Vec<u8>>>);

impl Write for Frame {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The terminal while it is ours.
#[derive(Debug)]
pub struct Term {
    terminal: Terminal<CrosstermBackend<Frame>>,
    frame: Frame,
}

impl Term {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(mouse: bool) -> io::Result<Self> {
        // Whether there are colours is the theme's business; without this, NO_COLOR takes the highlight too.
        force_color_output(true);
        give_back_on_panic();
        let frame = Frame::default();
        let taken = || -> io::Result<Self> {
            enter(mouse)?;
            Ok(Self { terminal: Terminal::new(CrosstermBackend::new(frame.clone()))?, frame: frame.clone() })
        };
        taken().inspect_err(|_| give_back())
    }

    /// Takes the terminal over once more, after it was [given back](give_back) or another program has used it.
    ///
    /// # Errors
    /// The system's error.
    pub fn take_again(&mut self, mouse: bool) -> io::Result<()> {
        give_back();
        enter(mouse)?;
        self.forget()
    }

    /// Columns and lines.
    ///
    /// # Errors
    /// The system's error.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws a frame with one write.
    ///
    /// # Errors
    /// The system's error, when the terminal has been closed.
    pub fn draw(&mut self, app: &super::app::App) -> io::Result<()> {
        self.frame.0.borrow_mut().clear();
        queue!(self.frame, BeginSynchronizedUpdate)?;
        self.terminal.draw(|f| {
            if let Some(cursor) = super::view::draw(app, f.buffer_mut()) {
                f.set_cursor_position(cursor);
            }
        })?;
        queue!(self.frame, EndSynchronizedUpdate)?;
        write(&self.frame.0.borrow())
    }

    /// The next frame is drawn from nothing.
    ///
    /// # Errors
    /// The system's error.
    pub fn forget(&mut self) -> io::Result<()> {
        self.frame.0.borrow_mut().clear();
        // Clears without asking the terminal where its cursor is: the thread that reads keys would take the answer.
        let (columns, lines) = self.size()?;
        self.terminal.resize(Rect::new(0, 0, columns, lines))?;
        write(&self.frame.0.borrow())
    }

    /// Listens to the mouse, or not.
    ///
    /// # Errors
    /// The system's error.
    pub fn mouse(&mut self, on: bool) -> io::Result<()> {
        if on { execute!(io::stdout(), EnableMouseCapture) } else { execute!(io::stdout(), DisableMouseCapture) }
    }

    /// Writes something that is not part of a frame.
    ///
    /// # Errors
    /// The system's error.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        write(bytes)
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    if mouse {
        execute!(io::stdout(), EnableMouseCapture)?;
    }
    Ok(())
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Gives the terminal back as it was, if it is ours; only once.
pub fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(
        io::stdout(),
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

/// A panic of the drawing thread restores the terminal before it is reported; one of another thread is kept for the
/// screen.
fn give_back_on_panic() {
    let drawing: ThreadId = thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !TAKEN.load(Ordering::SeqCst) || thread::current().id() == drawing {
            give_back();
            before(panic);
            return;
        }
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if let Ok(mut defect) = DEFECT.lock() {
            *defect = Some(format!("internal error at {place}: this is a defect in assay; everything else continues"));
        }
    }));
}

/// What went wrong on another thread, once.
pub fn defect() -> Option<String> {
    DEFECT.lock().ok()?.take()
}
