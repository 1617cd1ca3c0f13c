//! Vectors of the widest kind that the processor has.
//!
//! Loops are written once as a [`Work`] over [`Simd`] and compiled for every kind of processor; [`dispatch`] picks at run
//! time. Every choice of instructions in this crate goes through [`Instructions`].

#![expect(clippy::inline_always, reason = "an intrinsic is one instruction only inside a function with its feature")]

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::gemm::Tiles;
pub(super) use portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512, Bf16Dots};

/// Vectors of `f32`. A value of such a type proves that its instructions are there.
pub(super) trait Simd: Tiles + Copy + Send + Sync {
    /// One vector.
    type V: Copy;
    /// Its lanes: 8, or 16 ([`WIDEST`]).
    const WIDTH: usize;
    fn splat(self, x: f32) -> Self::V;
    /// The first [`WIDTH`](Self::WIDTH) values.
    fn load(self, x: &[f32]) -> Self::V;
    fn store(self, x: Self::V, out: &mut [f32]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the processor can.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where one of them is a NaN. So is [`min`](Self::min).
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn round(self, x: Self::V) -> Self::V;
    /// `x 2^n` for whole `n` in `-200 ..= 128`; may be 0 below the normal numbers and infinite at 128.
    fn scale(self, x: Self::V, n: Self::V) -> Self::V;
    /// The sign of `sign` on the magnitude of `x`.
    fn copy_sign(self, x: Self::V, sign: Self::V) -> Self::V;

    /// Asks for the line of memory `ahead` bytes after the first, which may lie anywhere.
    #[inline(always)]
    fn prefetch(self, _: &[u8], _ahead: usize) {}

    // ---- stored numbers, little endian ----------------------------------------------------------------------------

    /// `f32` values from 4 [`WIDTH`](Self::WIDTH) bytes.
    fn widen_f32(self, bytes: &[u8]) -> Self::V;
    /// bf16 values from 2 [`WIDTH`](Self::WIDTH) bytes.
    fn widen_bf16(self, bytes: &[u8]) -> Self::V;
    /// f16 values from 2 [`WIDTH`](Self::WIDTH) bytes.
    fn widen_f16(self, bytes: &[u8]) -> Self::V;
    /// Signed bytes.
    fn widen_i8(self, bytes: &[u8]) -> Self::V;

    /// One f16 number.
    fn half(self, bits: u16) -> f32;

    /// The 16 weights that 4 bits stand for: `scale * i - minimum`, where the product is exact.
    type Sixteen: Copy;
    fn sixteen(self, scale: f32, minimum: f32) -> Self::Sixteen;
    /// The weights of the low halves of bytes, or of the high halves.
    fn pick(self, of: Self::Sixteen, bytes: &[u8], high: bool) -> Self::V;

    /// Adds up the lanes, halves first.
    #[inline(always)]
    fn sum(self, x: Self::V) -> f32 {
        self.fold(x, |a, b| a + b)
    }
    /// The largest lane.
    #[inline(always)]
    fn largest(self, x: Self::V) -> f32 {
        self.fold(x, f32::max)
    }
    /// Folds the lanes, halves first.
    #[inline(always)]
    fn fold(self, x: Self::V, f: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = [0.0; WIDEST];
        self.store(x, &mut lanes);
        let mut half = Self::WIDTH / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = f(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Lanes of the widest vector.
pub(super) const WIDEST: usize = 16;

/// A loop to be compiled for every kind of processor.
pub(super) trait Work {
    type Output;
    /// Must be `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// A kind of processor that this one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Instructions {
    /// Those that are there, widest first.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let known = [
            #[cfg(target_arch = "x86_64")]
            Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Avx2::detect().map(Self::Avx2),
            Some(Self::Portable),
        ];
        known.into_iter().flatten()
    }

    /// The widest there are.
    pub(super) fn best() -> Self {
        let available = Self::available();
        #[cfg(test)]
        let available = available.filter(|kind| tests::allowed(*kind));
        let mut available = available;
        available.next().unwrap_or(Self::Portable)
    }

    /// Runs `work` compiled for this kind.
    #[inline]
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "instructions chosen at run time"))]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Portable => work.run(Portable),
            // SAFETY: the value proves the features.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(s) => unsafe { x86::with_avx2(s, work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(s) => unsafe { x86::with_avx512(s, work) },
        }
    }
}

/// Runs `work` with the widest vectors that there are.
pub(super) fn dispatch<W: Work>(work: W) -> W::Output {
    Instructions::best().run(work)
}
