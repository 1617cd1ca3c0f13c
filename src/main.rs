//! Parse → dispatch → exit code.

use std::process::ExitCode;

use atelier::cli::{Bench, Cli, Command};
use atelier::{commands, failure, server, settings};
use atelier_kernels::cpu::on_threads;
use clap::Parser as _;

fn main() -> ExitCode {
    let Cli { command } = Cli::parse();
    let name = command.name();
    let result = match command {
        Command::Generate(typed) => settings::generate(typed).and_then(|s| on_threads(|| commands::generate::run(s))),
        Command::Describe(typed) => settings::describe(typed).and_then(|s| on_threads(|| commands::describe::run(&s))),
        Command::Serve(typed) => server::settings::settings(*typed).and_then(server::run),
        Command::Bench(Bench::Image(typed)) => {
            settings::bench_image(&typed).and_then(|settings| commands::bench::image(&settings))
        }
        Command::Bench(Bench::Merge(typed)) => commands::bench::merge(&typed),
        Command::Judge(typed) => settings::judge(typed).and_then(|settings| commands::judge::run(&settings)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error, name),
    }
}
