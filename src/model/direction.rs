//! The two directions of a session.

use serde::{Deserialize, Serialize};

/// Which way a message crosses the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the MCP client to the server (the server's stdin).
    ClientToServer,
    /// From the server to the MCP client (the server's stdout).
    ServerToClient,
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

    /// The word in evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientToServer => "client_to_server",
            Self::ServerToClient => "server_to_client",
        }
    }
}
