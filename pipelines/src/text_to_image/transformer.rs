//! Latent, time and prompt → velocity: the single-stream block-causal transformer.
//!
//! Text and condition images (the prefix) are modulated from time zero, so their keys and values are the same at every
//! step: [`Transformer::prefix`] computes them once and [`Transformer::velocity`] runs the target's tokens alone against
//! prefix + target. A checkpoint with `causal_condition` off modulates every token from the step's time; then each step
//! runs the whole sequence.

use atelier_kernels::{Activation, Attention, Backend, Rotary, Visible};

use super::rope::{Layout, Run};
use crate::checkpoint::Part;
use crate::progress::Cancel;
use crate::{Error, Result};

// config.json → sizes
mod config;
// checkpoint → weights on the device
mod weights;

#[cfg(test)]
mod tests;

pub use config::TransformerConfig;
use weights::{Block, Weights};

/// Channels of the sinusoidal time embedding.
const TIME_CHANNELS: usize = 256;
/// Longest period of the time embedding.
const TIME_PERIOD: f64 = 10000.0;
/// Tokens that go through a feed-forward layer at once: bounds its wide intermediates, the largest of a block.
const FEED_FORWARD_TOKENS: usize = 4096;

/// The transformer on a device.
#[derive(Debug)]
pub struct Transformer<B: Backend> {
    backend: B,
    config: TransformerConfig,
    weights: Weights<B>,
}

/// What the steps share of one prompt.
#[derive(Debug)]
pub struct Prefix<B: Backend> {
    rotary: Angles<B>,
    target_tokens: usize,
    plan: Plan<B>,
}

/// How a step runs.
#[derive(Debug)]
enum Plan<B: Backend> {
    /// The target's tokens alone. One cache serves all blocks in turn: the block's prefix is put in front, then the
    /// target's keys and values behind it.
    Target { keys_values: Vec<(B::Tensor, B::Tensor)>, prefix_tokens: usize, cache: B::Cache },
    /// The whole sequence, of which this is the prefix before the first block.
    Whole { prefix: B::Tensor, visible: Vec<u32> },
}

/// Cosines and sines of the rotary embedding, `[tokens, head_dim / 2]` each.
#[derive(Debug)]
struct Angles<B: Backend> {
    cos: B::Tensor,
    sin: B::Tensor,
}

/// Scales (one is added already) and gates (tanh is taken already) of one time, `[c]` each; the same in every block.
#[derive(Debug)]
struct Modulation<B: Backend> {
    attention_scale: B::Tensor,
    attention_gate: B::Tensor,
    mlp_scale: B::Tensor,
    mlp_gate: B::Tensor,
    out_scale: B::Tensor,
}

impl<B: Backend> Transformer<B> {
    /// Brings the `transformer` part of a checkpoint to the device.
    ///
    /// # Errors
    /// When the configuration is not understood, or a tensor is missing, of another shape, or left over.
    pub fn load(backend: &B, part: &Part) -> Result<Self> {
        let config = TransformerConfig::read(part)?;
        let weights = Weights::load(backend, &part.weights(), &config)?;
        Ok(Self { backend: backend.clone(), config, weights })
    }

