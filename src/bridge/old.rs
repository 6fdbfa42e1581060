//! The older transport: one event stream for all answers, which says where messages go.

use super::{
    book::Purpose,
    client::Reply,
    resume::{Cursor, Events},
    streams::is_stream,
    wire::{Talk, Wire},
};
use crate::relay::log::NoteCode;
use std::rc::Rc;
use tokio::{
    sync::oneshot,
    task::spawn_local,
    time::{sleep, timeout},
};

impl Talk {
    /// Asks for the stream of the older transport, and waits until it says where messages go.
    pub(super) async fn begin_old(self: &Rc<Self>) -> Result<(), String> {
        let reply = self.get(b"", &Purpose::default()).await.map_err(|e| e.to_string())?;
        if reply.head.status.as_u16() != 200 || !is_stream(&reply.head.headers) {
            return Err(format!("GET gives no event stream (HTTP {})", reply.head.status.as_u16()));
        }
        let (found, named) = oneshot::channel();
        let generation = self.state().generation;
        let listener = spawn_local(self.clone().listen_old(reply, found, generation)).abort_handle();
        let named = match timeout(self.config.timing.initialize, named).await {
            Ok(Ok(named)) => named,
            Ok(Err(_)) => Err("its event stream ended before it named an endpoint".to_owned()),
            Err(_) => Err("its event stream names no endpoint".to_owned()),
        };
        match named {
            Ok(url) => {
                let mut state = self.state();
                state.wire = Wire::Old(url);
                self.client.note(NoteCode::Speaks, "sse");
                state.listener = Some(listener);
                Ok(())
            }
            Err(why) => {
                listener.abort();
                Err(why)
            }
        }
    }

    async fn listen_old(
        self: Rc<Self>,
        mut reply: Reply,
        found: oneshot::Sender<Result<url::Url, String>>,
        generation: u64,
    ) {
        let mut events = Events::default();
        let mut found = Some(found);
        while let Some(Ok(piece)) = reply.body.next().await {
            for event in events.read(&piece).into_iter().flatten() {
                match (event.name.as_deref(), &found) {
                    (Some(b"endpoint"), Some(_)) => {
                        let text = String::from_utf8_lossy(&event.data);
                        let url = self.url.join(text.trim()).map_err(|e| format!("its endpoint is no URL: {e}"));
                        let own = url.and_then(|url| {
                            let foreign =
                                || format!("its endpoint is elsewhere, at {}", url.origin().ascii_serialization());
                            if self.client.is_own(&url) { Ok(url) } else { Err(foreign()) }
                        });
                        if let Some(found) = found.take() {
                            let _ = found.send(own);
                        }
                    }
                    (None | Some(b"message"), _) => self.deliver(None, &event.data).await,
                    _ => {}
                }
            }
        }
        if found.is_none() && self.state().generation == generation {
            // This task is it.
            self.state().listener = None;
            if let Ok(gate) = self.lose_session(generation, None).await {
                drop(gate);
            }
        }
    }

    pub(super) async fn reach_old(self: &Rc<Self>) -> Result<(), String> {
        let timing = self.config.timing;
        let mut cursor = Cursor::new(timing.first_retry, timing.longest_retry);
        loop {
            match self.begin_old().await {
                Ok(()) => return Ok(()),
                Err(why) if cursor.failures() >= timing.tries => return Err(why),
                Err(_) => sleep(cursor.wait()).await,
            }
        }
    }
}
