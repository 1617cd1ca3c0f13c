//! `vision_config` → sizes of the vision tower.

use serde::Deserialize;

use super::{Checked, Family, base, only, positive, within};

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

/// `vision_config` as it is written.
#[derive(Deserialize)]
pub(super) struct RawVision {
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
    /// Qwen3.5 has none, and may say so.
    deepstack_visual_indexes: Option<Vec<usize>>,
    /// Only transformers 5 writes it; the class's own base is 10000.
    rope_parameters: Option<RawVisionRope>,
}

#[derive(Deserialize)]
struct RawVisionRope {
    rope_type: String,
    rope_theta: f64,
}

impl RawVision {
    pub(super) fn check(self, family: Family) -> Checked<VisionConfig> {
        // Files of transformers 4 name the tower like the whole model.
        let name = family.name();
        only("vision_config.model_type", &self.model_type, &[format!("{name}_vision"), name.to_owned()])?;
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
        let deepstack = match (family, self.deepstack_visual_indexes) {
            (Family::Qwen3Vl, None) => return Err("`vision_config` has no `deepstack_visual_indexes`".into()),
            (Family::Qwen3Vl, Some(blocks)) => blocks,
            (_, blocks) => {
                only("vision_config.deepstack_visual_indexes", &blocks.unwrap_or_default(), &[Vec::new()])?;
                Vec::new()
            }
        };
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
