//! The only home of unsafe code: memory maps, process attributes, and a portable fallback beside each Linux call.
