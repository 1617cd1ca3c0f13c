//! Ctrl-C → cancellation. The first asks the run to stop, the second ends the program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The answers of a conversation: Ctrl-C stops the one that is being given, and not the program.
#[derive(Debug)]
pub struct Answers(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    Answering(Cancel),
    /// Nothing runs that could be stopped.
    Waiting,
    /// The same, and Ctrl-C was pressed: again, and the program ends.
    Warned,
}

impl Answers {
    /// Installs the handler.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn new() -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State::Waiting));
        let shared = Arc::clone(&state);
        ctrlc::set_handler(move || {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            match &*state {
                State::Answering(cancel) if !cancel.is_cancelled() => cancel.cancel(),
                State::Waiting => {
                    say("\npress Ctrl-C again to end, or type /quit");
                    *state = State::Warned;
                }
                State::Answering(_) | State::Warned => end(),
            }
        })
        .context("the Ctrl-C handler could not be installed")?;
        Ok(Self(state))
    }

    /// An answer begins: from now on Ctrl-C sets this token.
    #[must_use]
    pub fn begin(&self) -> Cancel {
        let cancel = Cancel::default();
        self.set(State::Answering(cancel.clone()));
        cancel
    }

    /// The answer has ended.
    pub fn end(&self) {
        self.set(State::Waiting);
    }

    fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
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
