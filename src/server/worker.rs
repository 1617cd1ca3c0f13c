//! One thread owns each model and takes jobs from a bounded queue.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::error::ApiError;

/// Work for a model's thread.
pub trait Job: Send + 'static {
    /// Whether nobody waits for the result any more.
    fn abandoned(&self) -> bool;
    /// Tells who waits that the work broke down.
    fn fail(&self, error: ApiError);
}

/// The queue before a model's thread; clones share it.
#[derive(Debug)]
pub struct Worker<J> {
    shared: Arc<Shared<J>>,
}

impl<J> Clone for Worker<J> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<J> {
    waiting: Mutex<Waiting<J>>,
    changed: Condvar,
    limit: usize,
    running: AtomicUsize,
    /// What a job took lately, in milliseconds: an average that forgets.
    typical_ms: AtomicU64,
}

#[derive(Debug)]
struct Waiting<J> {
    jobs: VecDeque<J>,
    closed: bool,
}

impl<J: Job> Worker<J> {
    /// Starts the thread; `run` does one job at a time. A panic in it fails that job alone.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn spawn(name: &str, limit: usize, mut run: impl FnMut(&J) + Send + 'static) -> std::io::Result<Self> {
        Self::spawn_loop(name, limit, move |queue| {
            while let Some(job) = queue.next() {
                let start = Instant::now();
                if catch_unwind(AssertUnwindSafe(|| run(&job))).is_err() {
                    job.fail(ApiError::panicked());
                }
                queue.done(start);
                drop(job);
            }
        })
    }

    /// Starts the thread with a loop of its own, which ends when [`Queue::next`] has no more.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn spawn_loop(name: &str, limit: usize, run: impl FnOnce(&Queue<J>) + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting { jobs: VecDeque::new(), closed: false }),
            changed: Condvar::new(),
            limit,
            running: AtomicUsize::new(0),
            typical_ms: AtomicU64::new(0),
        });
        let queue = Queue(Arc::clone(&shared));
        thread::Builder::new().name(name.into()).spawn(move || run(&queue))?;
        Ok(Self { shared })
    }

    /// Puts a job in the queue.
    ///
    /// # Errors
    /// 429 when the queue is full, 503 when the server is going down.
    pub fn submit(&self, job: J) -> Result<(), ApiError> {
        let mut waiting = self.shared.lock();
        if waiting.closed {
            return Err(ApiError::draining());
        }
        waiting.jobs.retain(|job| !job.abandoned());
        if waiting.jobs.len() >= self.shared.limit {
            let ahead = waiting.jobs.len() as u64 + 1;
            let seconds = (ahead * self.shared.typical_ms.load(Ordering::Relaxed)).div_ceil(1000);
            return Err(ApiError::busy(seconds.clamp(1, 3600)));
        }
        waiting.jobs.push_back(job);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Jobs that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Jobs that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.running.load(Ordering::Relaxed)
    }

    /// Takes no more jobs; those in the queue are still done.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// The thread's end of the queue.
#[derive(Debug)]
pub struct Queue<J>(Arc<Shared<J>>);

impl<J: Job> Queue<J> {
    /// The next job that somebody still waits for, once there is one; none when the queue is closed and empty.
    pub fn next(&self) -> Option<J> {
        let mut waiting = self.0.lock();
        loop {
            if let Some(job) = self.take(&mut waiting) {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.0.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next job, if there is one now.
    #[must_use]
    pub fn try_next(&self) -> Option<J> {
        self.take(&mut self.0.lock())
    }

    /// A job that began at `start` is done.
    pub fn done(&self, start: Instant) {
        let new = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let old = self.0.typical_ms.load(Ordering::Relaxed);
        self.0.typical_ms.store(if old == 0 { new } else { (3 * old + new) / 4 }, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }

    fn take(&self, waiting: &mut Waiting<J>) -> Option<J> {
        while let Some(job) = waiting.jobs.pop_front() {
            if !job.abandoned() {
                self.0.running.fetch_add(1, Ordering::Relaxed);
                return Some(job);
            }
        }
        None
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, Waiting<J>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    struct Test {
        number: usize,
        abandoned: bool,
        answer: Sender<Result<usize, ApiError>>,
    }

    impl Job for Test {
        fn abandoned(&self) -> bool {
            self.abandoned
        }
        fn fail(&self, error: ApiError) {
            let _ = self.answer.send(Err(error));
        }
    }

    /// A worker that waits for a word before each job and panics at job 13.
    fn worker(limit: usize) -> (Worker<Test>, Sender<()>) {
        let (go, gate) = channel();
        let run = move |job: &Test| {
            gate.recv().unwrap();
            assert_ne!(job.number, 13, "an unlucky job");
            let _ = job.answer.send(Ok(job.number));
        };
        (Worker::spawn("test", limit, run).unwrap(), go)
    }

    fn job(number: usize) -> (Test, Receiver<Result<usize, ApiError>>) {
        let (answer, answers) = channel();
        (Test { number, abandoned: false, answer }, answers)
    }

    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_full_queue_refuses_and_a_panic_harms_one_job() {
        let (worker, go) = worker(1);
        let (first, first_answer) = job(13);
        worker.submit(first).unwrap();
        wait_until(|| worker.waiting() == 0);
        let (second, second_answer) = job(2);
        worker.submit(second).unwrap();
        let error = worker.submit(job(3).0).unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after), (429, Some(1)));
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(first_answer.recv().unwrap().unwrap_err().status.as_u16(), 500);
        assert_eq!(second_answer.recv().unwrap(), Ok(2));
    }

    #[test]
    fn abandoned_jobs_make_room_and_are_not_run() {
        let (worker, go) = worker(1);
        worker.submit(job(1).0).unwrap();
        wait_until(|| worker.waiting() == 0);
        worker.submit(Test { abandoned: true, ..job(2).0 }).unwrap();
        let (third, answer) = job(3);
        worker.submit(third).unwrap();
        go.send(()).unwrap();
        go.send(()).unwrap();
        assert_eq!(answer.recv().unwrap(), Ok(3));
    }

    #[test]
    fn a_closed_queue_finishes_what_it_holds() {
        let (worker, go) = worker(4);
        let (first, answer) = job(1);
        worker.submit(first).unwrap();
        worker.close();
        assert_eq!(worker.submit(job(2).0).unwrap_err().status.as_u16(), 503);
        go.send(()).unwrap();
        assert_eq!(answer.recv().unwrap(), Ok(1));
    }
}
