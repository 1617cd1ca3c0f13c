//! AVX-512: 12 x 32 tiles in 24 registers, `f32` or bf16 pairs.

#![expect(unsafe_code, reason = "vector instructions")]
#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::arch::x86_64::{
    __m512, __m512bh, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_shuffle_f32x4, _mm512_shuffle_ps, _mm512_storeu_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};
use std::mem::transmute;

use super::DEPTH;
use super::kernel::{Block, Kernel, Tile, Tiles};
use crate::cpu::simd::{Avx512, Bf16Dots};

impl Tiles for Avx512 {
    const NAME: &'static str = "AVX-512 f32";
    const ROWS: usize = 12;
    const COLUMNS: usize = 32;

    #[inline(always)]
    fn tile(self, left: &[f32], right: &[f32], out: &mut Tile) {
        // SAFETY: `self` exists only where the features were found.
        unsafe { tile_f32(left, right, out) }
    }

    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        // SAFETY: as above.
        unsafe { transpose(block) }
    }
}

/// Pairs of bf16. The instruction treats subnormal factors and products as zero and rounds to nearest, whatever the
/// rounding mode.
#[derive(Clone, Copy)]
pub(super) struct Pairs(pub(super) Bf16Dots);

impl Kernel for Pairs {
    const NAME: &'static str = "AVX-512 bf16";
    const ROWS: usize = Avx512::ROWS;
    const COLUMNS: usize = Avx512::COLUMNS;
    const PAIRS: bool = true;
    const ROUND: bool = true;

    #[inline(always)]
    fn tile(self, left: &[f32], right: &[f32], out: &mut Tile) {
        // SAFETY: as above.
        unsafe { tile_bf16(left, right, out) }
    }

    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        self.0.vectors().transpose(block);
    }
}

/// A tile function: one instance per number of rows, so that an edge costs what it holds.
macro_rules! tile {
    ($name:ident, $rows:ident, $features:literal, $product:expr) => {
        /// # Safety
        /// The processor has the features.
        #[target_feature(enable = $features)]
        unsafe fn $name(left: &[f32], right: &[f32], out: &mut Tile) {
            match left.len() / DEPTH {
                1 => $rows::<1>(left, right, out),
                2 => $rows::<2>(left, right, out),
                3 => $rows::<3>(left, right, out),
                4 => $rows::<4>(left, right, out),
                5 => $rows::<5>(left, right, out),
                6 => $rows::<6>(left, right, out),
                7 => $rows::<7>(left, right, out),
                8 => $rows::<8>(left, right, out),
                9 => $rows::<9>(left, right, out),
                10 => $rows::<10>(left, right, out),
                11 => $rows::<11>(left, right, out),
                _ => $rows::<12>(left, right, out),
            }
        }

        #[target_feature(enable = $features)]
        fn $rows<const ROWS: usize>(left: &[f32], right: &[f32], out: &mut Tile) {
            let right = right.as_chunks::<32>().0;
            assert!(left.len() >= ROWS * DEPTH && right.len() <= DEPTH);
            let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
            let left = left.as_ptr();
            for (k, right) in right.iter().enumerate() {
                // SAFETY: `right` has 32 units; row `i` of `left` has DEPTH, and `k` is below that.
                unsafe {
                    let right = [_mm512_loadu_ps(right.as_ptr()), _mm512_loadu_ps(right.as_ptr().add(16))];
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let left = _mm512_set1_ps(*left.add(i * DEPTH + k));
                        sums[0] = $product(sums[0], left, right[0]);
                        sums[1] = $product(sums[1], left, right[1]);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (block, sum) in out.iter_mut().zip(sums) {
                    // SAFETY: a row of a block has 16 values.
                    unsafe { _mm512_storeu_ps(block.0[i].as_mut_ptr(), *sum) };
                }
            }
        }
    };
}

tile!(tile_f32, tile_f32_rows, "avx512f", |sum, left, right| _mm512_fmadd_ps(left, right, sum));
tile!(tile_bf16, tile_bf16_rows, "avx512f,avx512bf16", |sum, left: __m512, right: __m512| {
    _mm512_dpbf16_ps(sum, transmute::<__m512, __m512bh>(left), transmute::<__m512, __m512bh>(right))
});

/// # Safety
/// The processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(block: &mut Block) {
    let rows = &mut block.0;
    let mut a = [_mm512_setzero_ps(); 16];
    for (a, row) in a.iter_mut().zip(rows.iter()) {
        // SAFETY: a row has 16 values.
        *a = unsafe { _mm512_loadu_ps(row.as_ptr()) };
    }
    // 2 x 2, then 4 x 4 within the four lanes, then the lanes themselves.
    let mut b = a;
    for i in 0..8 {
        b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    for i in 0..4 {
        let b = &b[4 * i..][..4];
        a[4 * i] = _mm512_shuffle_ps::<0x44>(b[0], b[2]);
        a[4 * i + 1] = _mm512_shuffle_ps::<0xee>(b[0], b[2]);
        a[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b[1], b[3]);
        a[4 * i + 3] = _mm512_shuffle_ps::<0xee>(b[1], b[3]);
    }
    for i in 0..4 {
        b[i] = _mm512_shuffle_f32x4::<0x88>(a[i], a[i + 4]);
        b[i + 4] = _mm512_shuffle_f32x4::<0xdd>(a[i], a[i + 4]);
        b[i + 8] = _mm512_shuffle_f32x4::<0x88>(a[i + 8], a[i + 12]);
        b[i + 12] = _mm512_shuffle_f32x4::<0xdd>(a[i + 8], a[i + 12]);
    }
    for i in 0..8 {
        a[i] = _mm512_shuffle_f32x4::<0x88>(b[i], b[i + 8]);
        a[i + 8] = _mm512_shuffle_f32x4::<0xdd>(b[i], b[i + 8]);
    }
    for (a, row) in a.iter().zip(rows) {
        // SAFETY: a row has 16 values.
        unsafe { _mm512_storeu_ps(row.as_mut_ptr(), *a) };
    }
}
