//! Whatever a client sends, and however it is cut: no server, however lenient, finds a denied call in what passes the guard.
//!
//! With cargo-fuzz: `cargo +nightly fuzz run --fuzz-dir tests/fuzz --features libfuzzer guard`. Without:
//! `cargo run --manifest-path tests/fuzz/Cargo.toml -- FILE…` looks at files, such as a crash that was found.
#![cfg_attr(feature = "libfuzzer", no_main)]
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

#[path = "../../guard/lenient.rs"]
mod lenient;
#[path = "../../guard/oracle.rs"]
mod oracle;

/// The first two bytes say where the stream is cut.
fn look(data: &[u8]) {
    let (cuts, sent) = data.split_at(data.len().min(2));
    let cuts: Vec<usize> = cuts.iter().map(|c| usize::from(*c)).collect();
    oracle::check(sent, &cuts);
}

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| look(data));

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let data = std::fs::read(&path)?;
        look(&data);
        println!("{}: nothing that is denied passes", std::path::Path::new(&path).display());
    }
    Ok(())
}
