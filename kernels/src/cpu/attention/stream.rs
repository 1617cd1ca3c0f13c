//! Attention of a few queries, bound by reading the cache: keys are cut into spans, every span is read once for all heads,
//! and the partial results are put together in order.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use rayon::prelude::*;

use super::Problem;
use crate::cpu::math;
use crate::cpu::simd::{Simd, Work, dispatch};

/// Most queries for which this is used.
pub(super) const MOST: usize = 4;
/// Keys of one span. Fixed, so that the order of sums does not depend on the number of threads.
const SPAN: usize = 128;

/// Fills `out` `[n, heads * dim]`.
pub(super) fn attend(problem: &Problem<'_>, out: &mut [f32]) {
    for (query, out) in out.chunks_exact_mut(problem.heads * problem.dim).enumerate() {
        let count = problem.count(query);
        let parts: Vec<Part> = (0..count.div_ceil(SPAN))
            .into_par_iter()
            .map(|span| {
                let (first, last) = (span * SPAN, count.min((span + 1) * SPAN));
                dispatch(Span { problem, query, first, length: last - first })
            })
            .collect();
        for (head, out) in out.chunks_exact_mut(problem.dim).enumerate() {
            let largest = parts.iter().fold(f32::NEG_INFINITY, |largest, part| largest.max(part.largest[head]));
            let mut sum = 0.0;
            for part in &parts {
                let weight = (part.largest[head] - largest).exp();
                sum += weight * part.sums[head];
                for (out, mixed) in out.iter_mut().zip(&part.mixed[head * problem.dim..]) {
                    *out += weight * mixed;
                }
            }
            for out in out {
                *out /= sum;
            }
        }
    }
}

/// What one span of keys gives, per head: the largest score, the sum of weights, and the values mixed by weight.
struct Part {
    largest: Vec<f32>,
    sums: Vec<f32>,
    mixed: Vec<f32>,
}

struct Span<'a> {
    problem: &'a Problem<'a>,
    query: usize,
    first: usize,
    length: usize,
}

impl Work for Span<'_> {
    type Output = Part;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Part {
        let Problem { q, k, v, heads, kv_heads, dim, scale, .. } = *self.problem;
        let (width, group) = (kv_heads * dim, heads / kv_heads);
        let q = &q[self.query * heads * dim..][..heads * dim];
        let range = self.first * width..(self.first + self.length) * width;
        let mut scores = vec![[f32::NEG_INFINITY; SPAN]; heads];
        for (i, key) in k[range.clone()].chunks_exact(width).enumerate() {
            for (head, (scores, q)) in scores.iter_mut().zip(q.chunks_exact(dim)).enumerate() {
                scores[i] = scale * dot(s, q, &key[head / group * dim..][..dim]);
            }
        }
        let mut part = Part { largest: Vec::with_capacity(heads), sums: Vec::with_capacity(heads), mixed: Vec::new() };
        for scores in &mut scores {
            let largest = scores.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            let mut sum = s.splat(0.0);
            for scores in scores.chunks_exact_mut(S::WIDTH) {
                let weights = math::exp(s, s.sub(s.load(scores), s.splat(largest)));
                sum = s.add(sum, weights);
                s.store(weights, scores);
            }
            part.largest.push(largest);
            part.sums.push(s.sum(sum));
        }
        part.mixed = vec![0.0; heads * dim];
        for (i, value) in v[range].chunks_exact(width).enumerate() {
            for (head, (scores, mixed)) in scores.iter().zip(part.mixed.chunks_exact_mut(dim)).enumerate() {
                add_scaled(s, mixed, scores[i], &value[head / group * dim..][..dim]);
            }
        }
        part
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

#[inline(always)]
fn add_scaled<S: Simd>(s: S, out: &mut [f32], factor: f32, x: &[f32]) {
    let mut x = x.chunks_exact(S::WIDTH);
    let mut out = out.chunks_exact_mut(S::WIDTH);
    for (out, x) in (&mut out).zip(&mut x) {
        s.store(s.mul_add(s.splat(factor), s.load(x), s.load(out)), out);
    }
    for (out, x) in out.into_remainder().iter_mut().zip(x.remainder()) {
        *out += factor * x;
    }
}
