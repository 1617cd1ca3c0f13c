//! Questions and answers with tiny checkpoints, against transformers and against each other.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod answers;
mod behaviour;
mod common;
mod memory;
