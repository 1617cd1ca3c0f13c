//! The painter, the looker, and the models they are made of.
//!
//! - [`text_to_image`]: prompt (and reference pictures) → picture, with Qwen-Image 2.1.
//! - [`image_to_text`]: conversation with pictures → answer, with Qwen3-VL and Qwen3.5; and the painter's text encoder.

mod error;
// stages, timings, cancellation: one vocabulary for bars, events and reports
pub mod progress;
// file bytes → named tensors
pub mod checkpoint;
// picture → picture of another size, as Pillow and torchvision resize
mod resample;
// the looker
pub mod image_to_text;
// the painter
pub mod text_to_image;

#[cfg(test)]
mod fixtures;

pub use error::{Error, Result};
