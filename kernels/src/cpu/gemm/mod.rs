//! The matrix product under linear layers and convolutions: `weight [m, k] x columns [k, n] -> [m, n]`.
//!
//! A packed product in the manner of BLIS. The columns (tokens or patches of pixels) are packed once into panels that all
//! threads share; a task then decodes a block of weight rows into its own buffer and runs the micro-kernel over it.
//! Weights are read in their stored form and never expanded beyond that block. The order in which products are summed
//! depends on `k` alone, so a value is the same for every number of threads and whatever else is computed with it.

// few columns: weights are decoded in registers
mod few;
// the micro-kernels
mod kernel;
// many columns: packing, tasks, the result
mod output;
mod panel;
mod tasks;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::ops::Range;

use rayon::prelude::*;

pub(super) use few::{MOST as FEW, few};
pub(super) use kernel::{Block, Kernel, Processor, Tiles};
pub(super) use panel::{buffer, pack_row, pair, put_back, round};

use self::kernel::Work;
use self::output::{Output, fill};
use self::tasks::{Grid, OfColumns, OfRows, PackColumns, PackWeights, ShapeOf, depth};
use super::Products;
use crate::Matrix;

/// Units of depth (one `f32`, or a pair of bf16) that a tile sums in registers. A panel of right factors of this depth
/// stays in the nearest caches; in weights it is a multiple of every block size.
const DEPTH: usize = 256;
/// Units packed at a time (16 MiB).
const PACKED: usize = 4 << 20;
/// Columns of a task where columns are what is divided.
const GROUP: usize = 128;

/// Name of the micro-kernel that this processor runs.
pub(super) fn kernel_name(products: Products) -> &'static str {
    struct Name;
    impl Work for Name {
        type Output = &'static str;
        fn run<K: Kernel>(self, _: K) -> &'static str {
            K::NAME
        }
    }
    Processor::best(products).run(Name)
}

/// The right factors of a product.
pub(super) trait Columns: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Packs columns `first ..` (as many as fit `K`'s panel; those past the end are zero) of depth `depth` into a panel,
    /// `[units, K::COLUMNS]`.
    fn pack<K: Kernel>(&self, kernel: K, depth: Range<usize>, first: usize, panel: &mut [f32]);
}

/// How the result is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[m, n]`: pictures.
    Rows,
    /// `[n, m]`: tokens.
    Columns,
}

/// `weight x columns` plus a bias per weight row.
pub(super) fn product(
    processor: Processor,
    weight: &Matrix,
    columns: &impl Columns,
    bias: Option<&[f32]>,
    layout: Layout,
) -> Vec<f32> {
    let (m, n, k) = (weight.rows(), columns.count(), weight.columns());
    let mut values = vec![0.0; m * n];
    if m == 0 || n == 0 || k == 0 {
        fill(&mut values, bias, layout, m);
        return values;
    }
    let shape = processor.run(ShapeOf);
    let out = Output::new(&mut values, bias, layout, m, n);
    let steps = k.div_ceil(DEPTH * shape.scalars);
    let groups = n.div_ceil(GROUP);
    if m * steps * DEPTH <= PACKED && groups >= 8 * rayon::current_num_threads() {
        // Few weights, many columns: all weights are packed, and each task packs its own columns.
        let mut kept = buffer(m * steps * DEPTH);
        let left = &mut kept[..m * steps * DEPTH];
        left.par_chunks_mut(m * DEPTH).enumerate().for_each(|(step, left)| {
            processor.run(PackWeights { weight, rows: 0..m, depth: depth(step, k, shape.scalars), left });
        });
        let left = &*left;
        (0..groups).into_par_iter().with_max_len(1).for_each(|group| {
            let range = group * GROUP..n.min((group + 1) * GROUP);
            processor.run(OfColumns { left, k, columns, range, out: &out });
        });
        put_back(kept);
        return values;
    }
    // Many weights: the columns are packed, as many as have room, and each task decodes its own weight rows.
    let share = (PACKED / (steps * DEPTH)).max(GROUP).next_multiple_of(GROUP);
    let mut panels = buffer(0);
    for first in (0..n).step_by(share) {
        let count = (n - first).min(share).div_ceil(shape.columns);
        let size = k.div_ceil(shape.scalars) * shape.columns;
        panels.resize((count * size).max(panels.len()), 0.0);
        panels[..count * size].par_chunks_mut(size).enumerate().for_each(|(i, panel)| {
            processor.run(PackColumns { columns, k, first: first + i * shape.columns, panel });
        });
        let grid = Grid::new(m.div_ceil(shape.rows), count);
        (0..grid.tasks()).into_par_iter().with_max_len(1).for_each(|task| {
            let (tiles, group) = grid.task(task);
            processor.run(OfRows {
                weight,
                rows: tiles.start * shape.rows..m.min(tiles.end * shape.rows),
                panels: &panels[group.start * size..group.end * size],
                first: first + group.start * shape.columns,
                out: &out,
            });
        });
    }
    put_back(panels);
    values
}
