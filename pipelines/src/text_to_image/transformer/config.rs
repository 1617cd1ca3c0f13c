//! `transformer/config.json`: sizes of the transformer.

use serde::Deserialize;

use crate::checkpoint::Part;
use crate::{Error, Result};

/// Largest sane value of a size: products of two stay far from overflow.
const LARGEST: usize = 1 << 20;

/// Sizes and options of the transformer, named as in its configuration file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TransformerConfig {
    /// Latents a side folded into one token; must be 1.
    patch_size: usize,
    /// Latent channels.
    pub in_channels: usize,
    /// Channels of the velocity; null for `in_channels`, which it must equal.
    #[serde(default)]
    out_channels: Option<usize>,
    /// Blocks.
    pub num_layers: usize,
    /// Channels of an attention head.
    pub attention_head_dim: usize,
    /// Attention heads.
    pub num_attention_heads: usize,
    /// Channels of the text encoder's states.
    pub context_in_dim: usize,
    /// Width of the feed-forward layers, as a multiple of [`width`](Self::width).
    pub mlp_ratio: usize,
    /// Channels of a head turned by the frame, height and width position.
    pub axes_dims_rope: [usize; 3],
    /// Added to the variance in every norm.
    pub eps: f32,
    /// Whether text and condition images are modulated from time zero.
    pub causal_condition: bool,
}

impl TransformerConfig {
    /// Reads and checks the configuration of the `transformer` folder.
    ///
    /// # Errors
    /// When a key is missing, unknown or asks for what is not implemented.
    pub fn read(part: &Part) -> Result<Self> {
        let config: Self = part.config_strict(&[])?;
        config.check().map_err(|problem| Error::checkpoint(part.config_path(), problem))?;
        Ok(config)
    }

    /// Channels of a token between the blocks.
    #[must_use]
    pub fn width(&self) -> usize {
        self.num_attention_heads * self.attention_head_dim
    }

    fn check(&self) -> std::result::Result<(), String> {
        let positive = [
            ("in_channels", self.in_channels),
            ("num_layers", self.num_layers),
            ("attention_head_dim", self.attention_head_dim),
            ("num_attention_heads", self.num_attention_heads),
            ("context_in_dim", self.context_in_dim),
            ("mlp_ratio", self.mlp_ratio),
        ];
        for (key, value) in positive {
            if value == 0 || value > LARGEST {
                return Err(format!("{key} is {value}, expected 1 to {LARGEST}"));
            }
        }
        if self.patch_size != 1 {
            return Err(format!("patch_size is {}: only 1 is implemented", self.patch_size));
        }
        if let Some(out) = self.out_channels.filter(|out| *out != self.in_channels) {
            let expected = self.in_channels;
            return Err(format!(
                "out_channels is {out}, expected in_channels = {expected}: a velocity is a change of latents"
            ));
        }
        if self.axes_dims_rope.iter().any(|dim| dim % 2 != 0 || *dim > LARGEST) {
            return Err(format!("axes_dims_rope is {:?}, expected even numbers", self.axes_dims_rope));
        }
        let turned: usize = self.axes_dims_rope.iter().sum();
        if turned != self.attention_head_dim {
            return Err(format!(
                "axes_dims_rope {:?} makes {turned} channels, expected attention_head_dim = {}",
                self.axes_dims_rope, self.attention_head_dim
            ));
        }
        if !self.eps.is_finite() || self.eps <= 0.0 {
            return Err(format!("eps is {}, expected a positive number", self.eps));
        }
        Ok(())
    }
}
