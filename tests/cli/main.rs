//! The program from outside: exit codes, what is printed, what is written.

#![cfg(test)]

mod harness;
#[path = "../../judge/tests/servers/harness.rs"]
#[expect(dead_code, reason = "shared with the judge's own tests")]
mod server;

mod arguments;
mod bench;
mod chat;
mod damage;
mod demo;
mod describe;
mod files;
mod help;
mod interrupt;
mod judge;
mod metadata;
mod naming;
mod references;
mod serve;
