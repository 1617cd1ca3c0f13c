//! Operands that do not fit must be refused, not computed with.

use super::{Array, Suite};
use crate::{Attention, Backend, Conv2d, DeltaGates, DeltaRule, Expert, Matrix, Result, Rotary, Visible};

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    if let Err(error) = refuse(suite) {
        suite.compare("upload", "operands for refusals".into(), 0.0, Err(error), &Array::build(&[1], |_| 0.0));
    }
}

fn refuse<B: Backend>(suite: &mut Suite<'_, B>) -> Result<()> {
    let backend = suite.backend;
    let zeros = |shape: &[usize]| backend.upload(&vec![0.0; shape.iter().product()], shape);
    let weight = |rows, columns| backend.load(&Matrix::from_f32(&vec![0.0; rows * columns], rows, columns)?);
    let (x, wide, tall) = (zeros(&[3, 8])?, zeros(&[3, 9])?, zeros(&[4, 8])?);
    let (three, eight, nine) = (zeros(&[3])?, zeros(&[8])?, zeros(&[9])?);
    let picture = zeros(&[3, 4, 6])?;

    suite.refused("upload", "too few values", &backend.upload(&[0.0; 5], &[2, 3]));
    suite.refused("reshape", "another number of values", &backend.reshape(&x, &[5, 5]));
    suite.refused("transpose", "three axes", &backend.transpose(&picture));
    suite.refused("concat", "nothing", &backend.concat(&[]));
    suite.refused("concat", "rows of another length", &backend.concat(&[&x, &wide]));
    suite.refused("concat", "rows of another shape", &backend.concat(&[&x, &picture]));
    suite.refused("rows", "rows past the end", &backend.rows(&x, 2, 2));
    suite.refused("rows", "a start past all numbers", &backend.rows(&x, usize::MAX, 2));
    suite.refused("columns", "columns past the end", &backend.columns(&x, 8, 1));
    suite.refused("columns", "three axes", &backend.columns(&picture, 0, 1));
    for (operation, f) in [
        ("replace_rows", B::replace_rows as fn(&B, &B::Tensor, &[u32], &B::Tensor) -> Result<B::Tensor>),
        ("add_rows", B::add_rows),
    ] {
        suite.refused(operation, "a row past the end", &f(backend, &x, &[0, 1, 3], &x));
        suite.refused(operation, "another number of rows", &f(backend, &x, &[0, 1], &x));
        suite.refused(operation, "rows of another length", &f(backend, &x, &[0, 1, 2], &wide));
    }

    suite.refused("add", "unequal shapes", &backend.add(&x, &wide));
    suite.refused("add_scaled", "unequal shapes", &backend.add_scaled(&x, 1.0, &tall));
    suite.refused("swiglu", "unequal shapes", &backend.swiglu(&x, &tall));
    suite.refused("gated_add", "a gate of another length", &backend.gated_add(&x, &nine, &x));
    suite.refused("gated_add", "an addend of another shape", &backend.gated_add(&x, &eight, &tall));
    suite.refused("gated_add", "a gate per token", &backend.gated_add(&x, &three, &x));

    suite.refused("embed", "an id past the table", &backend.embed(&weight(7, 8)?, &[7]));
    suite.refused("linear", "another input width", &backend.linear(&x, &weight(5, 9)?, None));
    suite.refused("linear", "another bias length", &backend.linear(&x, &weight(5, 8)?, Some(&eight)));
    suite.refused("linear", "three axes", &backend.linear(&picture, &weight(5, 6)?, None));
    suite.refused("rms_norm", "a weight of another length", &backend.rms_norm(&x, &nine, 1e-6));
    suite.refused("layer_norm", "a weight of another length", &backend.layer_norm(&x, &nine, None, 1e-6));
    suite.refused("layer_norm", "a bias of another length", &backend.layer_norm(&x, &eight, Some(&three), 1e-6));

    let (angles, fewer) = (zeros(&[3, 2])?, zeros(&[2, 2])?);
    let rotary = |heads, cos, sin| backend.rotary(&x, heads, cos, sin, Rotary::Pairs);
    suite.refused("rotary", "heads that do not divide", &rotary(3, &angles, &angles));
    suite.refused("rotary", "no heads", &rotary(0, &angles, &angles));
    suite.refused("rotary", "more angles than channels", &rotary(4, &angles, &angles));
    suite.refused("rotary", "angles of fewer tokens", &rotary(2, &fewer, &fewer));
    suite.refused("rotary", "a sine of another shape", &rotary(2, &angles, &fewer));

    let seen = |heads, kv_heads, visible| Attention { heads, kv_heads, scale: 1.0, visible };
    let attend = |k, v, shape| backend.attention(&x, k, v, shape);
    suite.refused("attention", "heads that do not divide", &attend(&tall, &tall, seen(3, 3, Visible::All)));
    suite.refused("attention", "uneven groups", &attend(&tall, &tall, seen(4, 3, Visible::All)));
    suite.refused("attention", "no heads", &attend(&tall, &tall, seen(0, 0, Visible::All)));
    suite.refused("attention", "keys of another width", &attend(&wide, &wide, seen(2, 2, Visible::All)));
    suite.refused("attention", "values of another shape", &attend(&tall, &x, seen(2, 2, Visible::All)));
    let counts = |counts| seen(2, 2, Visible::First(counts));
    suite.refused("attention", "counts of fewer queries", &attend(&tall, &tall, counts(&[1, 2])));
    suite.refused("attention", "a query that sees nothing", &attend(&tall, &tall, counts(&[1, 0, 2])));
    suite.refused("attention", "more keys than there are", &attend(&tall, &tall, counts(&[1, 2, 5])));

    linear_attention(suite)?;

    let mut cache = backend.cache(4, 8)?;
    suite.refused("cache_write", "tokens past the end", &backend.cache_write(&mut cache, 2, &x, &x));
    suite.refused("cache_write", "a start past all numbers", &backend.cache_write(&mut cache, usize::MAX, &x, &x));
    suite.refused("cache_write", "another width", &backend.cache_write(&mut cache, 0, &wide, &wide));
    suite.refused("cache_write", "values of another shape", &backend.cache_write(&mut cache, 0, &x, &tall));
    let [mut small, mut other] = [backend.cache(3, 8)?, backend.cache(4, 6)?];
    suite.refused("cache_copy", "more tokens than places", &backend.cache_copy(&cache, &mut small, 4));
    suite.refused("cache_copy", "more tokens than there are", &backend.cache_copy(&small, &mut cache, 4));
    suite.refused("cache_copy", "another width", &backend.cache_copy(&cache, &mut other, 2));
    let cached = |length, shape| backend.attention_cached(&x, &cache, length, shape);
    suite.refused("attention_cached", "more tokens than places", &cached(5, seen(2, 2, Visible::All)));
    suite.refused("attention_cached", "no tokens", &cached(0, seen(2, 2, Visible::All)));
    suite.refused("attention_cached", "keys of another width", &cached(4, seen(2, 1, Visible::All)));
    suite.refused("attention_cached", "more keys than asked for", &cached(2, counts(&[1, 2, 3])));

    let same = Conv2d::same(3);
    let convolve = |x, columns, bias, geometry| backend.conv2d(x, &weight(5, columns)?, bias, geometry);
    suite.refused("conv2d", "two axes", &convolve(&x, 27, None, same));
    suite.refused("conv2d", "another number of channels", &convolve(&picture, 36, None, same));
    suite.refused("conv2d", "another bias length", &convolve(&picture, 27, Some(&three), same));
    suite.refused("conv2d", "no stride", &convolve(&picture, 27, None, Conv2d { stride: 0, ..same }));
    suite.refused(
        "conv2d",
        "no pixels",
        &convolve(&picture, 27, None, Conv2d { upsample: 0, padding: [0; 4], ..same }),
    );
    let large = Conv2d { kernel: 5, stride: 1, padding: [0; 4], upsample: 1 };
    suite.refused("conv2d", "a kernel past the picture", &convolve(&picture, 75, None, large));
    suite.refused("channel_norm", "two axes", &backend.channel_norm(&x, &three, false));
    suite.refused("channel_norm", "gamma of another length", &backend.channel_norm(&picture, &nine, true));
    suite.refused("average_down", "a side that does not divide", &backend.average_down(&picture, 4, 1, 4));
    suite.refused("average_down", "uneven groups", &backend.average_down(&picture, 5, 1, 2));
    suite.refused("average_down", "no channels", &backend.average_down(&picture, 0, 1, 2));
    suite.refused("average_down", "no space", &backend.average_down(&picture, 3, 1, 0));
    suite.refused("duplicate_up", "uneven repeats", &backend.duplicate_up(&picture, 1, 1, 2));
    suite.refused("duplicate_up", "no time", &backend.duplicate_up(&picture, 3, 0, 2));
    suite.refused("duplicate_up", "two axes", &backend.duplicate_up(&x, 3, 1, 2));
    Ok(())
}

