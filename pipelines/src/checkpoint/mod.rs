//! File bytes → named tensors.
//!
//! A checkpoint is a folder in the layout of diffusers and transformers: `model_index.json` at the root and one folder
//! per part, each with a `config.json` and its tensors in safetensors (one file, or shards with an index) or GGUF. Weights
//! are memory-mapped and stay in their stored form. Everything is read strictly: a config without an architecture number,
//! an unknown key, a tensor of another shape, a tensor that nobody used are errors that name file, tensor or key, what
//! was found and what was expected.
//!
//! ```no_run
//! # use atelier_pipelines::checkpoint::{Files, Part};
//! # fn main() -> atelier_pipelines::Result<()> {
//! #[derive(serde::Deserialize)]
//! struct Config {
//!     hidden_size: usize,
//! }
//! let files = Files::folder("Qwen-Image-2.1");
//! let part = Part::open(&files, "transformer")?;
//! let config: Config = part.config_strict(&["attn_implementation"])?;
//! let weights = part.weights();
//! let proj = weights.scope("proj_out");
//! let matrix = proj.matrix("weight", 64, config.hidden_size)?;
//! weights.finish()?; // an error if the part holds more than was asked for
//! # Ok(())
//! # }
//! ```

// where the bytes come from
mod files;
// JSON → config structs, no key overlooked
mod config;
// model_index.json → what the checkpoint is
mod index;
// one file → tensors
mod gguf;
mod safetensors;
mod tensor;
// a folder → one part: config and tensors
mod part;
// tensors by name, each accounted for
mod weights;

pub use config::parse as parse_config;
pub use files::Files;
pub use index::ModelIndex;
pub use part::Part;
pub use weights::Weights;
