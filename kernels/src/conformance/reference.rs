//! What the operations compute, as plain loops in `f64`: written to be read, not to be fast.

use super::array::Array;
use crate::{Activation, Conv2d, DeltaRule, Rotary};

/// `[a, b]` to `[b, a]`.
pub(super) fn transpose(x: &Array) -> Array {
    let (a, b) = (x.shape[0], x.shape[1]);
    Array::build(&[b, a], |i| x.values[i % a * b + i / a])
}

/// An element-wise function.
pub(super) fn activate(x: f64, function: Activation) -> f64 {
    match function {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => 0.5 * x * candle_core::cpu::erf::erfc_f64(-x / std::f64::consts::SQRT_2),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        }
        Activation::Tanh => x.tanh(),
    }
}

/// `x W^T + bias`.
pub(super) fn linear(x: &Array, weight: &Array, bias: Option<&Array>) -> Array {
    let (n, inputs, outputs) = (x.shape[0], x.shape[1], weight.shape[0]);
    Array::build(&[n, outputs], |i| {
        let (row, out) = (i / outputs, i % outputs);
        let start = bias.map_or(0.0, |bias| bias.values[out]);
        (0..inputs).fold(start, |sum, j| sum + x.values[row * inputs + j] * weight.values[out * inputs + j])
    })
}

/// Root-mean-square norm over the last axis.
pub(super) fn rms_norm(x: &Array, weight: &Array, eps: f64) -> Array {
    let c = weight.values.len();
    Array::build(&x.shape, |i| {
        let row = &x.values[i / c * c..][..c];
        let mean_square = row.iter().map(|x| x * x).sum::<f64>() / c as f64;
        x.values[i] / (mean_square + eps).sqrt() * weight.values[i % c]
    })
}

/// Layer norm over the last axis.
pub(super) fn layer_norm(x: &Array, weight: &Array, bias: Option<&Array>, eps: f64) -> Array {
    let c = weight.values.len();
    Array::build(&x.shape, |i| {
        let row = &x.values[i / c * c..][..c];
        let mean = row.iter().sum::<f64>() / c as f64;
        let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / c as f64;
        let bias = bias.map_or(0.0, |bias| bias.values[i % c]);
        (x.values[i] - mean) / (variance + eps).sqrt() * weight.values[i % c] + bias
    })
}

/// Rotary embedding: the pair `(a, b)` becomes `(a cos - b sin, b cos + a sin)`.
pub(super) fn rotary(x: &Array, heads: usize, cos: &Array, sin: &Array, pairs: Rotary) -> Array {
    let (n, width, half) = (x.shape[0], x.shape[1], cos.shape[1]);
    let mut out = x.clone();
    for token in 0..n {
        for head in 0..heads {
            let start = token * width + head * (width / heads);
            for pair in 0..half {
                let (first, second) = match pairs {
                    Rotary::Halves => (start + pair, start + pair + half),
                    Rotary::Pairs => (start + 2 * pair, start + 2 * pair + 1),
                };
                let (cos, sin) = (cos.values[token * half + pair], sin.values[token * half + pair]);
                let (a, b) = (x.values[first], x.values[second]);
                out.values[first] = a * cos - b * sin;
                out.values[second] = b * cos + a * sin;
            }
        }
    }
    out
}

/// Softmax attention with the whole score row at hand; query `i` sees the first `visible[i]` keys.
pub(super) fn attention(
    q: &Array,
    k: &Array,
    v: &Array,
    heads: usize,
    kv_heads: usize,
    scale: f64,
    visible: &[u32],
) -> Array {
    let (width, kv_width) = (q.shape[1], k.shape[1]);
    let dim = width / heads;
    let mut out = Array::build(&q.shape, |_| 0.0);
    for (query, &count) in visible.iter().enumerate() {
        for head in 0..heads {
            let at = query * width + head * dim;
            let kv = |key: usize, channel: usize| key * kv_width + head / (heads / kv_heads) * dim + channel;
            let scores: Vec<f64> = (0..count as usize)
                .map(|key| scale * (0..dim).map(|c| q.values[at + c] * k.values[kv(key, c)]).sum::<f64>())
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for c in 0..dim {
                let mixed = weights.iter().enumerate().map(|(key, weight)| weight * v.values[kv(key, c)]).sum::<f64>();
                out.values[at + c] = mixed / sum;
            }
        }
    }
    out
}

