//! Softmax attention with grouped heads.

use candle_core::Tensor;

use super::cache::Cache;
use super::tensor;
use crate::{Attention, Error, Result, Visible};

// one query, or a few: every key and value is read once
mod stream;
// many queries: tiles of scores that stay in the cache
mod tiles;

pub(super) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, shape: Attention<'_>) -> Result<Tensor> {
    let (_, width) = tensor::dims2(k, "attention")?;
    tensor::expect_shape(v, k.dims(), "attention", "the value tensor")?;
    run("attention", q, &tensor::view(k)?, &tensor::view(v)?, width, shape)
}

pub(super) fn attention_cached(q: &Tensor, cache: &Cache, length: usize, shape: Attention<'_>) -> Result<Tensor> {
    let (k, v) = cache.first(length)?;
    run("attention_cached", q, k, v, cache.width(), shape)
}

fn run(
    operation: &'static str,
    q: &Tensor,
    k: &[f32],
    v: &[f32],
    width: usize,
    shape: Attention<'_>,
) -> Result<Tensor> {
    let (n, channels) = tensor::dims2(q, operation)?;
    let Attention { heads, kv_heads, scale, visible } = shape;
    let fits = kv_heads > 0
        && heads.is_multiple_of(kv_heads)
        && heads > 0
        && channels > 0
        && channels.is_multiple_of(heads)
        && channels / heads * kv_heads == width;
    if !fits {
        return Err(Error::shape(
            operation,
            format!("queries of {:?} in {heads} heads, keys of {width} channels in {kv_heads} heads", q.dims()),
        ));
    }
    let dim = channels / heads;
    let keys = k.len() / width;
    if keys == 0 {
        return Err(Error::shape(operation, "no keys to attend to"));
    }
    if let Visible::First(counts) = visible {
        if counts.len() != n {
            return Err(Error::shape(operation, format!("{} visible counts for {n} queries", counts.len())));
        }
        if let Some(bad) = counts.iter().find(|&&count| count == 0 || count as usize > keys) {
            return Err(Error::shape(operation, format!("a query sees the first {bad} of {keys} keys")));
        }
    }
    let problem = Problem { q: &tensor::view(q)?, k, v, heads, kv_heads, dim, keys, scale, visible };
    let mut out = vec![0.0; n * channels];
    if n <= stream::MOST {
        stream::attend(&problem, &mut out);
    } else {
        tiles::attend(&problem, &mut out);
    }
    tensor::from_vec(out, q.dims())
}

/// Checked operands: `q` `[n, heads * dim]`, `k` and `v` `[keys, kv_heads * dim]`.
struct Problem<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    heads: usize,
    kv_heads: usize,
    dim: usize,
    keys: usize,
    scale: f32,
    visible: Visible<'a>,
}

impl Problem<'_> {
    /// Keys that a query sees, at least one.
    fn count(&self, query: usize) -> usize {
        match self.visible {
            Visible::All => self.keys,
            Visible::First(counts) => counts[query] as usize,
        }
    }
}
