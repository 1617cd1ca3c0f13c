//! Reference picture → what the vision tower and the VAE read.

use image::{RgbImage, RgbaImage};

use crate::image_to_text::{ImageProcessor, Patches};
use crate::resample::{self, Filter};
use crate::{Error, Result};

/// Sides of pictures are multiples of this many pixels: one visual token, or two latents.
const MULTIPLE: usize = 32;

/// A reference picture, resized and prepared.
#[derive(Debug)]
pub struct ReferenceImage {
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// What the VAE encodes: `[4, height, width]`, RGBA from -1 to 1.
    pub pixels: Vec<f32>,
    /// What the vision tower reads: the picture over white, one visual token for each 32 x 32 pixels.
    pub patches: Patches,
}

impl ReferenceImage {
    /// Resizes `picture` (Lanczos) to about `area` pixels at its own aspect.
    ///
    /// # Errors
    /// [`Error::Input`] when the picture is so long that a side comes out as 0, or the resized picture is outside the
    /// range of pixels that the vision tower takes.
    pub fn prepare(picture: &RgbaImage, area: usize, processor: &ImageProcessor) -> Result<Self> {
        let (width, height) = dimensions(area, picture.width() as usize, picture.height() as usize)?;
        let resized = resample::resize_rgba(picture, width as u32, height as u32, Filter::Lanczos);
        let on_white = RgbImage::from_raw(resized.width(), resized.height(), resample::on_white(&resized))
            .ok_or_else(|| Error::input("the reference picture over white has another size than itself"))?;
        Ok(Self { width, height, patches: patches(&on_white, processor)?, pixels: planes(&resized) })
    }
}

/// The sides (width, height) of a picture of `width` x `height` brought to about `area` pixels: multiples of 32, the
/// nearest (ties to even) to the exact sides.
///
/// # Errors
/// [`Error::Input`] when a side comes out as 0.
pub fn dimensions(area: usize, width: usize, height: usize) -> Result<(usize, usize)> {
    let ratio = width as f64 / height as f64;
    let exact = (area as f64 * ratio).sqrt();
    let sides = [exact, exact / ratio].map(|side| (side / MULTIPLE as f64).round_ties_even() as usize * MULTIPLE);
    if width == 0 || height == 0 || sides.contains(&0) {
        return Err(Error::input(format!(
            "the reference picture is {width}x{height}: at {area} pixels in all, a side would be under half of \
             {MULTIPLE} pixels; crop the picture or take a larger reference resolution"
        )));
    }
    Ok((sides[0], sides[1]))
}

/// The vision tower must see the size that the VAE sees: its tokens stand for the latents. So its own resize must have
/// nothing to do.
fn patches(picture: &RgbImage, processor: &ImageProcessor) -> Result<Patches> {
    let size = (picture.width() as usize, picture.height() as usize);
    // Before the resize: a lying range of pixels could ask for any amount of memory.
    if processor.target(size.0, size.1)? != size || processor.patch() * processor.merge() != MULTIPLE {
        let (least, most) = processor.pixel_range();
        return Err(Error::input(format!(
            "the reference picture resized to {}x{} does not fit the vision encoder, which takes {least} to {most} \
             pixels in steps of {}; take another reference resolution",
            size.0,
            size.1,
            processor.patch() * processor.merge()
        )));
    }
    processor.patches(picture)
}

/// `[4, height, width]`, from 0 .. 255 to -1 .. 1.
fn planes(picture: &RgbaImage) -> Vec<f32> {
    (0..4)
        .flat_map(|channel| picture.as_raw().iter().skip(channel).step_by(4))
        .map(|&value| 2.0 * (f32::from(value) / 255.0) - 1.0)
        .collect()
}
