//! The program from outside: exit codes, what is printed, what is written.

#![cfg(test)]

mod harness;

mod arguments;
mod chat;
mod damage;
mod demo;
mod describe;
mod files;
mod help;
mod interrupt;
mod metadata;
mod naming;
mod references;
mod serve;
