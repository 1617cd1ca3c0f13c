//! The matrix product under linear layers and convolutions: `weight [m, k] x columns [k, n] -> [m, n]`.
//!
//! A packed product in the manner of BLIS. The columns (tokens or patches of pixels) are packed once into panels that all
//! threads share; a task then decodes a block of weight rows into its own buffer and runs the micro-kernel over it.
//! Weights are read in their stored form and never expanded beyond that block. The order in which products are summed
//! depends on `k` alone, so a value is the same for every number of threads and whatever else is computed with it.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

mod kernel;
mod panel;
#[cfg(test)]
mod tests;
mod vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

pub(super) use kernel::{Block, Kernel, Processor};
pub(super) use panel::{buffer, pack_row, pair, put_back, round};
pub(super) use vector::{MOST as MOST_VECTORS, vectors};

use self::kernel::{Tile, Work};
use super::Products;
use crate::Matrix;

/// Units of depth (one `f32`, or a pair of bf16) that a tile sums in registers. A panel of right factors of this depth
/// stays in the nearest caches; in weights it is a multiple of every block size.
const DEPTH: usize = 256;
/// Units packed at a time (16 MiB).
const PACKED: usize = 4 << 20;
/// Columns of a task where columns are what is divided.
const GROUP: usize = 128;
/// Most panels of a task: with fewer, its sums stay in the cache.
const PANELS: usize = 32;
/// Tiles one above the other whose weights a task decodes at a time.
const TILES: usize = 8;

/// Name of the micro-kernel that this processor runs.
pub(super) fn kernel_name(products: Products) -> &'static str {
    struct Name;
    impl Work for Name {
        type Output = &'static str;
        fn run<K: Kernel>(self) -> &'static str {
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
    fn pack<K: Kernel>(&self, depth: Range<usize>, first: usize, panel: &mut [f32]);
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
        let mut left = buffer(m * steps * DEPTH);
        let left = &mut left[..m * steps * DEPTH];
        left.par_chunks_mut(m * DEPTH).enumerate().for_each(|(step, left)| {
            processor.run(PackWeights { weight, rows: 0..m, depth: depth(step, k, shape.scalars), left });
        });
        let left = &*left;
        (0..groups).into_par_iter().with_max_len(1).for_each(|group| {
            let range = group * GROUP..n.min((group + 1) * GROUP);
            processor.run(OfColumns { left, k, columns, range, out: &out });
        });
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

/// Step `step` of the depth `0 .. k`.
#[inline(always)]
fn depth(step: usize, k: usize, scalars: usize) -> Range<usize> {
    step * DEPTH * scalars..k.min((step + 1) * DEPTH * scalars)
}

/// What the packing has to know about a kernel.
struct Shape {
    rows: usize,
    columns: usize,
    scalars: usize,
}

struct ShapeOf;

impl Work for ShapeOf {
    type Output = Shape;
    fn run<K: Kernel>(self) -> Shape {
        Shape { rows: K::ROWS, columns: K::COLUMNS, scalars: scalars::<K>() }
    }
}

/// Scalars in a unit.
fn scalars<K: Kernel>() -> usize {
    if K::PAIRS { 2 } else { 1 }
}

/// How tiles and panels are divided into tasks: over the weight rows first, because each row is then decoded once.
struct Grid {
    tiles: usize,
    blocks: usize,
    panels: usize,
    groups: usize,
}

impl Grid {
    fn new(tiles: usize, panels: usize) -> Self {
        let threads = rayon::current_num_threads();
        let blocks = tiles.div_ceil(TILES).next_multiple_of(threads).min(tiles);
        let groups = (8 * threads).div_ceil(blocks).min(panels.div_ceil(4)).max(panels.div_ceil(PANELS));
        Self { tiles, blocks, panels, groups }
    }

    fn tasks(&self) -> usize {
        self.blocks * self.groups
    }

    /// Tiles and panels of a task.
    fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let share = |i: usize, parts: usize, whole: usize| i * whole / parts..(i + 1) * whole / parts;
        (share(task / self.groups, self.blocks, self.tiles), share(task % self.groups, self.groups, self.panels))
    }
}