    /// Sizes and options of the checkpoint.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Embeds a prompt and condition images and, where the checkpoint allows it, runs them through the blocks.
    ///
    /// `states` are the text encoder's, `[states, context_in_dim]` with one row per entry of the layout's `image_slots`
    /// (rows of image slots are not used); `references` are the normalised latents of the condition images,
    /// `[height * width, in_channels]` each.
    ///
    /// # Errors
    /// When shapes do not fit the layout, an operation fails, or on cancellation.
    pub fn prefix(
        &self,
        states: &B::Tensor,
        references: &[&B::Tensor],
        layout: &Layout,
        cancel: &Cancel,
    ) -> Result<Prefix<B>> {
        let b = &self.backend;
        self.expect_shape("text states", states, &[layout.states(), self.config.context_in_dim])?;
        let tokens = layout.reference_tokens();
        if references.len() != tokens.len() {
            return Err(Error::input(format!(
                "{} condition latents for a layout with {}",
                references.len(),
                tokens.len()
            )));
        }
        for (latents, tokens) in references.iter().zip(tokens) {
            self.expect_shape("condition latents", latents, &[tokens, self.config.in_channels])?;
        }
        let mut x = self.embed_prefix(states, references, layout)?;
        let (prefix_tokens, target_tokens) = (layout.prefix_tokens(), layout.target_tokens());
        if !self.config.causal_condition {
            let plan = Plan::Whole { prefix: x, visible: layout.visible().to_vec() };
            return Ok(Prefix { rotary: self.angles(layout, 0..layout.tokens())?, target_tokens, plan });
        }
        let modulation = self.modulation(0.0)?;
        let rotary = self.angles(layout, 0..prefix_tokens)?;
        let shape = self.attention(Visible::First(&layout.visible()[..prefix_tokens]));
        let mut keys_values = Vec::with_capacity(self.weights.blocks.len());
        for (i, block) in self.weights.blocks.iter().enumerate() {
            cancel.check()?;
            if i + 1 == self.weights.blocks.len() {
                // Nothing after the last block's keys and values depends on the prefix.
                let normed = b.layer_norm(&x, &modulation.attention_scale, None, self.config.eps)?;
                keys_values.push(self.keys_values(block, &normed, &rotary)?);
                break;
            }
            x = self.block(block, x, &modulation, &rotary, |q, k, v| {
                let attended = b.attention(&q, &k, &v, shape)?;
                keys_values.push((k, v));
                Ok(attended)
            })?;
        }
        let cache = b.cache(prefix_tokens + target_tokens, self.config.width())?;
        let plan = Plan::Target { keys_values, prefix_tokens, cache };
        Ok(Prefix { rotary: self.angles(layout, prefix_tokens..layout.tokens())?, target_tokens, plan })
    }

    /// The velocity at `latents` (`[height * width, in_channels]`) and time `t` (the scheduler's timestep / 1000, in `0..=1`):
    /// `[height * width, out_channels]`.
    ///
    /// # Errors
    /// When shapes do not fit the prefix's layout, an operation fails, or on cancellation.
    pub fn velocity(&self, prefix: &mut Prefix<B>, latents: &B::Tensor, t: f32, cancel: &Cancel) -> Result<B::Tensor> {
        let b = &self.backend;
        self.expect_shape("latents", latents, &[prefix.target_tokens, self.config.in_channels])?;
        let modulation = self.modulation(t)?;
        let mut x = b.linear(latents, &self.weights.image_in, None)?;
        match &mut prefix.plan {
            Plan::Target { keys_values, prefix_tokens, cache } => {
                let (at, length) = (*prefix_tokens, *prefix_tokens + prefix.target_tokens);
                let shape = self.attention(Visible::All);
                for (block, (prefix_k, prefix_v)) in self.weights.blocks.iter().zip(keys_values.iter()) {
                    cancel.check()?;
                    x = self.block(block, x, &modulation, &prefix.rotary, |q, k, v| {
                        b.cache_write(cache, 0, prefix_k, prefix_v)?;
                        b.cache_write(cache, at, &k, &v)?;
                        drop((k, v));
                        Ok(b.attention_cached(&q, cache, length, shape)?)
                    })?;
                }
            }
            Plan::Whole { prefix: text_and_images, visible } => {
                let start = visible.len() - prefix.target_tokens;
                let shape = self.attention(Visible::First(visible));
                x = b.concat(&[text_and_images, &x])?;
                for block in &self.weights.blocks {
                    cancel.check()?;
                    x = self
                        .block(block, x, &modulation, &prefix.rotary, |q, k, v| Ok(b.attention(&q, &k, &v, shape)?))?;
                }
                x = b.rows(&x, start, prefix.target_tokens)?;
            }
        }
        let normed = b.layer_norm(&x, &modulation.out_scale, None, self.config.eps)?;
        Ok(b.linear(&normed, &self.weights.projection_out, None)?)
    }

