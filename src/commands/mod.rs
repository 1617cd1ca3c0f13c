//! One file per command.

pub mod generate;
