//! The session at the server: its end, its loss, and how one is begun again without the client.

use super::{
    SessionLoss, answers,
    book::Purpose,
    client::SendError,
    era::{Message, session_headers},
    failed::{Failed, LARGEST_ERROR, LOST, refusal},
    wire::{Stage, Talk, Wire},
};
use crate::relay::log::NoteCode;
use bytes::Bytes;
use http::Method;
use std::rc::Rc;
use tokio::{
    sync::{OwnedMutexGuard, oneshot},
    time::{sleep, timeout},
};

impl Talk {
    /// Ends the session at the server, and answers what is open.
    pub(super) async fn close_session(self: &Rc<Self>, why: &str) {
        self.fail(|_, _| true, &|id| answers::own_error(id, &format!("no answer before the end: {why}"), None)).await;
        let headers = {
            let mut state = self.state();
            if let Some(listener) = state.listener.take() {
                listener.abort();
            }
            if state.session.is_none() {
                return;
            }
            session_headers(state.session.as_ref(), state.version.as_ref())
        };
        let delete = async {
            let reply =
                self.client.send(Method::DELETE, &self.url, &headers, Bytes::new(), &Purpose::OWN, None).await?;
            let status = reply.head.status;
            let _ = reply.body.all(LARGEST_ERROR).await;
            Ok::<_, SendError>(status)
        };
        match timeout(self.config.timing.delete, delete).await {
            Ok(Ok(status)) => tracing::debug!(%status, "the session was ended at the server"),
            Ok(Err(e)) => tracing::debug!(error = %e, "the session could not be ended at the server"),
            Err(_) => tracing::debug!("the server does not answer to the end of the session"),
        }
    }

    /// The server does not know the session any more. After a new one has begun, what is returned is held until the next
    /// message has left.
    pub(super) async fn lose_session(
        self: &Rc<Self>,
        generation: u64,
        exchange: Option<u64>,
    ) -> Result<OwnedMutexGuard<()>, Failed> {
        let gate = self.gate.clone().lock_owned().await;
        if self.state().generation != generation {
            return Ok(gate);
        }
        self.give_up_others(exchange, LOST).await;
        match self.config.session_loss {
            SessionLoss::Reinitialize => {}
            SessionLoss::Error => return Err(Failed::new(LOST)),
            SessionLoss::Exit => {
                self.end(1, "the server has lost the session");
                return Err(Failed::new(LOST));
            }
        }
        match Box::pin(self.begin_again()).await {
            Ok(()) => {
                self.say("the server had lost the session; a new one has begun");
                Ok(gate)
            }
            Err(why) => {
                self.end(1, &format!("the server has lost the session, and {why}"));
                Err(Failed::new(LOST))
            }
        }
    }

    /// Begins a session as the client began the one before. The error says why there is none that the client could use
    /// without knowing.
    async fn begin_again(self: &Rc<Self>) -> Result<(), String> {
        let now = std::time::Instant::now();
        let (before, initialize, initialized, is_old) = {
            let mut state = self.state();
            let last = state.lost.replace(now);
            if last.is_some_and(|last| now - last < self.config.timing.between_losses) {
                return Err("it had lost another one shortly before".to_owned());
            }
            state.forget_session();
            self.client.note(NoteCode::SessionLost, "");
            let is_old = matches!(state.wire, Wire::Old(_));
            (state.greeting.take(), state.initialize.clone(), state.initialized.clone(), is_old)
        };
        let initialize = initialize.ok_or("the client has not begun one")?;
        if is_old {
            self.reach_old().await?;
        }
        self.ask(&initialize).await?;
        if self.state().greeting != before {
            return Err("it offers something else now than before".to_owned());
        }
        if let Some(initialized) = initialized {
            let exchange = self.begin(&initialized, None);
            let sent = self.send(&initialized, exchange, &Purpose::OWN, None).await;
            self.set_stage(exchange, Stage::Over);
            let reply = sent.map_err(|e| e.to_string())?;
            if !reply.head.status.is_success() {
                return Err(refusal(reply.head.status.as_u16()));
            }
            let _ = reply.body.all(LARGEST_ERROR).await;
            self.listen_on();
        }
        Ok(())
    }

    /// Asks the server what the client asked before, and keeps the answer from the client.
    async fn ask(self: &Rc<Self>, initialize: &Message) -> Result<(), String> {
        let (own, answer) = oneshot::channel();
        let exchange = self.begin(initialize, Some(own));
        let asking = async {
            let reply = self.send(initialize, exchange, &Purpose::OWN, None).await.map_err(|e| e.to_string())?;
            if !reply.head.status.is_success() {
                return Err(refusal(reply.head.status.as_u16()));
            }
            Box::pin(self.hear(reply, initialize, exchange)).await.map(drop).map_err(|failed| failed.why)
        };
        let limit = sleep(self.config.timing.initialize);
        tokio::pin!(asking, answer, limit);
        let mut is_asked = false;
        let result = loop {
            tokio::select! {
                answer = &mut answer => break answer.map(drop).map_err(|_| "it does not answer".to_owned()),
                asked = &mut asking, if !is_asked => match asked {
                    Ok(()) => is_asked = true,
                    Err(why) => break Err(why),
                },
                () = &mut limit => break Err("it does not answer".to_owned()),
            }
        };
        self.fail(|n, _| n == exchange, &|_| Vec::new()).await;
        self.set_stage(exchange, Stage::Over);
        result
    }
}