    /// The prefix before the first block, `[prefix tokens, c]`: text rows of the states through the text projection, and
    /// the condition images' latents, in the layout's order.
    fn embed_prefix(&self, states: &B::Tensor, references: &[&B::Tensor], layout: &Layout) -> Result<B::Tensor> {
        let b = &self.backend;
        let runs = layout.runs().iter().map(|run| match run {
            Run::Text(rows) => self.embed_text(&b.rows(states, rows.start, rows.len())?),
            Run::Image(image) => Ok(b.linear(references[*image], &self.weights.image_in, None)?),
        });
        let runs = runs.collect::<Result<Vec<_>>>()?;
        Ok(b.concat(&runs.iter().collect::<Vec<_>>())?)
    }

    /// Text states `[n, context]` to `[n, c]`.
    fn embed_text(&self, states: &B::Tensor) -> Result<B::Tensor> {
        let (b, w) = (&self.backend, &self.weights);
        let x = b.linear(&b.rms_norm(states, &w.text_norm, self.config.eps)?, &w.text_in, None)?;
        Ok(b.linear(&b.activate(&x, Activation::GeluTanh)?, &w.text_out, None)?)
    }

    /// The time embedding, `[1, c]`: 256 sinusoids of `1000 t`, cosines first, through two linear layers.
    fn embed_time(&self, t: f32) -> Result<B::Tensor> {
        let (b, w) = (&self.backend, &self.weights);
        let sinusoids = b.upload(&time_sinusoids(t), &[1, TIME_CHANNELS])?;
        let x = b.activate(&b.linear(&sinusoids, &w.time_in, None)?, Activation::Silu)?;
        Ok(b.linear(&x, &w.time_out, None)?)
    }

    /// Scales and gates at time `t`.
    fn modulation(&self, t: f32) -> Result<Modulation<B>> {
        let (b, c) = (&self.backend, self.config.width());
        let time = b.activate(&self.embed_time(t)?, Activation::Silu)?;
        let all = b.linear(&time, &self.weights.modulation, None)?;
        let vector = |i: usize| b.reshape(&b.columns(&all, i * c, c)?, &[c]);
        let out = b.reshape(&b.linear(&time, &self.weights.norm_out, None)?, &[c])?;
        Ok(Modulation {
            attention_scale: b.affine(&vector(0)?, 1.0, 1.0)?,
            attention_gate: b.activate(&vector(1)?, Activation::Tanh)?,
            mlp_scale: b.affine(&vector(2)?, 1.0, 1.0)?,
            mlp_gate: b.activate(&vector(3)?, Activation::Tanh)?,
            out_scale: b.affine(&out, 1.0, 1.0)?,
        })
    }

    /// One block: gated attention, then a gated feed-forward layer. `attend` gets queries, keys and values,
    /// `[n, heads * head_dim]` each.
    fn block(
        &self,
        block: &Block<B>,
        x: B::Tensor,
        modulation: &Modulation<B>,
        rotary: &Angles<B>,
        attend: impl FnOnce(B::Tensor, B::Tensor, B::Tensor) -> Result<B::Tensor>,
    ) -> Result<B::Tensor> {
        let b = &self.backend;
        let attended = {
            let normed = b.layer_norm(&x, &modulation.attention_scale, None, self.config.eps)?;
            let q = self.heads(&b.linear(&normed, &block.q, None)?, &block.norm_q, rotary)?;
            let (k, v) = self.keys_values(block, &normed, rotary)?;
            drop(normed);
            b.linear(&attend(q, k, v)?, &block.out, None)?
        };
        let y = b.gated_add(&x, &modulation.attention_gate, &attended)?;
        drop((x, attended));
        let tokens = b.shape(&y)[0];
        let mut pieces = Vec::new();
        for start in (0..tokens).step_by(FEED_FORWARD_TOKENS) {
            let piece = b.rows(&y, start, FEED_FORWARD_TOKENS.min(tokens - start))?;
            pieces.push(self.feed_forward(block, &piece, modulation)?);
        }
        if pieces.len() == 1 {
            return Ok(pieces.remove(0));
        }
        Ok(b.concat(&pieces.iter().collect::<Vec<_>>())?)
    }

