//! 256-bit and 512-bit vectors.

#![expect(unsafe_code, reason = "vector instructions, behind a value that proves the processor has them")]
#![expect(clippy::inline_always, reason = "an intrinsic is one instruction only inside a function with its feature")]

// clippy lets test builds import what they like, so the expectation would not be met there
#[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics"))]
use std::arch::x86_64::*;

use super::{Simd, Work};

/// Processors with 256-bit vectors, fused products and half-precision conversions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx2(());

impl Avx2 {
    pub(in super::super) fn detect() -> Option<Self> {
        let found =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn with_avx2<W: Work>(s: Avx2, work: W) -> W::Output {
    work.run(s)
}

/// Processors with 512-bit vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Avx512(());

impl Avx512 {
    pub(in super::super) fn detect() -> Option<Self> {
        // all that `with_avx512` is compiled for, whatever one feature is said to imply of another
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Avx2::detect().filter(|_| found).map(|_| Self(()))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) fn with_avx512<W: Work>(s: Avx512, work: W) -> W::Output {
    work.run(s)
}

/// Processors with 512-bit vectors and dot products of bf16 pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Bf16Dots(Avx512);

impl Bf16Dots {
    pub(in super::super) fn detect() -> Option<Self> {
        Avx512::detect().filter(|_| is_x86_feature_detected!("avx512bf16")).map(Self)
    }

    /// What it has besides.
    pub(in super::super) fn vectors(self) -> Avx512 {
        self.0
    }
}

macro_rules! operation {
    ($name:ident ($($x:ident),*) = $body:expr) => {
        #[inline(always)]
        fn $name(self, $($x: Self::V),*) -> Self::V {
            // SAFETY: `self` exists only where the features were found.
            unsafe { $body }
        }
    };
}

/// What reads `$length` elements of a slice through a pointer.
macro_rules! reading {
    ($name:ident ($x:ident: $T:ty, $length:literal) = $body:expr) => {
        #[inline(always)]
        fn $name(self, x: &[$T]) -> Self::V {
            let $x = x[..$length].as_ptr();
            // SAFETY: `self` exists only where the features were found, and the slice holds what is read.
            unsafe { $body }
        }
    };
}

impl Simd for Avx512 {
    type V = __m512;
    const WIDTH: usize = 16;
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` exists only where the features were found.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        // SAFETY: as above; a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }
    reading!(load(x: f32, 16) = _mm512_loadu_ps(x));
    #[inline(always)]
    fn store(self, x: __m512, out: &mut [f32]) {
        // SAFETY: as above, and the slice holds what is written.
        unsafe { _mm512_storeu_ps(out[..16].as_mut_ptr(), x) }
    }
    operation!(add(a, b) = _mm512_add_ps(a, b));
    operation!(sub(a, b) = _mm512_sub_ps(a, b));
    operation!(mul(a, b) = _mm512_mul_ps(a, b));
    operation!(div(a, b) = _mm512_div_ps(a, b));
    operation!(mul_add(a, b, c) = _mm512_fmadd_ps(a, b, c));
    operation!(max(a, b) = _mm512_max_ps(a, b));
    operation!(min(a, b) = _mm512_min_ps(a, b));
    operation!(round(x) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x));
    operation!(scale(x, n) = _mm512_scalef_ps(x, n));
    operation!(
        copy_sign(x, sign) = {
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, x), _mm512_and_ps(bit, sign))
        }
    );
    reading!(widen_f32(x: u8, 64) = _mm512_loadu_ps(x.cast()));
    reading!(
        widen_bf16(x: u8, 32) =
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(x.cast()))))
    );
    reading!(widen_f16(x: u8, 32) = _mm512_cvtph_ps(_mm256_loadu_si256(x.cast())));
    reading!(widen_i8(x: u8, 16) = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.cast()))));
    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        // SAFETY: as above.
        unsafe { half(bits) }
    }
    type Sixteen = __m512;
    #[inline(always)]
    fn sixteen(self, scale: f32, minimum: f32) -> __m512 {
        // SAFETY: as above.
        unsafe {
            let numbers = _mm512_setr_ps(0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.);
            _mm512_fmsub_ps(_mm512_set1_ps(scale), numbers, _mm512_set1_ps(minimum))
        }
    }
    #[inline(always)]
    fn pick(self, of: __m512, bytes: &[u8], high: bool) -> __m512 {
        let bytes = bytes[..16].as_ptr();
        // SAFETY: as above, and the slice holds what is read.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()));
            // the permutation looks at the lowest four bits
            _mm512_permutexvar_ps(if high { _mm512_srli_epi32::<4>(bytes) } else { bytes }, of)
        }
    }
    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        // SAFETY: as above.
        unsafe {
            let half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            sum(half)
        }
    }
}

impl Simd for Avx2 {
    type V = __m256;
    const WIDTH: usize = 8;
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` exists only where the features were found.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        // SAFETY: as above; a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }
    reading!(load(x: f32, 8) = _mm256_loadu_ps(x));
    #[inline(always)]
    fn store(self, x: __m256, out: &mut [f32]) {
        // SAFETY: as above, and the slice holds what is written.
        unsafe { _mm256_storeu_ps(out[..8].as_mut_ptr(), x) }
    }
    operation!(add(a, b) = _mm256_add_ps(a, b));
    operation!(sub(a, b) = _mm256_sub_ps(a, b));
    operation!(mul(a, b) = _mm256_mul_ps(a, b));
    operation!(div(a, b) = _mm256_div_ps(a, b));
    operation!(mul_add(a, b, c) = _mm256_fmadd_ps(a, b, c));
    operation!(max(a, b) = _mm256_max_ps(a, b));
    operation!(min(a, b) = _mm256_min_ps(a, b));
    operation!(round(x) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x));
    operation!(
        scale(x, n) = {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            let power = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent));
            // "not below" is true of a NaN as well
            let normal = _mm256_cmp_ps::<_CMP_NLT_UQ>(n, _mm256_set1_ps(-126.0));
            _mm256_and_ps(normal, _mm256_mul_ps(x, power))
        }
    );
    operation!(
        copy_sign(x, sign) = {
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign))
        }
    );
    reading!(widen_f32(x: u8, 32) = _mm256_loadu_ps(x.cast()));
    reading!(
        widen_bf16(x: u8, 16) =
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(x.cast()))))
    );
    reading!(widen_f16(x: u8, 16) = _mm256_cvtph_ps(_mm_loadu_si128(x.cast())));
    reading!(widen_i8(x: u8, 8) = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.cast()))));
    #[inline(always)]
    fn half(self, bits: u16) -> f32 {
        // SAFETY: as above.
        unsafe { half(bits) }
    }
    /// Scale and minimum: a table of 16 does not fit one vector.
    type Sixteen = (__m256, __m256);
    #[inline(always)]
    fn sixteen(self, scale: f32, minimum: f32) -> Self::Sixteen {
        (self.splat(scale), self.splat(minimum))
    }
    #[inline(always)]
    fn pick(self, (scale, minimum): Self::Sixteen, bytes: &[u8], high: bool) -> __m256 {
        let bytes = bytes[..8].as_ptr();
        // SAFETY: as above, and the slice holds what is read.
        unsafe {
            let bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.cast()));
            let numbers =
                if high { _mm256_srli_epi32::<4>(bytes) } else { _mm256_and_si256(bytes, _mm256_set1_epi32(15)) };
            _mm256_fmsub_ps(scale, _mm256_cvtepi32_ps(numbers), minimum)
        }
    }
    #[inline(always)]
    fn sum(self, x: __m256) -> f32 {
        // SAFETY: as above.
        unsafe { sum(x) }
    }
}

/// Adds up the lanes, halves first.
///
/// # Safety
/// The processor has AVX.
#[inline(always)]
unsafe fn sum(x: __m256) -> f32 {
    // SAFETY: as the caller says.
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
    }
}

/// # Safety
/// The processor has F16C.
#[inline(always)]
unsafe fn half(bits: u16) -> f32 {
    // SAFETY: as the caller says.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
}
