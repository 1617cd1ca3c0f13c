//! The thread that owns the looker: several answers in turn, a token each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use atelier_kernels::cpu::{Cpu, Products};
use atelier_pipelines::image_to_text::{Answer, Event, Generation, ImageToText, PrefixCache, Request, Usage};
use atelier_pipelines::progress::{self, Cancel, Observer, Progress};
use atelier_pipelines::{Error, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::ApiError;
use super::metrics::Metrics;
use super::settings::{Model, Settings};
use super::worker::{Job, Queue, Worker};

/// The looker as the routes see it.
#[derive(Debug, Clone)]
pub struct Looker {
    /// The name clients know it by.
    pub id: String,
    worker: Worker<Look>,
}

/// A question in the queue.
#[derive(Debug)]
struct Look {
    request: Request,
    cancel: Cancel,
    events: UnboundedSender<LookEvent>,
}

/// What comes back, in the order in which it happens.
#[derive(Debug)]
pub enum LookEvent {
    /// The prompt has been read.
    Prompt(Usage),
    /// The model thinks.
    Thinking(String),
    /// The model answers.
    Text(String),
    /// It is over.
    Done(std::result::Result<Box<Answer>, ApiError>),
}

/// A question under way. Dropping it stops the work.
#[derive(Debug)]
pub struct Looking {
    /// What happens.
    pub events: UnboundedReceiver<LookEvent>,
    cancel: Cancel,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Job for Look {
    fn abandoned(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn fail(&self, error: ApiError) {
        // a receiver that is gone wants no answer
        let _ = self.events.send(LookEvent::Done(Err(error)));
    }
}

impl Looker {
    /// Opens the checkpoint and starts the thread.
    ///
    /// # Errors
    /// When the checkpoint is damaged, or the system refuses a thread.
    pub fn start(model: &Model, settings: &Settings, metrics: Arc<Metrics>) -> anyhow::Result<Self> {
        let looker = ImageToText::open(&Cpu::new(Products::F32), &model.files)?;
        let (most, memory) = (settings.max_answers, PrefixCache::new(settings.prefix_cache));
        let worker = Worker::spawn_loop("looker", settings.max_queue, move |queue| {
            Desk { looker: &looker, memory, metrics: &metrics, active: Vec::new() }.work(queue, most);
        })?;
        Ok(Self { id: model.id.clone(), worker })
    }

    /// Puts a question in the queue.
    ///
    /// # Errors
    /// 429 when the queue is full, 503 when the server is going down.
    pub fn look(&self, request: Request) -> std::result::Result<Looking, ApiError> {
        let (cancel, (sender, events)) = (Cancel::default(), unbounded_channel());
        self.worker.submit(Look { request, cancel: cancel.clone(), events: sender })?;
        Ok(Looking { events, cancel })
    }

    /// Questions that wait, and those that are being answered.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.worker.waiting(), self.worker.running())
    }

    /// Takes no more questions.
    pub fn close(&self) {
        self.worker.close();
    }
}

/// The answers in the making and what they share.
struct Desk<'a> {
    looker: &'a ImageToText<Cpu>,
    memory: PrefixCache<Cpu>,
    metrics: &'a Metrics,
    active: Vec<Active<'a>>,
}

struct Active<'a> {
    look: Look,
    since: Instant,
    generation: Generation<'a, Cpu>,
}

impl Desk<'_> {
    /// Answers until the queue ends: new questions join between two tokens of those that are there.
    fn work(mut self, queue: &Queue<Look>, most: usize) {
        loop {
            if self.active.is_empty() {
                let Some(look) = queue.next() else { return };
                self.begin(look, queue);
            }
            while self.active.len() < most
                && let Some(look) = queue.try_next()
            {
                self.begin(look, queue);
            }
            self.step(queue);
        }
    }

    fn begin(&mut self, look: Look, queue: &Queue<Look>) {
        let since = Instant::now();
        let watch = Watch { metrics: self.metrics };
        let progress = Progress::new(&watch, look.cancel.clone());
        let begun = catch_unwind(AssertUnwindSafe(|| self.looker.begin(&look.request, &mut self.memory, &progress)));
        match begun {
            Ok(Ok(generation)) => self.active.push(Active { look, since, generation }),
            Ok(Err(error)) => {
                look.fail(error.into());
                queue.done(since);
            }
            Err(_) => {
                look.fail(ApiError::panicked());
                queue.done(since);
            }
        }
    }

    /// A chunk of a prompt or a token for every answer.
    fn step(&mut self, queue: &Queue<Look>) {
        let mut at = 0;
        while at < self.active.len() {
            let Active { look, generation, .. } = &mut self.active[at];
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                generation.step(&look.cancel, &mut |event| hear(event, &look.events))
            }));
            let error = match outcome {
                Ok(Ok(())) if !generation.finished() => {
                    at += 1;
                    continue;
                }
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.into()),
                Err(_) => {
                    // what it had read may be half written: it is dropped, not kept
                    let Active { look, since, .. } = self.active.remove(at);
                    look.fail(ApiError::panicked());
                    queue.done(since);
                    continue;
                }
            };
            let Active { look, since, generation } = self.active.remove(at);
            let answer = self.looker.end(generation, &mut self.memory);
            let result = match (error, answer) {
                (None, Some(answer)) => {
                    self.metrics.answer(&answer);
                    Ok(Box::new(answer))
                }
                (error, _) => Err(error.unwrap_or_else(|| ApiError::internal("the answer was not finished"))),
            };
            let _ = look.events.send(LookEvent::Done(result));
            queue.done(since);
        }
    }
}

fn hear(event: Event<'_>, events: &UnboundedSender<LookEvent>) -> Result<()> {
    let event = match event {
        Event::Prompt(usage) => LookEvent::Prompt(usage),
        Event::Thinking(text) => LookEvent::Thinking(text.into()),
        Event::Text(text) => LookEvent::Text(text.into()),
        _ => return Ok(()),
    };
    events.send(event).map_err(|_| Error::Cancelled)
}

/// Counts the stages.
struct Watch<'a> {
    metrics: &'a Metrics,
}

impl Observer for Watch<'_> {
    fn event(&self, event: progress::Event<'_>) {
        if let progress::Event::Finished(timing) = event {
            self.metrics.stage(timing);
        }
    }
}
