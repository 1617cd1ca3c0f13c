//! Latent → picture.

use atelier_kernels::Backend;

use super::blocks::{Convolution, Middle, Residual, gamma, upsampling};
use super::config::VaeConfig;
use crate::Result;
use crate::checkpoint::Weights;
use crate::progress::Cancel;

/// The decoder half with the convolution that precedes it.
#[derive(Debug)]
pub(super) struct Decoder<B: Backend> {
    pub(super) post_quant: Convolution<B>,
    pub(super) conv_in: Convolution<B>,
    pub(super) middle: Middle<B>,
    pub(super) up: Vec<Up<B>>,
    norm_out: B::Tensor,
    conv_out: Convolution<B>,
}

/// One resolution: residual blocks, then a doubling unless it is the last.
#[derive(Debug)]
pub(super) struct Up<B: Backend> {
    residuals: Vec<Residual<B>>,
    upsample: Option<Convolution<B>>,
    shortcut: Option<Duplication>,
}

/// Sizes of a duplicating shortcut.
#[derive(Debug, Clone, Copy)]
struct Duplication {
    channels: usize,
    time: usize,
    space: usize,
}

impl<B: Backend> Decoder<B> {
    pub(super) fn load(b: &B, weights: &Weights, config: &VaeConfig) -> Result<Self> {
        let decoder = weights.scope("decoder");
        let levels = config.decoder_levels();
        let (first, last) = (levels[0].input, levels[levels.len() - 1].output);
        let mut up = Vec::with_capacity(levels.len());
        for (i, level) in levels.iter().enumerate() {
            let scope = decoder.scope(format!("up_blocks.{i}"));
            let mut input = level.input;
            let mut residuals = Vec::with_capacity(config.num_res_blocks + 1);
            for j in 0..=config.num_res_blocks {
                residuals.push(Residual::load(b, &scope.scope(format!("resnets.{j}")), input, level.output)?);
                input = level.output;
            }
            let upsample = if level.resample {
                let name = if config.is_residual { "upsampler" } else { "upsamplers.0" };
                let output = config.upsampled(level.output);
                Some(upsampling(b, &scope.scope(name), level.output, output, level.temporal)?)
            } else {
                None
            };
            let shortcut = (config.is_residual && level.resample).then(|| Duplication {
                channels: level.output,
                time: level.time_factor(),
                space: level.space_factor(),
            });
            up.push(Up { residuals, upsample, shortcut });
        }
        Ok(Self {
            post_quant: Convolution::same(b, weights, "post_quant_conv", config.z_dim, config.z_dim, 1)?,
            conv_in: Convolution::same(b, &decoder, "conv_in", config.z_dim, first, 3)?,
            middle: Middle::load(b, &decoder.scope("mid_block"), first)?,
            up,
            norm_out: gamma(b, &decoder, "norm_out", last)?,
            conv_out: Convolution::same(b, &decoder, "conv_out", last, config.out_channels, 3)?,
        })
    }

    /// Latents `[z, h, w]` (not normalised) to a picture `[channels, scale * h, scale * w]`, not clamped.
    pub(super) fn run(&self, b: &B, latents: &B::Tensor, cancel: &Cancel) -> Result<B::Tensor> {
        let mut x = self.conv_in.run(b, &self.post_quant.run(b, latents)?)?;
        cancel.check()?;
        x = self.middle.run(b, x)?;
        for up in &self.up {
            cancel.check()?;
            x = up.run(b, x, cancel)?;
        }
        cancel.check()?;
        let normed = b.channel_norm(&x, &self.norm_out, true)?;
        drop(x);
        self.conv_out.run(b, &normed)
    }
}

impl<B: Backend> Up<B> {
    /// `[input, h, w]` to `[output, 2 h, 2 w]`, the last one to `[output, h, w]`.
    pub(super) fn run(&self, b: &B, mut x: B::Tensor, cancel: &Cancel) -> Result<B::Tensor> {
        // The small input is kept rather than its duplicate, which is four times as large.
        let input = self.shortcut.is_some().then(|| x.clone());
        for residual in &self.residuals {
            cancel.check()?;
            x = residual.run(b, x)?;
        }
        if let Some(upsample) = &self.upsample {
            x = upsample.run(b, &x)?;
        }
        match (self.shortcut, input) {
            (Some(Duplication { channels, time, space }), Some(input)) => {
                let shortcut = b.duplicate_up(&input, channels, time, space)?;
                drop(input);
                Ok(b.add(&x, &shortcut)?)
            }
            _ => Ok(x),
        }
    }
}
