//! Bytes across, and observations out: the relay threads, the capture ring and the child process.
