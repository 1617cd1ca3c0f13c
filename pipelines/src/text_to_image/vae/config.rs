//! `vae/config.json`: sizes of the autoencoder.

use serde::Deserialize;

use crate::checkpoint::Part;
use crate::{Error, Result};

/// Most levels for which the tile sizes are whole numbers of latents.
const MOST_LEVELS: usize = 7;
/// Keys that play no part for one frame outside training.
const UNUSED: [&str; 2] = ["dropout", "scale_factor_temporal"];

/// Sizes and options of the autoencoder, named as in its configuration file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct VaeConfig {
    /// Channels of the encoder at full resolution.
    pub base_dim: usize,
    /// The same of the decoder; null for the encoder's.
    #[serde(default)]
    pub decoder_base_dim: Option<usize>,
    /// Latent channels.
    pub z_dim: usize,
    /// Channels of each level, as multiples.
    pub dim_mult: Vec<usize>,
    /// Residual blocks of an encoder level; the decoder has one more.
    pub num_res_blocks: usize,
    /// Scales with attention in the encoder; must be empty, except with shortcuts, where the reference takes no notice.
    #[serde(default)]
    attn_scales: Vec<f64>,
    /// For each change of level: whether the video model halves time too.
    pub temperal_downsample: Vec<bool>,
    /// Mean of each latent channel.
    pub latents_mean: Vec<f32>,
    /// Standard deviation of each latent channel.
    pub latents_std: Vec<f32>,
    /// Whether levels have averaging and duplicating shortcuts.
    pub is_residual: bool,
    /// Channels of a picture to encode.
    pub in_channels: usize,
    /// Channels of a decoded picture.
    pub out_channels: usize,
    /// Pixels folded into channels; must be null or 1.
    #[serde(default)]
    patch_size: Option<usize>,
    /// Pixels per latent, a side.
    pub scale_factor_spatial: usize,
}

/// Channels and resampling of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) input: usize,
    pub(super) output: usize,
    /// Whether the resolution changes after the level.
    pub(super) resample: bool,
    /// Whether time changes too.
    pub(super) temporal: bool,
}

impl Level {
    pub(super) fn time_factor(self) -> usize {
        if self.temporal { 2 } else { 1 }
    }

    pub(super) fn space_factor(self) -> usize {
        if self.resample { 2 } else { 1 }
    }
}

impl VaeConfig {
    /// Reads and checks the configuration of the `vae` folder.
    ///
    /// # Errors
    /// When a key is missing, unknown or asks for what is not implemented.
    pub fn read(part: &Part) -> Result<Self> {
        let config: Self = part.config_strict(&UNUSED)?;
        config.check().map_err(|problem| Error::checkpoint(part.config_path(), problem))?;
        Ok(config)
    }

    /// Pixels per latent, a side.
    #[must_use]
    pub fn scale(&self) -> usize {
        1 << (self.dim_mult.len() - 1)
    }

    /// Levels of the encoder, from full resolution down.
    pub(super) fn encoder_levels(&self) -> Vec<Level> {
        let outputs = self.dim_mult.iter().map(|m| m * self.base_dim);
        let inputs = std::iter::once(self.base_dim).chain(outputs.clone());
        let temporal = self.temperal_downsample.iter().map(Some).chain([None]);
        levels(inputs, outputs, temporal)
    }

    /// Levels of the decoder, up to full resolution.
    pub(super) fn decoder_levels(&self) -> Vec<Level> {
        let base = self.decoder_base_dim.unwrap_or(self.base_dim);
        let outputs = self.dim_mult.iter().rev().map(|m| m * base);
        // Without shortcuts an upsampling halves the channels.
        let inputs = outputs.clone().take(1).chain(outputs.clone().map(|c| self.upsampled(c)));
        let temporal = self.temperal_downsample.iter().rev().map(Some).chain([None]);
        levels(inputs, outputs, temporal)
    }

    /// Channels after the upsampling of a decoder level with `channels`.
    pub(super) fn upsampled(&self, channels: usize) -> usize {
        if self.is_residual { channels } else { channels / 2 }
    }

