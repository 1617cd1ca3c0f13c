//! Any processor: arrays that the compiler may put in vectors.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use super::Simd;
use crate::cpu::blocks::f16_to_f32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Portable;

const WIDTH: usize = 8;

#[inline(always)]
fn lanes(f: impl FnMut(usize) -> f32) -> [f32; WIDTH] {
    std::array::from_fn(f)
}

/// A number of `N` bytes a lane.
#[inline(always)]
fn read<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f32) -> [f32; WIDTH] {
    let bytes = &bytes.as_chunks::<N>().0[..WIDTH];
    lanes(|i| f(bytes[i]))
}

impl Simd for Portable {
    type V = [f32; WIDTH];
    const WIDTH: usize = WIDTH;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; WIDTH]
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        let x = &x[..WIDTH];
        lanes(|i| x[i])
    }
    #[inline(always)]
    fn store(self, x: Self::V, out: &mut [f32]) {
        out[..WIDTH].copy_from_slice(&x);
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // without the instruction a fused product is a slow library call
        if cfg!(target_arch = "aarch64") { lanes(|i| a[i].mul_add(b[i], c[i])) } else { lanes(|i| a[i] * b[i] + c[i]) }
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn round(self, x: Self::V) -> Self::V {
        // adding 1.5 * 2^23 leaves no room for a fraction
        lanes(|i| (x[i] + 12_582_912.0) - 12_582_912.0)
    }
    #[inline(always)]
    fn scale(self, x: Self::V, n: Self::V) -> Self::V {
        lanes(|i| {
            // the low bits of n + 1.5 * 2^23 are n
            let power = f32::from_bits(((n[i] + 12_582_912.0).to_bits() << 23).wrapping_add(127 << 23));
            if n[i] < -126.0 { 0.0 } else { x[i] * power }
        })
    }
    #[inline(always)]
    fn copy_sign(self, x: Self::V, sign: Self::V) -> Self::V {
        lanes(|i| x[i].copysign(sign[i]))
    }
    #[inline(always)]
    fn widen_f32(self, bytes: &[u8]) -> Self::V {
        read(bytes, f32::from_le_bytes)
    }
    #[inline(always)]
    fn widen_bf16(self, bytes: &[u8]) -> Self::V {
        read(bytes, |bytes| f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16))
    }
    #[inline(always)]
    fn widen_f16(self, bytes: &[u8]) -> Self::V {
        read(bytes, |bytes| f16_to_f32(u16::from_le_bytes(bytes)))
    }
    #[inline(always)]
    fn widen_i8(self, bytes: &[u8]) -> Self::V {
        read(bytes, |[byte]| f32::from(byte.cast_signed()))
    }
    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        f16_to_f32(bits)
    }
    type Sixteen = (f32, f32);
    #[inline(always)]
    fn sixteen(self, scale: f32, minimum: f32) -> Self::Sixteen {
        (scale, minimum)
    }
    #[inline(always)]
    fn pick(self, (scale, minimum): Self::Sixteen, bytes: &[u8], high: bool) -> Self::V {
        let shift = if high { 4 } else { 0 };
        read(bytes, |[byte]| scale * f32::from(byte >> shift & 15) - minimum)
    }
}
