//! What shows that nothing passes a guard: every known way past it, a reader more lenient than any server, and a gate between
//! two pipes.

pub mod cases;
pub mod lenient;
pub mod oracle;
pub mod policed;
pub mod surface;