/// Convolution of `[c, h, w]`: upsample, pad with zeros, then slide the kernel.
pub(super) fn conv2d(x: &Array, weight: &Array, bias: Option<&Array>, geometry: Conv2d) -> Array {
    let Conv2d { kernel, stride, padding: [top, bottom, left, right], upsample } = geometry;
    let (c, h, w) = (x.shape[0], x.shape[1] * upsample, x.shape[2] * upsample);
    let (padded_h, padded_w) = (top + h + bottom, left + w + right);
    let pixel = |channel: usize, row: usize, column: usize| {
        let inside = (top..top + h).contains(&row) && (left..left + w).contains(&column);
        if !inside {
            return 0.0;
        }
        let (row, column) = ((row - top) / upsample, (column - left) / upsample);
        x.values[(channel * x.shape[1] + row) * x.shape[2] + column]
    };
    let (outputs, out_h, out_w) = (weight.shape[0], (padded_h - kernel) / stride + 1, (padded_w - kernel) / stride + 1);
    Array::build(&[outputs, out_h, out_w], |i| {
        let (out, row, column) = (i / (out_h * out_w), i / out_w % out_h, i % out_w);
        let mut sum = bias.map_or(0.0, |bias| bias.values[out]);
        for channel in 0..c {
            for y in 0..kernel {
                for z in 0..kernel {
                    let factor = weight.values[((out * c + channel) * kernel + y) * kernel + z];
                    sum += factor * pixel(channel, row * stride + y, column * stride + z);
                }
            }
        }
        sum
    })
}

/// Norm over the channels of each pixel.
pub(super) fn channel_norm(x: &Array, gamma: &Array, silu: bool) -> Array {
    let (c, area) = (x.shape[0], x.shape[1] * x.shape[2]);
    Array::build(&x.shape, |i| {
        let length = (0..c).map(|channel| x.values[channel * area + i % area].powi(2)).sum::<f64>().sqrt();
        let y = x.values[i] / length.max(1e-12) * (c as f64).sqrt() * gamma.values[i / area];
        if silu { activate(y, Activation::Silu) } else { y }
    })
}

/// Downsampling shortcut, in the three steps of its definition: zeros in front in time, pixels unfolded into channels,
/// groups of channels averaged.
pub(super) fn average_down(x: &Array, channels: usize, time: usize, space: usize) -> Array {
    let (c, h, w) = (x.shape[0], x.shape[1], x.shape[2]);
    let frames = Array::build(&[c, time, h, w], |i| {
        let (channel, frame, pixel) = (i / (time * h * w), i / (h * w) % time, i % (h * w));
        if frame + 1 == time { x.values[channel * h * w + pixel] } else { 0.0 }
    });
    let (out_h, out_w) = (h / space, w / space);
    let mut unfolded = Vec::new();
    for channel in 0..c {
        for frame in 0..time {
            for dy in 0..space {
                for dx in 0..space {
                    for row in 0..out_h {
                        for column in 0..out_w {
                            let (row, column) = (row * space + dy, column * space + dx);
                            unfolded.push(frames.values[((channel * time + frame) * h + row) * w + column]);
                        }
                    }
                }
            }
        }
    }
    let (area, group) = (out_h * out_w, c * time * space * space / channels);
    Array::build(&[channels, out_h, out_w], |i| {
        let (channel, pixel) = (i / area, i % area);
        (0..group).map(|member| unfolded[(channel * group + member) * area + pixel]).sum::<f64>() / group as f64
    })
}

/// Upsampling shortcut, in the three steps of its definition: channels repeated, folded out into pixels and frames, the
/// last frame kept.
pub(super) fn duplicate_up(x: &Array, channels: usize, time: usize, space: usize) -> Array {
    let (c, h, w) = (x.shape[0], x.shape[1], x.shape[2]);
    let repeats = channels * time * space * space / c;
    let repeated: Vec<&[f64]> =
        (0..c * repeats).map(|channel| &x.values[channel / repeats * h * w..][..h * w]).collect();
    let mut frames = Array::build(&[channels, time, h * space, w * space], |_| 0.0);
    let mut source = repeated.iter();
    for channel in 0..channels {
        for frame in 0..time {
            for dy in 0..space {
                for dx in 0..space {
                    let plane = source.next().expect("one plane per step");
                    for row in 0..h {
                        for column in 0..w {
                            let (y, z) = (row * space + dy, column * space + dx);
                            let at = ((channel * time + frame) * h * space + y) * w * space + z;
                            frames.values[at] = plane[row * w + column];
                        }
                    }
                }
            }
        }
    }
    let area = h * space * w * space;
    Array::build(&[channels, h * space, w * space], |i| frames.values[(i / area * time + time - 1) * area + i % area])
}

