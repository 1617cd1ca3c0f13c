//! The feed-forward part of a layer: one network, or a mixture of experts.

use atelier_kernels::{Backend, Matrix};

use super::config::FeedForward;
use super::layers::{Linear, SwiGlu};
use crate::Result;
use crate::checkpoint::Weights;

/// The feed-forward part of a layer.
#[derive(Debug)]
pub(super) enum Network<B: Backend> {
    /// One network for all tokens.
    Dense(SwiGlu<B>),
    /// A few of many for each token.
    Experts(Box<Experts<B>>),
}

/// `sum_e p_e expert_e(x) + sigmoid(g x) shared(x)` (`Qwen3_5MoeSparseMoeBlock`).
#[derive(Debug)]
pub(super) struct Experts<B: Backend> {
    chosen: usize,
    router: Linear<B>,
    /// `[count * 2 * intermediate, hidden]`.
    gate_up: B::Matrix,
    /// `[count * hidden, intermediate]`.
    down: B::Matrix,
    shared: SwiGlu<B>,
    shared_gate: Linear<B>,
}

impl<B: Backend> Network<B> {
    /// Takes a layer's tensors; `weights` is its scope (`mlp`).
    pub(super) fn load(backend: &B, weights: &Weights, hidden: usize, config: FeedForward) -> Result<Self> {
        let FeedForward::Experts { count, chosen, intermediate, shared } = config else {
            let FeedForward::Dense(intermediate) = config else { unreachable!("there are two kinds") };
            return Ok(Self::Dense(SwiGlu::load(backend, weights, hidden, intermediate)?));
        };
        let (gate_up, down) = stored(&weights.scope("experts"), hidden, count, intermediate)?;
        Ok(Self::Experts(Box::new(Experts {
            chosen,
            router: Linear::load(backend, &weights.scope("gate"), count, hidden)?,
            gate_up: backend.load(&gate_up)?,
            down: backend.load(&down)?,
            shared: SwiGlu::load(backend, &weights.scope("shared_expert"), hidden, shared)?,
            shared_gate: Linear::load(backend, &weights.scope("shared_expert_gate"), 1, hidden)?,
        })))
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        match self {
            Self::Dense(network) => network.forward(backend, x),
            Self::Experts(experts) => experts.forward(backend, x),
        }
    }
}

impl<B: Backend> Experts<B> {
    fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let logits = self.router.forward(backend, x)?;
        let routed = backend.experts(x, &logits, self.chosen, &self.gate_up, &self.down)?;
        let gate = self.shared_gate.forward(backend, x)?;
        let shared = backend.sigmoid_gate(&gate, &self.shared.forward(backend, x)?)?;
        Ok(backend.add(&routed, &shared)?)
    }
}

/// All experts' weights, stored together (`gate_up_proj`, `down_proj`) or one by one (`0.gate_proj.weight` and so on),
/// in which case they are copied.
fn stored(weights: &Weights, hidden: usize, count: usize, intermediate: usize) -> Result<(Matrix, Matrix)> {
    if weights.has("gate_up_proj") || !weights.has("0.gate_proj.weight") {
        let gate_up = weights.stack("gate_up_proj", count, 2 * intermediate, hidden)?;
        return Ok((gate_up, weights.stack("down_proj", count, hidden, intermediate)?));
    }
    let (mut gate_up, mut down) = (Vec::with_capacity(2 * count), Vec::with_capacity(count));
    for expert in 0..count {
        let expert = weights.scope(expert);
        gate_up.push(expert.matrix("gate_proj.weight", intermediate, hidden)?);
        gate_up.push(expert.matrix("up_proj.weight", intermediate, hidden)?);
        down.push(expert.matrix("down_proj.weight", hidden, intermediate)?);
    }
    Ok((Matrix::stack(&gate_up)?, Matrix::stack(&down)?))
}
