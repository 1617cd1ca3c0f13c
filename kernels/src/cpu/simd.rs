//! Vectors of the widest kind that the processor has.
//!
//! Loops are written once as a [`Work`] over [`Simd`] and compiled for every kind of processor; [`dispatch`] picks at run
//! time.

#![expect(unsafe_code, reason = "vector instructions, behind a value that proves the processor has them")]
#![expect(clippy::inline_always, reason = "an intrinsic is one instruction only inside a function with its feature")]

/// Vectors of `f32`. A value of such a type proves that its instructions are there.
pub(super) trait Simd: Copy + Send + Sync {
    /// One vector.
    type V: Copy;
    /// Its lanes, at most [`WIDEST`].
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

    /// Adds up the lanes.
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

/// Runs `work` with the widest vectors that there are.
pub(super) fn dispatch<W: Work>(work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        #[cfg(test)]
        let widest = tests::WIDEST_ALLOWED.load(std::sync::atomic::Ordering::Relaxed);
        #[cfg(not(test))]
        let widest = usize::MAX;
        if let Some(s) = x86::Avx512::detect().filter(|_| widest >= 16) {
            // SAFETY: the value proves the features.
            return unsafe { x86::with_avx512(s, work) };
        }
        if let Some(s) = x86::Avx2::detect().filter(|_| widest >= 8) {
            // SAFETY: the value proves the features.
            return unsafe { x86::with_avx2(s, work) };
        }
    }
    work.run(Portable)
}

/// Any processor: arrays that the compiler may put in vectors.
#[derive(Clone, Copy)]
pub(super) struct Portable;

const PORTABLE: usize = 8;

#[inline(always)]
fn lanes(f: impl FnMut(usize) -> f32) -> [f32; PORTABLE] {
    std::array::from_fn(f)
}

impl Simd for Portable {
    type V = [f32; PORTABLE];
    const WIDTH: usize = PORTABLE;
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; PORTABLE]
    }
    #[inline(always)]
    fn load(self, x: &[f32]) -> Self::V {
        let x = &x[..PORTABLE];
        lanes(|i| x[i])
    }
    #[inline(always)]
    fn store(self, x: Self::V, out: &mut [f32]) {
        out[..PORTABLE].copy_from_slice(&x);
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
        lanes(|i| a[i] * b[i] + c[i])
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
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    // clippy lets test builds import what they like, so the expectation would not be met there
    #[cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "intrinsics"))]
    use std::arch::x86_64::*;

    use super::{Simd, Work};

    /// Processors with 512-bit vectors.
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(());

    impl Avx512 {
        pub(super) fn detect() -> Option<Self> {
            // all that `with_avx512` is compiled for, whatever one feature is said to imply of another
            let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq");
            Avx2::detect().filter(|_| found).map(|_| Self(()))
        }
    }

    #[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
    pub(super) fn with_avx512<W: Work>(s: Avx512, work: W) -> W::Output {
        work.run(s)
    }

    /// Processors with 256-bit vectors and fused products.
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(());

    impl Avx2 {
        pub(super) fn detect() -> Option<Self> {
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn with_avx2<W: Work>(s: Avx2, work: W) -> W::Output {
        work.run(s)
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

    impl Simd for Avx512 {
        type V = __m512;
        const WIDTH: usize = 16;
        #[inline(always)]
        fn splat(self, x: f32) -> __m512 {
            // SAFETY: `self` exists only where the features were found.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        fn load(self, x: &[f32]) -> __m512 {
            // SAFETY: as above, and the slice holds what is read.
            unsafe { _mm512_loadu_ps(x[..16].as_ptr()) }
        }
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
        fn load(self, x: &[f32]) -> __m256 {
            // SAFETY: as above, and the slice holds what is read.
            unsafe { _mm256_loadu_ps(x[..8].as_ptr()) }
        }
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
                let normal = _mm256_cmp_ps::<_CMP_GE_OQ>(n, _mm256_set1_ps(-126.0));
                _mm256_and_ps(normal, _mm256_mul_ps(x, power))
            }
        );
        operation!(
            copy_sign(x, sign) = {
                let bit = _mm256_set1_ps(-0.0);
                _mm256_or_ps(_mm256_andnot_ps(bit, x), _mm256_and_ps(bit, sign))
            }
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::conformance::{self, Tolerance};
    use crate::cpu::Cpu;

    /// Lanes that [`dispatch`](super::dispatch) may use; other tests may run meanwhile, as they pass with any.
    pub(super) static WIDEST_ALLOWED: AtomicUsize = AtomicUsize::new(usize::MAX);

    #[test]
    fn narrower_vectors_pass_the_suite() {
        for widest in [8, 0] {
            WIDEST_ALLOWED.store(widest, Ordering::Relaxed);
            let report = conformance::run(&Cpu::default(), Tolerance::F32);
            WIDEST_ALLOWED.store(usize::MAX, Ordering::Relaxed);
            assert!(report.passed(), "{widest} lanes: {report}");
        }
    }
}
