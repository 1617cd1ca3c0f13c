//! Self-attention with grouped heads, for the vision tower and the decoder.

use atelier_kernels::{Backend, Rotary, Visible};

use super::config::TextConfig;
use super::layers::{Linear, RmsNorm};
use super::rotary::Angles;
use crate::Result;
use crate::checkpoint::Weights;

/// The projections and head sizes of one attention layer.
#[derive(Debug)]
pub(super) struct Attention<B: Backend> {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    q: Linear<B>,
    k: Linear<B>,
    v: Linear<B>,
    out: Linear<B>,
    /// Whether `q` gives every head a gate for its output beside its query.
    gated: bool,
    /// Norms of the queries and keys, head by head.
    norms: Option<(RmsNorm<B>, RmsNorm<B>)>,
}

/// The cache of a layer and the number of tokens in it before this call.
pub(super) type At<'a, B> = (&'a mut <B as Backend>::Cache, usize);

impl<B: Backend> Attention<B> {
    /// `q_proj`, `k_proj`, `v_proj`, `o_proj` without biases, and `q_norm`, `k_norm`.
    pub(super) fn load_decoder(backend: &B, weights: &Weights, config: &TextConfig) -> Result<Self> {
        let TextConfig { hidden: channels, heads, kv_heads, head_dim, eps, gated_attention: gated, .. } = *config;
        let linear = |name, output, input| Linear::load(backend, &weights.scope(name), output, input);
        let norm = |name| RmsNorm::load(backend, &weights.scope(name), head_dim, eps, config.norm_offset());
        let queries = if gated { 2 * heads } else { heads };
        Ok(Self {
            heads,
            kv_heads,
            head_dim,
            q: linear("q_proj", queries * head_dim, channels)?,
            k: linear("k_proj", kv_heads * head_dim, channels)?,
            v: linear("v_proj", kv_heads * head_dim, channels)?,
            out: linear("o_proj", channels, heads * head_dim)?,
            gated,
            norms: Some((norm("q_norm")?, norm("k_norm")?)),
        })
    }

    /// `qkv`, one matrix with the rows of all three, and `proj`, with biases.
    pub(super) fn load_vision(backend: &B, weights: &Weights, channels: usize, heads: usize) -> Result<Self> {
        let qkv = weights.scope("qkv");
        let (matrix, bias) = (qkv.matrix("weight", 3 * channels, channels)?, qkv.vector("bias", 3 * channels)?);
        let third = |index: usize| {
            let start = index * channels;
            Linear::new(backend, &matrix.slice(start, channels)?, Some(&bias[start..start + channels]))
        };
        Ok(Self {
            heads,
            kv_heads: heads,
            head_dim: channels / heads,
            q: third(0)?,
            k: third(1)?,
            v: third(2)?,
            out: Linear::load_biased(backend, &weights.scope("proj"), channels, channels)?,
            gated: false,
            norms: None,
        })
    }

    /// Channels of a key or value of one token: the width of the layer's cache.
    pub(super) fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// `x` `[n, channels]` to `[n, channels]`. With a cache, the tokens of `x` follow those in it, and `visible` counts
    /// both.
    pub(super) fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        angles: &Angles<B>,
        visible: Visible<'_>,
        cache: Option<At<'_, B>>,
    ) -> Result<B::Tensor> {
        let (mut q, gate) = self.queries(backend, x)?;
        let mut k = self.k.forward(backend, x)?;
        let v = self.v.forward(backend, x)?;
        if let Some((q_norm, k_norm)) = &self.norms {
            q = q_norm.forward_heads(backend, &q, self.heads)?;
            k = k_norm.forward_heads(backend, &k, self.kv_heads)?;
        }
        let turn = |x: &B::Tensor, heads| backend.rotary(x, heads, &angles.cos, &angles.sin, Rotary::Halves);
        let (q, k) = (turn(&q, self.heads)?, turn(&k, self.kv_heads)?);
        let shape = atelier_kernels::Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            scale: (self.head_dim as f64).powf(-0.5) as f32,
            visible,
        };
        let mixed = match cache {
            Some((cache, at)) => {
                backend.cache_write(cache, at, &k, &v)?;
                backend.attention_cached(&q, cache, at + backend.shape(x)[0], shape)?
            }
            None => backend.attention(&q, &k, &v, shape)?,
        };
        match gate {
            Some(gate) => self.out.forward(backend, &backend.sigmoid_gate(&gate, &mixed)?),
            None => self.out.forward(backend, &mixed),
        }
    }

    /// Queries, and the gates that stand between them, head by head.
    fn queries(&self, backend: &B, x: &B::Tensor) -> Result<(B::Tensor, Option<B::Tensor>)> {
        let q = self.q.forward(backend, x)?;
        if !self.gated {
            return Ok((q, None));
        }
        let (n, dim) = (backend.shape(x)[0], self.head_dim);
        let heads = backend.reshape(&q, &[n * self.heads, 2 * dim])?;
        let half = |start| backend.reshape(&backend.columns(&heads, start, dim)?, &[n, self.heads * dim]);
        Ok((half(0)?, Some(half(dim)?)))
    }
}
