//! File bytes → upright pixels, within limits.

use std::io::Cursor;

use image::{DynamicImage, ImageDecoder as _, ImageReader, RgbImage, RgbaImage};

use crate::{Error, Result, resample};

/// Largest picture file that is worth reading, in bytes.
pub const FILE_LIMIT: u64 = 512 << 20;
/// Largest picture that is decoded, in pixels: known from the header, before memory is spent.
const PIXEL_LIMIT: u64 = 100_000_000;
/// Memory that decoding may take: 16-bit RGBA of the largest picture, twice.
const MEMORY_LIMIT: u64 = 16 * PIXEL_LIMIT;
/// Largest ratio of the sides, as the reference processor has it.
const ASPECT_LIMIT: u32 = 200;

/// A picture as the models look at it: upright RGB pixels, transparency laid on white.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pixels: RgbImage,
    notes: Vec<String>,
}

impl Picture {
    /// A picture of these pixels.
    #[must_use]
    pub fn new(pixels: RgbImage) -> Self {
        Self { pixels, notes: Vec::new() }
    }

    /// Reads a picture file: PNG, JPEG, WebP, GIF, BMP or TIFF.
    ///
    /// # Errors
    /// [`Error::Input`] when the bytes are no picture of a known format, are damaged, or the picture is too large or
    /// too narrow.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Decoded { pixels, notes } = Decoded::read(bytes)?;
        let pixels = match pixels {
            DynamicImage::ImageRgb8(pixels) => pixels,
            other if !other.color().has_alpha() => other.into_rgb8(),
            other => {
                let pixels = other.into_rgba8();
                RgbImage::from_raw(pixels.width(), pixels.height(), resample::on_white(&pixels))
                    .ok_or_else(|| Error::input("the picture over white has another size than itself"))?
            }
        };
        Ok(Self { pixels, notes })
    }

    /// The pixels.
    #[must_use]
    pub fn pixels(&self) -> &RgbImage {
        &self.pixels
    }

    /// What a person should know about the reading: that only the first frame was taken, for example.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// File bytes → upright pixels with straight alpha, for those who need the transparency.
///
/// # Errors
/// As [`Picture::decode`].
pub fn decode_rgba(bytes: &[u8]) -> Result<RgbaImage> {
    Ok(Decoded::read(bytes)?.pixels.into_rgba8())
}

/// What a file holds.
struct Decoded {
    pixels: DynamicImage,
    notes: Vec<String>,
}

impl Decoded {
    fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(Error::input("the file is empty"));
        }
        let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(damaged)?;
        if reader.format().is_none() {
            return Err(Error::input("no picture format was recognised: PNG, JPEG, WebP, GIF, BMP and TIFF are read"));
        }
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(MEMORY_LIMIT);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(damaged)?;
        check_size(decoder.dimensions())?;
        let orientation = decoder.orientation().map_err(damaged)?;
        let mut pixels = DynamicImage::from_decoder(decoder).map_err(damaged)?;
        pixels.apply_orientation(orientation);
        Ok(Self { pixels, notes: Vec::new() })
    }
}

fn damaged(error: impl std::fmt::Display) -> Error {
    Error::input(error.to_string())
}

fn check_size((width, height): (u32, u32)) -> Result<()> {
    if width == 0 || height == 0 {
        return Err(Error::input(format!("{width}x{height} is no picture")));
    }
    if u64::from(width) * u64::from(height) > PIXEL_LIMIT {
        let most = PIXEL_LIMIT / 1_000_000;
        return Err(Error::input(format!("{width}x{height} is more than {most} megapixels: make it smaller first")));
    }
    if u64::from(width.max(height)) > u64::from(ASPECT_LIMIT) * u64::from(width.min(height)) {
        return Err(Error::input(format!("{width}x{height} is narrower than 1:{ASPECT_LIMIT}: crop it first")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
