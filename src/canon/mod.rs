//! Strict JSON scanning, RFC 8785 canonical form and digests over `&[u8]`; knows nothing of MCP.
