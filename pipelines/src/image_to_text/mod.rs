//! Pictures and a question → answer, with the Qwen3-VL family.
//!
//! The vision tower and the decoder are also the painter's text encoder.

// config.json → sizes
pub mod config;
// picture → patches and their grid
pub mod patches;
// what the models are made of
mod attention;
mod layers;
mod rotary;
// patches → visual tokens
pub mod vision;
// token ids, grids → positions on three axes
pub mod positions;
// token ids, visual tokens → decoder inputs
pub mod inputs;
// inputs, cache → hidden states
pub mod decoder;

pub use config::Config;
pub use decoder::{Cache, Decoder};
pub use inputs::Inputs;
pub use patches::{Grid, ImageProcessor, Patches};
pub use vision::{Features, VisionTower};
