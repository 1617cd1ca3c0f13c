//! Parse → dispatch → exit code.

use std::process::ExitCode;

use atelier::cli::{Cli, Command};
use atelier::{commands, failure, settings};
use clap::Parser as _;

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let result = match command {
        Command::Generate(typed) => settings::generate(typed).and_then(commands::generate::run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
