//! What a gated delta-net layer does beside its linear layers: a short causal convolution, and the recurrent state.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use candle_core::Tensor;
use rayon::prelude::*;

use super::simd::{Simd, Work, dispatch};
use super::{math, parallel, tensor};
use crate::{DeltaGates, DeltaRule, Error, Result};

/// Added to the squared length of a query or key before its root is taken.
const EPS: f32 = 1e-6;

/// `silu(sum_j weight[c, j] x[t - k + 1 + j, c])` with `history` before the first token.
pub(super) fn causal_conv(x: &Tensor, history: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (n, c) = tensor::dims2(x, "causal_conv")?;
    let (_, taps) = tensor::dims2(weight, "causal_conv")?;
    tensor::expect_shape(weight, &[c.max(1), taps.max(1)], "causal_conv", "the weight")?;
    tensor::expect_shape(history, &[taps - 1, c], "causal_conv", "the history")?;
    let (values, history, weight) = (tensor::view(x)?, tensor::view(history)?, tensor::view(weight)?);
    let (values, history) = (&*values, &*history);
    // tap by tap, so that neighbouring channels are together
    let weight: Vec<f32> = (0..taps * c).map(|i| weight[i % c * taps + i / c]).collect();
    let mut out = vec![0.0; n * c];
    parallel::pieces(&mut out, c, |token, out| {
        let row = |at: usize| if at < taps - 1 { &history[at * c..] } else { &values[(at + 1 - taps) * c..] };
        let mut add = |tap: usize, last: bool| {
            dispatch(Tap { x: &row(token + tap)[..c], weight: &weight[tap * c..][..c], out: &mut *out, last });
        };
        (0..taps).for_each(|tap| add(tap, tap + 1 == taps));
    });
    tensor::from_vec(out, &[n, c])
}

/// Adds one tap of a convolution, and SiLU after the last.
struct Tap<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    out: &'a mut [f32],
    last: bool,
}

impl Work for Tap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, out, last } = self;
        let whole = out.len() - out.len() % S::WIDTH;
        for i in (0..whole).step_by(S::WIDTH) {
            let sum = s.mul_add(s.load(&weight[i..]), s.load(&x[i..]), s.load(&out[i..]));
            s.store(if last { math::silu(s, sum) } else { sum }, &mut out[i..]);
        }
        for i in whole..out.len() {
            let sum = out[i] + weight[i] * x[i];
            out[i] = if last { sum / (1.0 + (-sum).exp()) } else { sum };
        }
    }
}

/// The recurrence, token by token, value head by value head: `S <- e^g S`, `S <- S + k (beta (v - S^T k))^T`,
/// `out = S^T q`.
pub(super) fn gated_delta(
    qkv: &Tensor,
    gates: &DeltaGates<'_, Tensor>,
    state: &Tensor,
    rule: DeltaRule,
) -> Result<(Tensor, Tensor)> {
    let n = check(qkv, gates, state, rule)?;
    let DeltaRule { value_heads, key_dim, value_dim, .. } = rule;
    let values = tensor::view(qkv)?;
    let (decay, beta) = rates(gates, n, value_heads)?;
    let turned = Turned::new(&values, n, rule);
    let mut state = tensor::view(state)?.to_vec();
    // head by head, then put side by side
    let mut heads = vec![0.0; value_heads * n * value_dim];
    let work = |(head, (state, out)): (usize, (&mut [f32], &mut [f32]))| {
        let (decay, beta) = (&decay[head * n..][..n], &beta[head * n..][..n]);
        dispatch(ValueHead { turned: &turned, values: &values, number: head, decay, beta, state, out });
    };
    if value_dim * n > 0 {
        let pairs = state.par_chunks_exact_mut(key_dim * value_dim).zip(heads.par_chunks_exact_mut(n * value_dim));
        pairs.enumerate().for_each(work);
    }
    let width = value_heads * value_dim;
    let mut out = vec![0.0; n * width];
    parallel::pieces(&mut out, width, |token, out| {
        for (head, out) in out.chunks_exact_mut(value_dim).enumerate() {
            out.copy_from_slice(&heads[(head * n + token) * value_dim..][..value_dim]);
        }
    });
    let state = tensor::from_vec(state, &[value_heads, key_dim, value_dim])?;
    Ok((tensor::from_vec(out, &[n, width])?, state))
}

/// The number of tokens, when everything fits.
fn check(qkv: &Tensor, gates: &DeltaGates<'_, Tensor>, state: &Tensor, rule: DeltaRule) -> Result<usize> {
    let DeltaRule { key_heads, value_heads, key_dim, value_dim } = rule;
    let (n, width) = tensor::dims2(qkv, "gated_delta")?;
    if key_heads == 0 || !value_heads.is_multiple_of(key_heads) || key_dim * value_dim == 0 || width != rule.width() {
        return Err(Error::shape("gated_delta", format!("rows of {width} for {rule:?}")));
    }
    tensor::expect_shape(state, &[value_heads, key_dim, value_dim], "gated_delta", "the state")?;
    for (name, gate) in [("a", gates.a), ("b", gates.b)] {
        tensor::expect_shape(gate, &[n, value_heads], "gated_delta", name)?;
    }
    for (name, vector) in [("the rate", gates.rate), ("the bias", gates.bias)] {
        tensor::expect_shape(vector, &[value_heads], "gated_delta", name)?;
    }
    Ok(n)
}

