//! config.json → sizes.

use std::path::Path;

use serde::Deserialize;

use crate::checkpoint::Part;
use crate::{Error, Result};

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
    "text_config.max_position_embeddings",
    "text_config.pad_token_id",
    // The outer key decides.
    "text_config.tie_word_embeddings",
    "text_config.torch_dtype",
    "text_config.use_cache",
    "vision_config.dtype",
    "vision_config.initializer_range",
    "vision_config.torch_dtype",
];

/// The configuration of a Qwen3-VL model (`Qwen3VLForConditionalGeneration`), with every number checked.
#[derive(Debug, Clone)]
pub struct Config {
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

/// Sizes of the language model.
#[derive(Debug, Clone, PartialEq)]
pub struct TextConfig {
    /// Rows of the embedding table.
    pub vocabulary: usize,
    /// Channels of a token.
    pub hidden: usize,
    /// Channels inside the feed-forward layers.
    pub intermediate: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Channels of a head, even.
    pub head_dim: usize,
    /// Epsilon of every RMS norm.
    pub eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Frequencies of the time, height and width axes.
    pub mrope_section: [usize; 3],
}

/// Sizes of the vision tower.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionConfig {
    /// Blocks.
    pub depth: usize,
    /// Channels of a patch.
    pub hidden: usize,
    /// Channels inside the feed-forward layers.
    pub intermediate: usize,
    /// Attention heads.
    pub heads: usize,
    /// Colour channels of a picture.
    pub channels: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Side of the square of patches that becomes one visual token.
    pub merge: usize,
    /// Frames of a patch; a picture is repeated.
    pub temporal_patch: usize,
    /// Channels of a visual token, those of the language model.
    pub out_hidden: usize,
    /// Side of the square table of position embeddings.
    pub position_side: usize,
    /// Blocks whose output is also merged and added after the first decoder layers, ascending.
    pub deepstack: Vec<usize>,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
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

/// `config.json` as it is written. Only what `Qwen3VLConfig` itself fills in, and what published checkpoints leave out, is
/// optional here.
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

#[derive(Deserialize)]
struct RawText {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    hidden_act: String,
    rms_norm_eps: f32,
    attention_bias: bool,
    /// Written by transformers 5.
    rope_parameters: Option<RawRope>,
    /// Written by transformers 4, as on the Hub, together with `rope_theta`.
    rope_scaling: Option<RawRope>,
    rope_theta: Option<f64>,
}

#[derive(Deserialize)]
struct RawRope {
    rope_type: Option<String>,
    /// The name of `rope_type` in older files, which may hold both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f64>,
    /// The class's own sections, where a file has none, are 24, 20, 20.
    mrope_section: Option<[usize; 3]>,
    /// The class interleaves with or without this key.
    mrope_interleaved: Option<bool>,
}

#[derive(Deserialize)]
struct RawVision {
    model_type: String,
    depth: usize,
    hidden_size: usize,
    hidden_act: String,
    intermediate_size: usize,
    num_heads: usize,
    in_channels: usize,
    patch_size: usize,
    spatial_merge_size: usize,
    temporal_patch_size: usize,
    out_hidden_size: usize,
    num_position_embeddings: usize,
    deepstack_visual_indexes: Vec<usize>,
    /// Only transformers 5 writes it; the class's own base is 10000.
    rope_parameters: Option<RawVisionRope>,
}

#[derive(Deserialize)]
struct RawVisionRope {
    rope_type: String,
    rope_theta: f64,
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
        only("model_type", &self.model_type, &["qwen3_vl".to_owned()])?;
        let text = self.text_config.check()?;
        let vision = self.vision_config.check()?;
        if vision.out_hidden != text.hidden {
            return Err(format!(
                "`vision_config.out_hidden_size` is {} and `text_config.hidden_size` {}: visual tokens would not fit",
                vision.out_hidden, text.hidden
            ));
        }
        if vision.deepstack.len() > text.layers {
            return Err(format!(
                "`vision_config.deepstack_visual_indexes` has {} entries for {} decoder layers",
                vision.deepstack.len(),
                text.layers
            ));
        }
        Ok(Config {
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

impl RawText {
    fn check(self) -> Checked<TextConfig> {
        only("text_config.model_type", &self.model_type, &["qwen3_vl_text".to_owned()])?;
        only("text_config.hidden_act", &self.hidden_act, &["silu".to_owned()])?;
        only("text_config.attention_bias", &self.attention_bias, &[false])?;
        positive(&[
            ("text_config.vocab_size", self.vocab_size),
            ("text_config.hidden_size", self.hidden_size),
            ("text_config.intermediate_size", self.intermediate_size),
            ("text_config.num_hidden_layers", self.num_hidden_layers),
            ("text_config.num_attention_heads", self.num_attention_heads),
            ("text_config.num_key_value_heads", self.num_key_value_heads),
            ("text_config.head_dim", self.head_dim),
        ])?;
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return Err(format!(
                "`text_config.num_attention_heads` is {}, no multiple of `num_key_value_heads`, {}",
                self.num_attention_heads, self.num_key_value_heads
            ));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(format!("`text_config.head_dim` is {}; expected an even number", self.head_dim));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return Err(format!("`text_config.rms_norm_eps` is {}; expected above 0", self.rms_norm_eps));
        }
        let (rope_theta, mrope_section) = self.rope()?;
        Ok(TextConfig {
            vocabulary: self.vocab_size,
            hidden: self.hidden_size,
            intermediate: self.intermediate_size,
            layers: self.num_hidden_layers,
            heads: self.num_attention_heads,
            kv_heads: self.num_key_value_heads,
            head_dim: self.head_dim,
            eps: self.rms_norm_eps,
            rope_theta,
            mrope_section,
        })
    }

    fn rope(&self) -> Checked<(f64, [usize; 3])> {
        let (key, rope) = match (&self.rope_parameters, &self.rope_scaling) {
            (Some(rope), None) => ("text_config.rope_parameters", rope),
            (None, Some(rope)) => ("text_config.rope_scaling", rope),
            (None, None) => return Err("`text_config` has neither `rope_parameters` nor `rope_scaling`".into()),
            (Some(_), Some(_)) => return Err("`text_config` has both `rope_parameters` and `rope_scaling`".into()),
        };
        let default = "default".to_owned();
        let kind = rope.rope_type.as_ref().or(rope.older_type.as_ref()).unwrap_or(&default);
        only(&format!("{key}.rope_type"), kind, std::slice::from_ref(&default))?;
        only(&format!("{key}.mrope_interleaved"), &rope.mrope_interleaved.unwrap_or(true), &[true])?;
        let theta = rope.rope_theta.or(self.rope_theta).ok_or("`text_config` has no `rope_theta`")?;
        Ok((base("text_config.rope_theta", theta)?, rope.mrope_section.unwrap_or([24, 20, 20])))
    }
}

impl RawVision {
    fn check(self) -> Checked<VisionConfig> {
        // Files of transformers 4 name the tower like the whole model.
        only("vision_config.model_type", &self.model_type, &["qwen3_vl_vision".to_owned(), "qwen3_vl".to_owned()])?;
        only("vision_config.hidden_act", &self.hidden_act, &["gelu_pytorch_tanh".to_owned()])?;
        only("vision_config.in_channels", &self.in_channels, &[3])?;
        positive(&[
            ("vision_config.depth", self.depth),
            ("vision_config.hidden_size", self.hidden_size),
            ("vision_config.intermediate_size", self.intermediate_size),
            ("vision_config.num_heads", self.num_heads),
            ("vision_config.out_hidden_size", self.out_hidden_size),
            ("vision_config.num_position_embeddings", self.num_position_embeddings),
        ])?;
        // Several of these are multiplied together.
        within(
            1 << 10,
            &[
                ("vision_config.patch_size", self.patch_size),
                ("vision_config.spatial_merge_size", self.spatial_merge_size),
                ("vision_config.temporal_patch_size", self.temporal_patch_size),
            ],
        )?;
        // Two axes share a head's frequencies, two channels each.
        if !self.hidden_size.is_multiple_of(4 * self.num_heads) {
            return Err(format!(
                "`vision_config.hidden_size` is {}; expected a multiple of 4 for each of the {} heads",
                self.hidden_size, self.num_heads
            ));
        }
        let position_side = self.num_position_embeddings.isqrt();
        if position_side * position_side != self.num_position_embeddings {
            return Err(format!(
                "`vision_config.num_position_embeddings` is {}; expected a square number",
                self.num_position_embeddings
            ));
        }
        let deepstack = self.deepstack_visual_indexes;
        if !deepstack.is_sorted_by(|a, b| a < b) || deepstack.last().is_some_and(|last| *last >= self.depth) {
            return Err(format!(
                "`vision_config.deepstack_visual_indexes` is {deepstack:?}; expected ascending blocks below {}",
                self.depth
            ));
        }
        let rope_theta = match self.rope_parameters {
            Some(rope) => {
                only("vision_config.rope_parameters.rope_type", &rope.rope_type, &["axial".to_owned()])?;
                base("vision_config.rope_parameters.rope_theta", rope.rope_theta)?
            }
            None => 10000.0,
        };
        Ok(VisionConfig {
            depth: self.depth,
            hidden: self.hidden_size,
            intermediate: self.intermediate_size,
            heads: self.num_heads,
            channels: self.in_channels,
            patch: self.patch_size,
            merge: self.spatial_merge_size,
            temporal_patch: self.temporal_patch_size,
            out_hidden: self.out_hidden_size,
            position_side,
            deepstack,
            rope_theta,
        })
    }
}
