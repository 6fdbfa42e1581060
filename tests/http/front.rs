//! A listener in audit, in this process, or as a guard that lets everything pass: what crosses is the same.

use crate::{
    process::{ALL, Process},
    rig::{End, Log, Proxy, Server},
};
use std::net::SocketAddr;

/// A message that a guard has nothing to say about: 46 bytes.
pub const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/now"}"#;

/// A length, the end of the head, and a body.
pub fn with_length(body: &str) -> String {
    format!("Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A listener in front of a server.
pub enum Front {
    Audit(Proxy),
    Guard(Process),
}

impl Front {
    /// Both ways, one after the other.
    pub fn both(server: &Server) -> impl Iterator<Item = Self> {
        let at = server.at;
        let guard = move || Self::Guard(Process::start(at, "guard", ALL, &[]));
        std::iter::once_with(move || Self::Audit(Proxy::to(at))).chain(std::iter::once_with(guard))
    }

    pub fn at(&self) -> SocketAddr {
        match self {
            Self::Audit(proxy) => proxy.at,
            Self::Guard(process) => process.at,
        }
    }

    /// What is in the log, where a test can read it.
    pub fn log(&self) -> Option<&Log> {
        match self {
            Self::Audit(proxy) => Some(&proxy.log),
            Self::Guard(_) => None,
        }
    }

    pub fn client(&self) -> End {
        End::connect(self.at())
    }

    /// A request of [`NOTE`].
    pub fn ask(&self, method: &str) -> String {
        format!("{method} /mcp HTTP/1.1\r\nHost: {}\r\n{}", self.at(), with_length(NOTE))
    }
}
