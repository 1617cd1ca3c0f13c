//! Picture → latent mean.

use atelier_kernels::Backend;

use super::blocks::{Convolution, Middle, Residual, downsampling, gamma};
use super::config::VaeConfig;
use crate::Result;
use crate::checkpoint::Weights;
use crate::progress::Cancel;

/// The encoder half with the convolution that follows it.
#[derive(Debug)]
pub(super) struct Encoder<B: Backend> {
    pub(super) conv_in: Convolution<B>,
    pub(super) down: Vec<Down<B>>,
    pub(super) middle: Middle<B>,
    norm_out: B::Tensor,
    conv_out: Convolution<B>,
    quant: Convolution<B>,
}

/// One resolution: residual blocks, then a halving unless it is the last.
#[derive(Debug)]
pub(super) struct Down<B: Backend> {
    residuals: Vec<Residual<B>>,
    downsample: Option<Convolution<B>>,
    shortcut: Option<Averaging>,
}

/// Sizes of an averaging shortcut.
#[derive(Debug, Clone, Copy)]
struct Averaging {
    channels: usize,
    time: usize,
    space: usize,
}

impl<B: Backend> Encoder<B> {
    pub(super) fn load(b: &B, weights: &Weights, config: &VaeConfig) -> Result<Self> {
        let encoder = weights.scope("encoder");
        let levels = config.encoder_levels();
        let last = levels[levels.len() - 1].output;
        let latent = 2 * config.z_dim;
        let mut down = Vec::with_capacity(levels.len());
        // Without shortcuts the file numbers all blocks of all levels in one list.
        let mut flat = 0;
        for (i, level) in levels.iter().enumerate() {
            let mut input = level.input;
            let mut residuals = Vec::with_capacity(config.num_res_blocks);
            for j in 0..config.num_res_blocks {
                let name = match config.is_residual {
                    true => format!("down_blocks.{i}.resnets.{j}"),
                    false => format!("down_blocks.{}", flat + j),
                };
                residuals.push(Residual::load(b, &encoder.scope(&name), input, level.output)?);
                input = level.output;
            }
            flat += config.num_res_blocks;
            let downsample = if level.resample {
                let name = match config.is_residual {
                    true => format!("down_blocks.{i}.downsampler"),
                    false => format!("down_blocks.{flat}"),
                };
                flat += 1;
                Some(downsampling(b, &encoder.scope(&name), level.output, level.temporal)?)
            } else {
                None
            };
            let shortcut = config.is_residual.then(|| Averaging {
                channels: level.output,
                time: level.time_factor(),
                space: level.space_factor(),
            });
            down.push(Down { residuals, downsample, shortcut });
        }
        Ok(Self {
            conv_in: Convolution::same(b, &encoder, "conv_in", config.in_channels, levels[0].input, 3)?,
            down,
            middle: Middle::load(b, &encoder.scope("mid_block"), last)?,
            norm_out: gamma(b, &encoder, "norm_out", last)?,
            conv_out: Convolution::same(b, &encoder, "conv_out", last, latent, 3)?,
            quant: Convolution::same(b, weights, "quant_conv", latent, latent, 1)?,
        })
    }

    /// Picture `[channels, h, w]` to mean and log variance `[2 z, h / scale, w / scale]`.
    pub(super) fn run(&self, b: &B, picture: &B::Tensor, cancel: &Cancel) -> Result<B::Tensor> {
        let mut x = self.conv_in.run(b, picture)?;
        for down in &self.down {
            cancel.check()?;
            x = down.run(b, x, cancel)?;
        }
        cancel.check()?;
        self.head(b, self.middle.run(b, x)?)
    }

    fn head(&self, b: &B, x: B::Tensor) -> Result<B::Tensor> {
        let normed = b.channel_norm(&x, &self.norm_out, true)?;
        drop(x);
        self.quant.run(b, &self.conv_out.run(b, &normed)?)
    }
}

impl<B: Backend> Down<B> {
    /// `[input, h, w]` to `[output, h / 2, w / 2]`, the last one to `[output, h, w]`.
    pub(super) fn run(&self, b: &B, mut x: B::Tensor, cancel: &Cancel) -> Result<B::Tensor> {
        let shortcut = match self.shortcut {
            Some(Averaging { channels, time, space }) => Some(b.average_down(&x, channels, time, space)?),
            None => None,
        };
        for residual in &self.residuals {
            cancel.check()?;
            x = residual.run(b, x)?;
        }
        if let Some(downsample) = &self.downsample {
            x = downsample.run(b, &x)?;
        }
        match shortcut {
            Some(shortcut) => Ok(b.add(&x, &shortcut)?),
            None => Ok(x),
        }
    }
}
