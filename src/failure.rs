//! Errors → what is printed and the exit code.

use std::io::{self, Write as _};
use std::process::ExitCode;

use atelier_pipelines::Error;

/// The command could not do its work.
pub const FAILED: u8 = 1;
/// The command line makes no sense; clap uses the same code.
pub const USAGE: u8 = 2;
/// Stopped by Ctrl-C: 128 + SIGINT, as shells count.
pub const INTERRUPTED: u8 = 130;

/// Arguments that do not make sense together or say something impossible.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints an error with its causes, once, and says how the program ends. A reader that closed standard output has what
/// it wanted: that is success. `command` is the word whose help is recommended.
#[must_use]
pub fn report(error: &anyhow::Error, command: &str) -> ExitCode {
    // The error itself and no cause of it: a picture that could not be written to a pipe is a failure.
    if error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    if error.chain().any(|cause| matches!(cause.downcast_ref(), Some(Error::Cancelled))) {
        say("interrupted");
        return ExitCode::from(INTERRUPTED);
    }
    say(&format!("error: {}", message(error)));
    if error.is::<Usage>() {
        say(&format!("\nFor more information, try 'atelier {command} --help'."));
        return ExitCode::from(USAGE);
    }
    ExitCode::from(FAILED)
}

/// The error and its causes, joined by colons; a cause that is already quoted is not repeated.
fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// A line on standard error; nobody listening is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let io = io::Error::new(io::ErrorKind::NotFound, "No such file");
        let error = anyhow::Error::from(Error::io("a.png", io)).context("reading the reference");
        assert_eq!(message(&error), "reading the reference: a.png: No such file");
    }
}
