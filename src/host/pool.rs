//! Exchanges from 2026-07-28 on: each has a process to itself, so that no id has to be changed. Processes wait for the next one.

use super::{
    message::{Message, line},
    process::Process,
    reply::{Event, Takes, answer, empty, failed},
};
use crate::relay::http::host::Hosted;
use http::{Response, StatusCode};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Messages that wait for a client that reads slowly; then the process waits.
const WAITING: usize = 16;

/// Processes that nobody uses, the last one used last.
#[derive(Default)]
pub(super) struct Pool(Mutex<Vec<(Process, Instant)>>);

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Vec<(Process, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that still runs.
    pub(super) fn take(&self) -> Option<Process> {
        let mut idle = self.idle();
        while let Some((mut process, _)) = idle.pop() {
            loop {
                match process.lines.try_recv() {
                    // It belongs to no exchange.
                    Ok(_) => {}
                    Err(mpsc::error::TryRecvError::Empty) => return Some(process),
                    Err(mpsc::error::TryRecvError::Disconnected) => break,
                }
            }
        }
        None
    }

    fn give(&self, process: Process) {
        self.idle().push((process, Instant::now()));
    }

    /// Ends the one that was used first.
    pub(super) fn end_one(&self) {
        let mut idle = self.idle();
        if !idle.is_empty() {
            drop(idle.remove(0));
        }
    }

    /// Ends those that were not used for so long.
    pub(super) fn end_idle(&self, limit: Duration) {
        self.idle().retain(|(_, since)| since.elapsed() < limit);
    }

    /// Has a process answer a message.
    pub(super) async fn exchange(
        self: Arc<Self>,
        mut process: Process,
        message: Message,
        body: &[u8],
        takes: Takes,
    ) -> Response<Hosted> {
        let Some(asked) = message.requests.first().cloned() else { return empty(StatusCode::ACCEPTED) };
        let (to, from) = mpsc::channel(WAITING);
        let line = line(body);
        let is_question = message.is("server/discover");
        tokio::spawn(async move {
            // What cannot be sent is not answered either: there are no more lines.
            let _ = process.to.send(line).await;
            loop {
                let data = tokio::select! {
                    data = process.lines.recv() => data,
                    // From here on, that is how a client cancels.
                    () = to.closed() => return,
                };
                let Some(data) = data else { break };
                let Ok(message) = Message::read(&data) else { continue };
                let is_last = message.answers.contains(&asked.id);
                if to.send(Event { id: None, data, is_last }).await.is_err() {
                    return;
                }
                if is_last {
                    // One that does not know the question has no more such exchanges.
                    if !(is_question && message.is_error) {
                        self.give(process);
                    }
                    return;
                }
            }
            let data = failed(&asked.text, -32000, &process.end_in_words());
            let _ = to.send(Event { id: None, data, is_last: true }).await;
        });
        answer(from, Takes { primed: false, ..takes }, None).await
    }
}
