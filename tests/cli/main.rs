//! The program from outside: exit codes, what is printed, what is written.

#![cfg(test)]

mod harness;

mod arguments;
mod damage;
mod demo;
mod files;
mod help;
mod interrupt;
mod metadata;
mod naming;
mod references;
