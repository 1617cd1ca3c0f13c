//! Cases for token operations other than attention.

use super::weights::{self, FORMATS};
use super::{Array, Suite, reference};
use crate::{Backend, Format, Result, Rotary};

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    for inputs in [1, 2, 3, 7, 33, 65, 257] {
        for (n, outputs) in [(1, 1), (1, 65), (2, 33), (3, 2), (7, 7), (33, 3), (65, 65), (130, 33)] {
            linear(suite, Format::F32, n, inputs, outputs);
        }
    }
    for (format, inputs) in FORMATS {
        for (n, outputs) in [(1, 1), (1, 33), (2, 7), (7, 65), (33, 3), (65, 130)] {
            linear(suite, format, n, inputs, outputs);
        }
        embed(suite, format, inputs);
    }
    for shape in [&[1, 1][..], &[2, 3], &[33, 7], &[7, 65], &[3, 2, 33], &[3, 1025]] {
        norms(suite, shape, 1.0);
    }
    // here eps decides
    norms(suite, &[7, 33], 1e-3);
    for (n, heads, dim, half) in
        [(1, 1, 2, 1), (3, 2, 8, 4), (7, 3, 8, 3), (33, 2, 7, 2), (65, 4, 64, 32), (2, 5, 130, 65)]
    {
        for pairs in [Rotary::Halves, Rotary::Pairs] {
            rotary(suite, n, heads, dim, half, pairs);
        }
    }
}

fn linear<B: Backend>(suite: &mut Suite<'_, B>, format: Format, n: usize, inputs: usize, outputs: usize) {
    let (x, bias) = (suite.random.array(&[n, inputs]), suite.random.array(&[outputs]));
    let weight = weights::random(&mut suite.random, format, outputs, inputs);
    let name = format.name();
    let (matrix, values) = match weight {
        Ok(weight) => weight,
        Err(error) => return suite.compare("linear", name.into(), 0.0, Err(error), &x),
    };
    for bias in [None, Some(&bias)] {
        let found: Result<_> = (|| {
            let bias = bias.map(|bias| suite.upload(bias)).transpose()?;
            suite.backend.linear(&suite.upload(&x)?, &suite.backend.load(&matrix)?, bias.as_ref())
        })();
        let case = format!("{name}, {n}x{inputs} to {outputs}, {}", if bias.is_some() { "bias" } else { "no bias" });
        let expected = reference::linear(&suite.factor(&x), &suite.factor(&values), bias);
        suite.compare("linear", case, suite.tolerance.product, found, &expected);
    }
}

fn embed<B: Backend>(suite: &mut Suite<'_, B>, format: Format, c: usize) {
    let ids = [6, 0, 3, 3, 1];
    let weight = weights::random(&mut suite.random, format, 7, c);
    let (found, expected) = match weight {
        Ok((matrix, values)) => (
            suite.backend.load(&matrix).and_then(|table| suite.backend.embed(&table, &ids)),
            Array::build(&[ids.len(), c], |i| values.values[ids[i / c] as usize * c + i % c]),
        ),
        Err(error) => (Err(error), Array::build(&[1], |_| 0.0)),
    };
    // unpacking a block rounds once or twice
    let tolerance = suite.tolerance.element;
    suite.compare("embed", format!("{}, 7x{c}", format.name()), tolerance, found, &expected);
}

fn norms<B: Backend>(suite: &mut Suite<'_, B>, shape: &[usize], range: f64) {
    let (backend, tolerance, eps) = (suite.backend, suite.tolerance.element, 1e-6_f32);
    let channels = &shape[shape.len() - 1..];
    // an offset, as activations have it, so that the mean matters
    let x = suite.random.spread(shape, range).map(|x| f64::from((x + 0.75 * range) as f32));
    let (weight, bias) = (suite.random.array(channels), suite.random.array(channels));
    let case = format!("{shape:?} in +-{range}");

    let found = (|| backend.rms_norm(&suite.upload(&x)?, &suite.upload(&weight)?, eps))();
    suite.compare("rms_norm", case.clone(), tolerance, found, &reference::rms_norm(&x, &weight, eps.into()));
    // one channel less its mean is nothing but rounding
    if channels != [1] {
        let found = (|| backend.layer_norm(&suite.upload(&x)?, &suite.upload(&weight)?, None, eps))();
        let expected = reference::layer_norm(&x, &weight, None, eps.into());
        suite.compare("layer_norm", format!("{case}, no bias"), tolerance, found, &expected);
    }
    let found =
        (|| backend.layer_norm(&suite.upload(&x)?, &suite.upload(&weight)?, Some(&suite.upload(&bias)?), eps))();
    let expected = reference::layer_norm(&x, &weight, Some(&bias), eps.into());
    suite.compare("layer_norm", format!("{case}, bias"), tolerance, found, &expected);
}

fn rotary<B: Backend>(suite: &mut Suite<'_, B>, n: usize, heads: usize, dim: usize, half: usize, pairs: Rotary) {
    let x = suite.random.array(&[n, heads * dim]);
    let angles = suite.random.spread(&[n, half], 3.0);
    let (cos, sin) = (angles.map(|x| f64::from(x.cos() as f32)), angles.map(|x| f64::from(x.sin() as f32)));
    let found =
        (|| suite.backend.rotary(&suite.upload(&x)?, heads, &suite.upload(&cos)?, &suite.upload(&sin)?, pairs))();
    let case = format!("{pairs:?}, {n} tokens, {heads}x{dim}, {} turned", 2 * half);
    suite.compare("rotary", case, suite.tolerance.element, found, &reference::rotary(&x, heads, &cos, &sin, pairs));
}
