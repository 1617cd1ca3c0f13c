//! The Qwen3-VL family, so far as the painter's text encoder: its vision tower and its decoder.

// config.json → sizes
pub mod config;
// file bytes → upright pixels
pub mod picture;
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
// pictures and tokens → logits
pub mod model;

pub use config::Config;
pub use decoder::{Cache, Checkpoint, Decoder};
pub use inputs::Inputs;
pub use model::Model;
pub use patches::{Grid, ImageProcessor, Patches};
pub use picture::Picture;
pub use vision::{Features, VisionTower};
