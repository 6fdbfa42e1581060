//! Whose surface it is, and who asked for it.

use serde::{Deserialize, Serialize};

/// What an approval is bound to: a server under an id, at one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Digest of the command, or of the URL.
    pub endpoint: String,
    /// The id that a person gave, or the one derived from the command.
    pub id: String,
}

/// How one server compares with another that was approved. What a server says of itself (`serverInfo`) plays no part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Likeness {
    /// The same id at the same place.
    Same,
    /// The same id at another place: drift, whatever the surface is.
    EndpointChanged,
    /// Another id, so another server, wherever it is.
    Other,
}

impl Identity {
    /// How `self`, which was approved, compares with `seen`.
    #[must_use]
    pub fn compare(&self, seen: &Self) -> Likeness {
        if self.id != seen.id {
            Likeness::Other
        } else if self.endpoint != seen.endpoint {
            Likeness::EndpointChanged
        } else {
            Likeness::Same
        }
    }
}

/// What a listing depends on beside the server.
///
/// Approval is by item and free of context: only what is missing is judged within one.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Digest of the credential; null without one.
    pub auth: Option<String>,
    /// Digest of the client's capabilities; null if the client said none.
    pub client_capabilities: Option<String>,
    /// `legacy` or `modern`; null before it is known.
    pub era: Option<String>,
    /// Protocol version; null before it is known.
    pub protocol_version: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_binds_what_and_where() {
        let of = |id: &str, endpoint: &str| Identity { endpoint: endpoint.into(), id: id.into() };
        let approved = of("files", "sha256:1");
        for (seen, likeness) in [
            (of("files", "sha256:1"), Likeness::Same),
            (of("files", "sha256:2"), Likeness::EndpointChanged),
            (of("other", "sha256:1"), Likeness::Other),
        ] {
            assert_eq!(approved.compare(&seen), likeness, "{seen:?}");
        }
    }
}
