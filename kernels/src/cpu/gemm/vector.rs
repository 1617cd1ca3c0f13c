//! Products with so few columns that packing would cost more than it saves: every weight is decoded once, next to the
//! columns that it meets.

use rayon::prelude::*;

use super::DEPTH;
use super::kernel::{Kernel, Processor, Work};
use super::panel::round;
use crate::cpu::blocks;
use crate::{Format, Matrix};

/// Most columns for which this is used.
pub(in super::super) const MOST: usize = 8;
/// Weight rows of a task.
const ROWS: usize = 16;
/// Partial sums of a dot product: four vectors of the widest kind.
const LANES: usize = 64;

/// `columns [n, k] x weight^T + bias` to `[n, rows]`, `n` at most [`MOST`].
pub(in super::super) fn vectors(
    processor: Processor,
    weight: &Matrix,
    columns: &[f32],
    bias: Option<&[f32]>,
) -> Vec<f32> {
    let (m, k) = (weight.rows(), weight.columns());
    let n = columns.len().checked_div(k).unwrap_or(0);
    let columns = processor.run(Round { columns });
    // By weight row first, because a task then owns what it writes.
    let mut products = vec![0.0; m * n];
    products.par_chunks_mut((ROWS * n).max(1)).enumerate().for_each(|(i, out)| {
        processor.run(Rows { weight, first: i * ROWS, columns: &columns, n, out });
    });
    let mut out = vec![0.0; n * m];
    for (j, out) in out.chunks_exact_mut(m.max(1)).enumerate() {
        for (i, value) in out.iter_mut().enumerate() {
            *value = products[i * n + j] + bias.map_or(0.0, |bias| bias[i]);
        }
    }
    out
}

struct Round<'a> {
    columns: &'a [f32],
}

impl Work for Round<'_> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<K: Kernel>(self) -> Vec<f32> {
        if K::ROUND { self.columns.iter().map(|v| round(*v)).collect() } else { self.columns.to_vec() }
    }
}

struct Rows<'a> {
    weight: &'a Matrix,
    first: usize,
    columns: &'a [f32],
    n: usize,
    out: &'a mut [f32],
}

impl Work for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self) {
        let k = self.weight.columns();
        let mut values = [0.0; DEPTH];
        for (i, out) in self.out.chunks_exact_mut(self.n).enumerate() {
            let mut sums = [[0.0; LANES]; MOST];
            for start in (0..k).step_by(DEPTH) {
                let values = &mut values[..DEPTH.min(k - start)];
                blocks::decode_row(self.weight, self.first + i, start, values);
                if K::ROUND && self.weight.format() != Format::Bf16 {
                    for value in values.iter_mut() {
                        *value = round(*value);
                    }
                }
                for (column, sums) in self.columns.chunks_exact(k).zip(&mut sums) {
                    dot::<K>(values, &column[start..], sums);
                }
            }
            for (out, sums) in out.iter_mut().zip(&sums) {
                *out = sum(*sums);
            }
        }
    }
}

/// Adds products to partial sums, lane by lane.
#[inline(always)]
fn dot<K: Kernel>(a: &[f32], b: &[f32], sums: &mut [f32; LANES]) {
    let b = &b[..a.len()];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut local = *sums;
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            local[i] = K::multiply_add(a[i], b[i], local[i]);
        }
    }
    for (sum, (a, b)) in local.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *sum = K::multiply_add(*a, *b, *sum);
    }
    *sums = local;
}

/// Adds up lanes, halves first.
#[inline(always)]
fn sum(mut sums: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}
