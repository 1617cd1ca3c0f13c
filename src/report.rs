//! Timings → totals for people and JSON for programs.

use std::path::PathBuf;

use atelier_pipelines::progress::{Stage, Timing};
use atelier_pipelines::text_to_image::Plan;
use serde::Serialize;

use crate::display::precise;
use crate::recipe::VERSION;

pub mod answer;
pub mod judge;

/// What all runs of one stage took together.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Total {
    /// The stage.
    pub stage: Stage,
    /// How often it ran.
    pub count: usize,
    /// Seconds together.
    pub seconds: f64,
}

/// One total for each stage, in the order in which they first ran.
#[must_use]
pub fn totals(timings: &[Timing]) -> Vec<Total> {
    let mut totals: Vec<Total> = Vec::new();
    for &Timing { stage, seconds, .. } in timings {
        match totals.iter_mut().find(|total| total.stage == stage) {
            Some(total) => {
                total.count += 1;
                total.seconds += seconds;
            }
            None => totals.push(Total { stage, count: 1, seconds }),
        }
    }
    totals
}

/// A table of the totals.
#[must_use]
pub fn summary(timings: &[Timing], seconds: f64) -> String {
    let mut text = String::new();
    for Total { stage, count, seconds } in totals(timings) {
        text += &format!("  {:<18}{:>9}", stage.to_string(), precise(seconds));
        if count > 1 {
            text += &format!("   {count} x {}", precise(seconds / count as f64));
        }
        text.push('\n');
    }
    text + &format!("  {:<18}{:>9}", "total", precise(seconds))
}

/// A picture that has been written.
#[derive(Debug, Clone, Serialize)]
pub struct Written {
    /// Its file.
    pub path: PathBuf,
    /// The seed of its noise.
    pub seed: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// The file that `--timings` writes.
#[derive(Debug, Serialize)]
pub struct RunReport<'a> {
    version: &'static str,
    model: &'a str,
    device: &'a str,
    width: u32,
    height: u32,
    steps: usize,
    pictures: usize,
    /// Wall-clock seconds from opening the checkpoint to the last file.
    seconds: f64,
    totals: Vec<Total>,
    timings: &'a [Timing],
}

impl<'a> RunReport<'a> {
    /// Of a finished run.
    #[must_use]
    pub fn new(plan: &'a Plan, device: &'a str, pictures: usize, seconds: f64, timings: &'a [Timing]) -> Self {
        let Plan { model, width, height, steps, .. } = plan;
        let (width, height, steps) = (*width, *height, *steps);
        Self {
            version: VERSION,
            model,
            device,
            width,
            height,
            steps,
            pictures,
            seconds,
            totals: totals(timings),
            timings,
        }
    }
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    /// Version of the program.
    pub version: &'static str,
    /// Name of the model.
    pub model: &'a str,
    /// What computed.
    pub device: &'a str,
    /// The pictures, in order.
    pub pictures: &'a [Written],
    /// Denoising steps.
    pub steps: usize,
    /// Noise levels, with the final 0.
    pub sigmas: &'a [f32],
    /// Wall-clock seconds from opening the checkpoint to the last file.
    pub seconds: f64,
    /// Seconds of each stage.
    pub timings: Vec<Total>,
    /// Things the person should know.
    pub notices: &'a [String],
}

#[cfg(test)]
mod tests {
    use atelier_pipelines::progress::Size;

    use super::*;

    #[test]
    fn stages_are_added_up_in_order() {
        let timing =
            |stage, seconds| Timing { stage, picture: None, index: None, seconds, size: Size::new(1, "steps") };
        let timings = [
            timing(Stage::Load("vae"), 1.0),
            timing(Stage::Denoise, 2.0),
            timing(Stage::Denoise, 4.0),
            timing(Stage::VaeDecode, 0.5),
            timing(Stage::Load("vae"), 0.25),
        ];
        let found: Vec<_> = totals(&timings).iter().map(|t| (t.stage.to_string(), t.count, t.seconds)).collect();
        let expected = [("load vae", 2, 1.25), ("denoise", 2, 6.0), ("vae decode", 1, 0.5)];
        assert_eq!(found, expected.map(|(stage, count, seconds)| (stage.to_owned(), count, seconds)));
        assert!(summary(&timings, 7.75).contains("denoise              6.00 s   2 x 3.00 s\n"));
    }
}
