//! A witness over HTTP: `add-checkpoint`, and what it signed last of each log (c2sp.org/tlog-witness).

use super::{
    keep::{Answer, Keep},
    request::MAX_REQUEST,
};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

/// Connections at a time; others wait.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, and its body; a connection may be idle for no longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may take at all.
const LONGEST: Duration = Duration::from_secs(300);

/// Stops a witness from any thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// No connection is taken any more; requests that have begun are answered.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    async fn reached(self) {
        // Its sender is held here.
        let _ = self.0.subscribe().wait_for(|is_stopped| *is_stopped).await;
    }
}

/// A witness that has an address.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// Where it is.
    pub address: SocketAddr,
}

impl Server {
    /// Takes an address.
    ///
    /// # Errors
    /// An I/O error.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// An I/O error.
    pub fn run(self, keep: Keep, stop: &Stop) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let served = runtime.block_on(accept(self.listener, Arc::new(keep), stop.clone()));
        runtime.shutdown_timeout(PATIENCE);
        served
    }
}

async fn accept(listener: TcpListener, keep: Arc<Keep>, stop: Stop) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    let mut stopped = pin!(stop.clone().reached());
    loop {
        let next = async { (room.clone().acquire_owned().await, listener.accept().await) };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut stopped => break,
        };
        while open.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let (keep, stop) = (keep.clone(), stop.clone());
                open.spawn(async move {
                    connection(stream, keep, stop).await;
                    drop(place);
                });
            }
            // Too many open files, or one that was gone at once.
            Err(e) => {
                tracing::warn!("a connection was not taken: {e}");
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
    let _ = timeout(PATIENCE, async { while open.join_next().await.is_some() {} }).await;
    Ok(())
}

async fn connection(stream: TcpStream, keep: Arc<Keep>, stop: Stop) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let keep = keep.clone();
        async move { Ok::<_, Infallible>(answer(request, keep).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let stopped = async {
        tokio::select! {
            () = stop.reached() => {}
            () = sleep(LONGEST) => {}
        }
    };
    tokio::select! {
        _ = served.as_mut() => return,
        () = stopped => served.as_mut().graceful_shutdown(),
    }
    let _ = timeout(PATIENCE, served).await;
}

async fn answer(request: Request<Incoming>, keep: Arc<Keep>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let latest = path.strip_prefix('/').and_then(|path| path.strip_suffix("/checkpoint"));
    match (request.method(), path.as_str(), latest) {
        (&Method::POST, "/add-checkpoint", _) => {}
        (&Method::GET, _, Some(hash)) => {
            let hash = hash.to_owned();
            let note = spawn_blocking(move || keep.latest(&hash)).await.ok().flatten();
            return note.map_or_else(
                || plain(StatusCode::NOT_FOUND, "nothing of this log was signed"),
                |note| plain(StatusCode::OK, note.trim_end_matches('\n')),
            );
        }
        (_, "/add-checkpoint", _) | (_, _, Some(_)) => {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "POST /add-checkpoint, GET /HASH/checkpoint");
        }
        _ => return plain(StatusCode::NOT_FOUND, "POST /add-checkpoint, GET /HASH/checkpoint"),
    }
    let body = match timeout(PATIENCE, Limited::new(request.into_body(), MAX_REQUEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(e)) if e.is::<LengthLimitError>() => {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too long");
        }
        Ok(Err(_)) => return plain(StatusCode::BAD_REQUEST, "the request did not arrive"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
    };
    match spawn_blocking(move || keep.add_checkpoint(&body)).await {
        Ok(answer) => said(answer),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "it failed"),
    }
}

fn said(answer: Answer) -> Response<Full<Bytes>> {
    match answer {
        Answer::Signed(line) => plain(StatusCode::OK, line.trim_end()),
        Answer::Malformed(why) => plain(StatusCode::BAD_REQUEST, why),
        Answer::Unsigned(why) => plain(StatusCode::FORBIDDEN, &why),
        Answer::Unknown => plain(StatusCode::NOT_FOUND, "this witness does not follow the log"),
        Answer::Conflict(size) => {
            let mut response = plain(StatusCode::CONFLICT, &size.to_string());
            let kind = HeaderValue::from_static("text/x.tlog.size");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        Answer::Contradicts(why) => plain(StatusCode::UNPROCESSABLE_ENTITY, &why),
        Answer::Failed(why) => {
            tracing::error!("nothing was signed: {why}");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "nothing was signed; the log of this witness says why")
        }
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(format!("{text}\n").into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
