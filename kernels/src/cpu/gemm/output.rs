//! The result of a product, which tasks write block by block.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::marker::PhantomData;

use super::Layout;
use super::kernel::{Kernel, Tile};

/// The result, written by tasks that own separate blocks of it.
pub(super) struct Output<'a> {
    values: *mut f32,
    bias: Option<&'a [f32]>,
    layout: Layout,
    pub(super) m: usize,
    n: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

#[expect(unsafe_code, reason = "tasks write separate blocks of one matrix")]
// SAFETY: the pointer is used by `write` alone, and no two tasks have a tile in common.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    pub(super) fn new(values: &'a mut [f32], bias: Option<&'a [f32]>, layout: Layout, m: usize, n: usize) -> Self {
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
    pub(super) fn add_bias<K: Kernel>(&self, tile: &mut Tile, row: usize, rows: usize) {
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
    pub(super) fn write<K: Kernel>(&self, kernel: K, tile: &mut Tile, row: usize, rows: usize, column: usize) {
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
                    kernel.transpose(block);
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
pub(super) fn fill(values: &mut [f32], bias: Option<&[f32]>, layout: Layout, m: usize) {
    let Some(bias) = bias else { return };
    let n = values.len() / m.max(1);
    for (i, value) in values.iter_mut().enumerate() {
        *value = bias[if layout == Layout::Rows { i / n } else { i % m }];
    }
}
