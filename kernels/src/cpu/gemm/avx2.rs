//! AVX2 with fused multiply-add: 6 x 16 tiles in 12 registers.

#![expect(unsafe_code, reason = "vector instructions")]
#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps};

use super::DEPTH;
use super::kernel::{Tile, Tiles};
use crate::cpu::simd::Avx2;

impl Tiles for Avx2 {
    const NAME: &'static str = "AVX2 f32";
    const ROWS: usize = 6;
    const COLUMNS: usize = 16;

    #[inline(always)]
    fn tile(self, left: &[f32], right: &[f32], out: &mut Tile) {
        // SAFETY: `self` exists only where the features were found.
        unsafe {
            match left.len() / DEPTH {
                1 => rows::<1>(left, right, out),
                2 => rows::<2>(left, right, out),
                3 => rows::<3>(left, right, out),
                4 => rows::<4>(left, right, out),
                5 => rows::<5>(left, right, out),
                _ => rows::<6>(left, right, out),
            }
        }
    }
}

/// # Safety
/// The processor has the features.
#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const ROWS: usize>(left: &[f32], right: &[f32], out: &mut Tile) {
    let right = right.as_chunks::<16>().0;
    assert!(left.len() >= ROWS * DEPTH && right.len() <= DEPTH);
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    let left = left.as_ptr();
    for (k, right) in right.iter().enumerate() {
        // SAFETY: `right` has 16 values; row `i` of `left` has DEPTH, and `k` is below that.
        unsafe {
            let right = [_mm256_loadu_ps(right.as_ptr()), _mm256_loadu_ps(right.as_ptr().add(8))];
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = _mm256_set1_ps(*left.add(i * DEPTH + k));
                sums[0] = _mm256_fmadd_ps(left, right[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(left, right[1], sums[1]);
            }
        }
    }
    for (row, sums) in out[0].0.iter_mut().zip(sums) {
        // SAFETY: a row of a block has 16 values.
        unsafe {
            _mm256_storeu_ps(row.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(row.as_mut_ptr().add(8), sums[1]);
        }
    }
}
