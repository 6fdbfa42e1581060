//! The two directions of a session.

use super::words::vocabulary;

vocabulary! {
    /// Which way a message crosses the proxy.
    #[derive(Hash, PartialOrd, Ord)]
    Direction {
        /// From the MCP client to the server (the server's stdin).
        ClientToServer = "client_to_server",
        /// From the server to the MCP client (the server's stdout).
        ServerToClient = "server_to_client",
    }
}

impl Direction {
    /// The other way.
    #[must_use]
    pub const fn reverse(self) -> Self {
        match self {
            Self::ClientToServer => Self::ServerToClient,
            Self::ServerToClient => Self::ClientToServer,
        }
    }

    /// 0 or 1, where something is kept for each way.
    #[must_use]
    pub const fn lane(self) -> usize {
        match self {
            Self::ClientToServer => 0,
            Self::ServerToClient => 1,
        }
    }
}
