//! How much memory a pass needs at its peak: activations alone, without weights.
//!
//! The model follows the blocks' own order of computation and counts the tensors that are alive together.

use super::config::{Level, VaeConfig};
use super::tiling::{self, Tiling};

const BYTES: u64 = size_of::<f32>() as u64;

impl VaeConfig {
    /// Bytes that decoding `height` x `width` latents needs at its peak, weights aside.
    #[must_use]
    pub fn decode_memory(&self, height: usize, width: usize, tiling: Tiling) -> u64 {
        self.peak(height, width, tiling, decode) + self.picture(height, width, self.out_channels)
    }

    /// Bytes that encoding a picture of `height` x `width` latents needs at its peak, weights aside.
    #[must_use]
    pub fn encode_memory(&self, height: usize, width: usize, tiling: Tiling) -> u64 {
        self.peak(height, width, tiling, encode) + self.picture(height, width, self.in_channels)
    }

    fn peak(&self, height: usize, width: usize, tiling: Tiling, model: fn(&Self, usize, usize) -> u64) -> u64 {
        let tile = match tiling {
            Tiling::Off => usize::MAX,
            Tiling::On => tiling::TILE / self.scale(),
        };
        model(self, height.min(tile), width.min(tile))
    }

    fn picture(&self, height: usize, width: usize, channels: usize) -> u64 {
        BYTES * area(height, width) * (self.scale() * self.scale() * channels) as u64
    }
}

/// Peak bytes of decoding `height` x `width` latents.
fn decode(config: &VaeConfig, height: usize, width: usize) -> u64 {
    let mut pixels = area(height, width);
    let levels = config.decoder_levels();
    let mut peak = middle(levels[0].input, pixels);
    for level in &levels {
        peak = peak.max(residuals(level, config.num_res_blocks + 1, pixels, level.resample));
        if level.resample {
            let (input, output) = (level.output as u64, config.upsampled(level.output) as u64);
            pixels *= 4;
            // The doubled picture, its shortcut and their sum; the small ones before doubling are a quarter each.
            peak = peak.max(BYTES * pixels * (3 * output + (input + level.input as u64) / 4));
        }
    }
    let last = levels[levels.len() - 1].output as u64;
    peak.max(BYTES * pixels * (2 * last + config.out_channels as u64))
}

/// Peak bytes of encoding a picture of `height` x `width` latents.
fn encode(config: &VaeConfig, height: usize, width: usize) -> u64 {
    let mut pixels = area(height * config.scale(), width * config.scale());
    let levels = config.encoder_levels();
    let mut peak = BYTES * pixels * (config.in_channels + levels[0].input) as u64;
    for level in &levels {
        peak = peak.max(residuals(level, config.num_res_blocks, pixels, config.is_residual));
        if level.resample {
            pixels /= 4;
        }
    }
    peak.max(middle(levels[levels.len() - 1].output, pixels))
}

/// A level's residual blocks; `kept` when the level's input (or a shortcut of its size) stays alive.
fn residuals(level: &Level, count: usize, pixels: u64, kept: bool) -> u64 {
    let (input, output) = (level.input as u64, level.output as u64);
    // Input, its norm and the first convolution; then first convolution, shortcut and the second norm; and so on.
    let first = (2 * input + output).max(input + 2 * output).max(3 * output);
    let later = if count > 1 { 3 * output + if kept { input } else { 0 } } else { 0 };
    BYTES * pixels * first.max(later)
}

/// Attention over all pixels: the input, the joint projection, and its three parts beside it.
fn middle(channels: usize, pixels: u64) -> u64 {
    BYTES * pixels * 7 * channels as u64
}

fn area(height: usize, width: usize) -> u64 {
    (height as u64).saturating_mul(width as u64)
}
