//! Cases for operations that only move values.

use super::{Array, Suite, reference};
use crate::{Backend, Result};

/// Operations that sum still round; everything else here must come back as it went in.
pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    let (exact, element) = (suite.tolerance.arrangement, suite.tolerance.element);
    let backend = suite.backend;
    for shape in [[1, 1], [1, 33], [2, 3], [7, 1], [33, 65], [65, 130]] {
        let [n, c] = shape;
        let case = || format!("{n}x{c}");
        let x = suite.random.array(&shape);
        let found = suite.upload(&x);
        suite.compare("upload", case(), exact, found, &x);

        let found = suite.upload(&x).and_then(|x| backend.reshape(&x, &[c, 1, n]));
        suite.compare("reshape", case(), exact, found, &x.clone().reshaped(&[c, 1, n]));

        let found = suite.upload(&x).and_then(|x| backend.transpose(&x));
        suite.compare("transpose", case(), exact, found, &reference::transpose(&x));

        let (start, length) = (n / 3, n - n / 3 - n / 4);
        let expected = x.rows(start, length);
        let found = suite.upload(&x).and_then(|x| backend.rows(&x, start, length));
        suite.compare("rows", format!("{start}..+{length} of {}", case()), exact, found, &expected);
        // a part of a tensor must serve every operation as well as a whole one
        let found = suite.upload(&x).and_then(|x| backend.transpose(&backend.rows(&x, start, length)?));
        suite.compare(
            "transpose",
            format!("rows {start}..+{length} of {}", case()),
            exact,
            found,
            &reference::transpose(&expected),
        );

        let (start, length) = (c / 3, c - c / 3 - c / 4);
        let expected = Array::build(&[n, length], |i| x.values[i / length * c + start + i % length]);
        let found = suite.upload(&x).and_then(|x| backend.columns(&x, start, length));
        suite.compare("columns", format!("{start}..+{length} of {}", case()), exact, found, &expected);

        // every other row, last first
        let at: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
        let values = suite.random.array(&[at.len(), c]);
        let change = |f: &dyn Fn(f64, f64) -> f64| {
            let mut changed = x.clone();
            for (i, row) in at.iter().enumerate() {
                for j in 0..c {
                    let old = &mut changed.values[*row as usize * c + j];
                    *old = f(*old, values.values[i * c + j]);
                }
            }
            changed
        };
        let (replaced, added) = (change(&|_, new| new), change(&|old, new| old + new));
        let found = pair(suite, &x, &values).and_then(|(x, values)| backend.replace_rows(&x, &at, &values));
        suite.compare("replace_rows", case(), exact, found, &replaced);
        let found = pair(suite, &x, &values).and_then(|(x, values)| backend.add_rows(&x, &at, &values));
        suite.compare("add_rows", case(), element, found, &added);
    }
    concat(suite, &[&[1, 1]]);
    concat(suite, &[&[1, 3], &[2, 3], &[7, 3]]);
    concat(suite, &[&[33, 65], &[1, 65]]);
    concat(suite, &[&[2, 3, 7], &[1, 3, 7], &[3, 3, 7]]);
    fixed_row(suite);
}

fn concat<B: Backend>(suite: &mut Suite<'_, B>, shapes: &[&[usize]]) {
    let parts: Vec<Array> = shapes.iter().map(|shape| suite.random.array(shape)).collect();
    let mut shape = shapes[0].to_vec();
    shape[0] = shapes.iter().map(|shape| shape[0]).sum();
    let expected = Array { shape, values: parts.iter().flat_map(|part| part.values.clone()).collect() };
    let tensors: Result<Vec<_>> = parts.iter().map(|part| suite.upload(part)).collect();
    let found = tensors.and_then(|tensors| suite.backend.concat(&tensors.iter().collect::<Vec<_>>()));
    suite.compare("concat", format!("{shapes:?}"), suite.tolerance.arrangement, found, &expected);
}

/// A row that is named twice is added to twice.
fn fixed_row<B: Backend>(suite: &mut Suite<'_, B>) {
    let (x, values) = (suite.random.array(&[3, 7]), suite.random.array(&[2, 7]));
    let expected = Array::build(&[3, 7], |i| {
        x.values[i] + if i / 7 == 1 { values.values[i % 7] + values.values[7 + i % 7] } else { 0.0 }
    });
    let found = pair(suite, &x, &values).and_then(|(x, values)| suite.backend.add_rows(&x, &[1, 1], &values));
    suite.compare("add_rows", "one row twice".into(), suite.tolerance.element, found, &expected);
}

fn pair<B: Backend>(suite: &Suite<'_, B>, x: &Array, y: &Array) -> Result<(B::Tensor, B::Tensor)> {
    Ok((suite.upload(x)?, suite.upload(y)?))
}
