//! What is asked of the painter, and what it will do about it.

use image::RgbaImage;
use serde::{Deserialize, Serialize};

use super::memory::Memory;
use super::noise::NoiseType;
use crate::{Error, Result};

/// Most reference pictures of one request.
pub const MAX_REFERENCES: usize = 10;
/// Longest side of a picture, in pixels: the rotary tables end at 1024 latent cells from the centre.
pub(super) const MAX_SIDE: u32 = 16384;
/// Width and height are multiples of this many pixels: one visual token of the text encoder.
pub(super) const SIDE_STEP: u32 = 32;

/// Whether the VAE works on tiles of 256 pixels, which bounds its memory and changes pixels slightly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VaeTiling {
    /// Tiles when a whole picture would take more than half of the free memory (where that is unknown: above 1536x1536
    /// pixels).
    #[default]
    Auto,
    /// Always, for pictures of more than one tile.
    On,
    /// Never.
    Off,
}

/// The arithmetic of a run, named as in `PyTorch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// As the transformer is stored: f32 for f32, f16 and quantised weights, bf16 for bf16.
    #[default]
    Auto,
    /// Exact f32 products and f32 noise.
    F32,
    /// Products of factors rounded to bf16, f32 sums, bf16 noise.
    Bf16,
    /// f32 products, f16 noise.
    F16,
}

/// What to paint.
#[derive(Debug, Clone)]
pub struct Request {
    /// What the picture shows. An empty prompt is read as one space.
    pub prompt: String,
    /// What it should not show: guides only together with `cfg_scale` above 1.
    pub negative_prompt: Option<String>,
    /// Width and height in pixels, rounded down to multiples of 32. Without it: the aspect of the last reference picture
    /// at the model's own area, or the model's own square.
    pub size: Option<(u32, u32)>,
    /// Denoising steps, where the model does not fix them.
    pub steps: Option<usize>,
    /// Noise levels, falling from at most 1; the final 0 is added. In place of `steps`.
    pub sigmas: Option<Vec<f64>>,
    /// True classifier-free guidance: `negative + scale (positive - negative)`.
    pub cfg_scale: f32,
    /// One picture for each seed.
    pub seeds: Vec<u64>,
    /// Reference pictures, in the order in which the prompt speaks of them; 10 at most.
    pub references: Vec<RgbaImage>,
    /// Reference pictures are resized to this many pixels squared, at their own aspect. Without it: the target's area.
    pub reference_side: Option<u32>,
    /// Tiling of the VAE.
    pub tiling: VaeTiling,
    /// Tiles the VAE whatever the size, so that memory stays smallest.
    pub low_memory: bool,
    /// How many looks at each unfinished picture to hand over, spread evenly over the steps; each costs a VAE decode.
    pub previews: usize,
}

impl Request {
    /// One picture of `prompt`, seed 0, everything else the model's own.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            negative_prompt: None,
            size: None,
            steps: None,
            sigmas: None,
            cfg_scale: 1.0,
            seeds: vec![0],
            references: Vec::new(),
            reference_side: None,
            tiling: VaeTiling::Auto,
            low_memory: false,
            previews: 0,
        }
    }

    /// The negative prompt, when guidance is on.
    pub(super) fn guidance(&self) -> Option<&str> {
        self.negative_prompt.as_deref().filter(|_| self.cfg_scale > 1.0)
    }

    /// Refuses what no model could paint.
    pub(super) fn check(&self) -> Result<()> {
        if self.seeds.is_empty() {
            return Err(Error::input("nothing to paint: no seed was given (one picture is painted for each)"));
        }
        if !self.cfg_scale.is_finite() || self.cfg_scale < 0.0 {
            return Err(Error::input(format!("cfg scale {} must be a number of at least 0", self.cfg_scale)));
        }
        if self.references.len() > MAX_REFERENCES {
            let found = self.references.len();
            return Err(Error::input(format!("{found} reference pictures, at most {MAX_REFERENCES} are possible")));
        }
        if let Some(side) = self.reference_side
            && !(SIDE_STEP..=MAX_SIDE).contains(&side)
        {
            return Err(Error::input(format!("reference side {side} must be {SIDE_STEP} to {MAX_SIDE} pixels")));
        }
        for (number, picture) in self.references.iter().enumerate() {
            if picture.width() == 0 || picture.height() == 0 {
                return Err(Error::input(format!("reference picture {} has no pixels", number + 1)));
            }
        }
        Ok(())
    }

    /// Things that will not do what their words say.
    pub(super) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        match (&self.negative_prompt, self.cfg_scale > 1.0) {
            (Some(_), false) => notices.push(format!(
                "the negative prompt has no effect with a cfg scale of {}: give one above 1",
                self.cfg_scale
            )),
            (None, true) => notices.push(format!(
                "the cfg scale of {} has no effect without a negative prompt (a blank one will do)",
                self.cfg_scale
            )),
            _ => {}
        }
        notices
    }
}

/// What a request comes to, known before any weight is read.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the model.
    pub model: String,
    /// Width of the picture in pixels.
    pub width: u32,
    /// Height of the picture in pixels.
    pub height: u32,
    /// Noise levels with the final one: `steps + 1` values.
    pub sigmas: Vec<f32>,
    /// Denoising steps.
    pub steps: usize,
    /// Time of each step as the transformer gets it, in `0..=1`.
    pub times: Vec<f32>,
    /// Whether every step also runs the negative prompt.
    pub guided: bool,
    /// Whether the VAE works on tiles.
    pub tiling: bool,
    /// The type that the noise is drawn in.
    pub noise: NoiseType,
    /// What the run will hold in memory.
    pub memory: Memory,
    /// Things the person should know.
    pub notices: Vec<String>,
}

/// A painted picture.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The pixels; alpha is 255 everywhere when the model paints none.
    pub image: RgbaImage,
    /// Whether the model paints transparency.
    pub has_alpha: bool,
    /// The seed that the noise was drawn from.
    pub seed: u64,
    /// Steps taken, for an unfinished picture that [`Request::previews`] asked for; none when it is finished.
    pub preview: Option<usize>,
}
