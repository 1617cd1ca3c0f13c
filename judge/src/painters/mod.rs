//! Prompt → picture, timed.

// a model on this machine
mod local;
// a model behind an OpenAI-compatible server
mod server;

use atelier_pipelines::progress::{Cancel, Observer};
use image::RgbaImage;

use crate::Result;

pub use local::LocalPainter;
pub use server::ServerPainter;

/// What is to be painted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The prompt.
    pub prompt: String,
    /// Width and height in pixels; none leaves them to the model.
    pub size: Option<(u32, u32)>,
    /// Denoising steps; none leaves them to the model.
    pub steps: Option<usize>,
    /// Fixes the noise.
    pub seed: u64,
}

/// A painted picture.
#[derive(Debug, Clone)]
pub struct Painted {
    /// The pixels, straight alpha.
    pub picture: RgbaImage,
    /// Whether alpha means something.
    pub has_alpha: bool,
    /// Steps that were taken, if known.
    pub steps: Option<usize>,
    /// Seconds to paint it, without reading weights from the disk where that is known.
    pub seconds: f64,
    /// Seconds of each stage, in order, where they are known.
    pub stages: Vec<(String, f64)>,
}

/// Paints pictures.
pub trait Painter: Send + Sync {
    /// What it is called in reports.
    fn name(&self) -> String;

    /// What computes.
    fn device(&self) -> String;

    /// How many pictures it paints at once.
    fn concurrency(&self) -> usize;

    /// Paints one picture.
    ///
    /// # Errors
    /// When the job cannot be done, by this painter or at all.
    fn paint(&self, job: &Job, observer: &dyn Observer, cancel: &Cancel) -> Result<Painted>;
}
