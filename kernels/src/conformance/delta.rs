//! Cases for linear attention and mixtures of experts.

use super::weights::{self, FORMATS};
use super::{Array, Suite, reference};
use crate::{Backend, DeltaGates, DeltaRule, Expert, Format, Matrix, Result};

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    for (n, c, taps) in [(1, 1, 1), (1, 33, 4), (2, 7, 4), (7, 65, 3), (33, 130, 4), (3, 8, 2)] {
        causal_conv(suite, n, c, taps);
    }
    for (n, key_heads, value_heads, key_dim, value_dim) in
        [(1, 1, 1, 1, 1), (1, 2, 6, 7, 5), (3, 1, 3, 8, 16), (33, 2, 4, 16, 33), (130, 1, 2, 33, 7), (7, 4, 4, 64, 128)]
    {
        gated_delta(suite, n, DeltaRule { key_heads, value_heads, key_dim, value_dim });
    }
    for (n, c) in [(1, 1), (1, 33), (7, 65), (3, 16_400)] {
        sigmoid_gate(suite, n, c, c);
        sigmoid_gate(suite, n, c, 1);
    }
    for (n, channels, inner, count, top) in [(1, 33, 7, 5, 2), (7, 8, 16, 5, 5), (33, 65, 33, 7, 1), (2, 7, 1, 1, 1)] {
        experts(suite, (Format::F32, Format::F32), [n, channels, inner], count, top);
    }
    for (format, size) in FORMATS {
        experts(suite, (format, format), [3, size, size], 5, 2);
    }
}

fn causal_conv<B: Backend>(suite: &mut Suite<'_, B>, n: usize, c: usize, taps: usize) {
    let (x, history) = (suite.random.array(&[n, c]), suite.random.array(&[taps - 1, c]));
    let weight = suite.random.array(&[c, taps]);
    let found = (|| suite.backend.causal_conv(&suite.upload(&x)?, &suite.upload(&history)?, &suite.upload(&weight)?))();
    let expected = reference::causal_conv(&x, &history, &weight);
    suite.compare("causal_conv", format!("{n}x{c}, {taps} taps"), suite.tolerance.element, found, &expected);
}

fn gated_delta<B: Backend>(suite: &mut Suite<'_, B>, n: usize, rule: DeltaRule) {
    let DeltaRule { value_heads, key_dim, value_dim, .. } = rule;
    let qkv = suite.random.array(&[n, rule.width()]);
    // far enough out that the softplus and the sigmoid are met on both sides
    let (a, b) = (suite.random.spread(&[n, value_heads], 4.0), suite.random.spread(&[n, value_heads], 4.0));
    let rate = suite.random.array(&[value_heads]).map(|x| f64::from((0.3 * x.abs() + 0.01) as f32));
    let bias = suite.random.array(&[value_heads]);
    let state = suite.random.array(&[value_heads, key_dim, value_dim]);
    let found: Result<_> = (|| {
        let (a, b) = (suite.upload(&a)?, suite.upload(&b)?);
        let (rate, bias) = (suite.upload(&rate)?, suite.upload(&bias)?);
        let gates = DeltaGates { a: &a, b: &b, rate: &rate, bias: &bias };
        suite.backend.gated_delta(&suite.upload(&qkv)?, &gates, &suite.upload(&state)?, rule)
    })();
    let (out, after) = reference::gated_delta(&qkv, [&a, &b, &rate, &bias], &state, rule);
    let case = format!("{n} tokens, {rule:?}");
    let (found_out, found_after) = match found {
        Ok((out, after)) => (Ok(out), Ok(after)),
        Err(error) => (Err(error), Err(crate::Error::shape("gated_delta", "no state"))),
    };
    let tolerance = suite.tolerance.attention;
    suite.compare("gated_delta", format!("{case}, output"), tolerance, found_out, &out);
    suite.compare("gated_delta", format!("{case}, state"), tolerance, found_after, &after);
}

fn sigmoid_gate<B: Backend>(suite: &mut Suite<'_, B>, n: usize, c: usize, gates: usize) {
    let (gate, x) = (suite.random.spread(&[n, gates], 6.0), suite.random.array(&[n, c]));
    let found = (|| suite.backend.sigmoid_gate(&suite.upload(&gate)?, &suite.upload(&x)?))();
    let expected = Array::build(&[n, c], |i| {
        let gate = gate.values[if gates == 1 { i / c } else { i }];
        x.values[i] / (1.0 + (-gate).exp())
    });
    suite.compare("sigmoid_gate", format!("{n}x{c} by {n}x{gates}"), suite.tolerance.element, found, &expected);
}

fn experts<B: Backend>(
    suite: &mut Suite<'_, B>,
    formats: (Format, Format),
    [n, channels, inner]: [usize; 3],
    count: usize,
    top: usize,
) {
    let (x, logits) = (suite.random.array(&[n, channels]), suite.random.spread(&[n, count], 3.0));
    let case = format!("{}, {n}x{channels}, {top} of {count} experts of {inner}", formats.0.name());
    let gate_up = weights::random(&mut suite.random, formats.0, count * 2 * inner, channels);
    let down = weights::random(&mut suite.random, formats.1, count * channels, inner);
    let ((gate_up, gate_up_values), (down, down_values)) = match (gate_up, down) {
        (Ok(gate_up), Ok(down)) => (gate_up, down),
        (Err(error), _) | (_, Err(error)) => return suite.compare("experts", case, 0.0, Err(error), &x),
    };
    let found: Result<_> = (|| {
        let backend = suite.backend;
        let part = |matrix: &Matrix, at, rows| backend.load(&matrix.slice(at * rows, rows)?);
        let expert = |at| {
            let (gate, up) = (part(&gate_up, 2 * at, inner)?, part(&gate_up, 2 * at + 1, inner)?);
            Ok(Expert { gate, up, down: part(&down, at, channels)? })
        };
        let experts = (0..count).map(expert).collect::<Result<Vec<_>>>()?;
        backend.experts(&suite.upload(&x)?, &suite.upload(&logits)?, top, &experts)
    })();
    let weights = (&suite.factor(&gate_up_values), &suite.factor(&down_values));
    // what is between the two layers is rounded too where factors are
    let expected = reference::experts(&suite.factor(&x), &logits, top, weights, |x| suite.factor(x));
    suite.compare("experts", case, 4.0 * suite.tolerance.product, found, &expected);
}
