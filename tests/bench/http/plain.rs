//! The floor: a reverse proxy of hyper with the listener's settings that only passes on. One connection upstream for each
//! connection of a client, one thread.

use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http1 as client,
    header::{HOST, HeaderValue},
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

const BUFFER: usize = 64 << 10;
const HEADERS: usize = 128;

type Line = Option<client::SendRequest<Incoming>>;

async fn connect(upstream: &str) -> io::Result<client::SendRequest<Incoming>> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = client::Builder::new()
        .preserve_header_case(true)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn pass(mut request: Request<Incoming>, upstream: &str, line: &Mutex<Line>) -> io::Result<Response<Incoming>> {
    request.headers_mut().insert(HOST, HeaderValue::from_str(upstream).map_err(io::Error::other)?);
    let mut line = line.lock().await;
    if line.as_ref().is_none_or(client::SendRequest::is_closed) {
        *line = Some(connect(upstream).await?);
    }
    let Some(sender) = line.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
    sender.ready().await.map_err(io::Error::other)?;
    sender.send_request(request).await.map_err(io::Error::other)
}

async fn connection(stream: TcpStream, upstream: String) {
    let line = Arc::new(Mutex::new(None));
    let service = service_fn(move |request| {
        let (upstream, line) = (upstream.clone(), line.clone());
        async move { pass(request, &upstream, &line).await }
    });
    // A client that has gone is no error.
    let _ = server::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .half_close(false)
        .max_buf_size(BUFFER)
        .max_headers(HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// Listens until it is killed, and says where.
pub fn serve(upstream: &str) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        eprintln!("plain: listening on http://{}/mcp", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(connection(stream, upstream.to_owned()));
        }
    })
}
