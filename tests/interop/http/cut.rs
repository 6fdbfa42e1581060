//! A hop between a client and a server that cuts one connection, as a network does.

use memchr::memmem::find;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// How long nobody gets through after the cut. The SDK's server loses what it sends while it replays what was missed
/// (its source: "the replay→live-tail ordering window"): by then the tool is done, and all that is left is replayed.
const AWAY: Duration = Duration::from_millis(500);

/// Passes bytes on. The first connection on which the server says `mark` is cut when the client has got it.
pub struct Cutter {
    pub url: String,
    done: Arc<OnceLock<Instant>>,
}

impl Cutter {
    pub fn start(url: &str, mark: &str) -> Self {
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let server: SocketAddr = authority.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/{path}", listener.local_addr().unwrap());
        let done = Arc::new(OnceLock::<Instant>::new());
        let (mark, cut) = (mark.to_owned(), Arc::clone(&done));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let ends = [(&client, &server), (&server, &client)].map(|(a, b)| (a.try_clone(), b.try_clone()));
                let [(Ok(from_client), Ok(to_server)), (Ok(from_server), Ok(to_client))] = ends else { continue };
                let (mark, cut, back) = (mark.clone(), Arc::clone(&cut), Arc::clone(&cut));
                let away = move || back.get().map_or(Duration::ZERO, |at| AWAY.saturating_sub(at.elapsed()));
                thread::spawn(move || pass(from_client, to_server, || thread::sleep(away()), |_| false));
                thread::spawn(move || {
                    let mut seen = Vec::new();
                    let ends = |piece: &[u8]| {
                        seen.extend_from_slice(piece);
                        // The blank line ends the event.
                        let is_whole = find(&seen, mark.as_bytes()).is_some_and(|at| {
                            ["\n\n", "\r\n\r\n"].iter().any(|blank| find(&seen[at..], blank.as_bytes()).is_some())
                        });
                        is_whole && cut.set(Instant::now()).is_ok()
                    };
                    pass(from_server, to_client, || (), ends);
                });
            }
        });
        Self { url, done }
    }

    /// Whether a connection was cut.
    pub fn has_cut(&self) -> bool {
        self.done.get().is_some()
    }
}

/// Copies until the end, or until `ends` says that it is here; `waits` before each piece.
fn pass(mut from: TcpStream, mut to: TcpStream, waits: impl Fn(), mut ends: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        waits();
        if n == 0 || to.write_all(&buffer[..n]).is_err() || ends(&buffer[..n]) {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
