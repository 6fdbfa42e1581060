//! The `assay` binary: arguments, logging, panic hook, exit code; nothing else.
fn main() {}
