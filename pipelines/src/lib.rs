//! The two pipelines and the models they are made of.
//!
//! - [`text_to_image`]: prompt (and reference pictures) → picture, with Qwen-Image 2.1.
//! - [`image_to_text`]: pictures and a question → answer, with the Qwen3-VL family; its vision tower and decoder are also
//!   the painter's text encoder.

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
