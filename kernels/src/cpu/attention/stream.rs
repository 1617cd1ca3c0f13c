//! Attention of a few queries, bound by reading the cache: keys are cut into spans, every span is read once for all queries
//! and heads, and the partial results are put together in order.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use rayon::prelude::*;

use super::Problem;
use crate::cpu::math;
use crate::cpu::simd::{Simd, Work, dispatch};

/// Most queries for which this is used.
pub(super) const MOST: usize = 4;
/// Keys of one span. Fixed, so that the order of sums does not depend on the number of threads.
const SPAN: usize = 128;
/// Keys whose values are mixed while a sum stays in registers, and the vectors of such a sum.
const RUN: usize = 8;

/// Fills `out` `[n, heads * dim]`.
pub(super) fn attend(problem: &Problem<'_>, out: &mut [f32]) {
    let (rows, dim) = (out.len() / problem.dim, problem.dim);
    let count = (0..rows / problem.heads).map(|query| problem.count(query)).max().unwrap_or(0);
    // for every span and (query, head): the mixed values, the largest score, the sum of weights
    let size = rows * (dim + 2);
    let mut parts = vec![0.0; count.div_ceil(SPAN) * size];
    let task = |(span, out): (usize, &mut [f32])| {
        let (first, last) = (span * SPAN, count.min((span + 1) * SPAN));
        dispatch(Span { problem, first, length: last - first, out });
    };
    if parts.len() == size {
        task((0, &mut parts));
    } else {
        parts.par_chunks_exact_mut(size).enumerate().for_each(task);
    }
    dispatch(Join { parts: &parts, dim, out });
}

struct Span<'a> {
    problem: &'a Problem<'a>,
    first: usize,
    length: usize,
    /// `[rows, dim + 2]`, zeros at first.
    out: &'a mut [f32],
}

impl Work for Span<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Problem { q, k, v, heads, kv_heads, dim, scale, .. } = *self.problem;
        let (width, group) = (kv_heads * dim, heads / kv_heads);
        let range = self.first * width..(self.first + self.length) * width;
        let mut scores = vec![[f32::NEG_INFINITY; SPAN]; self.out.len() / (dim + 2)];
        for (i, key) in k[range.clone()].chunks_exact(width).enumerate() {
            for (row, (scores, q)) in scores.iter_mut().zip(q.chunks_exact(dim)).enumerate() {
                scores[i] = scale * dot(s, q, &key[row % heads / group * dim..][..dim]);
            }
        }
        for (row, (scores, out)) in scores.iter_mut().zip(self.out.chunks_exact_mut(dim + 2)).enumerate() {
            let seen = self.problem.count(row / heads).saturating_sub(self.first).min(SPAN);
            scores[seen..].fill(f32::NEG_INFINITY);
            let largest = scores.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let mut sum = s.splat(0.0);
            // without any key the weights are zero, and not a difference of infinities
            let shift = s.splat(if seen == 0 { 0.0 } else { largest });
            for scores in scores.chunks_exact_mut(S::WIDTH) {
                let weights = math::exp(s, s.sub(s.load(scores), shift));
                sum = s.add(sum, weights);
                s.store(weights, scores);
            }
            out[dim] = largest;
            out[dim + 1] = s.sum(sum);
        }
        for (i, values) in v[range].chunks(RUN * width).enumerate() {
            for (row, (scores, out)) in scores.iter().zip(self.out.chunks_exact_mut(dim + 2)).enumerate() {
                mix(s, &mut out[..dim], &scores[i * RUN..][..RUN], &values[row % heads / group * dim..], width);
            }
        }
    }
}

/// Puts the spans of every row together.
struct Join<'a> {
    parts: &'a [f32],
    dim: usize,
    out: &'a mut [f32],
}

impl Work for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let size = self.dim + 2;
        let spans = self.out.len() / self.dim * size;
        for (row, out) in self.out.chunks_exact_mut(self.dim).enumerate() {
            let parts = self.parts[row * size..].chunks(spans).map(|part| part[..size].split_at(self.dim));
            let largest = parts.clone().fold(f32::NEG_INFINITY, |largest, (_, part)| largest.max(part[0]));
            let mut sum = 0.0;
            for (mixed, part) in parts {
                let weight = (part[0] - largest).exp();
                sum += weight * part[1];
                mix(s, out, &[weight], mixed, self.dim);
            }
            for out in out {
                *out /= sum;
            }
        }
    }
}

#[inline(always)]
fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let step = 4 * S::WIDTH;
    let (mut a_long, mut b_long) = (a.chunks_exact(step), b.chunks_exact(step));
    for (a, b) in (&mut a_long).zip(&mut b_long) {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.mul_add(s.load(&a[i * S::WIDTH..]), s.load(&b[i * S::WIDTH..]), *sum);
        }
    }
    let (mut a, mut b) = (a_long.remainder().chunks_exact(S::WIDTH), b_long.remainder().chunks_exact(S::WIDTH));
    for (a, b) in (&mut a).zip(&mut b) {
        sums[0] = s.mul_add(s.load(a), s.load(b), sums[0]);
    }
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) + rest
}

/// Adds rows of `values`, `stride` apart and as many as there are of the `factors`, to `out`.
#[inline(always)]
fn mix<S: Simd>(s: S, out: &mut [f32], factors: &[f32], values: &[f32], stride: usize) {
    let dim = out.len();
    let whole = dim - dim % (RUN * S::WIDTH);
    for at in (0..whole).step_by(RUN * S::WIDTH) {
        mix_vectors::<S, RUN>(s, &mut out[at..], factors, &values[at..], stride);
    }
    let vectors = dim - dim % S::WIDTH;
    for at in (whole..vectors).step_by(S::WIDTH) {
        mix_vectors::<S, 1>(s, &mut out[at..], factors, &values[at..], stride);
    }
    for (factor, row) in factors.iter().zip(values.chunks(stride)) {
        for (out, value) in out[vectors..].iter_mut().zip(&row[vectors..dim]) {
            *out += factor * value;
        }
    }
}

/// The same for `N` vectors.
#[inline(always)]
fn mix_vectors<S: Simd, const N: usize>(s: S, out: &mut [f32], factors: &[f32], values: &[f32], stride: usize) {
    let out = &mut out[..N * S::WIDTH];
    let mut sums = [s.splat(0.0); N];
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = s.load(&out[i * S::WIDTH..]);
    }
    for (factor, row) in factors.iter().zip(values.chunks(stride)) {
        let (factor, row) = (s.splat(*factor), &row[..N * S::WIDTH]);
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum = s.mul_add(factor, s.load(&row[i * S::WIDTH..]), *sum);
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        s.store(*sum, &mut out[i * S::WIDTH..]);
    }
}