fn linear_attention<B: Backend>(suite: &mut Suite<'_, B>) -> Result<()> {
    let backend = suite.backend;
    let zeros = |shape: &[usize]| backend.upload(&vec![0.0; shape.iter().product()], shape);
    let weight = |rows, columns| backend.load(&Matrix::from_f32(&vec![0.0; rows * columns], rows, columns)?);
    let (x, wide, tall) = (zeros(&[3, 8])?, zeros(&[3, 9])?, zeros(&[4, 8])?);
    suite.refused("sigmoid_gate", "unequal shapes", &backend.sigmoid_gate(&tall, &x));
    suite.refused("sigmoid_gate", "gates of other rows", &backend.sigmoid_gate(&zeros(&[4, 1])?, &x));

    let expert = |[gate, up, down]: [[usize; 2]; 3]| -> Result<_> {
        Ok(Expert { gate: weight(gate[0], gate[1])?, up: weight(up[0], up[1])?, down: weight(down[0], down[1])? })
    };
    let pair = |second| Ok::<_, crate::Error>([expert([[5, 8], [5, 8], [8, 5]])?, expert(second)?]);
    let (logits, other_tokens, other_experts) = (zeros(&[3, 2])?, zeros(&[4, 2])?, zeros(&[3, 3])?);
    let fine = pair([[6, 8], [6, 8], [8, 6]])?;
    let experts = |logits, top, experts| backend.experts(&x, logits, top, experts);
    suite.refused("experts", "none chosen", &experts(&logits, 0, &fine));
    suite.refused("experts", "more than there are", &experts(&logits, 3, &fine));
    suite.refused("experts", "a router's output of other tokens", &experts(&other_tokens, 1, &fine));
    suite.refused("experts", "a router's output of other experts", &experts(&other_experts, 1, &fine));
    for (case, second) in [
        ("a gate for other channels", [[5, 9], [5, 8], [8, 5]]),
        ("another width inside", [[5, 8], [6, 8], [8, 5]]),
        ("another width outside", [[5, 8], [5, 8], [9, 5]]),
    ] {
        let uneven = pair(second)?;
        suite.refused("experts", case, &backend.experts(&x, &logits, 1, &uneven));
    }

    let (history, taps) = (zeros(&[3, 8])?, zeros(&[8, 4])?);
    suite.refused("causal_conv", "a short history", &backend.causal_conv(&x, &zeros(&[2, 8])?, &taps));
    suite.refused("causal_conv", "other channels", &backend.causal_conv(&wide, &history, &taps));
    suite.refused("causal_conv", "no taps", &backend.causal_conv(&x, &history, &zeros(&[8, 0])?));

    let rule = DeltaRule { key_heads: 1, value_heads: 2, key_dim: 2, value_dim: 3 };
    let (qkv, state, gate, vector) = (zeros(&[3, 10])?, zeros(&[2, 2, 3])?, zeros(&[3, 2])?, zeros(&[2])?);
    let fine = DeltaGates { a: &gate, b: &gate, rate: &vector, bias: &vector };
    suite.refused("gated_delta", "rows of another width", &backend.gated_delta(&wide, &fine, &state, rule));
    let other = zeros(&[2, 3, 2])?;
    suite.refused("gated_delta", "a state of another shape", &backend.gated_delta(&qkv, &fine, &other, rule));
    let uneven = DeltaRule { key_heads: 3, value_heads: 2, ..rule };
    suite.refused("gated_delta", "uneven heads", &backend.gated_delta(&qkv, &fine, &state, uneven));
    let fewer = zeros(&[2, 2])?;
    suite.refused(
        "gated_delta",
        "gates of fewer tokens",
        &backend.gated_delta(&qkv, &DeltaGates { a: &fewer, ..fine }, &state, rule),
    );
    let long = zeros(&[3])?;
    suite.refused(
        "gated_delta",
        "a bias of another length",
        &backend.gated_delta(&qkv, &DeltaGates { bias: &long, ..fine }, &state, rule),
    );
    Ok(())
}
