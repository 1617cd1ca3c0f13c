//! Packing: stored weights and rows of activations to the units of a kernel.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::cell::RefCell;
use std::ops::Range;

use super::DEPTH;
use super::kernel::Kernel;
use crate::cpu::blocks;
use crate::{Format, Matrix};

/// Rounds to bf16 (to nearest, ties to even; a NaN stays one) and returns its bits.
#[inline(always)]
pub(in super::super) fn bf16_bits(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { bits >> 16 | 0x40 } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 }
}

/// Rounds to bf16.
#[inline(always)]
pub(in super::super) fn round(value: f32) -> f32 {
    f32::from_bits(bf16_bits(value) << 16)
}

/// A unit of two neighbours in depth.
#[inline(always)]
pub(in super::super) fn pair(first: f32, second: f32) -> f32 {
    f32::from_bits(bf16_bits(first) | bf16_bits(second) << 16)
}

/// Packs `depth` of one weight row.
#[inline(always)]
pub(super) fn pack_weights<K: Kernel>(weight: &Matrix, row: usize, depth: Range<usize>, out: &mut [f32]) {
    let length = depth.len();
    if !K::PAIRS {
        let out = &mut out[..length];
        blocks::decode_row(weight, row, depth.start, out);
        if K::ROUND && weight.format() != Format::Bf16 {
            for value in out {
                *value = round(*value);
            }
        }
    } else if weight.format() == Format::Bf16 {
        let bytes = blocks::row_bytes(weight, row, depth.start, length);
        let (pairs, rest) = bytes.as_chunks::<4>();
        for (unit, pair) in out.iter_mut().zip(pairs) {
            *unit = f32::from_bits(u32::from_le_bytes(*pair));
        }
        if let &[low, high] = rest {
            out[pairs.len()] = f32::from_bits(u32::from_le_bytes([low, high, 0, 0]));
        }
    } else {
        let mut values = [0.0; 2 * DEPTH];
        blocks::decode_row(weight, row, depth.start, &mut values[..length]);
        pack_row::<K>(&values[..length], out);
    }
}

/// Packs values that are neighbours in depth.
#[inline(always)]
pub(in super::super) fn pack_row<K: Kernel>(values: &[f32], out: &mut [f32]) {
    if K::PAIRS {
        let (pairs, rest) = values.as_chunks::<2>();
        for (unit, [first, second]) in out.iter_mut().zip(pairs) {
            *unit = pair(*first, *second);
        }
        if let &[last] = rest {
            out[pairs.len()] = pair(last, 0.0);
        }
    } else if K::ROUND {
        for (unit, value) in out.iter_mut().zip(values) {
            *unit = round(*value);
        }
    } else {
        out[..values.len()].copy_from_slice(values);
    }
}

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of this thread's, with anything in it; [`put_back`] keeps it for the next.
pub(in super::super) fn buffer(length: usize) -> Vec<f32> {
    let mut buffer = BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default();
    buffer.resize(length.max(buffer.len()), 0.0);
    buffer
}

/// Returns a buffer. (Not a closure with a buffer: it would not be compiled for the kernel's instructions.)
pub(in super::super) fn put_back(buffer: Vec<f32>) {
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
}
