//! Decoded values → picture.

use image::RgbaImage;

use super::request::Picture;
use crate::{Error, Result};

/// Turns `[c, height, width]` values in [-1, 1] (3 or 4 channels) into 8-bit pixels: `255 clamp(x / 2 + 1/2)`, ties to
/// even, as numpy rounds.
pub(super) fn picture(values: &[f32], width: u32, height: u32, seed: u64) -> Result<Picture> {
    let pixels = width as usize * height as usize;
    let channels = values.len() / pixels.max(1);
    if !matches!(channels, 3 | 4) || values.len() != channels * pixels {
        return Err(Error::Numbers(format!("{} decoded values for {width}x{height} pixels", values.len())));
    }
    if values.iter().any(|value| !value.is_finite()) {
        return Err(Error::Numbers(
            "the VAE's output is not finite: the checkpoint is damaged; try --dtype f32".into(),
        ));
    }
    let mut image = RgbaImage::new(width, height);
    for (index, pixel) in image.pixels_mut().enumerate() {
        for (channel, value) in pixel.0.iter_mut().enumerate() {
            *value = if channel < channels { level(values[channel * pixels + index]) } else { u8::MAX };
        }
    }
    Ok(Picture { image, has_alpha: channels == 4, seed, preview: None })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=255 before")]
fn level(value: f32) -> u8 {
    ((value / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round_ties_even() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_round_ties_to_even_and_clamp() {
        let found: Vec<u8> = [-2.0, -1.0, 0.0, 1.0 / 255.0, 1.0, 3.0].map(level).to_vec();
        assert_eq!(found, [0, 0, 128, 128, 255, 255]);
    }

    #[test]
    fn three_channels_are_opaque() {
        let picture = picture(&[1.0, -1.0, -1.0], 1, 1, 0).unwrap();
        assert_eq!(picture.image.get_pixel(0, 0).0, [255, 0, 0, 255]);
        assert!(!picture.has_alpha);
    }

    #[test]
    fn damaged_values_are_refused() {
        assert!(picture(&[f32::NAN; 4], 1, 1, 0).is_err());
        assert!(picture(&[0.0; 5], 1, 1, 0).is_err());
    }
}
