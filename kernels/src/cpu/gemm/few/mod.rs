//! Products with so few columns that reading the weights is what takes the time: one new token, or a few.
//!
//! Every weight is read once, in its stored form, and decoded in registers next to the columns it meets; the factors are
//! exactly those of [`blocks::decode`]. Threads take long runs of rows. The order of the sums of a (row, column) depends on
//! the depth alone.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

// stored blocks → vectors
mod stored;

use rayon::prelude::*;

use super::kernel::Processor;
use super::panel::round;
use crate::cpu::blocks;
use crate::cpu::simd::{Simd, WIDEST, Work};
use crate::{Format, Matrix};
use stored::{Bf16, F16, F32, Q4K, Q6K, Q8_0, Stored};

/// Most columns for which this is used.
pub(in super::super) const MOST: usize = 8;
/// Bytes of weights that a task reads, about: enough to be worth handing over, and several tasks per thread.
const SHARE: usize = 256 << 10;
/// Bytes between what is read and what is fetched.
const AHEAD: usize = 2048;
/// Values in a line of the cache.
const LINE: usize = 16;

/// `columns [n, k] x weight^T + bias` to `[n, rows]`, `n` at most [`MOST`] and `k` at least 1.
pub(in super::super) fn few(processor: Processor, weight: &Matrix, columns: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let (m, k) = (weight.rows(), weight.columns());
    let n = columns.len() / k;
    let (instructions, rounded) = processor.vectors();
    let columns = Columns::new(columns, k, rounded);
    // by weight row first, because a task then owns what it writes
    let mut products = vec![0.0; m * n];
    let rows = (SHARE / weight.row_bytes()).max(1).next_multiple_of(8);
    let task = |(i, out): (usize, &mut [f32])| {
        instructions.run(Rows { weight, first: i * rows, columns: &columns, rounded, n, out });
    };
    if m <= rows {
        products.chunks_mut((rows * n).max(1)).enumerate().for_each(task);
    } else {
        products.par_chunks_mut((rows * n).max(1)).enumerate().with_max_len(1).for_each(task);
    }
    if n > 1 {
        let mut turned = vec![0.0; n * m];
        for (i, products) in products.chunks_exact(n).enumerate() {
            for (j, product) in products.iter().enumerate() {
                turned[j * m + i] = *product;
            }
        }
        products = turned;
    }
    if let Some(bias) = bias {
        for out in products.chunks_exact_mut(m.max(1)) {
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
    }
    products
}

/// The columns, rounded if need be: 1, 2, 4 or 8 of them, each of whole blocks, with zeros past the end.
struct Columns {
    values: Vec<f32>,
    /// Where the values begin: at a line of the cache.
    start: usize,
    stride: usize,
    count: usize,
}

impl Columns {
    fn new(columns: &[f32], k: usize, rounded: bool) -> Self {
        let count = (columns.len() / k).next_power_of_two();
        let stride = k.next_multiple_of(F32::BLOCK);
        let mut values = vec![0.0; count * stride + LINE];
        let start = values.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        for (column, values) in columns.chunks_exact(k).zip(values[start..].chunks_exact_mut(stride)) {
            for (value, column) in values.iter_mut().zip(column) {
                *value = if rounded { round(*column) } else { *column };
            }
        }
        Self { values, start, stride, count }
    }

    /// `length` values of every column from `start` on; past the last column stands the last one.
    #[inline(always)]
    fn from<const N: usize>(&self, start: usize, length: usize) -> [&[f32]; N] {
        let values = &self.values[self.start..];
        let mut columns = [&values[start..][..length]; N];
        for j in 1..N {
            columns[j] = &values[j.min(self.count - 1) * self.stride + start..][..length];
        }
        columns
    }
}

/// One task: some weight rows by all columns, to `out` `[rows, n]`.
struct Rows<'a> {
    weight: &'a Matrix,
    first: usize,
    columns: &'a Columns,
    rounded: bool,
    n: usize,
    out: &'a mut [f32],
}

impl Work for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.weight.format() {
            Format::Bf16 => self.stored::<S, Bf16>(s),
            _ if self.rounded => self.rounded(s),
            Format::F32 => self.stored::<S, F32>(s),
            Format::F16 => self.stored::<S, F16>(s),
            Format::Q8_0 => self.stored::<S, Q8_0>(s),
            Format::Q4K => self.stored::<S, Q4K>(s),
            Format::Q6K => self.stored::<S, Q6K>(s),
        }
    }
}

