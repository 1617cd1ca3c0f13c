//! The operation set: what a device must be able to do to run the models.

use std::fmt::Debug;

use crate::{Matrix, Result};

/// An element-wise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x Phi(x)` with the error function.
    Gelu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// Hyperbolic tangent.
    Tanh,
}

/// Which pairs of channels a rotary embedding turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotary {
    /// Channel `i` with channel `i + rotated / 2` of the rotated part (Llama, Qwen).
    Halves,
    /// Channel `2 i` with channel `2 i + 1` (complex pairs, diffusion transformers).
    Pairs,
}

/// Which keys a query may look at. All masks of the models are of the form "the first so many".
#[derive(Debug, Clone, Copy)]
pub enum Visible<'a> {
    /// Every key.
    All,
    /// Query `i` sees keys `0 .. counts[i]`, at least one each. Causal attention is `i + 1 + offset`; a block-causal one
    /// gives every token of an image block the end of its block.
    First(&'a [u32]),
}

/// Sizes of a grouped-head attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Factor on the scores before the softmax, usually `head_dim ^ -1/2`.
    pub scale: f32,
    /// The mask.
    pub visible: Visible<'a>,
}

/// The weights of one network in a mixture of experts.
#[derive(Debug, Clone)]
pub struct Expert<M> {
    /// `[inner, c]`.
    pub gate: M,
    /// `[inner, c]`.
    pub up: M,
    /// `[c, inner]`.
    pub down: M,
}

/// Sizes of a gated delta rule. Value head `h` belongs to key head `h / (value_heads / key_heads)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaRule {
    /// Heads of the queries and keys; divides `value_heads`.
    pub key_heads: usize,
    /// Heads of the values, gates and states.
    pub value_heads: usize,
    /// Channels of a query or key.
    pub key_dim: usize,
    /// Channels of a value.
    pub value_dim: usize,
}

impl DeltaRule {
    /// Channels of queries, keys and values side by side.
    #[must_use]
    pub fn width(self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// How much a gated delta rule forgets and learns at each token.
#[derive(Debug, Clone, Copy)]
pub struct DeltaGates<'a, T> {
    /// `[n, value_heads]`: the state decays by `e^(-rate softplus(a + bias))`.
    pub a: &'a T,
    /// `[n, value_heads]`: a value replaces what the state holds by the share `sigmoid(b)`.
    pub b: &'a T,
    /// `[value_heads]`, positive.
    pub rate: &'a T,
    /// `[value_heads]`.
    pub bias: &'a T,
}

/// Geometry of a two-dimensional convolution (cross-correlation, as everywhere in deep learning).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2d {
    /// Side of the square kernel.
    pub kernel: usize,
    /// Step between outputs, both ways.
    pub stride: usize,
    /// Zeros around the (upsampled) input: top, bottom, left, right.
    pub padding: [usize; 4],
    /// The input is read as if each pixel were repeated this many times both ways (nearest upsampling); 1 for none.
    pub upsample: usize,
}

impl Conv2d {
    /// A stride-1 convolution that keeps the size: `kernel` is odd.
    #[must_use]
    pub fn same(kernel: usize) -> Self {
        Self { kernel, stride: 1, padding: [kernel / 2; 4], upsample: 1 }
    }

    /// Height and width of the output for an input of `height` by `width`.
    #[must_use]
    pub fn output(&self, height: usize, width: usize) -> (usize, usize) {
        let side = |n: usize, before: usize, after: usize| {
            (n * self.upsample + before + after).saturating_sub(self.kernel) / self.stride + 1
        };
        (side(height, self.padding[0], self.padding[1]), side(width, self.padding[2], self.padding[3]))
    }
}

