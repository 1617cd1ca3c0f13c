//! Picture ↔ latents: the autoencoder.
//!
//! Latents of the pipeline are tokens, `[height * width, z]`, normalised by the checkpoint's mean and standard deviation of
//! each channel; the autoencoder's own are `[z, height, width]` and not normalised. A latent stands for `scale` pixels a side.

use atelier_kernels::Backend;

use crate::checkpoint::{Files, Part};
use crate::progress::Cancel;
use crate::{Error, Result};

// config.json → sizes
mod config;
// convolutions, residual blocks, attention
mod blocks;
// picture → latents
mod encoder;
// latents → picture
mod decoder;
// large pictures in parts
mod tiling;
// sizes → bytes
mod memory;

#[cfg(test)]
mod tests;

pub use config::VaeConfig;
use decoder::Decoder;
use encoder::Encoder;
pub use tiling::Tiling;
use tiling::{Grid, Plane};

/// Which part of the autoencoder to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Picture to latents.
    Encoder,
    /// Latents to picture.
    Decoder,
    /// Both ways.
    Both,
}

/// The autoencoder on a device.
#[derive(Debug)]
pub struct Vae<B: Backend> {
    backend: B,
    config: VaeConfig,
    encoder: Option<Encoder<B>>,
    decoder: Option<Decoder<B>>,
}

impl<B: Backend> Vae<B> {
    /// Opens the `vae` folder of a checkpoint; only the tensors of `half` are brought to the device.
    ///
    /// # Errors
    /// When the configuration is not understood, or a tensor is missing, of another shape, or left over.
    pub fn load(backend: &B, files: &Files, half: Half) -> Result<Self> {
        let part = Part::open(files, "vae")?;
        let config = VaeConfig::read(&part)?;
        let weights = part.weights();
        let encoder = if half == Half::Decoder {
            weights.ignore("encoder");
            weights.ignore("quant_conv");
            None
        } else {
            Some(Encoder::load(backend, &weights, &config)?)
        };
        let decoder = if half == Half::Encoder {
            weights.ignore("decoder");
            weights.ignore("post_quant_conv");
            None
        } else {
            Some(Decoder::load(backend, &weights, &config)?)
        };
        weights.finish()?;
        Ok(Self { backend: backend.clone(), config, encoder, decoder })
    }

    /// Sizes and options of the checkpoint.
    pub fn config(&self) -> &VaeConfig {
        &self.config
    }

    /// Encodes a picture `[in_channels, height, width]` in `-1..=1` to normalised latents
    /// `[height / scale * width / scale, z]`: the mode of the encoder's distribution, which is its mean.
    ///
    /// # Errors
    /// When the shape does not fit, the encoder was not loaded, an operation fails, or on cancellation.
    pub fn encode(&self, picture: &B::Tensor, tiling: Tiling, cancel: &Cancel) -> Result<B::Tensor> {
        let Some(encoder) = &self.encoder else {
            return Err(Error::input("the autoencoder was loaded without its encoder"));
        };
        let (b, scale) = (&self.backend, self.config.scale());
        let shape = b.shape(picture);
        let (height, width) = match shape[..] {
            [c, h, w] if c == self.config.in_channels && h * w > 0 && h % scale == 0 && w % scale == 0 => {
                (h / scale, w / scale)
            }
            _ => {
                let channels = self.config.in_channels;
                return Err(Error::input(format!(
                    "a picture to encode has shape {shape:?}, expected [{channels}, height, width] with sides that are \
                     multiples of {scale}"
                )));
            }
        };
        let grid = Grid::new(height, width, scale, 1);
        let moments = if tiling == Tiling::Off || grid.is_single() {
            Plane {
                channels: 2 * self.config.z_dim,
                height,
                width,
                values: b.download(&encoder.run(b, picture, cancel)?)?,
            }
        } else {
            let picture = Plane { channels: shape[0], height: shape[1], width: shape[2], values: b.download(picture)? };
            grid.run(2 * self.config.z_dim, |window| {
                let (top, left) = (window.top * scale, window.left * scale);
                let tile = picture.cut(top, left, window.height * scale, window.width * scale);
                self.on_device(tile, |tile| encoder.run(b, tile, cancel))
            })?
        };
        let tokens = self.normalise(&moments);
        Ok(b.upload(&tokens, &[height * width, self.config.z_dim])?)
    }

