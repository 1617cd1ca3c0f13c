//! One file per command.

pub mod bench;
mod chat;
pub mod describe;
pub mod generate;
pub mod judge;