/// A causal convolution over the tokens of each channel, then SiLU.
pub(super) fn causal_conv(x: &Array, history: &Array, weight: &Array) -> Array {
    let (c, taps) = (weight.shape[0], weight.shape[1]);
    let all = [history.values.as_slice(), &x.values].concat();
    Array::build(&x.shape, |i| {
        let (token, channel) = (i / c, i % c);
        let sum = (0..taps).map(|tap| weight.values[channel * taps + tap] * all[(token + tap) * c + channel]).sum();
        activate(sum, Activation::Silu)
    })
}

/// The gated delta rule with the gates `a`, `b`, rate and bias: outputs, and the state afterwards.
pub(super) fn gated_delta(
    qkv: &Array,
    [a, b, rate, bias]: [&Array; 4],
    state: &Array,
    rule: DeltaRule,
) -> (Array, Array) {
    let DeltaRule { key_heads, value_heads, key_dim, value_dim } = rule;
    let n = qkv.shape[0];
    let unit = |x: &[f64]| -> Vec<f64> {
        let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
        x.iter().map(|x| x / length).collect()
    };
    let (mut out, mut state) = (Array::build(&[n, value_heads * value_dim], |_| 0.0), state.clone());
    for token in 0..n {
        let row = &qkv.values[token * rule.width()..][..rule.width()];
        for head in 0..value_heads {
            let key_head = head / (value_heads / key_heads);
            let q = unit(&row[key_head * key_dim..][..key_dim]);
            let k = unit(&row[(key_heads + key_head) * key_dim..][..key_dim]);
            let v = &row[2 * key_heads * key_dim + head * value_dim..][..value_dim];
            let gate = token * value_heads + head;
            let decay = (-rate.values[head] * (a.values[gate] + bias.values[head]).exp().ln_1p()).exp();
            let beta = 1.0 / (1.0 + (-b.values[gate]).exp());
            let s = &mut state.values[head * key_dim * value_dim..][..key_dim * value_dim];
            for s in s.iter_mut() {
                *s *= decay;
            }
            for j in 0..value_dim {
                let held: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * k[i]).sum();
                let delta = beta * (v[j] - held);
                (0..key_dim).for_each(|i| s[i * value_dim + j] += k[i] * delta);
                let read: f64 = (0..key_dim).map(|i| s[i * value_dim + j] * q[i]).sum();
                out.values[token * value_heads * value_dim + head * value_dim + j] = read / (key_dim as f64).sqrt();
            }
        }
    }
    (out, state)
}

/// A mixture of experts; `between` is what happens to the inner activations.
pub(super) fn experts(
    x: &Array,
    logits: &Array,
    top: usize,
    (gate_up, down): (&Array, &Array),
    between: impl Fn(&Array) -> Array,
) -> Array {
    let (channels, inner, count) = (gate_up.shape[1], down.shape[1], logits.shape[1]);
    let mut out = Array::build(&x.shape, |_| 0.0);
    for token in 0..x.shape[0] {
        let row = &logits.values[token * count..][..count];
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let sum: f64 = order[..top].iter().map(|&expert| row[expert].exp()).sum();
        for &expert in &order[..top] {
            let token_row = x.rows(token, 1);
            let both = linear(&token_row, &gate_up.rows(expert * 2 * inner, 2 * inner), None);
            let hidden =
                Array::build(&[1, inner], |i| activate(both.values[i], Activation::Silu) * both.values[inner + i]);
            let result = linear(&between(&hidden), &down.rows(expert * channels, channels), None);
            for (i, value) in result.values.iter().enumerate() {
                out.values[token * channels + i] += row[expert].exp() / sum * value;
            }
        }
    }
    out
}
