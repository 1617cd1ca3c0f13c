//! Stored formats, vector by vector: the same numbers as [`blocks::decode`](crate::cpu::blocks::decode) gives.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use crate::cpu::blocks::{q4_k_scales, q6_k_quants};
use crate::cpu::simd::Simd;

/// A format whose rows are blocks of [`BLOCK`](Self::BLOCK) weights in [`BYTES`](Self::BYTES) bytes, each read in
/// [`UNITS`](Self::UNITS) equal parts.
pub(super) trait Stored {
    const BLOCK: usize;
    const BYTES: usize;
    const UNITS: usize;
    /// Rows to read side by side for a single column, so that one vector of it serves them all: 4 or 8, measured.
    const ROWS: usize = 4;
    /// What the units of a block have in common.
    type Block<'a>: Copy;
    /// What the vectors of a unit have in common.
    type Unit<'a, S: Simd>: Copy;
    fn block<S: Simd>(s: S, bytes: &[u8]) -> Self::Block<'_>;
    fn unit<'a, S: Simd>(s: S, block: &Self::Block<'a>, index: usize) -> Self::Unit<'a, S>;
    /// The weights of a unit from `at` on, a multiple of the vector's width.
    fn vector<S: Simd>(s: S, unit: &Self::Unit<'_, S>, at: usize) -> S::V;
}

/// Numbers that stand for themselves.
macro_rules! dense {
    ($Name:ident, $bytes:literal, $read:ident) => {
        pub(super) struct $Name;

        impl Stored for $Name {
            const BLOCK: usize = 64;
            const BYTES: usize = 64 * $bytes;
            const UNITS: usize = 1;
            type Block<'a> = &'a [u8];
            type Unit<'a, S: Simd> = &'a [u8];
            #[inline(always)]
            fn block<S: Simd>(_: S, bytes: &[u8]) -> &[u8] {
                &bytes[..Self::BYTES]
            }
            #[inline(always)]
            fn unit<'a, S: Simd>(_: S, block: &Self::Block<'a>, _: usize) -> Self::Unit<'a, S> {
                block
            }
            #[inline(always)]
            fn vector<S: Simd>(s: S, unit: &&[u8], at: usize) -> S::V {
                s.$read(&unit[$bytes * at..])
            }
        }
    };
}

dense!(F32, 4, widen_f32);
dense!(F16, 2, widen_f16);
dense!(Bf16, 2, widen_bf16);

/// A half-precision number of a block.
#[inline(always)]
fn half<S: Simd>(s: S, block: &[u8], at: usize) -> f32 {
    s.half(u16::from_le_bytes([block[at], block[at + 1]]))
}

pub(super) struct Q8_0;

impl Stored for Q8_0 {
    const BLOCK: usize = 32;
    const BYTES: usize = 34;
    const ROWS: usize = 8;
    const UNITS: usize = 1;
    type Block<'a> = &'a [u8];
    type Unit<'a, S: Simd> = (S::V, &'a [u8]);
    #[inline(always)]
    fn block<S: Simd>(_: S, bytes: &[u8]) -> &[u8] {
        &bytes[..34]
    }
    #[inline(always)]
    fn unit<'a, S: Simd>(s: S, block: &Self::Block<'a>, _: usize) -> Self::Unit<'a, S> {
        (s.splat(half(s, block, 0)), &block[2..34])
    }
    #[inline(always)]
    fn vector<S: Simd>(s: S, (scale, quants): &Self::Unit<'_, S>, at: usize) -> S::V {
        s.mul(s.widen_i8(&quants[at..]), *scale)
    }
}

pub(super) struct Q4K;

impl Stored for Q4K {
    const BLOCK: usize = 256;
    const BYTES: usize = 144;
    const UNITS: usize = 4;
    /// Scales and minima of the sub-blocks, each four by four, then the bytes of the weights.
    type Block<'a> = ([f32; 16], &'a [u8]);
    /// The weights that the low halves stand for, those of the high halves, and 32 bytes.
    type Unit<'a, S: Simd> = (S::Sixteen, S::Sixteen, &'a [u8]);
    #[inline(always)]
    fn block<S: Simd>(s: S, bytes: &[u8]) -> Self::Block<'_> {
        let (scale, minimum) = (half(s, bytes, 0), half(s, bytes, 2));
        let numbers = q4_k_scales(bytes);
        let mut scales = [scale; 16];
        for (i, factor) in scales.iter_mut().enumerate() {
            *factor = if i / 4 % 2 == 0 { scale } else { minimum };
            *factor *= f32::from(numbers[i]);
        }
        (scales, &bytes[16..144])
    }
    #[inline(always)]
    fn unit<'a, S: Simd>(s: S, (scales, quants): &Self::Block<'a>, index: usize) -> Self::Unit<'a, S> {
        // two of four
        let at = index / 2 * 8 + index % 2 * 2;
        let low = s.sixteen(scales[at], scales[at + 4]);
        let high = s.sixteen(scales[at + 1], scales[at + 5]);
        (low, high, &quants[32 * index..][..32])
    }
    #[inline(always)]
    fn vector<S: Simd>(s: S, (low, high, quants): &Self::Unit<'_, S>, at: usize) -> S::V {
        if at < 32 { s.pick(*low, &quants[at..], false) } else { s.pick(*high, &quants[at - 32..], true) }
    }
}

pub(super) struct Q6K;

impl Stored for Q6K {
    const BLOCK: usize = 256;
    const BYTES: usize = 210;
    const UNITS: usize = 2;
    /// The scale, then the bytes.
    type Block<'a> = (f32, &'a [u8]);
    /// The scales of runs of 16, and the signed weights before scaling.
    type Unit<'a, S: Simd> = ([f32; 8], [u8; 128]);
    #[inline(always)]
    fn block<S: Simd>(s: S, bytes: &[u8]) -> Self::Block<'_> {
        (half(s, bytes, 208), &bytes[..210])
    }
    #[inline(always)]
    fn unit<'a, S: Simd>(_: S, (scale, bytes): &Self::Block<'a>, index: usize) -> Self::Unit<'a, S> {
        let mut scales = [0.0; 8];
        for (to, from) in scales.iter_mut().zip(&bytes[192 + 8 * index..][..8]) {
            *to = scale * f32::from(from.cast_signed());
        }
        (scales, q6_k_quants(bytes, index))
    }
    #[inline(always)]
    fn vector<S: Simd>(s: S, (scales, quants): &Self::Unit<'_, S>, at: usize) -> S::V {
        s.mul(s.splat(scales[at / 16]), s.widen_i8(&quants[at..]))
    }
}
