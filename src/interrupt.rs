//! Ctrl-C → cancellation. The first asks the run to stop, the second ends the program.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use atelier_pipelines::progress::Cancel;

use crate::failure::{INTERRUPTED, say};

/// Held while a file is being written, so that ending the program cannot leave half of one.
static WRITING: Mutex<()> = Mutex::new(());

/// Keeps a second Ctrl-C waiting (for a second at most) until the guard is dropped.
pub fn writing() -> MutexGuard<'static, ()> {
    WRITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on Ctrl-C sets `cancel`.
///
/// # Errors
/// When the system refuses the handler.
pub fn cancel_on_ctrl_c(cancel: Cancel, quiet: bool) -> anyhow::Result<()> {
    ctrlc::set_handler(move || {
        if cancel.is_cancelled() {
            end();
        }
        cancel.cancel();
        if !quiet {
            say("\nstopping; press Ctrl-C again to end at once");
        }
    })
    .context("the Ctrl-C handler could not be installed")
}

#[expect(clippy::exit, reason = "the second Ctrl-C does not wait for the computation")]
fn end() {
    for _ in 0..100 {
        if WRITING.try_lock().is_ok() {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    std::process::exit(i32::from(INTERRUPTED));
}
