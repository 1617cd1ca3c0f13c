//! What a micro-kernel is, and the choice of one for this processor.

use super::super::Products;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// The register-blocked heart of a matrix product, and the instructions to compile the loops around it for.
///
/// Factors come in units of 32 bits: one `f32`, or with [`PAIRS`](Self::PAIRS) the bits of two bf16 that are neighbours in
/// depth, the earlier one in the low half.
pub(in super::super) trait Kernel {
    /// Name for people.
    const NAME: &'static str;
    /// Rows of a tile, at most 16.
    const ROWS: usize;
    /// Columns of a tile, 16 or 32.
    const COLUMNS: usize;
    /// Units are pairs of bf16.
    const PAIRS: bool;
    /// Factors are rounded to bf16 while packing.
    const ROUND: bool;

    /// `left [rows, DEPTH] x right [depth, COLUMNS]` with at most [`ROWS`](Self::ROWS) rows and a depth of at most `DEPTH`:
    /// what `left` has past that depth is not read. Every sum runs over depth in order.
    fn tile(left: &[f32], right: &[f32], tile: &mut Tile);

    /// Turns a block around.
    #[inline(always)]
    fn transpose(block: &mut Block) {
        for i in 0..16 {
            for j in 0..i {
                let kept = block.0[i][j];
                block.0[i][j] = block.0[j][i];
                block.0[j][i] = kept;
            }
        }
    }

    /// `a b + c`, fused where the processor does that in one instruction.
    fn multiply_add(a: f32, b: f32, c: f32) -> f32;
}

/// 16 x 16 units.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(in super::super) struct Block(pub(in super::super) [[f32; 16]; 16]);

impl Block {
    pub(in super::super) const ZERO: Self = Self([[0.0; 16]; 16]);
}

/// Sums of one tile: columns 0 .. 16, then columns 16 .. 32.
pub(in super::super) type Tile = [Block; 2];

/// Something to be done with the instructions of a kernel.
pub(in super::super) trait Work {
    type Output;
    /// Always inlined, for the instructions to be used.
    fn run<K: Kernel>(self) -> Self::Output;
}

/// The kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Processor {
    Portable {
        round: bool,
    },
    #[cfg(target_arch = "x86_64")]
    Avx2 {
        round: bool,
    },
    #[cfg(target_arch = "x86_64")]
    Avx512 {
        round: bool,
    },
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
}

impl Processor {
    /// Those that this processor can run, best first.
    pub(super) fn available(products: Products) -> Vec<Self> {
        let round = products == Products::Bf16;
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            if round && avx2 && avx512 && is_x86_feature_detected!("avx512bf16") {
                all.push(Self::Avx512Bf16);
            }
            if avx2 && avx512 {
                all.push(Self::Avx512 { round });
            }
            if avx2 {
                all.push(Self::Avx2 { round });
            }
        }
        all.push(Self::Portable { round });
        all
    }

    /// The fastest one.
    pub(in super::super) fn best(products: Products) -> Self {
        Self::available(products)[0]
    }

    /// Runs `work` compiled for this processor.
    #[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "instructions chosen at run time"))]
    pub(in super::super) fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: `available` offers a kernel only where its instructions were detected.
        match self {
            Self::Portable { round: false } => work.run::<Portable<false>>(),
            Self::Portable { round: true } => work.run::<Portable<true>>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 { round: false } => unsafe { avx2::run::<avx2::F32<false>, W>(work) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 { round: true } => unsafe { avx2::run::<avx2::F32<true>, W>(work) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 { round: false } => unsafe { avx512::run::<avx512::F32<false>, W>(work) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 { round: true } => unsafe { avx512::run::<avx512::F32<true>, W>(work) },
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16 => unsafe { avx512::run_bf16::<W>(work) },
        }
    }
}

/// Plain loops for the compiler to vectorise.
pub(super) struct Portable<const ROUND: bool>;

impl<const ROUND: bool> Kernel for Portable<ROUND> {
    const NAME: &'static str = "portable f32";
    const ROWS: usize = 4;
    const COLUMNS: usize = 16;
    const PAIRS: bool = false;
    const ROUND: bool = ROUND;

    #[inline(always)]
    fn tile(left: &[f32], right: &[f32], tile: &mut Tile) {
        // Four accumulators of 4 lanes a row fit the 16 registers of SSE2 for two rows, and the 32 of NEON for four.
        for (rows, out) in left.chunks(2 * super::DEPTH).zip(tile[0].0.as_chunks_mut::<2>().0) {
            let (first, second) = rows.split_at(super::DEPTH);
            let second = if second.is_empty() { first } else { second };
            let mut sums = [[0.0f32; 16]; 2];
            for ((a, b), right) in first.iter().zip(second).zip(right.as_chunks::<16>().0) {
                for j in 0..16 {
                    sums[0][j] = Self::multiply_add(*a, right[j], sums[0][j]);
                    sums[1][j] = Self::multiply_add(*b, right[j], sums[1][j]);
                }
            }
            *out = sums;
        }
    }

    #[inline(always)]
    fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
        // Without the instruction a fused one is a slow library call.
        if cfg!(any(target_arch = "aarch64", target_feature = "fma")) { a.mul_add(b, c) } else { a * b + c }
    }
}
