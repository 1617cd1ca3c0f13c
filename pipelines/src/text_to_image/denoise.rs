//! Noise → latents: Euler steps along the velocity.

use atelier_kernels::Backend;

use super::request::Plan;
use super::rope::Layout;
use super::transformer::{Prefix, Transformer};
use crate::progress::{Cancel, Place, Progress, Size, Stage};
use crate::{Error, Result};

/// The velocity field of a request: one prompt, or two with guidance between them.
#[derive(Debug)]
pub(super) struct Velocity<'a, B: Backend> {
    transformer: &'a Transformer<B>,
    scale: f32,
    prefixes: Vec<Prefix<B>>,
}

impl<'a, B: Backend> Velocity<'a, B> {
    pub(super) fn new(transformer: &'a Transformer<B>, scale: f32) -> Self {
        Self { transformer, scale, prefixes: Vec::new() }
    }

    /// Adds a prompt: the first is the positive one, the second the negative.
    pub(super) fn add(
        &mut self,
        states: &B::Tensor,
        references: &[B::Tensor],
        layout: &Layout,
        cancel: &Cancel,
    ) -> Result<()> {
        let references: Vec<_> = references.iter().collect();
        self.prefixes.push(self.transformer.prefix(states, &references, layout, cancel)?);
        Ok(())
    }

    /// `v`, or `v_negative + scale (v - v_negative)`, at latents `[h * w, z]` and time in `[0, 1]`.
    fn at(&mut self, backend: &B, latents: &B::Tensor, time: f32, cancel: &Cancel) -> Result<B::Tensor> {
        let mut all = Vec::with_capacity(2);
        for prefix in &mut self.prefixes {
            all.push(self.transformer.velocity(prefix, latents, time, cancel)?);
        }
        match all.as_slice() {
            [positive] => Ok(positive.clone()),
            [positive, negative] => {
                let difference = backend.add_scaled(positive, -1.0, negative)?;
                Ok(backend.add_scaled(negative, self.scale, &difference)?)
            }
            other => Err(Error::input(format!("{} prompts in one velocity field", other.len()))),
        }
    }
}

/// Takes all steps of one picture from `noise` (`[h * w, z]`). After each of the steps in `previews`, `look` gets the number
/// of steps taken and the latents where the last velocity leads: `x - sigma v`.
#[expect(clippy::too_many_arguments, reason = "the loop of the pipeline, called once")]
pub(super) fn denoise<B: Backend>(
    backend: &B,
    velocity: &mut Velocity<'_, B>,
    noise: B::Tensor,
    plan: &Plan,
    number: usize,
    progress: &Progress<'_>,
    previews: usize,
    look: &mut dyn FnMut(usize, &B::Tensor) -> Result<()>,
) -> Result<B::Tensor> {
    let mut latents = noise;
    let tokens = backend.shape(&latents)[0];
    for (step, pair) in plan.sigmas.windows(2).enumerate() {
        let place = Place { picture: Some(number), index: Some(step), count: plan.steps };
        let (next, preview) = progress.stage_at(Stage::Denoise, place, Size::new(tokens, "tokens"), || {
            let v = velocity.at(backend, &latents, plan.times[step], progress.cancel())?;
            let next = backend.add_scaled(&latents, pair[1] - pair[0], &v)?;
            if backend.download(&next)?.iter().any(|value| !value.is_finite()) {
                return Err(Error::Numbers(format!(
                    "latents stopped being finite at step {} of {} (sigma {}): the checkpoint is damaged, or its values \
                     exceed this arithmetic; try --dtype f32",
                    step + 1,
                    plan.steps,
                    pair[0]
                )));
            }
            let preview = match is_preview(step + 1, plan.steps, previews) {
                true => Some(backend.add_scaled(&latents, -pair[0], &v)?),
                false => None,
            };
            Ok((next, preview))
        })?;
        latents = next;
        if let Some(preview) = preview {
            look(step + 1, &preview)?;
        }
    }
    Ok(latents)
}

/// Whether one of `previews` looks, spread evenly over `steps` steps without the last, falls after `taken` steps.
fn is_preview(taken: usize, steps: usize, previews: usize) -> bool {
    taken < steps && (1..=previews).any(|look| (look * steps).div_ceil(previews + 1) == taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previews_spread_over_the_steps() {
        let at = |steps, previews| (1..=steps).filter(|&taken| is_preview(taken, steps, previews)).collect::<Vec<_>>();
        assert_eq!(at(8, 0), [0usize; 0]);
        assert_eq!(at(8, 1), [4]);
        assert_eq!(at(8, 3), [2, 4, 6]);
        assert_eq!(at(1, 3), [0usize; 0]);
        assert_eq!(at(2, 3), [1]);
        assert_eq!(at(5, 9), [1, 2, 3, 4]);
    }
}
