//! What a micro-kernel is, and the choice of one for this processor.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use super::DEPTH;
#[cfg(target_arch = "x86_64")]
use super::avx512::Pairs;
use crate::cpu::Products;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Bf16Dots;
use crate::cpu::simd::{self, Instructions, Portable, Simd};

/// The register-blocked heart of a matrix product of `f32`, written for each kind of processor.
pub(in super::super) trait Tiles: Sized {
    /// Name for people.
    const NAME: &'static str;
    /// Rows of a tile, at most 16.
    const ROWS: usize;
    /// Columns of a tile, 16 or 32.
    const COLUMNS: usize;

    /// `left [rows, DEPTH] x right [depth, COLUMNS]` with at most [`ROWS`](Self::ROWS) rows and a depth of at most `DEPTH`:
    /// what `left` has past that depth is not read. The order of every sum depends on the depth alone.
    fn tile(self, left: &[f32], right: &[f32], tile: &mut Tile);

    /// Turns a block around.
    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        for i in 0..16 {
            for j in 0..i {
                let kept = block.0[i][j];
                block.0[i][j] = block.0[j][i];
                block.0[j][i] = kept;
            }
        }
    }
}

/// The heart of a matrix product, and how its factors are packed.
///
/// Factors come in units of 32 bits: one `f32`, or with [`PAIRS`](Self::PAIRS) the bits of two bf16 that are neighbours in
/// depth, the earlier one in the low half. `NAME`, `ROWS`, `COLUMNS` and the functions are those of [`Tiles`].
pub(in super::super) trait Kernel: Copy + Sync {
    const NAME: &'static str;
    const ROWS: usize;
    const COLUMNS: usize;
    /// Units are pairs of bf16.
    const PAIRS: bool;
    /// Factors are rounded to bf16 while packing.
    const ROUND: bool;
    fn tile(self, left: &[f32], right: &[f32], tile: &mut Tile);
    fn transpose(self, block: &mut Block);
}

/// Units of one `f32`.
#[derive(Clone, Copy)]
struct Single<S, const ROUND: bool>(S);

impl<S: Simd, const ROUND: bool> Kernel for Single<S, ROUND> {
    const NAME: &'static str = S::NAME;
    const ROWS: usize = S::ROWS;
    const COLUMNS: usize = S::COLUMNS;
    const PAIRS: bool = false;
    const ROUND: bool = ROUND;

    #[inline(always)]
    fn tile(self, left: &[f32], right: &[f32], tile: &mut Tile) {
        self.0.tile(left, right, tile);
    }

    #[inline(always)]
    fn transpose(self, block: &mut Block) {
        self.0.transpose(block);
    }
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

/// Something to be done with a kernel, and its instructions.
pub(in super::super) trait Work {
    type Output;
    /// Always inlined, for the instructions to be used.
    fn run<K: Kernel>(self, kernel: K) -> Self::Output;
}

/// A kernel that this processor can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Processor {
    /// Units of one `f32`.
    Single { instructions: Instructions, round: bool },
    /// Units of two bf16.
    #[cfg(target_arch = "x86_64")]
    Pairs(Bf16Dots),
}

impl Processor {
    /// The fastest one.
    pub(in super::super) fn best(products: Products) -> Self {
        Self::of(Instructions::best(), products)
    }

    /// The fastest one of a kind.
    fn of(instructions: Instructions, products: Products) -> Self {
        let round = products == Products::Bf16;
        #[cfg(target_arch = "x86_64")]
        if let (true, Instructions::Avx512(_), Some(dots)) = (round, instructions, Bf16Dots::detect()) {
            return Self::Pairs(dots);
        }
        Self::Single { instructions, round }
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn available(products: Products) -> Vec<Self> {
        let round = products == Products::Bf16;
        let mut all: Vec<_> =
            Instructions::available().map(|instructions| Self::Single { instructions, round }).collect();
        let best = Self::of(Instructions::best(), products);
        if !all.contains(&best) {
            all.push(best);
        }
        all
    }

    /// Its vectors, and whether factors are rounded.
    pub(super) fn vectors(self) -> (Instructions, bool) {
        match self {
            Self::Single { instructions, round } => (instructions, round),
            #[cfg(target_arch = "x86_64")]
            Self::Pairs(dots) => (Instructions::Avx512(dots.vectors()), true),
        }
    }

    /// Runs `work` compiled for this processor.
    pub(in super::super) fn run<W: Work>(self, work: W) -> W::Output {
        match self {
            Self::Single { instructions, round: false } => instructions.run(OnSingle::<W, false>(work)),
            Self::Single { instructions, round: true } => instructions.run(OnSingle::<W, true>(work)),
            #[cfg(target_arch = "x86_64")]
            Self::Pairs(dots) => Instructions::Avx512(dots.vectors()).run(OnPairs(dots, work)),
        }
    }
}

struct OnSingle<W, const ROUND: bool>(W);

impl<W: Work, const ROUND: bool> simd::Work for OnSingle<W, ROUND> {
    type Output = W::Output;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> W::Output {
        self.0.run(Single::<S, ROUND>(s))
    }
}

#[cfg(target_arch = "x86_64")]
struct OnPairs<W>(Bf16Dots, W);

#[cfg(target_arch = "x86_64")]
impl<W: Work> simd::Work for OnPairs<W> {
    type Output = W::Output;
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> W::Output {
        self.1.run(Pairs(self.0))
    }
}

/// Depth of a partial sum in plain loops.
const PARTIAL: usize = 32;

/// Plain loops for the compiler to vectorise.
impl Tiles for Portable {
    const NAME: &'static str = "portable f32";
    const ROWS: usize = 4;
    const COLUMNS: usize = 16;

    #[inline(always)]
    fn tile(self, left: &[f32], right: &[f32], tile: &mut Tile) {
        // Four accumulators of 4 lanes a row fit the 16 registers of SSE2 for two rows, and the 32 of NEON for four.
        for (rows, out) in left.chunks(2 * DEPTH).zip(tile[0].0.as_chunks_mut::<2>().0) {
            let (first, second) = rows.split_at(DEPTH);
            let second = if second.is_empty() { first } else { second };
            let mut sums = [[0.0f32; 16]; 2];
            // Where products are rounded before they are summed, short partial sums make up for it.
            let steps = first.chunks(PARTIAL).zip(second.chunks(PARTIAL)).zip(right.chunks(16 * PARTIAL));
            for ((first, second), right) in steps {
                let mut partial = [[0.0f32; 16]; 2];
                for ((a, b), right) in first.iter().zip(second).zip(right.as_chunks::<16>().0) {
                    for j in 0..16 {
                        partial[0][j] = multiply_add(*a, right[j], partial[0][j]);
                        partial[1][j] = multiply_add(*b, right[j], partial[1][j]);
                    }
                }
                for (sum, partial) in sums.as_flattened_mut().iter_mut().zip(partial.as_flattened()) {
                    *sum += partial;
                }
            }
            *out = sums;
        }
    }
}

#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction a fused one is a slow library call.
    if cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}
