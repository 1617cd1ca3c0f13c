//! A mixture of experts: each token goes through a few of many small feed-forward layers.

use candle_core::Tensor;

use super::gemm::Processor;
use super::{Products, elementwise, linear, tensor};
use crate::{Error, Matrix, Result};

/// Tokens of one expert and their shares.
type Group = Vec<(usize, f32)>;

/// `sum_e p_e down_e(silu(gate_e(x)) up_e(x))` over the `top` most probable experts of each token.
pub(super) fn experts(
    x: &Tensor,
    logits: &Tensor,
    top: usize,
    gate_up: &Matrix,
    down: &Matrix,
    products: Products,
) -> Result<Tensor> {
    let (n, channels) = tensor::dims2(x, "experts")?;
    let (_, count) = tensor::dims2(logits, "experts")?;
    tensor::expect_shape(logits, &[n, count], "experts", "the router's output")?;
    let inner = down.columns();
    if top == 0
        || top > count
        || gate_up.columns() != channels
        || gate_up.rows() != count * 2 * inner
        || down.rows() != count * channels
    {
        return Err(Error::shape(
            "experts",
            format!(
                "{top} of {count} experts for {n}x{channels}, weights of {}x{} and {}x{}",
                gate_up.rows(),
                gate_up.columns(),
                down.rows(),
                down.columns()
            ),
        ));
    }
    let (values, processor) = (tensor::view(x)?, Processor::best(products));
    let mut out = vec![0.0; n * channels];
    for (expert, group) in route(&tensor::view(logits)?, count, top).iter().enumerate() {
        if group.is_empty() {
            continue;
        }
        let mut rows = Vec::with_capacity(group.len() * channels);
        for (token, _) in group {
            rows.extend_from_slice(&values[token * channels..][..channels]);
        }
        let half = |index: usize| {
            let weight = gate_up.slice((2 * expert + index) * inner, inner)?;
            tensor::from_vec(linear::multiply(processor, &rows, group.len(), &weight, None), &[group.len(), inner])
        };
        let hidden = elementwise::swiglu(&half(0)?, &half(1)?)?;
        let weight = down.slice(expert * channels, channels)?;
        let result = linear::multiply(processor, &tensor::view(&hidden)?, group.len(), &weight, None);
        for ((token, share), row) in group.iter().zip(result.chunks_exact(channels.max(1))) {
            let out = &mut out[token * channels..][..channels];
            out.iter_mut().zip(row).for_each(|(out, x)| *out += share * x);
        }
    }
    tensor::from_vec(out, &[n, channels])
}

/// The tokens of every expert: softmax over all, the `top` largest, their shares brought to a sum of 1. Of equal ones the
/// first wins.
fn route(logits: &[f32], count: usize, top: usize) -> Vec<Group> {
    let mut groups = vec![Group::new(); count];
    let mut order: Vec<usize> = Vec::with_capacity(count);
    for (token, row) in logits.chunks_exact(count.max(1)).enumerate() {
        order.clear();
        order.extend(0..count);
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let chosen = &order[..top];
        let largest = row[chosen[0]];
        let weights: Vec<f32> = chosen.iter().map(|&expert| (row[expert] - largest).exp()).collect();
        let sum: f32 = weights.iter().sum();
        for (&expert, weight) in chosen.iter().zip(weights) {
            groups[expert].push((token, weight / sum));
        }
    }
    groups
}
