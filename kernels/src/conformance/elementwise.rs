//! Cases for element-wise operations.

use super::{Array, Suite, reference};
use crate::{Activation, Backend};

const ACTIVATIONS: [Activation; 4] = [Activation::Silu, Activation::Gelu, Activation::GeluTanh, Activation::Tanh];

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    for shape in [[1, 1], [2, 3], [1, 7], [33, 65], [3, 33_333]] {
        arithmetic(suite, shape);
    }
    for (range, n) in [(1.0, 33), (10.0, 7), (100.0, 65)] {
        let x = suite.random.spread(&[n, 33], range);
        for function in ACTIVATIONS {
            activation(suite, function, format!("{function:?}, {n}x33 in +-{range}"), &x);
        }
    }
    // near zero an error relative to the largest value shows digits lost to cancellation
    let small = suite.random.spread(&[7, 33], 1e-3);
    // far out the functions are flat, and must not overflow
    let far = Array { shape: vec![6], values: vec![-3e38, -1e4, -90.0, 90.0, 1e4, 1e18] };
    for function in ACTIVATIONS {
        activation(suite, function, format!("{function:?}, 7x33 in +-0.001"), &small);
        activation(suite, function, format!("{function:?}, far from zero"), &far);
        let negative = Array { shape: vec![3], values: vec![-1e30, -100.0, -1.0] };
        activation(suite, function, format!("{function:?}, negative"), &negative);
    }
}

fn activation<B: Backend>(suite: &mut Suite<'_, B>, function: Activation, case: String, x: &Array) {
    let found = suite.upload(x).and_then(|x| suite.backend.activate(&x, function));
    suite.compare("activate", case, suite.tolerance.element, found, &x.map(|x| reference::activate(x, function)));
}

fn arithmetic<B: Backend>(suite: &mut Suite<'_, B>, shape: [usize; 2]) {
    let (backend, tolerance) = (suite.backend, suite.tolerance.element);
    let [n, c] = shape;
    let case = || format!("{n}x{c}");
    let (x, y, gate) = (suite.random.array(&shape), suite.random.array(&shape), suite.random.array(&[c]));
    let operands = (|| Ok((suite.upload(&x)?, suite.upload(&y)?, suite.upload(&gate)?)))();
    let (x_there, y_there, gate_there) = match operands {
        Ok(operands) => operands,
        Err(error) => return suite.compare("upload", case(), tolerance, Err(error), &x),
    };

    suite.compare("add", case(), tolerance, backend.add(&x_there, &y_there), &x.zip(&y, |x, y| x + y));
    let found = backend.add_scaled(&x_there, -0.375, &y_there);
    suite.compare("add_scaled", case(), tolerance, found, &x.zip(&y, |x, y| x - 0.375 * y));
    let found = backend.affine(&x_there, 1.5, -0.25);
    suite.compare("affine", case(), tolerance, found, &x.map(|x| 1.5 * x - 0.25));
    let found = backend.gated_add(&x_there, &gate_there, &y_there);
    let expected = Array::build(&shape, |i| x.values[i] + gate.values[i % c] * y.values[i]);
    suite.compare("gated_add", case(), tolerance, found, &expected);
    let found = backend.swiglu(&x_there, &y_there);
    let expected = x.zip(&y, |gate, up| reference::activate(gate, Activation::Silu) * up);
    suite.compare("swiglu", case(), tolerance, found, &expected);
}
