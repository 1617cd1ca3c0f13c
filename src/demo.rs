//! The demo model that is compiled into the program.

/// Names and contents of its files, as in a checkpoint folder; empty when the program was built without it.
#[cfg(feature = "demo")]
pub const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/demo.rs"));

/// Names and contents of its files; none, as the program was built without the `demo` feature.
#[cfg(not(feature = "demo"))]
pub const FILES: &[(&str, &[u8])] = &[];
