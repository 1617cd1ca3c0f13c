//! One file per command.

mod chat;
pub mod describe;
pub mod generate;
