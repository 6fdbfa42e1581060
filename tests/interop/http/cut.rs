//! A hop between a client and a server that cuts one connection, as a network does.

use memchr::memmem::find;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Passes bytes on. The first connection on which the server says `mark` is cut when the client has got it.
pub struct Cutter {
    pub url: String,
    done: Arc<AtomicBool>,
}

impl Cutter {
    pub fn start(url: &str, mark: &str) -> Self {
        let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let server: SocketAddr = authority.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/{path}", listener.local_addr().unwrap());
        let done = Arc::new(AtomicBool::new(false));
        let (mark, cut) = (mark.to_owned(), Arc::clone(&done));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let ends = [(&client, &server), (&server, &client)].map(|(a, b)| (a.try_clone(), b.try_clone()));
                let [(Ok(from_client), Ok(to_server)), (Ok(from_server), Ok(to_client))] = ends else { continue };
                thread::spawn(move || pass(from_client, to_server, |_| false));
                let (mark, cut) = (mark.clone(), Arc::clone(&cut));
                thread::spawn(move || {
                    let mut seen = Vec::new();
                    pass(from_server, to_client, |piece| {
                        seen.extend_from_slice(piece);
                        // The blank line ends the event.
                        let is_whole = find(&seen, mark.as_bytes()).is_some_and(|at| {
                            ["\n\n", "\r\n\r\n"].iter().any(|blank| find(&seen[at..], blank.as_bytes()).is_some())
                        });
                        is_whole && !cut.swap(true, Ordering::SeqCst)
                    });
                });
            }
        });
        Self { url, done }
    }

    /// Whether a connection was cut.
    pub fn has_cut(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

/// Copies until the end, or until `ends` says that it is here.
fn pass(mut from: TcpStream, mut to: TcpStream, mut ends: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || to.write_all(&buffer[..n]).is_err() || ends(&buffer[..n]) {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