/// A device that runs the models.
///
/// Activations are `f32` in value on the CPU (a GPU may hold them narrower), row-major and contiguous. Token tensors are
/// `[tokens, channels]`; pictures are `[channels, height, width]`; per-channel vectors are `[channels]`. One picture or
/// sequence at a time: batches are loops in the pipelines, so that a batch cannot differ from single runs.
///
/// Every operation checks its operands and returns [`Error::Shape`](crate::Error::Shape) when they do not fit.
#[expect(clippy::missing_errors_doc, reason = "the same for every operation: said once, above")]
pub trait Backend: Clone + Debug + Send + Sync + 'static {
    /// An activation on the device.
    type Tensor: Clone + Debug + Send + Sync;
    /// A weight on the device, in stored form.
    type Matrix: Debug + Send + Sync;
    /// Keys and values of one attention layer, `[capacity, kv_heads * head_dim]` each.
    type Cache: Debug + Send;

    /// What the device is, for people.
    fn describe(&self) -> String;

    // ---- host and device ------------------------------------------------------------------------------------------

    /// Copies `values` (row-major) to the device.
    fn upload(&self, values: &[f32], shape: &[usize]) -> Result<Self::Tensor>;
    /// Copies a tensor back.
    fn download(&self, x: &Self::Tensor) -> Result<Vec<f32>>;
    /// The shape of a tensor.
    fn shape(&self, x: &Self::Tensor) -> Vec<usize>;
    /// Brings a weight to the device; on the CPU it shares the bytes.
    fn load(&self, weight: &Matrix) -> Result<Self::Matrix>;

    // ---- arrangement ----------------------------------------------------------------------------------------------

    /// The same values under another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor>;
    /// `[a, b]` to `[b, a]`.
    fn transpose(&self, x: &Self::Tensor) -> Result<Self::Tensor>;
    /// Stacks tensors of equal row shape along the first axis.
    fn concat(&self, parts: &[&Self::Tensor]) -> Result<Self::Tensor>;
    /// `length` entries of the first axis from `start` on.
    fn rows(&self, x: &Self::Tensor, start: usize, length: usize) -> Result<Self::Tensor>;
    /// `length` channels of `[n, c]` from `start` on.
    fn columns(&self, x: &Self::Tensor, start: usize, length: usize) -> Result<Self::Tensor>;
    /// `x` with row `at[i]` replaced by row `i` of `values` (`[n, c]`, `[at.len(), c]`).
    fn replace_rows(&self, x: &Self::Tensor, at: &[u32], values: &Self::Tensor) -> Result<Self::Tensor>;
    /// `x` with row `i` of `values` added to row `at[i]`.
    fn add_rows(&self, x: &Self::Tensor, at: &[u32], values: &Self::Tensor) -> Result<Self::Tensor>;

    // ---- element by element ---------------------------------------------------------------------------------------

    /// `x + y`, equal shapes.
    fn add(&self, x: &Self::Tensor, y: &Self::Tensor) -> Result<Self::Tensor>;
    /// `x + factor * y`, equal shapes: an Euler step.
    fn add_scaled(&self, x: &Self::Tensor, factor: f32, y: &Self::Tensor) -> Result<Self::Tensor>;
    /// `factor * x + offset`.
    fn affine(&self, x: &Self::Tensor, factor: f32, offset: f32) -> Result<Self::Tensor>;
    /// `x + gate * y` with one gate per channel: `[n, c]`, `[c]`, `[n, c]`.
    fn gated_add(&self, x: &Self::Tensor, gate: &Self::Tensor, y: &Self::Tensor) -> Result<Self::Tensor>;
    /// An element-wise function.
    fn activate(&self, x: &Self::Tensor, function: Activation) -> Result<Self::Tensor>;
    /// `silu(gate) * up`, equal shapes.
    fn swiglu(&self, gate: &Self::Tensor, up: &Self::Tensor) -> Result<Self::Tensor>;
    /// `x / (1 + exp(-gate))`: a gate for each element, or one for each row (`[n, 1]`).
    fn sigmoid_gate(&self, gate: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor>;

    // ---- tokens ---------------------------------------------------------------------------------------------------

    /// Rows `ids` of an embedding table `[vocabulary, c]`: `[ids.len(), c]`.
    fn embed(&self, table: &Self::Matrix, ids: &[u32]) -> Result<Self::Tensor>;
    /// `x W^T + bias`: `[n, in]` with weight `[out, in]` and bias `[out]` to `[n, out]`.
    fn linear(&self, x: &Self::Tensor, weight: &Self::Matrix, bias: Option<&Self::Tensor>) -> Result<Self::Tensor>;
    /// `x / sqrt(mean(x^2) + eps) * weight` over the last axis.
    fn rms_norm(&self, x: &Self::Tensor, weight: &Self::Tensor, eps: f32) -> Result<Self::Tensor>;
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axis.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        weight: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        eps: f32,
    ) -> Result<Self::Tensor>;
    /// Turns pairs of channels of every head by the angles of its token: `x` `[n, heads * dim]`, `cos` and `sin`
    /// `[n, rotated / 2]`; channels of a head past `rotated` stay as they are.
    fn rotary(
        &self,
        x: &Self::Tensor,
        heads: usize,
        cos: &Self::Tensor,
        sin: &Self::Tensor,
        pairs: Rotary,
    ) -> Result<Self::Tensor>;
    /// Softmax attention: `q` `[n, heads * dim]`, `k` and `v` `[m, kv_heads * dim]` to `[n, heads * dim]`. The score
    /// matrix is never held whole.
    fn attention(
        &self,
        q: &Self::Tensor,
        k: &Self::Tensor,
        v: &Self::Tensor,
        shape: Attention<'_>,
    ) -> Result<Self::Tensor>;

    /// Mixture of experts: `sum_e p_e down_e(silu(gate_e(x)) up_e(x))` over the `top` largest of each row of the router's
    /// `logits` `[n, experts.len()]`, `p` their softmax over each other. Weights of experts that no token chose are not
    /// read.
    fn experts(
        &self,
        x: &Self::Tensor,
        logits: &Self::Tensor,
        top: usize,
        experts: &[Expert<Self::Matrix>],
    ) -> Result<Self::Tensor>;

    // ---- linear attention -----------------------------------------------------------------------------------------

    /// A convolution over the tokens of every channel by itself, then SiLU: `silu(sum_j weight[c, j] x[t - k + 1 + j, c])`
    /// for `x` `[n, c]` and weight `[c, k]`, where the `k - 1` rows of `history` stand before the first token.
    fn causal_conv(&self, x: &Self::Tensor, history: &Self::Tensor, weight: &Self::Tensor) -> Result<Self::Tensor>;
    /// The gated delta rule ([arXiv 2412.06464](https://arxiv.org/abs/2412.06464)): for every token and value head
    /// `S <- e^g S`, `S <- S + k (beta (v - S^T k))^T`, `out = S^T q`. Rows of `qkv` are queries, keys and values, head by
    /// head; queries and keys are brought to length 1 (`x / sqrt(|x|^2 + 1e-6)`) and queries scaled by
    /// `key_dim ^ -1/2`. `state` is `[value_heads, key_dim, value_dim]` before the first token. Gives
    /// `[n, value_heads * value_dim]` and the state after the last token.
    fn gated_delta(
        &self,
        qkv: &Self::Tensor,
        gates: &DeltaGates<'_, Self::Tensor>,
        state: &Self::Tensor,
        rule: DeltaRule,
    ) -> Result<(Self::Tensor, Self::Tensor)>;

    // ---- key/value cache ------------------------------------------------------------------------------------------

    /// Room for `capacity` tokens of `width = kv_heads * dim` channels.
    fn cache(&self, capacity: usize, width: usize) -> Result<Self::Cache>;
    /// Writes keys and values of `n` tokens at position `at`; what stood there is replaced.
    fn cache_write(&self, cache: &mut Self::Cache, at: usize, k: &Self::Tensor, v: &Self::Tensor) -> Result<()>;
    /// Copies the first `length` tokens of a cache to the front of another one of the same width.
    fn cache_copy(&self, from: &Self::Cache, to: &mut Self::Cache, length: usize) -> Result<()>;
    /// [`attention`](Self::attention) over the first `length` tokens of a cache.
    fn attention_cached(
        &self,
        q: &Self::Tensor,
        cache: &Self::Cache,
        length: usize,
        shape: Attention<'_>,
    ) -> Result<Self::Tensor>;

    // ---- pictures -------------------------------------------------------------------------------------------------

    /// Convolution of `[c, h, w]` with weight `[out, c * kernel * kernel]` (channel, row, column order) and bias `[out]`.
    fn conv2d(
        &self,
        x: &Self::Tensor,
        weight: &Self::Matrix,
        bias: Option<&Self::Tensor>,
        geometry: Conv2d,
    ) -> Result<Self::Tensor>;
    /// `x / max(|x|, 1e-12) * sqrt(c) * gamma` over the channels of each pixel of `[c, h, w]`, then SiLU when asked.
    fn channel_norm(&self, x: &Self::Tensor, gamma: &Self::Tensor, silu: bool) -> Result<Self::Tensor>;
    /// Shortcut of a downsampling block: each `space` x `space` block of `[c, h, w]` is unfolded into channels
    /// (`c * time * space^2`, in that order, where all but the last of the `time` entries are zero) and groups of
    /// neighbouring channels are averaged down to `channels`.
    fn average_down(&self, x: &Self::Tensor, channels: usize, time: usize, space: usize) -> Result<Self::Tensor>;
    /// Shortcut of an upsampling block: channels are repeated to `channels * time * space^2` and folded out into
    /// `space` x `space` blocks; of the `time` entries the last is kept.
    fn duplicate_up(&self, x: &Self::Tensor, channels: usize, time: usize, space: usize) -> Result<Self::Tensor>;

    /// Waits until everything asked for has been done: for timing.
    fn synchronize(&self) -> Result<()>;
}
