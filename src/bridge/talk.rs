//! The course of a conversation: messages in the order of the client, answers as they come.

use super::{
    Asked, BridgeEnd, Config, Transport, answers,
    book::Purpose,
    client::{Client, Reply, SendError, Sent},
    era::{Message, session_headers},
    failed::{Failed, LARGEST_ERROR, LOST, Place, refusal},
    wire::{Stage, Talk, Wire},
};
use crate::relay::{http::connect::Connector, log::NoteCode};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use rustix::fd::OwnedFd;
use std::{rc::Rc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe,
    sync::{OwnedMutexGuard, mpsc, watch},
    task::spawn_local,
    time::{sleep, timeout},
};

/// Messages of the client that wait to be sent, and of the server that wait to be read by the client.
const WAITING: usize = 16;
/// How long the client may take to read what it was told last.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Runs a bridge until its client or its server ends it.
pub(super) async fn run(
    mut config: Config,
    connector: Connector,
    reader: OwnedFd,
    writer: OwnedFd,
    mut asked: watch::Receiver<Asked>,
) -> BridgeEnd {
    let failed = |e: &dyn std::fmt::Display| BridgeEnd { code: 1, why: format!("the bridge cannot begin: {e}") };
    let opened = pipe::Receiver::from_owned_fd(reader).and_then(|r| Ok((r, pipe::Sender::from_owned_fd(writer)?)));
    let (reader, writer) = match opened {
        Ok(opened) => opened,
        Err(e) => return failed(&e),
    };
    let client = match Client::new(connector, &config.destination.url, &config.headers, config.book.take()) {
        Ok(client) => Rc::new(client),
        Err(e) => return failed(&e),
    };
    let (out, told) = mpsc::channel(WAITING);
    let talk = Rc::new(Talk::new(config, client, out));
    let writing = spawn_local(write_lines(writer, told, talk.clone()));
    let (heard, lines) = mpsc::channel(WAITING);
    spawn_local(read_lines(reader, heard, talk.clone()));
    let end = talk.converse(lines, &mut asked).await;
    if end.code != 0 {
        talk.say(&format!("the session ends: {}", end.why));
    }
    talk.client.close();
    let closing = async {
        talk.close_session(&end.why).await;
        talk.close().await;
        let _ = timeout(LAST_WORDS, writing).await;
    };
    tokio::select! {
        () = closing => {}
        _ = asked.wait_for(|asked| *asked == Asked::Kill) => {}
    }
    end
}

async fn read_lines(reader: pipe::Receiver, heard: mpsc::Sender<Bytes>, talk: Rc<Talk>) {
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let message = line.trim_ascii();
        if !message.is_empty() && heard.send(Bytes::copy_from_slice(message)).await.is_err() {
            return;
        }
    }
    talk.state().has_client_ended = true;
    talk.stir();
}

async fn write_lines(mut writer: pipe::Sender, mut told: mpsc::Receiver<Vec<u8>>, talk: Rc<Talk>) {
    while let Some(line) = told.recv().await.filter(|line| !line.is_empty()) {
        if let Err(e) = writer.write_all(&line).await {
            told.close();
            talk.end(0, &format!("the client does not read any more: {e}"));
            return;
        }
    }
}

impl Talk {
    async fn converse(
        self: &Rc<Self>,
        mut lines: mpsc::Receiver<Bytes>,
        asked: &mut watch::Receiver<Asked>,
    ) -> BridgeEnd {
        let mut over = self.over.subscribe();
        let taking = async {
            while let Some(line) = lines.recv().await {
                self.take(line).await;
            }
            // What the client has asked may still be answered for a moment.
            let _ = timeout(self.config.timing.grace, self.until(|state| !state.is_awaited())).await;
        };
        let ended = |why: &str| BridgeEnd { code: 0, why: why.to_owned() };
        tokio::select! {
            biased;
            told = over.wait_for(Option::is_some) => {
                told.ok().and_then(|end| end.clone()).unwrap_or_else(|| ended("the bridge ended"))
            }
            _ = asked.wait_for(|asked| *asked != Asked::No) => ended("the bridge was asked to end"),
            () = taking => ended("the client's input has ended"),
        }
    }

    /// Sends one message of the client, and waits as long as what follows has to wait for it.
    async fn take(self: &Rc<Self>, line: Bytes) {
        let message = Rc::new(Message::read(&line));
        if let Some(id) = &message.cancels
            && (self.cancel(id) || message.is_modern())
        {
            return;
        }
        let timing = self.config.timing;
        let (is_first, is_initialized) =
            (self.state().wire == Wire::Undecided, message.is("notifications/initialized"));
        let is_initialize = message.is("initialize") && !message.requests.is_empty();
        if is_initialize {
            let mut state = self.state();
            state.initialize = Some(message.clone());
            if state.session.is_some() {
                state.forget_session();
            }
        } else if is_initialized {
            self.state().initialized = Some(message.clone());
        }
        let gate = self.gate.clone().lock_owned().await;
        let exchange = self.begin(&message, None);
        let task = spawn_local(self.clone().exchange(message, exchange));
        self.set_task(exchange, task.abort_handle());
        self.until(|state| state.stage(exchange) >= Stage::Sent).await;
        drop(gate);
        if is_initialize {
            let answered = self.until(|state| !state.is_open(exchange));
            let client_ended = async {
                self.until(|state| state.has_client_ended).await;
                sleep(timing.grace).await;
            };
            let is_late = tokio::select! {
                () = answered => false,
                () = client_ended => false,
                () = sleep(timing.initialize) => true,
            };
            if is_late {
                task.abort();
                let seconds = timing.initialize.as_secs();
                let failed = Failed::new(format!("the server did not answer initialize within {seconds} s"));
                self.fail(|n, _| n == exchange, &|id| failed.line(id)).await;
                self.set_stage(exchange, Stage::Over);
            }
        } else if is_initialized {
            let answered = self.until(|state| state.stage(exchange) >= Stage::Answered);
            let _ = timeout(timing.initialized, answered).await;
            self.listen_on();
        } else if is_first {
            let decided = self.until(|state| state.stage(exchange) >= Stage::Answered);
            let _ = timeout(timing.initialize, decided).await;
        }
    }

