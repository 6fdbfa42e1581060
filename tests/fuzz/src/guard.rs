//! Whatever a client sends, and however it is cut: no server, however lenient, finds a denied call in what passes the guard.
//!
//! docs/guard.md says how to fuzz. Without the feature `libfuzzer` this looks at the files that it is given.
#![cfg_attr(feature = "libfuzzer", no_main)]

use assay_support::guard::oracle;

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| oracle::look(data));

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        oracle::look(&std::fs::read(&path)?);
        println!("{}: nothing that is denied passes", std::path::Path::new(&path).display());
    }
    Ok(())
}
