//! How much of a session is followed at once. What the recorder keeps to, the verifier allows: one set of numbers.

/// Requests in flight that a recorder follows, of both directions. Each further one is named in the chain and counted as
/// missed.
pub const FOLLOWED: usize = 1 << 15;
/// Bytes that what it follows may take in memory, apart from a fixed part of each request.
pub const FOLLOWED_BYTES: usize = 32 << 20;
/// Requests of one direction that a guard lets be in flight: fewer than are followed, for it follows both directions.
pub const GUARDED: usize = FOLLOWED / 4;
/// Bytes that their ids may take.
pub const GUARDED_BYTES: usize = 4 << 20;
/// Requests in flight that a verifier follows. Recorders up to 0.1 had no limit of their own, and this was the verifier's.
pub const VERIFIED: usize = 1 << 18;

// A message of a guard may be a batch, and one that is kept back is in flight for a moment.
const _: () = assert!(2 * GUARDED < FOLLOWED && 2 * FOLLOWED <= VERIFIED);
/// Lines that are no messages and of which one event tells, at most.
pub const JUNK_LINES: u64 = 1000;
/// The largest integer that evidence holds, of either sign: beyond it a double has gaps, and two integers are one number to
/// many readers (RFC 7493 §2.2). What is written and what is accepted follow from this one bound.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;
