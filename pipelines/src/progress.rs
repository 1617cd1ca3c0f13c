//! Stages, timings and cancellation: the one vocabulary for progress bars, server events and reports.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// A step of a pipeline that is timed on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// A part of the checkpoint is brought to the device.
    Load(&'static str),
    /// Prompt to token ids.
    Tokenize,
    /// Reference picture to visual tokens.
    VisionEncode,
    /// Token ids to text states.
    TextEncode,
    /// A conversation's tokens to the logits of the first token of the answer.
    Prefill,
    /// The answer, token by token.
    Decode,
    /// Reference picture to latents.
    VaeEncode,
    /// Seed to noise.
    Noise,
    /// Keys and values of the text and reference tokens.
    Prefix,
    /// One denoising step.
    Denoise,
    /// Unfinished latents to pixels, for a look on the way.
    Preview,
    /// Latents to pixels.
    VaeDecode,
    /// Pixels to a file.
    Write,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(part) => write!(f, "load {part}"),
            Self::Tokenize => f.write_str("tokenize"),
            Self::VisionEncode => f.write_str("vision encode"),
            Self::TextEncode => f.write_str("text encode"),
            Self::Prefill => f.write_str("prefill"),
            Self::Decode => f.write_str("decode"),
            Self::VaeEncode => f.write_str("vae encode"),
            Self::Noise => f.write_str("noise"),
            Self::Prefix => f.write_str("prefix"),
            Self::Denoise => f.write_str("denoise"),
            Self::Preview => f.write_str("preview"),
            Self::VaeDecode => f.write_str("vae decode"),
            Self::Write => f.write_str("write"),
        }
    }
}

impl Serialize for Stage {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// How much a stage works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Size {
    /// How many.
    pub count: u64,
    /// Of what: `bytes`, `tokens`, `messages`, `values` or `pixels`.
    pub unit: &'static str,
}

impl Size {
    /// `count` of `unit`.
    #[must_use]
    pub fn new(count: usize, unit: &'static str) -> Self {
        Self { count: count as u64, unit }
    }
}

/// What one stage took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Timing {
    /// The stage.
    pub stage: Stage,
    /// Which picture of the batch, from 0, for stages that run once a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub picture: Option<usize>,
    /// Which step or which reference picture, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Wall-clock seconds, the device synchronised.
    pub seconds: f64,
    /// What the stage worked on.
    #[serde(flatten)]
    pub size: Size,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A stage begins; `index` of `count` when it is one of a series.
    Started {
        /// The stage.
        stage: Stage,
        /// Position in the series, from 0.
        index: usize,
        /// Length of the series.
        count: usize,
    },
    /// Part of a long stage is done.
    Advanced {
        /// The stage.
        stage: Stage,
        /// Finished pieces (tiles, layers).
        done: usize,
        /// All pieces.
        of: usize,
    },
    /// A stage ended.
    Finished(&'a Timing),
    /// Something the person should know that is no error.
    Notice(&'a str),
}

/// Watches a run. Called on the thread that runs it, so it should return quickly.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn event(&self, event: Event<'_>);
}

/// Watches nothing.
impl Observer for () {
    fn event(&self, _: Event<'_>) {}
}

/// A flag that stops a run: shared, set once. The pipelines look at it between layers, steps and tiles.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the run to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run has been asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error when the run has been asked to stop: for `?` at every boundary.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// One of a series of equal stages: which picture, which step, of how many.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// Which picture of the batch.
    pub picture: Option<usize>,
    /// Which step or reference.
    pub index: Option<usize>,
    /// Length of the series that `index` counts.
    pub count: usize,
}

/// Runs stages: times each, tells the observer, and stops between them when cancelled.
pub struct Progress<'a> {
    observer: &'a dyn Observer,
    cancel: Cancel,
    timings: Mutex<Vec<Timing>>,
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl Default for Progress<'_> {
    fn default() -> Self {
        Self::new(&(), Cancel::default())
    }
}

impl<'a> Progress<'a> {
    /// A run watched by `observer` that stops when `cancel` is set.
    pub fn new(observer: &'a dyn Observer, cancel: Cancel) -> Self {
        Self { observer, cancel, timings: Mutex::default() }
    }

    /// The token that stops this run.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Tells the person something that is no error.
    pub fn notice(&self, text: &str) {
        self.observer.event(Event::Notice(text));
    }

    /// Tells how far a long stage has come.
    pub fn advanced(&self, stage: Stage, done: usize, of: usize) {
        self.observer.event(Event::Advanced { stage, done, of });
    }

    /// Runs and times a stage.
    ///
    /// # Errors
    /// Those of `work`, or [`Error::Cancelled`].
    pub fn stage<T>(&self, stage: Stage, size: Size, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.stage_at(stage, Place::default(), size, work)
    }

    /// Runs and times one of a series of equal stages.
    ///
    /// # Errors
    /// Those of `work`, or [`Error::Cancelled`].
    pub fn stage_at<T>(&self, stage: Stage, place: Place, size: Size, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.cancel.check()?;
        self.observer.event(Event::Started { stage, index: place.index.unwrap_or(0), count: place.count.max(1) });
        let start = Instant::now();
        let result = work()?;
        let Place { picture, index, .. } = place;
        self.record(Timing { stage, picture, index, seconds: start.elapsed().as_secs_f64(), size });
        Ok(result)
    }

    /// Takes in a stage that was timed by whoever ran it, because its size was not known before.
    pub fn record(&self, timing: Timing) {
        self.observer.event(Event::Finished(&timing));
        self.timings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(timing);
    }

    /// What has been timed so far, in order.
    #[must_use]
    pub fn timings(&self) -> Vec<Timing> {
        self.timings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
