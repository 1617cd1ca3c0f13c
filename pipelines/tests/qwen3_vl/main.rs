//! The painter's text encoder against transformers and diffusers: pictures, prompts, configs, and every stage's values.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "tests say what they measured, and fail by panicking")]

mod common;

mod config;
mod parity;
mod pictures;
mod prompts;
