//! A gated delta-net layer: tokens mixed through a recurrent state.

use atelier_kernels::{Backend, DeltaGates, DeltaRule};

use super::cache::State;
use super::config::DeltaNetConfig;
use super::layers::{Linear, RmsNorm};
use crate::Result;
use crate::checkpoint::Weights;

/// The projections, convolution and gates of one layer (`Qwen3_5GatedDeltaNet`).
#[derive(Debug)]
pub(super) struct DeltaNet<B: Backend> {
    rule: DeltaRule,
    taps: usize,
    qkv: Linear<B>,
    /// The gate of the output.
    z: Linear<B>,
    /// How much is forgotten.
    a: Linear<B>,
    /// How much is learnt.
    b: Linear<B>,
    /// `[channels, taps]`.
    conv: B::Tensor,
    /// `e^A_log`, `[value_heads]`.
    rate: B::Tensor,
    bias: B::Tensor,
    norm: RmsNorm<B>,
    out: Linear<B>,
}

impl<B: Backend> DeltaNet<B> {
    /// Takes a layer's tensors; `weights` is its scope (`linear_attn`).
    pub(super) fn load(
        backend: &B,
        weights: &Weights,
        hidden: usize,
        config: DeltaNetConfig,
        eps: f32,
    ) -> Result<Self> {
        let DeltaNetConfig { key_heads, value_heads, key_dim, value_dim, taps } = config;
        let rule = DeltaRule { key_heads, value_heads, key_dim, value_dim };
        let linear = |name, output, input| Linear::load(backend, &weights.scope(name), output, input);
        let vector = |values: &[f32]| backend.upload(values, &[values.len()]);
        let conv = weights.array("conv1d.weight", &[rule.width(), 1, taps])?;
        let rate: Vec<f32> = weights.vector("A_log", value_heads)?.iter().map(|x| x.exp()).collect();
        Ok(Self {
            rule,
            taps,
            qkv: linear("in_proj_qkv", rule.width(), hidden)?,
            z: linear("in_proj_z", value_heads * value_dim, hidden)?,
            a: linear("in_proj_a", value_heads, hidden)?,
            b: linear("in_proj_b", value_heads, hidden)?,
            conv: backend.upload(&conv, &[rule.width(), taps])?,
            rate: vector(&rate)?,
            bias: vector(&weights.vector("dt_bias", value_heads)?)?,
            norm: RmsNorm::load(backend, &weights.scope("norm"), value_dim, eps, 0.0)?,
            out: linear("out_proj", hidden, value_heads * value_dim)?,
        })
    }

    /// The state before the first token.
    pub(super) fn empty(backend: &B, config: DeltaNetConfig) -> Result<State<B>> {
        let DeltaNetConfig { key_heads, value_heads, key_dim, value_dim, taps } = config;
        let width = DeltaRule { key_heads, value_heads, key_dim, value_dim }.width();
        let zeros = |shape: &[usize]| backend.upload(&vec![0.0; shape.iter().product()], shape);
        Ok(State {
            history: zeros(&[taps - 1, width])?,
            memory: zeros(&[value_heads, key_dim, value_dim])?,
            bytes: (((taps - 1) * width + value_heads * key_dim * value_dim) * size_of::<f32>()) as u64,
        })
    }

    /// `x` `[n, hidden]` to `[n, hidden]`, and the state after it.
    pub(super) fn forward(&self, backend: &B, x: &B::Tensor, before: &State<B>) -> Result<(B::Tensor, State<B>)> {
        let qkv = self.qkv.forward(backend, x)?;
        let history = self.last_inputs(backend, &before.history, &qkv)?;
        let qkv = backend.causal_conv(&qkv, &before.history, &self.conv)?;
        let (a, b) = (self.a.forward(backend, x)?, self.b.forward(backend, x)?);
        let gates = DeltaGates { a: &a, b: &b, rate: &self.rate, bias: &self.bias };
        let (mixed, memory) = backend.gated_delta(&qkv, &gates, &before.memory, self.rule)?;
        let normed = self.norm.forward_heads(backend, &mixed, self.rule.value_heads)?;
        let gated = backend.swiglu(&self.z.forward(backend, x)?, &normed)?;
        Ok((self.out.forward(backend, &gated)?, State { history, memory, bytes: before.bytes }))
    }

    /// The last `taps - 1` rows of what came before and `inputs`.
    fn last_inputs(&self, backend: &B, before: &B::Tensor, inputs: &B::Tensor) -> Result<B::Tensor> {
        let (n, kept) = (backend.shape(inputs)[0], self.taps - 1);
        if n >= kept {
            return Ok(backend.rows(inputs, n - kept, kept)?);
        }
        Ok(backend.rows(&backend.concat(&[before, inputs])?, n, kept)?)
    }
}
