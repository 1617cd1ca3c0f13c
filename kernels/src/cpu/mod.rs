//! The processor as a device: candle tensors underneath, our own loops where they are faster.
//!
//! Activations are `f32`. What is rounded inside a matrix product is a choice ([`Products`]), the same for every stored
//! format.

use candle_core::Tensor;

use crate::{Activation, Attention, Backend, Conv2d, DeltaGates, DeltaRule, Expert, Matrix, Result, Rotary};

// candle tensor ↔ slices
mod tensor;
// loops over all threads, vector instructions, functions on vectors
mod math;
mod parallel;
mod simd;
// stored blocks → f32
pub mod blocks;
// the packed matrix product under linear and convolution
mod arrange;
mod attention;
mod cache;
mod conv;
mod delta;
mod elementwise;
mod experts;
mod gemm;
mod linear;
mod norm;
mod rotary;

pub use cache::Cache;

/// What the factors of a matrix product are rounded to; sums are always `f32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Products {
    /// Exact `f32` factors.
    #[default]
    F32,
    /// Both factors rounded to bf16, as a bf16 model on a GPU does. Faster where the processor has bf16 dot products,
    /// and the same values where it has not.
    Bf16,
}

/// The CPU backend.
#[derive(Debug, Clone, Default)]
pub struct Cpu {
    products: Products,
}

impl Cpu {
    /// A CPU backend whose matrix products round their factors as `products` says.
    #[must_use]
    pub fn new(products: Products) -> Self {
        Self { products }
    }
}

/// Runs `work` on one of the threads that operations use. It may run anywhere, but here every operation starts tens of
/// microseconds sooner: no thread outside has to be put to sleep and woken. One token takes about a hundred operations.
pub fn on_threads<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| work())
}

impl Backend for Cpu {
    type Tensor = Tensor;
    type Matrix = Matrix;
    type Cache = Cache;

    fn describe(&self) -> String {
        format!("cpu, {} threads, {}", rayon::current_num_threads(), gemm::kernel_name(self.products))
    }

    fn upload(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        tensor::from_vec(values.to_vec(), shape)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        Ok(tensor::view(x)?.to_vec())
    }

    fn shape(&self, x: &Tensor) -> Vec<usize> {
        x.dims().to_vec()
    }

    fn load(&self, weight: &Matrix) -> Result<Matrix> {
        Ok(weight.clone())
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        arrange::reshape(x, shape)
    }

    fn transpose(&self, x: &Tensor) -> Result<Tensor> {
        arrange::transpose(x)
    }

    fn concat(&self, parts: &[&Tensor]) -> Result<Tensor> {
        arrange::concat(parts)
    }

    fn rows(&self, x: &Tensor, start: usize, length: usize) -> Result<Tensor> {
        arrange::rows(x, start, length)
    }

    fn columns(&self, x: &Tensor, start: usize, length: usize) -> Result<Tensor> {
        arrange::columns(x, start, length)
    }

    fn replace_rows(&self, x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor> {
        arrange::replace_rows(x, at, values)
    }

    fn add_rows(&self, x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor> {
        arrange::add_rows(x, at, values)
    }

    fn add(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::add_scaled(x, 1.0, y)
    }

    fn add_scaled(&self, x: &Tensor, factor: f32, y: &Tensor) -> Result<Tensor> {
        elementwise::add_scaled(x, factor, y)
    }

    fn affine(&self, x: &Tensor, factor: f32, offset: f32) -> Result<Tensor> {
        elementwise::affine(x, factor, offset)
    }

    fn gated_add(&self, x: &Tensor, gate: &Tensor, y: &Tensor) -> Result<Tensor> {
        elementwise::gated_add(x, gate, y)
    }

    fn activate(&self, x: &Tensor, function: Activation) -> Result<Tensor> {
        elementwise::activate(x, function)
    }

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        elementwise::swiglu(gate, up)
    }

    fn sigmoid_gate(&self, gate: &Tensor, x: &Tensor) -> Result<Tensor> {
        elementwise::sigmoid_gate(gate, x)
    }

    fn embed(&self, table: &Matrix, ids: &[u32]) -> Result<Tensor> {
        linear::embed(table, ids)
    }

    fn linear(&self, x: &Tensor, weight: &Matrix, bias: Option<&Tensor>) -> Result<Tensor> {
        linear::linear(x, weight, bias, self.products)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        norm::rms_norm(x, weight, eps)
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        norm::layer_norm(x, weight, bias, eps)
    }

    fn rotary(&self, x: &Tensor, heads: usize, cos: &Tensor, sin: &Tensor, pairs: Rotary) -> Result<Tensor> {
        rotary::rotary(x, heads, cos, sin, pairs)
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, shape: Attention<'_>) -> Result<Tensor> {
        attention::attention(q, k, v, shape)
    }

    fn experts(&self, x: &Tensor, logits: &Tensor, top: usize, experts: &[Expert<Matrix>]) -> Result<Tensor> {
        experts::experts(x, logits, top, experts, self.products)
    }

    fn causal_conv(&self, x: &Tensor, history: &Tensor, weight: &Tensor) -> Result<Tensor> {
        delta::causal_conv(x, history, weight)
    }

    fn gated_delta(
        &self,
        qkv: &Tensor,
        gates: &DeltaGates<'_, Tensor>,
        state: &Tensor,
        rule: DeltaRule,
    ) -> Result<(Tensor, Tensor)> {
        delta::gated_delta(qkv, gates, state, rule)
    }

    fn cache(&self, capacity: usize, width: usize) -> Result<Cache> {
        Cache::new(capacity, width)
    }

    fn cache_write(&self, cache: &mut Cache, at: usize, k: &Tensor, v: &Tensor) -> Result<()> {
        cache.write(at, k, v)
    }

    fn cache_copy(&self, from: &Cache, to: &mut Cache, length: usize) -> Result<()> {
        to.copy(from, length)
    }

    fn attention_cached(&self, q: &Tensor, cache: &Cache, length: usize, shape: Attention<'_>) -> Result<Tensor> {
        attention::attention_cached(q, cache, length, shape)
    }

    fn conv2d(&self, x: &Tensor, weight: &Matrix, bias: Option<&Tensor>, geometry: Conv2d) -> Result<Tensor> {
        conv::conv2d(x, weight, bias, geometry, self.products)
    }

    fn channel_norm(&self, x: &Tensor, gamma: &Tensor, silu: bool) -> Result<Tensor> {
        norm::channel_norm(x, gamma, silu)
    }

    fn average_down(&self, x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor> {
        arrange::average_down(x, channels, time, space)
    }

    fn duplicate_up(&self, x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor> {
        arrange::duplicate_up(x, channels, time, space)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
