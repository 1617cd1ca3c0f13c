//! Request → plan: size, schedule and memory, before any weight is read.

use atelier_kernels::Backend;

use super::memory::{self, Memory};
use super::request::{self, Plan, Request, VaeTiling};
use super::vae::Tiling;
use super::{CELL, TextToImage, prompts, reference, rope, schedule, tiling};
use crate::{Error, Result};

/// Without a size of its own a model paints this many pixels squared.
const DEFAULT_SIDE: u32 = 1024;
/// Above this many pixels the VAE tiles by itself, where the system does not say how much memory is free.
const WHOLE_VAE_PIXELS: u64 = 1536 * 1536;

impl<B: Backend> TextToImage<B> {
    /// Checks a request and says what it comes to: size, schedule, memory.
    ///
    /// # Errors
    /// When the request cannot be served by this model.
    pub fn plan(&self, request: &Request) -> Result<Plan> {
        request.check()?;
        let mut notices = request.notices();
        let (width, height) = self.size(request, &mut notices)?;
        let tokens = (width / CELL) as usize * (height / CELL) as usize;
        let steps = self.steps(request, &mut notices);
        let (sigmas, fixed) = (request.sigmas.as_deref(), self.index.sample_sigmas.as_deref());
        let schedule = schedule::schedule(&self.scheduler, steps, sigmas, fixed, tokens)?;
        let available = memory::available();
        let tiling = self.tiling(request, width, height, available);
        let activations = self.activations(request, (width, height), tiling)?;
        let memory = Memory { activations, available, ..self.weights };
        if available.is_some_and(|free| activations > free) {
            return Err(Error::Memory(format!(
                "{width}x{height} needs more memory than is free ({memory}); ask for a smaller picture or close other \
                 programs"
            )));
        }
        if !memory.fits() {
            notices
                .push("the largest part does not fit into free memory: its pages will be read again and again".into());
        }
        Ok(Plan {
            model: self.files.name(),
            width,
            height,
            steps: schedule.sigmas.len() - 1,
            times: self.times(&schedule.timesteps),
            sigmas: schedule.sigmas,
            guided: request.guidance().is_some(),
            tiling: tiling == Tiling::On,
            noise: self.noise,
            memory,
            notices,
        })
    }

    /// Width and height: asked for, or the last reference's aspect at the model's area, or the model's square.
    fn size(&self, request: &Request, notices: &mut Vec<String>) -> Result<(u32, u32)> {
        let side = self.index.default_side.unwrap_or(DEFAULT_SIDE);
        let step = request::SIDE_STEP;
        let (width, height) = match (request.size, request.references.last()) {
            (Some(size), _) => size,
            (None, Some(last)) => {
                let area = side as usize * side as usize;
                let (w, h) = reference::dimensions(area, last.width() as usize, last.height() as usize)?;
                (w as u32, h as u32)
            }
            (None, None) => (side, side),
        };
        if width < step || height < step || width > request::MAX_SIDE || height > request::MAX_SIDE {
            return Err(Error::input(format!(
                "size {width}x{height}: width and height must be {step} to {} pixels",
                request::MAX_SIDE
            )));
        }
        let rounded = (width / step * step, height / step * step);
        if rounded != (width, height) {
            notices.push(format!(
                "size {width}x{height} is rounded down to {}x{}: sides are multiples of {step}",
                rounded.0, rounded.1
            ));
        }
        Ok(rounded)
    }

    /// What the transformer is told of each timestep: a thousandth, in the type of the noise, as the reference computes it.
    fn times(&self, timesteps: &[f32]) -> Vec<f32> {
        let round = |value: f32| self.noise.round(value);
        timesteps.iter().map(|t| round(round(*t) / 1000.0)).collect()
    }

    /// Whole pictures have no seams, so tiles are taken only when a whole one would not fit well.
    fn tiling(&self, request: &Request, width: u32, height: u32, available: Option<u64>) -> Tiling {
        let whole = self.vae.decode_memory((height / CELL) as usize, (width / CELL) as usize, Tiling::Off);
        let large = match available {
            Some(free) => whole > free / 2,
            None => u64::from(width) * u64::from(height) > WHOLE_VAE_PIXELS,
        };
        tiling(match request.tiling {
            VaeTiling::On => true,
            VaeTiling::Off => false,
            VaeTiling::Auto => large || request.low_memory,
        })
    }

    /// Pixels that each reference picture is resized to.
    pub(super) fn reference_area(request: &Request, width: u32, height: u32) -> usize {
        match request.reference_side {
            Some(side) => side as usize * side as usize,
            None => width as usize * height as usize,
        }
    }

    /// The number of steps to ask the schedule for. Fixed sigmas win over it, as in the reference, and that is said.
    fn steps(&self, request: &Request, notices: &mut Vec<String>) -> Option<usize> {
        let steps = request.steps?;
        match self.index.sample_sigmas.as_deref() {
            Some(fixed) if request.sigmas.is_none() && steps > 0 && steps != fixed.len() => {
                notices.push(format!(
                    "this model was made for the {} steps of its sample_sigmas and takes them instead of {steps}; give \
                     sigmas of your own for another number",
                    fixed.len()
                ));
                None
            }
            _ => Some(steps),
        }
    }

    /// Bytes of activations that the largest stage holds: the steps with the prefixes they keep, or the VAE.
    fn activations(&self, request: &Request, (width, height): (u32, u32), tiling: Tiling) -> Result<u64> {
        let cells = |side: u32| (side / CELL) as usize;
        let mut painting = self.transformer.step_memory(cells(width) * cells(height));
        let area = Self::reference_area(request, width, height);
        let cells_of_references = request.references.len() * area / (CELL * CELL) as usize;
        for prompt in prompts(request) {
            let tokens = self.prompter.tokens(prompt, &[])?;
            rope::check_length(tokens.ids.len() - tokens.dropped)?;
            let kept = self.transformer.prefix_memory(tokens.ids.len() + cells_of_references);
            painting = painting.saturating_add(kept);
        }
        let mut largest = painting.max(self.vae.decode_memory(cells(height), cells(width), tiling));
        if !request.references.is_empty() {
            let side = (area as f64).sqrt() as usize / CELL as usize;
            largest = largest.max(self.vae.encode_memory(side, side, tiling));
        }
        Ok(largest)
    }
}
