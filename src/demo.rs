//! The demo models that are compiled into the program: names and contents of their files, as in a checkpoint folder.
//! Empty when the program was built without the `demo` feature, or `assets/models` does not have the model.

/// The painter.
pub const PAINTER: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/painter.rs"));

/// The looker.
pub const LOOKER: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/looker.rs"));