    /// Decodes normalised latents `[height * width, z]` to a picture `[out_channels, scale * height, scale * width]` in
    /// `-1..=1`. `progress` is told how many tiles are done and how many there are.
    ///
    /// # Errors
    /// When the shape does not fit, the decoder was not loaded, an operation fails, or on cancellation.
    pub fn decode(
        &self,
        latents: &B::Tensor,
        (height, width): (usize, usize),
        tiling: Tiling,
        cancel: &Cancel,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<B::Tensor> {
        let Some(decoder) = &self.decoder else {
            return Err(Error::input("the autoencoder was loaded without its decoder"));
        };
        let b = &self.backend;
        let (found, expected) = (b.shape(latents), [height * width, self.config.z_dim]);
        if found != expected || found.contains(&0) {
            return Err(Error::input(format!("latents to decode have shape {found:?}, expected {expected:?}")));
        }
        let latents = self.denormalise(&b.download(latents)?, height, width);
        let grid = Grid::new(height, width, self.config.scale(), self.config.scale());
        let mut picture = if tiling == Tiling::Off || grid.is_single() {
            progress(0, 1);
            let picture = self.on_device(latents, |latents| decoder.run(b, latents, cancel))?;
            progress(1, 1);
            picture
        } else {
            let tiles = grid.tiles();
            progress(0, tiles);
            let mut done = 0;
            grid.run(self.config.out_channels, |window| {
                let tile = latents.cut(window.top, window.left, window.height, window.width);
                let tile = self.on_device(tile, |tile| decoder.run(b, tile, cancel))?;
                done += 1;
                progress(done, tiles);
                Ok(tile)
            })?
        };
        for value in &mut picture.values {
            *value = value.clamp(-1.0, 1.0);
        }
        Ok(b.upload(&picture.values, &[picture.channels, picture.height, picture.width])?)
    }

    fn on_device(&self, plane: Plane, run: impl FnOnce(&B::Tensor) -> Result<B::Tensor>) -> Result<Plane> {
        let b = &self.backend;
        let input = b.upload(&plane.values, &[plane.channels, plane.height, plane.width])?;
        drop(plane);
        let output = run(&input)?;
        match b.shape(&output)[..] {
            [channels, height, width] => Ok(Plane { channels, height, width, values: b.download(&output)? }),
            ref other => Err(Error::input(format!("the autoencoder made a tensor of shape {other:?}"))),
        }
    }

    /// The mean of `[2 z, h, w]` moments, less `latents_mean` and over `latents_std`, as tokens `[h * w, z]`.
    fn normalise(&self, moments: &Plane) -> Vec<f32> {
        let (pixels, config) = (moments.height * moments.width, &self.config);
        let mut tokens = vec![0.0; pixels * config.z_dim];
        for (channel, (mean, std)) in config.latents_mean.iter().zip(&config.latents_std).enumerate() {
            for (token, value) in moments.values[channel * pixels..(channel + 1) * pixels].iter().enumerate() {
                tokens[token * config.z_dim + channel] = (value - mean) / std;
            }
        }
        tokens
    }

    /// Tokens `[h * w, z]` times `latents_std` plus `latents_mean`, as `[z, h, w]`.
    fn denormalise(&self, tokens: &[f32], height: usize, width: usize) -> Plane {
        let (pixels, config) = (height * width, &self.config);
        let mut latents = Plane::zeros(config.z_dim, height, width);
        for (channel, (mean, std)) in config.latents_mean.iter().zip(&config.latents_std).enumerate() {
            for (token, value) in latents.values[channel * pixels..(channel + 1) * pixels].iter_mut().enumerate() {
                *value = tokens[token * config.z_dim + channel] * std + mean;
            }
        }
        latents
    }
}
