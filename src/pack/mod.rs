//! Proof packs: build, sign, verify, explain.
