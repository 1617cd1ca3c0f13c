//! How a product is divided, and what its tasks do.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::ops::Range;

use super::kernel::{Block, Kernel, Work};
use super::output::Output;
use super::panel::{self, buffer, put_back};
use super::{Columns, DEPTH};
use crate::Matrix;

/// Most panels of a task: with fewer, its sums stay in the cache.
const PANELS: usize = 32;
/// Tiles one above the other whose weights a task decodes at a time.
const TILES: usize = 8;

/// Step `step` of the depth `0 .. k`.
#[inline(always)]
pub(super) fn depth(step: usize, k: usize, scalars: usize) -> Range<usize> {
    step * DEPTH * scalars..k.min((step + 1) * DEPTH * scalars)
}

/// What the packing has to know about a kernel.
pub(super) struct Shape {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) scalars: usize,
}

pub(super) struct ShapeOf;

impl Work for ShapeOf {
    type Output = Shape;
    fn run<K: Kernel>(self, _: K) -> Shape {
        Shape { rows: K::ROWS, columns: K::COLUMNS, scalars: scalars::<K>() }
    }
}

/// Scalars in a unit.
fn scalars<K: Kernel>() -> usize {
    if K::PAIRS { 2 } else { 1 }
}

/// How tiles and panels are divided into tasks: over the weight rows first, because each row is then decoded once.
pub(super) struct Grid {
    tiles: usize,
    blocks: usize,
    panels: usize,
    groups: usize,
}

impl Grid {
    pub(super) fn new(tiles: usize, panels: usize) -> Self {
        let threads = rayon::current_num_threads();
        let blocks = tiles.div_ceil(TILES).next_multiple_of(threads).min(tiles);
        let groups = (8 * threads).div_ceil(blocks).min(panels.div_ceil(4)).max(panels.div_ceil(PANELS));
        Self { tiles, blocks, panels, groups }
    }

    pub(super) fn tasks(&self) -> usize {
        self.blocks * self.groups
    }

    /// Tiles and panels of a task.
    pub(super) fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let share = |i: usize, parts: usize, whole: usize| i * whole / parts..(i + 1) * whole / parts;
        (share(task / self.groups, self.blocks, self.tiles), share(task % self.groups, self.groups, self.panels))
    }
}

/// Packs a panel over the whole depth.
pub(super) struct PackColumns<'a, C> {
    pub(super) columns: &'a C,
    pub(super) k: usize,
    pub(super) first: usize,
    pub(super) panel: &'a mut [f32],
}

impl<C: Columns> Work for PackColumns<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        for (step, panel) in self.panel.chunks_mut(DEPTH * K::COLUMNS).enumerate() {
            self.columns.pack(kernel, depth(step, self.k, scalars::<K>()), self.first, panel);
        }
    }
}

/// Packs weight rows `[rows, DEPTH]`.
pub(super) struct PackWeights<'a> {
    pub(super) weight: &'a Matrix,
    pub(super) rows: Range<usize>,
    pub(super) depth: Range<usize>,
    pub(super) left: &'a mut [f32],
}

impl Work for PackWeights<'_> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self, _: K) {
        for (row, left) in self.rows.zip(self.left.chunks_exact_mut(DEPTH)) {
            panel::pack_weights::<K>(self.weight, row, self.depth.clone(), left);
        }
    }
}

/// One task: some weight rows by some packed columns.
pub(super) struct OfRows<'a> {
    pub(super) weight: &'a Matrix,
    pub(super) rows: Range<usize>,
    pub(super) panels: &'a [f32],
    pub(super) first: usize,
    pub(super) out: &'a Output<'a>,
}

impl Work for OfRows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let k = self.weight.columns();
        let size = k.div_ceil(scalars::<K>()) * K::COLUMNS;
        let mut left = buffer(self.rows.len() * DEPTH);
        let left_rows = &mut left[..self.rows.len() * DEPTH];
        let mut sums = buffer(slots::<K>(self.rows.len()) * (self.panels.len() / size));
        for step in 0..k.div_ceil(DEPTH * scalars::<K>()) {
            let depth = depth(step, k, scalars::<K>());
            let last = depth.end == k;
            PackWeights { weight: self.weight, rows: self.rows.clone(), depth, left: left_rows }.run(kernel);
            let sums = sums.chunks_exact_mut(slots::<K>(self.rows.len()));
            for (p, (panel, sums)) in self.panels.chunks_exact(size).zip(sums).enumerate() {
                let from = step * DEPTH * K::COLUMNS;
                let panel = &panel[from..size.min(from + DEPTH * K::COLUMNS)];
                let at = (self.rows.start, self.first + p * K::COLUMNS);
                tiles(kernel, left_rows, panel, sums, at, (step == 0, last), self.out);
            }
        }
        put_back(sums);
        put_back(left);
    }
}

/// One task: all weight rows, packed, by some columns.
pub(super) struct OfColumns<'a, C> {
    pub(super) left: &'a [f32],
    pub(super) k: usize,
    pub(super) columns: &'a C,
    pub(super) range: Range<usize>,
    pub(super) out: &'a Output<'a>,
}

impl<C: Columns> Work for OfColumns<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<K: Kernel>(self, kernel: K) {
        let m = self.out.m;
        let mut sums = buffer(slots::<K>(m) * self.range.len().div_ceil(K::COLUMNS));
        let mut panel = buffer(DEPTH * K::COLUMNS);
        for (step, left) in self.left.chunks_exact(m * DEPTH).enumerate() {
            let depth = depth(step, self.k, scalars::<K>());
            let panel = &mut panel[..depth.len().div_ceil(scalars::<K>()) * K::COLUMNS];
            let sums = sums.chunks_exact_mut(slots::<K>(m));
            for (column, sums) in self.range.clone().step_by(K::COLUMNS).zip(sums) {
                self.columns.pack(kernel, depth.clone(), column, panel);
                tiles(kernel, left, panel, sums, (0, column), (step == 0, depth.end == self.k), self.out);
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
    kernel: K,
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
        kernel.tile(left, panel, &mut tile);
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
            out.write(kernel, &mut tile, row, rows, at.1);
        }
    }
}