/// Packs a panel over the whole depth.
struct PackColumns<'a, C> {
    columns: &'a C,
    k: usize,
    first: usize,
    panel: &'a mut [f32],
}

impl<C: Columns> Work for PackColumns<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self) {
        for (step, panel) in self.panel.chunks_mut(DEPTH * K::COLUMNS).enumerate() {
            self.columns.pack::<K>(depth(step, self.k, scalars::<K>()), self.first, panel);
        }
    }
}

/// Packs weight rows `[rows, DEPTH]`.
struct PackWeights<'a> {
    weight: &'a Matrix,
    rows: Range<usize>,
    depth: Range<usize>,
    left: &'a mut [f32],
}

impl Work for PackWeights<'_> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self) {
        for (row, left) in self.rows.zip(self.left.chunks_exact_mut(DEPTH)) {
            panel::pack_weights::<K>(self.weight, row, self.depth.clone(), left);
        }
    }
}

/// One task: some weight rows by some packed columns.
struct OfRows<'a> {
    weight: &'a Matrix,
    rows: Range<usize>,
    panels: &'a [f32],
    first: usize,
    out: &'a Output<'a>,
}

impl Work for OfRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self) {
        let k = self.weight.columns();
        let size = k.div_ceil(scalars::<K>()) * K::COLUMNS;
        let mut left = buffer(self.rows.len() * DEPTH);
        let left_rows = &mut left[..self.rows.len() * DEPTH];
        let mut sums = buffer(slots::<K>(self.rows.len()) * (self.panels.len() / size));
        for step in 0..k.div_ceil(DEPTH * scalars::<K>()) {
            let depth = depth(step, k, scalars::<K>());
            let last = depth.end == k;
            PackWeights { weight: self.weight, rows: self.rows.clone(), depth, left: left_rows }.run::<K>();
            let sums = sums.chunks_exact_mut(slots::<K>(self.rows.len()));
            for (p, (panel, sums)) in self.panels.chunks_exact(size).zip(sums).enumerate() {
                let from = step * DEPTH * K::COLUMNS;
                let panel = &panel[from..size.min(from + DEPTH * K::COLUMNS)];
                let at = (self.rows.start, self.first + p * K::COLUMNS);
                tiles::<K>(left_rows, panel, sums, at, (step == 0, last), self.out);
            }
        }
        put_back(sums);
        put_back(left);
    }
}

/// One task: all weight rows, packed, by some columns.
struct OfColumns<'a, C> {
    left: &'a [f32],
    k: usize,
    columns: &'a C,
    range: Range<usize>,
    out: &'a Output<'a>,
}

impl<C: Columns> Work for OfColumns<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self) {
        let m = self.out.m;
        let mut sums = buffer(slots::<K>(m) * self.range.len().div_ceil(K::COLUMNS));
        let mut panel = buffer(DEPTH * K::COLUMNS);
        for (step, left) in self.left.chunks_exact(m * DEPTH).enumerate() {
            let depth = depth(step, self.k, scalars::<K>());
            let panel = &mut panel[..depth.len().div_ceil(scalars::<K>()) * K::COLUMNS];
            let sums = sums.chunks_exact_mut(slots::<K>(m));
            for (column, sums) in self.range.clone().step_by(K::COLUMNS).zip(sums) {
                self.columns.pack::<K>(depth.clone(), column, panel);
                tiles::<K>(left, panel, sums, (0, column), (step == 0, depth.end == self.k), self.out);
            }
        }
        put_back(panel);
        put_back(sums);
    }
}

/// Room for the sums of `rows` weight rows by one panel.
fn slots<K: Kernel>(rows: usize) -> usize {
    rows.div_ceil(K::ROWS) * K::ROWS * K::COLUMNS
}

