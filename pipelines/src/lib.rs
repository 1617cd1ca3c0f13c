//! The painter and the models it is made of.
//!
//! - [`text_to_image`]: prompt (and reference pictures) → picture, with Qwen-Image 2.1.
//! - [`image_to_text`]: the vision tower and decoder of the Qwen3-VL family, so far as the painter's text encoder.

mod error;
// stages, timings, cancellation: one vocabulary for bars, events and reports
pub mod progress;
// file bytes → named tensors
pub mod checkpoint;
// picture → picture of another size, as Pillow and torchvision resize
mod resample;
// the models of image understanding
pub mod image_to_text;
// the painter
pub mod text_to_image;

#[cfg(test)]
mod fixtures;

pub use error::{Error, Result};
