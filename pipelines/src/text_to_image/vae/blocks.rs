//! The blocks that encoder and decoder are made of. Every 3-D convolution of the original video model is a plain 2-D one
//! here: a picture is one frame.
//!
//! Blocks take their input by value and nest their operations, so that an intermediate is freed as soon as the next one
//! stands: at full resolution each is the size of hundreds of pictures.

use atelier_kernels::{Attention, Backend, Conv2d, Visible};

use crate::Result;
use crate::checkpoint::Weights;

/// A convolution with bias.
#[derive(Debug)]
pub(super) struct Convolution<B: Backend> {
    weight: B::Matrix,
    bias: B::Tensor,
    geometry: Conv2d,
}

impl<B: Backend> Convolution<B> {
    /// A convolution that keeps the size.
    pub(super) fn same(
        b: &B,
        weights: &Weights,
        name: &str,
        input: usize,
        output: usize,
        kernel: usize,
    ) -> Result<Self> {
        Self::load(b, weights, name, input, output, Conv2d::same(kernel))
    }

    fn load(b: &B, weights: &Weights, name: &str, input: usize, output: usize, geometry: Conv2d) -> Result<Self> {
        let scope = weights.scope(name);
        Ok(Self {
            weight: b.load(&scope.kernel("weight", output, input, geometry.kernel)?)?,
            bias: b.upload(&scope.vector("bias", output)?, &[output])?,
            geometry,
        })
    }

    /// `[input, h, w]` to `[output, h', w']`.
    pub(super) fn run(&self, b: &B, x: &B::Tensor) -> Result<B::Tensor> {
        Ok(b.conv2d(x, &self.weight, Some(&self.bias), self.geometry)?)
    }

    /// The 1x1 convolution as a linear layer over tokens: `[n, input]` to `[n, output]`.
    fn tokens(&self, b: &B, x: &B::Tensor) -> Result<B::Tensor> {
        Ok(b.linear(x, &self.weight, Some(&self.bias))?)
    }
}

/// The factors of a per-channel norm.
pub(super) fn gamma<B: Backend>(b: &B, weights: &Weights, name: &str, channels: usize) -> Result<B::Tensor> {
    Ok(b.upload(&weights.scope(name).vector("gamma", channels)?, &[channels])?)
}

/// `x + conv(silu(norm(conv(silu(norm(x))))))`, with a 1x1 convolution in the shortcut where the channels change.
#[derive(Debug)]
pub(super) struct Residual<B: Backend> {
    norm1: B::Tensor,
    conv1: Convolution<B>,
    norm2: B::Tensor,
    conv2: Convolution<B>,
    shortcut: Option<Convolution<B>>,
}

impl<B: Backend> Residual<B> {
    pub(super) fn load(b: &B, weights: &Weights, input: usize, output: usize) -> Result<Self> {
        Ok(Self {
            norm1: gamma(b, weights, "norm1", input)?,
            conv1: Convolution::same(b, weights, "conv1", input, output, 3)?,
            norm2: gamma(b, weights, "norm2", output)?,
            conv2: Convolution::same(b, weights, "conv2", output, output, 3)?,
            shortcut: match input == output {
                true => None,
                false => Some(Convolution::same(b, weights, "conv_shortcut", input, output, 1)?),
            },
        })
    }

    /// `[input, h, w]` to `[output, h, w]`.
    pub(super) fn run(&self, b: &B, x: B::Tensor) -> Result<B::Tensor> {
        let hidden = self.conv1.run(b, &b.channel_norm(&x, &self.norm1, true)?)?;
        // The shortcut is cheap to keep once `x` may go, and `x` is what it replaces.
        let shortcut = match &self.shortcut {
            None => x,
            Some(convolution) => convolution.run(b, &x)?,
        };
        let normed = b.channel_norm(&hidden, &self.norm2, true)?;
        drop(hidden);
        let hidden = self.conv2.run(b, &normed)?;
        drop(normed);
        Ok(b.add(&hidden, &shortcut)?)
    }
}

/// Self-attention over all pixels, one head.
#[derive(Debug)]
struct PixelAttention<B: Backend> {
    channels: usize,
    norm: B::Tensor,
    qkv: Convolution<B>,
    projection: Convolution<B>,
}

impl<B: Backend> PixelAttention<B> {
    fn load(b: &B, weights: &Weights, channels: usize) -> Result<Self> {
        Ok(Self {
            channels,
            norm: gamma(b, weights, "norm", channels)?,
            qkv: Convolution::same(b, weights, "to_qkv", channels, 3 * channels, 1)?,
            projection: Convolution::same(b, weights, "proj", channels, channels, 1)?,
        })
    }

    /// `[c, h, w]` to `[c, h, w]`.
    fn run(&self, b: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let (c, shape) = (self.channels, b.shape(x));
        let pixels: usize = shape[1..].iter().product();
        let attended = {
            let tokens = b.transpose(&b.reshape(&b.channel_norm(x, &self.norm, false)?, &[c, pixels])?)?;
            let qkv = self.qkv.tokens(b, &tokens)?;
            let scale = 1.0 / (c as f32).sqrt();
            let (q, k, v) = (b.columns(&qkv, 0, c)?, b.columns(&qkv, c, c)?, b.columns(&qkv, 2 * c, c)?);
            drop((tokens, qkv));
            b.attention(&q, &k, &v, Attention { heads: 1, kv_heads: 1, scale, visible: Visible::All })?
        };
        let out = b.transpose(&self.projection.tokens(b, &attended)?)?;
        Ok(b.add(&b.reshape(&out, &shape)?, x)?)
    }
}

/// Residual, attention, residual.
#[derive(Debug)]
pub(super) struct Middle<B: Backend> {
    first: Residual<B>,
    attention: PixelAttention<B>,
    second: Residual<B>,
}

impl<B: Backend> Middle<B> {
    pub(super) fn load(b: &B, weights: &Weights, channels: usize) -> Result<Self> {
        Ok(Self {
            first: Residual::load(b, &weights.scope("resnets.0"), channels, channels)?,
            attention: PixelAttention::load(b, &weights.scope("attentions.0"), channels)?,
            second: Residual::load(b, &weights.scope("resnets.1"), channels, channels)?,
        })
    }

    /// `[c, h, w]` to `[c, h, w]`.
    pub(super) fn run(&self, b: &B, x: B::Tensor) -> Result<B::Tensor> {
        let x = self.first.run(b, x)?;
        let x = self.attention.run(b, &x)?;
        self.second.run(b, x)
    }
}

/// Loads the convolution of a 2x downsampling: kernel 3, stride 2, one zero row below and column to the right.
pub(super) fn downsampling<B: Backend>(
    b: &B,
    weights: &Weights,
    channels: usize,
    temporal: bool,
) -> Result<Convolution<B>> {
    ignore_time(weights, temporal);
    let geometry = Conv2d { kernel: 3, stride: 2, padding: [0, 1, 0, 1], upsample: 1 };
    Convolution::load(b, weights, "resample.1", channels, channels, geometry)
}

/// Loads the convolution of a nearest 2x upsampling.
pub(super) fn upsampling<B: Backend>(
    b: &B,
    weights: &Weights,
    input: usize,
    output: usize,
    temporal: bool,
) -> Result<Convolution<B>> {
    ignore_time(weights, temporal);
    let geometry = Conv2d { upsample: 2, ..Conv2d::same(3) };
    Convolution::load(b, weights, "resample.1", input, output, geometry)
}

/// The convolution along time never runs on a single frame.
fn ignore_time(weights: &Weights, temporal: bool) {
    if temporal {
        weights.ignore("time_conv");
    }
}
