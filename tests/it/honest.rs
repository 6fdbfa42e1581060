//! Nothing that peers send, and nothing that surrounds a session, makes an honest pack fail.
//!
//! The server is `cat`: whatever the client says comes back, so that every message crosses in both directions, and what is a
//! response in one answers the request that was echoed in the other. Each pack is given to our verifier and, with the feature
//! `interop`, to assay-ai. `ASSAY_HONEST_CASES` sets how many sessions a property runs.

mod clocks;
mod counts;
mod numbers;
mod place;
mod surface;
mod surroundings;
mod values;
