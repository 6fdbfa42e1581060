//! Whatever a server answers, and however it comes: no client, however lenient, finds anything in what passes the guard that
//! nobody approved, and what it gets is what the server sent but for what was cut.
//!
//! docs/guard.md says how to fuzz. Without the feature `libfuzzer` this looks at the files that it is given.
#![cfg_attr(feature = "libfuzzer", no_main)]

use assay_support::guard::surface;

#[cfg(feature = "libfuzzer")]
libfuzzer_sys::fuzz_target!(|data: &[u8]| surface::look(data));

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        surface::look(&std::fs::read(&path)?);
        println!("{}: nothing that is not approved passes", std::path::Path::new(&path).display());
    }
    Ok(())
}
