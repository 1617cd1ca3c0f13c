//! A mixture of experts: each token goes through a few of many small feed-forward layers.

use candle_core::Tensor;

use super::{Products, elementwise, linear, tensor};
use crate::{Error, Expert, Matrix, Result};

/// Tokens of one expert and their shares.
type Group = Vec<(usize, f32)>;

/// `sum_e p_e down_e(silu(gate_e(x)) up_e(x))` over the `top` most probable experts of each token.
pub(super) fn experts(
    x: &Tensor,
    logits: &Tensor,
    top: usize,
    experts: &[Expert<Matrix>],
    products: Products,
) -> Result<Tensor> {
    let (n, channels) = check(x, logits, top, experts)?;
    let values = tensor::view(x)?;
    let mut out = vec![0.0; n * channels];
    for (expert, group) in experts.iter().zip(route(&tensor::view(logits)?, experts.len(), top)) {
        if group.is_empty() {
            continue;
        }
        let rows: Vec<f32> =
            group.iter().flat_map(|(token, _)| &values[token * channels..][..channels]).copied().collect();
        let rows = tensor::from_vec(rows, &[group.len(), channels])?;
        let linear = |x: &Tensor, weight: &Matrix| linear::linear(x, weight, None, products);
        let inner = elementwise::swiglu(&linear(&rows, &expert.gate)?, &linear(&rows, &expert.up)?)?;
        let result = linear(&inner, &expert.down)?;
        for ((token, share), row) in group.iter().zip(tensor::view(&result)?.chunks_exact(channels.max(1))) {
            let out = &mut out[token * channels..][..channels];
            out.iter_mut().zip(row).for_each(|(out, x)| *out += share * x);
        }
    }
    tensor::from_vec(out, &[n, channels])
}

/// Tokens and channels, when everything fits.
fn check(x: &Tensor, logits: &Tensor, top: usize, experts: &[Expert<Matrix>]) -> Result<(usize, usize)> {
    let (n, channels) = tensor::dims2(x, "experts")?;
    tensor::expect_shape(logits, &[n, experts.len()], "experts", "the router's output")?;
    if top == 0 || top > experts.len() {
        return Err(Error::shape("experts", format!("{top} of {} experts", experts.len())));
    }
    for (index, Expert { gate, up, down }) in experts.iter().enumerate() {
        let inner = gate.rows();
        for (name, weight, rows, columns) in
            [("gate", gate, inner, channels), ("up", up, inner, channels), ("down", down, channels, inner)]
        {
            if (weight.rows(), weight.columns()) != (rows, columns) {
                let found = format!("{}x{}", weight.rows(), weight.columns());
                let problem = format!("{name} of expert {index} is {found}, expected {rows}x{columns}");
                return Err(Error::shape("experts", problem));
            }
        }
    }
    Ok((n, channels))
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
