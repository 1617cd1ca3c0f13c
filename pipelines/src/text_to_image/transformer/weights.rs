//! The transformer's tensors. Linear layers have no bias anywhere.

use atelier_kernels::Backend;

use super::{TIME_CHANNELS, TransformerConfig};
use crate::Result;
use crate::checkpoint;

/// Everything but sizes.
#[derive(Debug)]
pub(super) struct Weights<B: Backend> {
    pub(super) time_in: B::Matrix,
    pub(super) time_out: B::Matrix,
    /// Stored less one.
    pub(super) text_norm: B::Tensor,
    pub(super) text_in: B::Matrix,
    pub(super) text_out: B::Matrix,
    pub(super) image_in: B::Matrix,
    /// Attention scale, attention gate, feed-forward scale, feed-forward gate.
    pub(super) modulation: B::Matrix,
    pub(super) blocks: Vec<Block<B>>,
    pub(super) norm_out: B::Matrix,
    pub(super) projection_out: B::Matrix,
}

/// One block.
#[derive(Debug)]
pub(super) struct Block<B: Backend> {
    pub(super) q: B::Matrix,
    pub(super) k: B::Matrix,
    pub(super) v: B::Matrix,
    pub(super) out: B::Matrix,
    pub(super) norm_q: B::Tensor,
    pub(super) norm_k: B::Tensor,
    pub(super) mlp_gate: B::Matrix,
    pub(super) mlp_up: B::Matrix,
    pub(super) mlp_down: B::Matrix,
}

impl<B: Backend> Weights<B> {
    pub(super) fn load(b: &B, all: &checkpoint::Weights, config: &TransformerConfig) -> Result<Self> {
        let (c, context, latent) = (config.width(), config.context_in_dim, config.in_channels);
        let matrix = |name: &str, rows: usize, columns: usize| -> Result<B::Matrix> {
            Ok(b.load(&all.matrix(name, rows, columns)?)?)
        };
        let text_norm: Vec<f32> = all.vector("txt_in.text_norm.weight", context)?.iter().map(|w| w + 1.0).collect();
        let loaded = Self {
            time_in: matrix("time_text_embed.timestep_embedder.linear_1.weight", c, TIME_CHANNELS)?,
            time_out: matrix("time_text_embed.timestep_embedder.linear_2.weight", c, c)?,
            text_norm: b.upload(&text_norm, &[context])?,
            text_in: matrix("txt_in.in_layer.weight", c, context)?,
            text_out: matrix("txt_in.out_layer.weight", c, c)?,
            image_in: matrix("img_in.weight", c, latent)?,
            modulation: matrix("modulation.1.weight", 4 * c, c)?,
            blocks: (0..config.num_layers)
                .map(|i| Block::load(b, &all.scope(format!("transformer_blocks.{i}")), config))
                .collect::<Result<_>>()?,
            norm_out: matrix("norm_out.linear.weight", c, c)?,
            projection_out: matrix("proj_out.weight", latent, c)?,
        };
        all.finish()?;
        Ok(loaded)
    }
}

impl<B: Backend> Block<B> {
    fn load(b: &B, weights: &checkpoint::Weights, config: &TransformerConfig) -> Result<Self> {
        let (c, dim) = (config.width(), config.attention_head_dim);
        let hidden = c * config.mlp_ratio;
        let matrix = |name: &str, rows: usize, columns: usize| -> Result<B::Matrix> {
            Ok(b.load(&weights.matrix(name, rows, columns)?)?)
        };
        let norm = |name: &str| -> Result<B::Tensor> { Ok(b.upload(&weights.vector(name, dim)?, &[dim])?) };
        Ok(Self {
            q: matrix("attn.to_q.weight", c, c)?,
            k: matrix("attn.to_k.weight", c, c)?,
            v: matrix("attn.to_v.weight", c, c)?,
            out: matrix("attn.to_out.0.weight", c, c)?,
            norm_q: norm("attn.norm_q.weight")?,
            norm_k: norm("attn.norm_k.weight")?,
            mlp_gate: matrix("img_mlp.gate_layer.weight", hidden, c)?,
            mlp_up: matrix("img_mlp.proj.weight", hidden, c)?,
            mlp_down: matrix("img_mlp.out.weight", c, hidden)?,
        })
    }
}