/// One step of packed weight rows by one panel, to (row, column) `at` of the result. Between the first step and the last
/// the sums wait in `sums`: in the result they would be a whole row apart, often in one cache set.
#[inline(always)]
fn tiles<K: Kernel>(
    left: &[f32],
    panel: &[f32],
    sums: &mut [f32],
    at: (usize, usize),
    (first, last): (bool, bool),
    out: &Output<'_>,
) {
    let mut tile = [Block::ZERO; 2];
    let slots = sums.chunks_exact_mut(K::ROWS * K::COLUMNS);
    for (t, (left, slot)) in left.chunks(K::ROWS * DEPTH).zip(slots).enumerate() {
        K::tile(left, panel, &mut tile);
        let (row, rows) = (at.0 + t * K::ROWS, left.len() / DEPTH);
        if first {
            out.add_bias::<K>(&mut tile, row, rows);
        }
        for (block, slot) in tile.iter_mut().zip(slot.chunks_exact_mut(K::ROWS * 16)) {
            let block = &mut block.0.as_flattened_mut()[..K::ROWS * 16];
            if !first {
                for (value, sum) in block.iter_mut().zip(&*slot) {
                    *value += *sum;
                }
            }
            if !last {
                slot.copy_from_slice(block);
            }
        }
        if last {
            out.write::<K>(&mut tile, row, rows, at.1);
        }
    }
}

/// The result, written by tasks that own separate blocks of it.
struct Output<'a> {
    values: *mut f32,
    bias: Option<&'a [f32]>,
    layout: Layout,
    m: usize,
    n: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

#[expect(unsafe_code, reason = "tasks write separate blocks of one matrix")]
// SAFETY: the pointer is used by `write` alone, and no two tasks have a tile in common.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    fn new(values: &'a mut [f32], bias: Option<&'a [f32]>, layout: Layout, m: usize, n: usize) -> Self {
        assert_eq!(values.len(), m * n);
        Self { values: values.as_mut_ptr(), bias, layout, m, n, lifetime: PhantomData }
    }

    /// Values `start ..` of the matrix, `length` of them.
    #[expect(unsafe_code, reason = "tasks write separate blocks of one matrix")]
    #[expect(clippy::mut_from_ref, reason = "the tasks share the matrix and not its values")]
    #[inline(always)]
    fn values(&self, start: usize, length: usize) -> &mut [f32] {
        assert!(start + length <= self.m * self.n);
        // SAFETY: in bounds as asserted; the values belong to one tile, and a tile to one task.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(start), length) }
    }

    /// Adds the bias of weight rows `row ..` to a tile: where every sum begins.
    #[inline(always)]
    fn add_bias<K: Kernel>(&self, tile: &mut Tile, row: usize, rows: usize) {
        let Some(bias) = self.bias else { return };
        for block in &mut tile[..K::COLUMNS / 16] {
            for (values, bias) in block.0.iter_mut().zip(&bias[row..row + rows]) {
                for value in values {
                    *value += bias;
                }
            }
        }
    }

    /// Puts a tile of `rows` by up to `K::COLUMNS` to (`row`, `column`).
    #[inline(always)]
    fn write<K: Kernel>(&self, tile: &mut Tile, row: usize, rows: usize, column: usize) {
        for (block, column) in tile[..K::COLUMNS / 16].iter_mut().zip((column..self.n).step_by(16)) {
            let columns = 16.min(self.n - column);
            match self.layout {
                Layout::Rows => {
                    for (i, values) in block.0[..rows].iter().enumerate() {
                        let out = self.values((row + i) * self.n + column, columns);
                        // A length known to the compiler where possible, here and below.
                        match <&mut [f32; 16]>::try_from(&mut *out) {
                            Ok(out) => *out = *values,
                            Err(_) => out.copy_from_slice(&values[..columns]),
                        }
                    }
                }
                Layout::Columns => {
                    K::transpose(block);
                    for (j, values) in block.0[..columns].iter().enumerate() {
                        let out = self.values((column + j) * self.m + row, rows);
                        if rows == K::ROWS {
                            out[..K::ROWS].copy_from_slice(&values[..K::ROWS]);
                        } else {
                            out.copy_from_slice(&values[..rows]);
                        }
                    }
                }
            }
        }
    }
}

/// The result of a product without depth.
fn fill(values: &mut [f32], bias: Option<&[f32]>, layout: Layout, m: usize) {
    let Some(bias) = bias else { return };
    let n = values.len() / m.max(1);
    for (i, value) in values.iter_mut().enumerate() {
        *value = bias[if layout == Layout::Rows { i / n } else { i % m }];
    }
}