/// `e^(-rate softplus(a + bias))` and `sigmoid(b)`, head by head: `[heads, n]`.
fn rates(gates: &DeltaGates<'_, Tensor>, n: usize, heads: usize) -> Result<(Vec<f32>, Vec<f32>)> {
    let (a, b) = (tensor::view(gates.a)?, tensor::view(gates.b)?);
    let (rate, bias) = (tensor::view(gates.rate)?, tensor::view(gates.bias)?);
    let softplus = |x: f32| if x > 20.0 { x } else { x.exp().ln_1p() };
    let by_head = |f: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..heads).flat_map(|head| (0..n).map(move |token| (head, token))).map(|(head, token)| f(head, token)).collect()
    };
    let decay = by_head(&|head, token| (-rate[head] * softplus(a[token * heads + head] + bias[head])).exp());
    let beta = by_head(&|head, token| 1.0 / (1.0 + (-b[token * heads + head]).exp()));
    Ok((decay, beta))
}

/// Queries and keys of length 1, the queries times `key_dim ^ -1/2`: `[n, key_heads, key_dim]` each.
struct Turned {
    q: Vec<f32>,
    k: Vec<f32>,
    rule: DeltaRule,
}

impl Turned {
    fn new(values: &[f32], n: usize, rule: DeltaRule) -> Self {
        let DeltaRule { key_heads, key_dim, .. } = rule;
        let row = key_heads * key_dim;
        let normal = |offset: usize, factor: f32| {
            let mut out = vec![0.0; n * row];
            parallel::pieces(&mut out, row, |token, out| {
                let source = &values[token * rule.width() + offset..][..row];
                for (out, source) in out.chunks_exact_mut(key_dim).zip(source.chunks_exact(key_dim)) {
                    let square: f32 = source.iter().map(|x| x * x).sum();
                    let factor = factor / (square + EPS).sqrt();
                    out.iter_mut().zip(source).for_each(|(out, x)| *out = x * factor);
                }
            });
            out
        };
        Self { q: normal(0, (key_dim as f32).powf(-0.5)), k: normal(row, 1.0), rule }
    }
}

/// One value head through all tokens.
struct ValueHead<'a> {
    turned: &'a Turned,
    /// Rows of queries, keys and values.
    values: &'a [f32],
    number: usize,
    decay: &'a [f32],
    beta: &'a [f32],
    /// `[key_dim, value_dim]`, before and after.
    state: &'a mut [f32],
    /// `[n, value_dim]`.
    out: &'a mut [f32],
}

impl Work for ValueHead<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { turned, values, number, decay, beta, state, out } = self;
        let rule @ DeltaRule { key_heads, value_heads, key_dim, value_dim } = turned.rule;
        let key_head = number / (value_heads / key_heads);
        let mut delta = vec![0.0; value_dim];
        for (token, out) in out.chunks_exact_mut(value_dim).enumerate() {
            let at = (token * key_heads + key_head) * key_dim;
            let (q, k) = (&turned.q[at..][..key_dim], &turned.k[at..][..key_dim]);
            let v = &values[token * rule.width() + 2 * key_heads * key_dim + number * value_dim..][..value_dim];
            // what the decayed state says about this key
            delta.fill(0.0);
            for (row, k) in state.chunks_exact_mut(value_dim).zip(k) {
                rank_one(s, row, decay[token], None, &mut delta, *k);
            }
            for (delta, v) in delta.iter_mut().zip(v) {
                *delta = (v - *delta) * beta[token];
            }
            out.fill(0.0);
            for ((row, k), q) in state.chunks_exact_mut(value_dim).zip(k).zip(q) {
                rank_one(s, row, 1.0, Some((*k, &delta)), out, *q);
            }
        }
    }
}

/// `row <- scale row + factor addend`, then `sum <- sum + weight row`.
#[inline(always)]
fn rank_one<S: Simd>(s: S, row: &mut [f32], scale: f32, addend: Option<(f32, &[f32])>, sum: &mut [f32], weight: f32) {
    let whole = row.len() - row.len() % S::WIDTH;
    for i in (0..whole).step_by(S::WIDTH) {
        let mut x = s.load(&row[i..]);
        x = match addend {
            Some((factor, addend)) => s.mul_add(s.splat(factor), s.load(&addend[i..]), x),
            None => s.mul(x, s.splat(scale)),
        };
        s.store(x, &mut row[i..]);
        s.store(s.mul_add(s.splat(weight), x, s.load(&sum[i..])), &mut sum[i..]);
    }
    for i in whole..row.len() {
        row[i] = row[i] * scale + addend.map_or(0.0, |(factor, addend)| factor * addend[i]);
        sum[i] += weight * row[i];
    }
}