    /// `x + gate * mlp(norm(x))`, token by token.
    fn feed_forward(&self, block: &Block<B>, x: &B::Tensor, modulation: &Modulation<B>) -> Result<B::Tensor> {
        let b = &self.backend;
        let hidden = {
            let normed = b.layer_norm(x, &modulation.mlp_scale, None, self.config.eps)?;
            b.swiglu(&b.linear(&normed, &block.mlp_gate, None)?, &b.linear(&normed, &block.mlp_up, None)?)?
        };
        Ok(b.gated_add(x, &modulation.mlp_gate, &b.linear(&hidden, &block.mlp_down, None)?)?)
    }

    fn keys_values(&self, block: &Block<B>, normed: &B::Tensor, rotary: &Angles<B>) -> Result<(B::Tensor, B::Tensor)> {
        let b = &self.backend;
        let k = self.heads(&b.linear(normed, &block.k, None)?, &block.norm_k, rotary)?;
        Ok((k, b.linear(normed, &block.v, None)?))
    }

    /// RMS norm of every head, then rotation: `[n, heads * head_dim]`.
    fn heads(&self, x: &B::Tensor, norm: &B::Tensor, rotary: &Angles<B>) -> Result<B::Tensor> {
        let (b, c) = (&self.backend, &self.config);
        let tokens = b.shape(x)[0];
        let heads = b.reshape(x, &[tokens * c.num_attention_heads, c.attention_head_dim])?;
        let normed = b.reshape(&b.rms_norm(&heads, norm, c.eps)?, &[tokens, c.width()])?;
        Ok(b.rotary(&normed, c.num_attention_heads, &rotary.cos, &rotary.sin, Rotary::Pairs)?)
    }

    fn attention<'a>(&self, visible: Visible<'a>) -> Attention<'a> {
        let heads = self.config.num_attention_heads;
        let scale = 1.0 / (self.config.attention_head_dim as f32).sqrt();
        Attention { heads, kv_heads: heads, scale, visible }
    }

    fn angles(&self, layout: &Layout, tokens: std::ops::Range<usize>) -> Result<Angles<B>> {
        let shape = [tokens.len(), self.config.attention_head_dim / 2];
        let (cos, sin) = layout.angles(tokens, self.config.axes_dims_rope);
        Ok(Angles { cos: self.backend.upload(&cos, &shape)?, sin: self.backend.upload(&sin, &shape)? })
    }

    fn expect_shape(&self, what: &str, x: &B::Tensor, expected: &[usize]) -> Result<()> {
        let found = self.backend.shape(x);
        if found == expected {
            return Ok(());
        }
        Err(Error::input(format!("the transformer's {what} have shape {found:?}, expected {expected:?}")))
    }
}

/// Cosines, then sines, of `1000 t * 10000 ^ (-i / 128)`; each step in `f32`, as the reference computes it.
fn time_sinusoids(t: f32) -> Vec<f32> {
    let half = TIME_CHANNELS / 2;
    let time = 1000.0 * t;
    let angles = (0..half).map(|i| {
        let exponent = -TIME_PERIOD.ln() as f32 * i as f32 / half as f32;
        time * f64::from(exponent).exp() as f32
    });
    let (cos, sin): (Vec<_>, Vec<_>) = angles.map(|angle: f32| (angle.cos(), angle.sin())).unzip();
    [cos, sin].concat()
}
