//! Normalisations.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use candle_core::Tensor;
use rayon::prelude::*;

use super::simd::{Simd, WIDEST, Work, dispatch};
use super::{math, parallel, tensor};
use crate::Result;

pub(super) fn rms_norm(x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    rows("rms_norm", false, x, weight, None, eps)
}

pub(super) fn layer_norm(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
    rows("layer_norm", true, x, weight, bias, eps)
}

/// `(x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias` over the last axis, where without `centred` the mean
/// counts as zero.
fn rows(
    operation: &'static str,
    centred: bool,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    eps: f32,
) -> Result<Tensor> {
    let c = tensor::channels(x, operation)?;
    tensor::expect_shape(weight, &[c], operation, "the weight")?;
    if let Some(bias) = bias {
        tensor::expect_shape(bias, &[c], operation, "the bias")?;
    }
    let (values, weight, bias) = (tensor::view(x)?, tensor::view(weight)?, bias.map(tensor::view).transpose()?);
    let (values, weight, bias) = (&*values, &*weight, bias.as_deref());
    let mut out = vec![0.0; values.len()];
    parallel::pieces(&mut out, c, |i, out| {
        dispatch(Row { x: &values[i * c..][..c], weight, bias, centred, eps, out });
    });
    tensor::from_vec(out, x.dims())
}

struct Row<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    centred: bool,
    eps: f32,
    out: &'a mut [f32],
}

impl Work for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { x, weight, bias, centred, eps, out } = self;
        let count = x.len() as f32;
        let mean = if centred { sum(s, x, |x| x, |x| x) / count } else { 0.0 };
        let shift = s.splat(mean);
        let squares = sum(
            s,
            x,
            |x| {
                let x = s.sub(x, shift);
                s.mul(x, x)
            },
            |x| (x - mean) * (x - mean),
        );
        let factor = 1.0 / (squares / count + eps).sqrt();
        let factors = s.splat(factor);
        let whole = x.len() - x.len() % S::WIDTH;
        for i in (0..whole).step_by(S::WIDTH) {
            let y = s.mul(s.mul(s.sub(s.load(&x[i..]), shift), factors), s.load(&weight[i..]));
            let y = bias.map_or(y, |bias| s.add(y, s.load(&bias[i..])));
            s.store(y, &mut out[i..]);
        }
        for i in whole..x.len() {
            out[i] = (x[i] - mean) * factor * weight[i] + bias.map_or(0.0, |bias| bias[i]);
        }
    }
}

/// The sum of `f` over a slice; `one` is `f` of one value.
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32], f: impl Fn(S::V) -> S::V, one: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let mut long = x.chunks_exact(4 * S::WIDTH);
    for x in &mut long {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.add(*sum, f(s.load(&x[i * S::WIDTH..])));
        }
    }
    let mut short = long.remainder().chunks_exact(S::WIDTH);
    for x in &mut short {
        sums[0] = s.add(sums[0], f(s.load(x)));
    }
    let rest: f32 = short.remainder().iter().map(|x| one(*x)).sum();
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) + rest
}

pub(super) fn channel_norm(x: &Tensor, gamma: &Tensor, silu: bool) -> Result<Tensor> {
    let (c, h, w) = tensor::dims3(x, "channel_norm")?;
    tensor::expect_shape(gamma, &[c], "channel_norm", "gamma")?;
    let (values, gamma) = (tensor::view(x)?, tensor::view(gamma)?);
    let (values, gamma, area) = (&*values, &*gamma, h * w);
    let mut out = vec![0.0; values.len()];
    if !out.is_empty() {
        // pixels of a task: long runs, for the prefetcher, but several tasks
        let block = (area / 16).next_multiple_of(WIDEST).clamp(64, 4096);
        let mut tasks: Vec<Vec<&mut [f32]>> = (0..area.div_ceil(block)).map(|_| Vec::with_capacity(c)).collect();
        for plane in out.chunks_exact_mut(area) {
            for (task, out) in tasks.iter_mut().zip(plane.chunks_mut(block)) {
                task.push(out);
            }
        }
        tasks.into_par_iter().enumerate().for_each(|(i, out)| {
            dispatch(Pixels { values: &values[i * block..], area, gamma, silu, out });
        });
    }
    tensor::from_vec(out, x.dims())
}

/// Some pixels: `values` and `out` by channel.
struct Pixels<'a> {
    /// From the first of the pixels on; channels are `area` apart.
    values: &'a [f32],
    area: usize,
    gamma: &'a [f32],
    silu: bool,
    out: Vec<&'a mut [f32]>,
}

impl Work for Pixels<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { values, area, gamma, silu, out } = self;
        let length = out[0].len();
        // whole vectors; what is past the last pixel stays zero
        let mut factors = vec![0.0; length.next_multiple_of(WIDEST)];
        let whole = length - length % S::WIDTH;
        for x in values.chunks(area).take(out.len()) {
            let x = &x[..length];
            for i in (0..whole).step_by(S::WIDTH) {
                let x = s.load(&x[i..]);
                s.store(s.mul_add(x, x, s.load(&factors[i..])), &mut factors[i..]);
            }
            for (factor, x) in factors[whole..].iter_mut().zip(&x[whole..]) {
                *factor += x * x;
            }
        }
        let root = (out.len() as f32).sqrt();
        for factor in &mut factors {
            *factor = root / factor.sqrt().max(1e-12);
        }
        for ((x, out), gamma) in values.chunks(area).zip(out).zip(gamma) {
            let gamma = s.splat(*gamma);
            for i in (0..whole).step_by(S::WIDTH) {
                s.store(finish(s, s.load(&x[i..]), s.load(&factors[i..]), gamma, silu), &mut out[i..]);
            }
            if whole < length {
                let mut rest = [0.0; WIDEST];
                rest[..length - whole].copy_from_slice(&x[whole..length]);
                let last = finish(s, s.load(&rest), s.load(&factors[whole..]), gamma, silu);
                s.store(last, &mut rest);
                out[whole..].copy_from_slice(&rest[..length - whole]);
            }
        }
    }
}

/// A function, because a closure that is used twice may stay a call, and then loses its vector instructions.
#[inline(always)]
fn finish<S: Simd>(s: S, x: S::V, factor: S::V, gamma: S::V, silu: bool) -> S::V {
    let y = s.mul(s.mul(x, factor), gamma);
    if silu { math::silu(s, y) } else { y }
}
