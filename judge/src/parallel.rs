//! Many pieces of work at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::Result;

/// Does `work` on all of `items` in order, `workers` at a time, and hands each result to `done` (on the calling thread)
/// as soon as it is there. After the first error nothing further is begun, but what comes is still handed over.
///
/// # Errors
/// The first error of `work` or `done`.
pub(crate) fn each<T: Sync, R: Send>(
    workers: usize,
    items: &[T],
    work: &(dyn Fn(&T) -> Result<R> + Sync),
    done: &mut dyn FnMut(&T, R) -> Result<()>,
) -> Result<()> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers.clamp(1, items.len().max(1)) {
            let send = send.clone();
            let (next, stop) = (&next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    if send.send((item, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        let mut result = Ok(());
        for (item, outcome) in receive {
            let outcome = outcome.and_then(|outcome| done(item, outcome));
            if outcome.is_err() {
                stop.store(true, Ordering::Relaxed);
                result = result.and(outcome);
            }
        }
        result
    })
}
