//! Checkpoints: what is read right, what is refused and how, and that no file makes the readers panic or waste memory.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod build;
mod configs;
mod gguf;
mod properties;
mod safetensors;
mod shards;
