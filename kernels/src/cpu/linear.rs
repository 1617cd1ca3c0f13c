//! Linear layers and embedding tables over stored weights.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel")]

use std::ops::Range;

use candle_core::Tensor;

use super::gemm::{self, Block, Columns, Kernel, Layout, Processor};
use super::{Products, blocks, tensor};
use crate::{Error, Matrix, Result};

/// `x W^T + bias`: `[n, in]` to `[n, out]`.
pub(super) fn linear(x: &Tensor, weight: &Matrix, bias: Option<&Tensor>, products: Products) -> Result<Tensor> {
    let (n, columns) = tensor::dims2(x, "linear")?;
    if columns != weight.columns() {
        return Err(Error::shape(
            "linear",
            format!("input of {n}x{columns} for a weight of {}x{}", weight.rows(), weight.columns()),
        ));
    }
    if let Some(bias) = bias {
        tensor::expect_shape(bias, &[weight.rows()], "linear", "the bias")?;
    }
    let bias = bias.map(tensor::view).transpose()?;
    let out = multiply(Processor::best(products), &tensor::view(x)?, n, weight, bias.as_deref());
    tensor::from_vec(out, &[n, weight.rows()])
}

pub(super) fn multiply(processor: Processor, x: &[f32], n: usize, weight: &Matrix, bias: Option<&[f32]>) -> Vec<f32> {
    if n <= gemm::FEW && weight.columns() > 0 {
        gemm::few(processor, weight, x, bias)
    } else {
        let tokens = Tokens { values: x, count: n, channels: weight.columns() };
        gemm::product(processor, weight, &tokens, bias, Layout::Columns)
    }
}

/// Rows of activations, `[count, channels]`.
struct Tokens<'a> {
    values: &'a [f32],
    count: usize,
    channels: usize,
}

impl Columns for Tokens<'_> {
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn pack<K: Kernel>(&self, kernel: K, depth: Range<usize>, first: usize, panel: &mut [f32]) {
        let scalars = if K::PAIRS { 32 } else { 16 };
        let mut block = Block::ZERO;
        for group in (0..K::COLUMNS).step_by(16) {
            let tokens = first + group..self.count.min(first + group + 16);
            for (start, panel) in depth.clone().step_by(scalars).zip(panel.chunks_mut(16 * K::COLUMNS)) {
                let depth = start..depth.end.min(start + scalars);
                if depth.len() < scalars || tokens.len() < 16 {
                    block = Block::ZERO;
                }
                for (token, row) in tokens.clone().zip(&mut block.0) {
                    let values = &self.values[token * self.channels..][depth.clone()];
                    // A length known to the compiler where possible.
                    match <&[f32; 16]>::try_from(values) {
                        Ok(values) if !K::PAIRS => gemm::pack_row::<K>(values, row),
                        _ => gemm::pack_row::<K>(values, row),
                    }
                }
                kernel.transpose(&mut block);
                for (row, panel) in block.0.iter().zip(panel.chunks_exact_mut(K::COLUMNS)) {
                    panel[group..group + 16].copy_from_slice(row);
                }
            }
        }
    }
}

/// Rows `ids` of an embedding table.
pub(super) fn embed(table: &Matrix, ids: &[u32]) -> Result<Tensor> {
    let columns = table.columns();
    let mut out = vec![0.0; ids.len() * columns];
    for (id, out) in ids.iter().zip(out.chunks_exact_mut(columns.max(1))) {
        let row = *id as usize;
        if row >= table.rows() {
            return Err(Error::shape("embed", format!("token {id} in a table of {} rows", table.rows())));
        }
        blocks::decode_row(table, row, 0, out);
    }
    tensor::from_vec(out, &[ids.len(), columns])
}
