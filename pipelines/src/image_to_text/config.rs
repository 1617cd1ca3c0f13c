//! config.json → sizes.

mod text;
mod vision;

use std::path::Path;

use serde::Deserialize;

use crate::checkpoint::Part;
use crate::{Error, Result};
use text::RawText;
use vision::RawVision;

pub use text::{DeltaNetConfig, FeedForward, Mixer, TextConfig};
pub use vision::VisionConfig;

/// Keys that say how a model was made, trained or saved, not what it computes here.
const IGNORED: &[&str] = &[
    "architectures",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "text_config.attention_dropout",
    "text_config.bos_token_id",
    "text_config.dtype",
    "text_config.eos_token_id",
    "text_config.initializer_range",
    // The recurrent state is always f32.
    "text_config.mamba_ssm_dtype",
    "text_config.max_position_embeddings",
    "text_config.mtp_num_hidden_layers",
    "text_config.mtp_use_dedicated_embeddings",
    "text_config.output_router_logits",
    "text_config.pad_token_id",
    "text_config.router_aux_loss_coef",
    // The outer key decides.
    "text_config.tie_word_embeddings",
    "text_config.torch_dtype",
    "text_config.use_cache",
    "vision_config.dtype",
    "vision_config.initializer_range",
    "vision_config.torch_dtype",
];

/// The kinds of model that are implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Qwen3-VL, dense.
    Qwen3Vl,
    /// Qwen3.5 and 3.6, dense.
    Qwen35,
    /// Their mixtures of experts.
    Qwen35Moe,
}

impl Family {
    const ALL: [Self; 3] = [Self::Qwen3Vl, Self::Qwen35, Self::Qwen35Moe];

    /// `model_type` in `config.json`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen3Vl => "qwen3_vl",
            Self::Qwen35 => "qwen3_5",
            Self::Qwen35Moe => "qwen3_5_moe",
        }
    }
}

/// The configuration of a model, with every number checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// The kind of model.
    pub family: Family,
    /// The language model.
    pub text: TextConfig,
    /// The vision tower.
    pub vision: VisionConfig,
    /// Id of the token that stands for one visual token of a picture.
    pub image_token_id: u32,
    /// The same for videos.
    pub video_token_id: u32,
    /// The token before a picture's visual tokens.
    pub vision_start_token_id: u32,
    /// The token after a picture's visual tokens.
    pub vision_end_token_id: u32,
    /// Whether the output layer is the embedding table (`lm_head` is then not stored).
    pub tied_embeddings: bool,
}

impl Config {
    /// Reads and checks a part's `config.json`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a number is missing, a key is unknown, sizes do not fit together, or something is asked
    /// for that is not implemented.
    pub fn read(part: &Part) -> Result<Self> {
        let raw: Raw = part.config_strict(IGNORED)?;
        raw.check().map_err(|problem| Error::checkpoint(part.config_path(), problem))
    }

    /// The same from the bytes of the file; `file` is its name for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(file: &Path, bytes: &[u8]) -> Result<Self> {
        let raw: Raw = crate::checkpoint::parse_config(file, bytes, IGNORED)?;
        raw.check().map_err(|problem| Error::checkpoint(file, problem))
    }
}

/// `config.json` as it is written. Only what the configuration class itself fills in, and what published checkpoints
/// leave out, is optional here.
#[derive(Deserialize)]
struct Raw {
    model_type: String,
    text_config: RawText,
    vision_config: RawVision,
    image_token_id: u32,
    video_token_id: u32,
    vision_start_token_id: u32,
    vision_end_token_id: u32,
    /// False where a file has none, as in the class.
    #[serde(default)]
    tie_word_embeddings: bool,
}

type Checked<T> = std::result::Result<T, String>;

/// Refuses another value than the one that is implemented.
fn only<T: PartialEq + std::fmt::Debug>(key: &str, found: &T, implemented: &[T]) -> Checked<()> {
    if implemented.contains(found) {
        return Ok(());
    }
    let names: Vec<String> = implemented.iter().map(|value| format!("{value:?}")).collect();
    Err(format!("`{key}` is {found:?}; implemented is {}", names.join(" or ")))
}

fn positive(sizes: &[(&str, usize)]) -> Checked<()> {
    // A bound that no published model comes near, so that products of two sizes cannot overflow.
    within(1 << 24, sizes)
}

fn within(limit: usize, sizes: &[(&str, usize)]) -> Checked<()> {
    match sizes.iter().find(|(_, size)| *size == 0 || *size > limit) {
        Some((key, size)) => Err(format!("`{key}` is {size}; expected 1 to {limit}")),
        None => Ok(()),
    }
}

fn base(key: &str, theta: f64) -> Checked<f64> {
    if theta.is_finite() && theta > 0.0 { Ok(theta) } else { Err(format!("`{key}` is {theta}; expected above 0")) }
}

impl Raw {
    fn check(self) -> Checked<Config> {
        only("model_type", &self.model_type, &Family::ALL.map(|family| family.name().to_owned()))?;
        let family = Family::ALL.into_iter().find(|family| family.name() == self.model_type);
        let family = family.ok_or("`model_type` is not implemented")?;
        let text = self.text_config.check(family)?;
        let vision = self.vision_config.check(family)?;
        if vision.out_hidden != text.hidden {
            return Err(format!(
                "`vision_config.out_hidden_size` is {} and `text_config.hidden_size` {}: visual tokens would not fit",
                vision.out_hidden, text.hidden
            ));
        }
        if vision.deepstack.len() > text.mixers.len() {
            return Err(format!(
                "`vision_config.deepstack_visual_indexes` has {} entries for {} decoder layers",
                vision.deepstack.len(),
                text.mixers.len()
            ));
        }
        Ok(Config {
            family,
            text,
            vision,
            image_token_id: self.image_token_id,
            video_token_id: self.video_token_id,
            vision_start_token_id: self.vision_start_token_id,
            vision_end_token_id: self.vision_end_token_id,
            tied_embeddings: self.tie_word_embeddings,
        })
    }
}
