//! The `atelier` program as a library: what a person touches, on top of `atelier-pipelines`.
//!
//! What was typed ([`cli`]) → what it means ([`settings`]) → the command ([`commands`]).

// words → what was typed
pub mod cli;
// what was typed → what it means
pub mod settings;
// the models that are compiled in
pub mod demo;
// files, standard input, data URIs → pictures
pub mod pictures;
// files → reference pictures
pub mod references;
// events → lines and bars
pub mod display;
// Ctrl-C → cancellation
pub mod interrupt;
// what a picture was made of, in its metadata
pub mod recipe;
// file bytes → files, whole or not at all
pub mod output;
// timings → totals and JSON
pub mod report;
// HTTP
pub mod server;
// one file per command
pub mod commands;
// errors → what is printed and the exit code
pub mod failure;