    async fn exchange(self: Rc<Self>, message: Rc<Message>, exchange: u64) {
        let failed = match self.post(&message, exchange).await {
            Ok(Place::Stream) => None,
            Ok(Place::Here) => {
                Some(Failed::new("stream ended: the server ended its answer without answering this request"))
            }
            Err(failed) => {
                if message.requests.is_empty() {
                    self.say(&format!("the server did not take a message that needs no answer: {}", failed.why));
                }
                Some(failed)
            }
        };
        if let Some(failed) = failed {
            self.fail(|n, _| n == exchange, &|id| failed.line(id)).await;
        }
        self.set_stage(exchange, Stage::Over);
    }

    async fn post(self: &Rc<Self>, message: &Message, exchange: u64) -> Result<Place, Failed> {
        let mut held = None;
        let mut is_again = false;
        if self.config.transport == Transport::Sse && self.state().wire == Wire::Undecided {
            self.begin_old().await.map_err(|why| self.no_endpoint(message, why))?;
        }
        loop {
            let (generation, has_session) = {
                let state = self.state();
                (
                    state.generation,
                    !message.is_modern() && (state.session.is_some() || matches!(state.wire, Wire::Old(_))),
                )
            };
            let purpose = Purpose::of(message.ids.iter().cloned());
            let reply = self.send(message, exchange, &purpose, held.take()).await?;
            let status = reply.head.status;
            if status.is_success() {
                self.decide();
                self.set_stage(exchange, Stage::Answered);
                return Box::pin(self.hear(reply, message, exchange)).await;
            }
            if status.as_u16() == 404 && has_session && !message.is("initialize") {
                if is_again {
                    self.end(1, "the server has lost the new session, too");
                    return Err(Failed::new(LOST));
                }
                held = Some(Box::pin(self.lose_session(generation, Some(exchange))).await?);
                is_again = true;
                continue;
            }
            let body = reply.body.all(LARGEST_ERROR).await.unwrap_or_default();
            let error = answers::error_in(&body);
            let mut failed = Failed { why: refusal(status.as_u16()), status: Some(status.as_u16()), error };
            let is_undecided = self.state().wire == Wire::Undecided;
            if is_undecided && failed.error.is_some() {
                self.decide();
            } else if is_undecided
                && self.config.transport == Transport::Auto
                && matches!(status.as_u16(), 400 | 404 | 405)
            {
                match self.begin_old().await {
                    Ok(()) => continue,
                    Err(why) => {
                        let why = format!("{}; nor is there an older server: {why}", failed.why);
                        failed = Failed { status: failed.status, ..self.no_endpoint(message, why) };
                    }
                }
            }
            self.set_stage(exchange, Stage::Answered);
            return Err(failed);
        }
    }

    /// What is no MCP server for a client that begins a session is none at all; others try something else next.
    fn no_endpoint(&self, message: &Message, why: String) -> Failed {
        if !message.is_modern() {
            self.end(3, &format!("{} is no MCP endpoint: {why}", self.url.path()));
        }
        Failed::new(why)
    }

    fn decide(&self) {
        let mut state = self.state();
        if state.wire == Wire::Undecided {
            state.wire = Wire::Streamable;
            self.client.note(NoteCode::Speaks, "streamable-http");
        }
    }

    pub(super) async fn send(
        self: &Rc<Self>,
        message: &Message,
        exchange: u64,
        purpose: &Purpose,
        held: Option<OwnedMutexGuard<()>>,
    ) -> Result<Reply, SendError> {
        let (url, mut headers) = {
            let state = self.state();
            let headers = match (message.is_modern(), message.is("initialize")) {
                (true, _) => message.modern_headers(&state.params),
                (false, true) => HeaderMap::new(),
                (false, false) => session_headers(state.session.as_ref(), state.version.as_ref()),
            };
            let url = if let Wire::Old(url) = &state.wire { url.clone() } else { self.url.clone() };
            (url, headers)
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let talk = self.clone();
        let sent: Sent = Box::new(move || {
            talk.set_stage(exchange, Stage::Sent);
            drop(held);
        });
        self.client.send(Method::POST, &url, &headers, message.body.clone(), purpose, Some(sent)).await
    }
}
