//! Linear layers and norms with their weights.

use atelier_kernels::{Activation, Backend, Matrix};

use crate::Result;
use crate::checkpoint::Weights;

/// `x W^T + b`.
#[derive(Debug)]
pub(super) struct Linear<B: Backend> {
    weight: B::Matrix,
    bias: Option<B::Tensor>,
}

impl<B: Backend> Linear<B> {
    /// A layer from a matrix and a bias that are at hand.
    pub(super) fn new(backend: &B, weight: &Matrix, bias: Option<&[f32]>) -> Result<Self> {
        let bias = bias.map(|bias| backend.upload(bias, &[bias.len()])).transpose()?;
        Ok(Self { weight: backend.load(weight)?, bias })
    }

    /// `weight` without a bias.
    pub(super) fn load(backend: &B, weights: &Weights, output: usize, input: usize) -> Result<Self> {
        Self::new(backend, &weights.matrix("weight", output, input)?, None)
    }

    /// `weight` and `bias`.
    pub(super) fn load_biased(backend: &B, weights: &Weights, output: usize, input: usize) -> Result<Self> {
        Self::new(backend, &weights.matrix("weight", output, input)?, Some(&weights.vector("bias", output)?))
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        Ok(backend.linear(x, &self.weight, self.bias.as_ref())?)
    }
}

/// Root-mean-square norm over the channels.
#[derive(Debug)]
pub(super) struct RmsNorm<B: Backend> {
    weight: B::Tensor,
    channels: usize,
    eps: f32,
}

impl<B: Backend> RmsNorm<B> {
    /// `weight` plus `offset`: some models store the difference from 1.
    pub(super) fn load(backend: &B, weights: &Weights, channels: usize, eps: f32, offset: f32) -> Result<Self> {
        let mut values = weights.vector("weight", channels)?;
        for value in &mut values {
            *value += offset;
        }
        Ok(Self { weight: backend.upload(&values, &[channels])?, channels, eps })
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        Ok(backend.rms_norm(x, &self.weight, self.eps)?)
    }

    /// The norm of every head of `x` `[n, heads * channels]` by itself.
    pub(super) fn forward_heads(&self, backend: &B, x: &B::Tensor, heads: usize) -> Result<B::Tensor> {
        let shape = backend.shape(x);
        let split = backend.reshape(x, &[shape[0] * heads, self.channels])?;
        Ok(backend.reshape(&self.forward(backend, &split)?, &shape)?)
    }
}

/// Layer norm over the channels.
#[derive(Debug)]
pub(super) struct LayerNorm<B: Backend> {
    weight: B::Tensor,
    bias: B::Tensor,
    eps: f32,
}

impl<B: Backend> LayerNorm<B> {
    pub(super) fn load(backend: &B, weights: &Weights, channels: usize, eps: f32) -> Result<Self> {
        let vector = |name| Ok::<_, crate::Error>(backend.upload(&weights.vector(name, channels)?, &[channels])?);
        Ok(Self { weight: vector("weight")?, bias: vector("bias")?, eps })
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        Ok(backend.layer_norm(x, &self.weight, Some(&self.bias), self.eps)?)
    }
}

/// `linear_fc2(f(linear_fc1(x)))` with biases.
#[derive(Debug)]
pub(super) struct Mlp<B: Backend> {
    up: Linear<B>,
    activation: Activation,
    down: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// `sizes` are the channels before, inside and after.
    pub(super) fn load(backend: &B, weights: &Weights, sizes: [usize; 3], activation: Activation) -> Result<Self> {
        let up = Linear::load_biased(backend, &weights.scope("linear_fc1"), sizes[1], sizes[0])?;
        let down = Linear::load_biased(backend, &weights.scope("linear_fc2"), sizes[2], sizes[1])?;
        Ok(Self { up, activation, down })
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let inner = backend.activate(&self.up.forward(backend, x)?, self.activation)?;
        self.down.forward(backend, &inner)
    }
}

/// `down(silu(gate(x)) * up(x))` without biases.
#[derive(Debug)]
pub(super) struct SwiGlu<B: Backend> {
    gate: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> SwiGlu<B> {
    pub(super) fn load(backend: &B, weights: &Weights, channels: usize, intermediate: usize) -> Result<Self> {
        Ok(Self {
            gate: Linear::load(backend, &weights.scope("gate_proj"), intermediate, channels)?,
            up: Linear::load(backend, &weights.scope("up_proj"), intermediate, channels)?,
            down: Linear::load(backend, &weights.scope("down_proj"), channels, intermediate)?,
        })
    }

    pub(super) fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let inner = backend.swiglu(&self.gate.forward(backend, x)?, &self.up.forward(backend, x)?)?;
        self.down.forward(backend, &inner)
    }
}