impl Rows<'_> {
    /// Weights whose factors are what is stored.
    #[inline(always)]
    fn stored<S: Simd, T: Stored>(self, s: S) {
        // As many sums as the fused products need to follow each other without waiting, and the registers can hold.
        match (self.columns.count, S::WIDTH) {
            (1, _) if T::ROWS == 8 => self.groups::<S, T, 1, 8>(s),
            (1, _) => self.groups::<S, T, 1, 4>(s),
            (2, _) => self.groups::<S, T, 2, 4>(s),
            (4, WIDEST) => self.groups::<S, T, 4, 4>(s),
            (4, _) => self.groups::<S, T, 4, 2>(s),
            (_, WIDEST) => self.groups::<S, T, MOST, 2>(s),
            (..) => self.groups::<S, T, MOST, 1>(s),
        }
    }

    /// `R` rows at a time, a part of the task's rows apart: `R` long runs of memory, which the processor fetches ahead.
    #[inline(always)]
    fn groups<S: Simd, T: Stored, const N: usize, const R: usize>(self, s: S) {
        let size = self.weight.row_bytes();
        let rows = self.out.len() / self.n;
        let bytes = &self.weight.data()[self.first * size..][..rows * size];
        let part = rows.div_ceil(R);
        for first in 0..part {
            // past the last row stands the last one
            let mut at = [0; R];
            let mut row = [bytes; R];
            for r in 0..R {
                at[r] = (r * part + first).min(rows - 1);
                row[r] = &bytes[at[r] * size..][..size];
            }
            let sums = dots::<S, T, N, R>(s, row, self.columns);
            for (at, sums) in at.iter().zip(&sums) {
                self.out[at * self.n..][..self.n].copy_from_slice(&sums[..self.n]);
            }
        }
    }

    /// Weights that are rounded first: not what a bf16 model has, so that a buffer will do.
    #[inline(always)]
    fn rounded<S: Simd>(self, s: S) {
        let mut values = vec![0.0; self.weight.columns()];
        let mut bytes = vec![0; 4 * values.len()];
        for (i, out) in self.out.chunks_exact_mut(self.n).enumerate() {
            blocks::decode_row(self.weight, self.first + i, 0, &mut values);
            for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(&values) {
                *bytes = round(*value).to_le_bytes();
            }
            let [sums] = dots::<S, F32, MOST, 1>(s, [&bytes], self.columns);
            out.copy_from_slice(&sums[..self.n]);
        }
    }
}

/// `R` stored rows by the columns, of which there are `N` at most.
///
/// Loops instead of `array::from_fn`: a closure that is not inlined loses its vector instructions.
#[inline(always)]
fn dots<S: Simd, T: Stored, const N: usize, const R: usize>(
    s: S,
    rows: [&[u8]; R],
    columns: &Columns,
) -> [[f32; N]; R] {
    // blocks that are cut off by the end of the row, filled up with zeros
    let mut cut = [[0; F32::BYTES]; R];
    let whole = rows[0].len() / T::BYTES;
    for (cut, row) in cut.iter_mut().zip(&rows) {
        let rest = &row[whole * T::BYTES..];
        cut[..rest.len()].copy_from_slice(rest);
    }
    let mut sums = [[s.splat(0.0); N]; R];
    for index in 0..rows[0].len().div_ceil(T::BYTES) {
        let mut blocks = [T::block(s, &cut[0]); R];
        for r in 0..R {
            let bytes = if index < whole { &rows[r][index * T::BYTES..] } else { &cut[r] };
            for line in (0..T::BYTES).step_by(4 * LINE) {
                s.prefetch(bytes, line + AHEAD);
            }
            blocks[r] = T::block(s, &bytes[..T::BYTES]);
        }
        for unit in 0..T::UNITS {
            let mut units = [T::unit(s, &blocks[0], unit); R];
            for r in 1..R {
                units[r] = T::unit(s, &blocks[r], unit);
            }
            let length = T::BLOCK / T::UNITS;
            let columns = columns.from::<N>(index * T::BLOCK + unit * length, length);
            for at in (0..length).step_by(S::WIDTH) {
                let mut x = [s.splat(0.0); N];
                for j in 0..N {
                    x[j] = s.load(&columns[j][at..]);
                }
                for r in 0..R {
                    let weights = T::vector(s, &units[r], at);
                    for j in 0..N {
                        sums[r][j] = s.mul_add(weights, x[j], sums[r][j]);
                    }
                }
            }
        }
    }
    let mut out = [[0.0; N]; R];
    for (out, sums) in out.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        *out = s.sum(*sums);
    }
    out
}
