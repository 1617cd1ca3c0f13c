//! The feed-forward part of a layer: one network, or a mixture of experts.

use atelier_kernels::{Backend, Expert, Matrix};

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
    routed: Vec<Expert<B::Matrix>>,
    shared: SwiGlu<B>,
    shared_gate: Linear<B>,
}

impl<B: Backend> Network<B> {
    /// Takes a layer's tensors; `weights` is its scope (`mlp`).
    pub(super) fn load(backend: &B, weights: &Weights, hidden: usize, config: FeedForward) -> Result<Self> {
        match config {
            FeedForward::Dense(intermediate) => Ok(Self::Dense(SwiGlu::load(backend, weights, hidden, intermediate)?)),
            FeedForward::Experts { count, chosen, intermediate, shared } => Ok(Self::Experts(Box::new(Experts {
                chosen,
                router: Linear::load(backend, &weights.scope("gate"), count, hidden)?,
                routed: stored(&weights.scope("experts"), hidden, count, intermediate)?
                    .iter()
                    .map(|Expert { gate, up, down }| {
                        Ok(Expert { gate: backend.load(gate)?, up: backend.load(up)?, down: backend.load(down)? })
                    })
                    .collect::<Result<_>>()?,
                shared: SwiGlu::load(backend, &weights.scope("shared_expert"), hidden, shared)?,
                shared_gate: Linear::load(backend, &weights.scope("shared_expert_gate"), 1, hidden)?,
            }))),
        }
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
        let routed = backend.experts(x, &logits, self.chosen, &self.routed)?;
        let gate = self.shared_gate.forward(backend, x)?;
        let shared = backend.sigmoid_gate(&gate, &self.shared.forward(backend, x)?)?;
        Ok(backend.add(&routed, &shared)?)
    }
}

/// All experts' weights: stored together, as on the Hub (`gate_up_proj` with the rows of a gate before those of its `up`,
/// `down_proj`), or one by one, as transformers 5 saves them (`0.gate_proj.weight` and so on).
fn stored(weights: &Weights, hidden: usize, count: usize, intermediate: usize) -> Result<Vec<Expert<Matrix>>> {
    if weights.has("0.gate_proj.weight") {
        let expert = |index| {
            let matrix = |name, rows, columns| weights.scope(index).matrix(name, rows, columns);
            Ok(Expert {
                gate: matrix("gate_proj.weight", intermediate, hidden)?,
                up: matrix("up_proj.weight", intermediate, hidden)?,
                down: matrix("down_proj.weight", hidden, intermediate)?,
            })
        };
        return (0..count).map(expert).collect();
    }
    let gate_up = weights.stack("gate_up_proj", count, 2 * intermediate, hidden)?;
    let down = weights.stack("down_proj", count, hidden, intermediate)?;
    let expert = |index| {
        Ok(Expert {
            gate: gate_up.slice(2 * index * intermediate, intermediate)?,
            up: gate_up.slice((2 * index + 1) * intermediate, intermediate)?,
            down: down.slice(index * hidden, hidden)?,
        })
    };
    (0..count).map(expert).collect()
}