    fn check(&self) -> std::result::Result<(), String> {
        let positive = [
            ("base_dim", self.base_dim),
            ("decoder_base_dim", self.decoder_base_dim.unwrap_or(1)),
            ("z_dim", self.z_dim),
            ("num_res_blocks", self.num_res_blocks),
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
        ];
        for (key, value) in positive {
            if value == 0 || value > 1 << 20 {
                return Err(format!("{key} is {value}, expected 1 to {}", 1 << 20));
            }
        }
        for (key, value) in [("in_channels", self.in_channels), ("out_channels", self.out_channels)] {
            if value != 3 && value != 4 {
                return Err(format!("{key} is {value}, expected 3 (RGB) or 4 (RGBA)"));
            }
        }
        if self.dim_mult.is_empty() || self.dim_mult.len() > MOST_LEVELS {
            return Err(format!("dim_mult has {} levels, expected 1 to {MOST_LEVELS}", self.dim_mult.len()));
        }
        if let Some(m) = self.dim_mult.iter().find(|m| **m == 0 || **m > 1 << 10) {
            return Err(format!("dim_mult holds {m}, expected 1 to {}", 1 << 10));
        }
        let changes = self.dim_mult.len() - 1;
        if self.temperal_downsample.len() != changes {
            let found = self.temperal_downsample.len();
            return Err(format!(
                "temperal_downsample has {found} entries, expected {changes}, one fewer than dim_mult"
            ));
        }
        if self.scale_factor_spatial != self.scale() {
            let (found, expected) = (self.scale_factor_spatial, self.scale());
            return Err(format!("scale_factor_spatial is {found}, but {changes} halvings of dim_mult make {expected}"));
        }
        for (key, values) in [("latents_mean", &self.latents_mean), ("latents_std", &self.latents_std)] {
            if values.len() != self.z_dim {
                return Err(format!("{key} has {} entries, expected z_dim = {}", values.len(), self.z_dim));
            }
            if let Some(value) = values.iter().find(|v| !v.is_finite()) {
                return Err(format!("{key} holds {value}"));
            }
        }
        if let Some(value) = self.latents_std.iter().find(|v| **v <= 0.0) {
            return Err(format!("latents_std holds {value}, expected positive numbers"));
        }
        if self.patch_size.is_some_and(|p| p != 1) {
            return Err(format!("patch_size is {:?}: only null and 1 are implemented", self.patch_size));
        }
        if !self.is_residual && !self.attn_scales.is_empty() {
            return Err(format!("attn_scales is {:?}: only an empty list is implemented", self.attn_scales));
        }
        self.check_shortcuts()
    }

    /// The shortcuts average or repeat whole groups of channels.
    fn check_shortcuts(&self) -> std::result::Result<(), String> {
        if !self.is_residual {
            return match self.decoder_levels().iter().any(|level| level.input == 0) {
                true => Err("the decoder's channels cannot be halved".into()),
                false => Ok(()),
            };
        }
        let factor = |level: &Level| level.time_factor() * level.space_factor().pow(2);
        for level in self.encoder_levels() {
            if !(level.input * factor(&level)).is_multiple_of(level.output) {
                return Err(format!(
                    "an encoder level of {} to {} channels has no averaging shortcut: {} times {} is no multiple of {}",
                    level.input,
                    level.output,
                    level.input,
                    factor(&level),
                    level.output
                ));
            }
        }
        for level in self.decoder_levels().iter().filter(|level| level.resample) {
            if !(level.output * factor(level)).is_multiple_of(level.input) {
                return Err(format!(
                    "a decoder level of {} to {} channels has no duplicating shortcut: {} times {} is no multiple of {}",
                    level.input,
                    level.output,
                    level.output,
                    factor(level),
                    level.input
                ));
            }
        }
        Ok(())
    }
}

fn levels<'a>(
    inputs: impl Iterator<Item = usize>,
    outputs: impl Iterator<Item = usize>,
    temporal: impl Iterator<Item = Option<&'a bool>>,
) -> Vec<Level> {
    let sizes = inputs.zip(outputs).zip(temporal);
    sizes
        .map(|((input, output), temporal)| Level {
            input,
            output,
            resample: temporal.is_some(),
            temporal: temporal.is_some_and(|t| *t),
        })
        .collect()
}
