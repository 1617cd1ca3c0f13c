//! Cases for picture operations.

use super::weights;
use super::{Suite, reference};
use crate::{Backend, Conv2d, Format, Result};

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    let geometries = [
        Conv2d::same(1),
        Conv2d::same(3),
        Conv2d::same(5),
        Conv2d { kernel: 3, stride: 2, padding: [0, 1, 0, 1], upsample: 1 },
        Conv2d { kernel: 3, stride: 1, padding: [1; 4], upsample: 2 },
        Conv2d { kernel: 3, stride: 2, padding: [2, 0, 1, 3], upsample: 3 },
        Conv2d { kernel: 2, stride: 2, padding: [0, 2, 3, 0], upsample: 1 },
        Conv2d { kernel: 4, stride: 3, padding: [2, 1, 1, 2], upsample: 2 },
    ];
    for geometry in geometries {
        for (c, h, w, out) in [(1, 1, 1, 1), (2, 3, 2, 7), (3, 7, 5, 33), (7, 2, 65, 2), (33, 9, 33, 3), (3, 65, 7, 65)]
        {
            conv2d(suite, Format::F32, [c, h, w], out, geometry);
        }
    }
    // rows of a whole number of blocks
    for (format, c, kernel) in [
        (Format::F16, 7, 3),
        (Format::Bf16, 33, 3),
        (Format::Q8_0, 32, 3),
        (Format::Q8_0, 96, 1),
        (Format::Q4K, 256, 1),
        (Format::Q4K, 16, 4),
        (Format::Q6K, 256, 3),
    ] {
        for (h, w, out) in [(1, 1, 3), (3, 7, 2), (9, 33, 7)] {
            let upsampled = Conv2d { upsample: 2, ..Conv2d::same(kernel) };
            conv2d(suite, format, [c, h, w], out, Conv2d::same(kernel));
            conv2d(suite, format, [c, h, w], out, upsampled);
        }
    }
    for shape in [[1, 1, 1], [2, 3, 7], [3, 1, 65], [33, 7, 3], [65, 33, 2], [7, 65, 65]] {
        channel_norm(suite, shape);
    }
    for (c, h, w, channels, time, space) in [
        (1, 1, 1, 1, 1, 1),
        (3, 2, 6, 3, 1, 2),
        (3, 4, 2, 6, 1, 2),
        (2, 6, 4, 4, 2, 2),
        (7, 9, 3, 7, 2, 3),
        (4, 3, 5, 2, 1, 1),
        (33, 2, 66, 66, 1, 2),
    ] {
        let (backend, tolerance) = (suite.backend, suite.tolerance.element);
        let case = format!("[{c}, {h}, {w}] to {channels}, time {time}, space {space}");
        let x = suite.random.array(&[c, h, w]);
        let found = suite.upload(&x).and_then(|x| backend.average_down(&x, channels, time, space));
        let expected = reference::average_down(&x, channels, time, space);
        suite.compare("average_down", case, tolerance, found, &expected);
    }
    for (c, h, w, channels, time, space) in [
        (1, 1, 1, 1, 1, 1),
        (6, 2, 3, 3, 1, 2),
        (4, 3, 7, 4, 2, 2),
        (8, 1, 2, 2, 2, 2),
        (7, 3, 2, 7, 2, 3),
        (2, 5, 3, 4, 1, 1),
        (33, 2, 33, 66, 1, 2),
    ] {
        let (backend, tolerance) = (suite.backend, suite.tolerance.arrangement);
        let case = format!("[{c}, {h}, {w}] to {channels}, time {time}, space {space}");
        let x = suite.random.array(&[c, h, w]);
        let found = suite.upload(&x).and_then(|x| backend.duplicate_up(&x, channels, time, space));
        let expected = reference::duplicate_up(&x, channels, time, space);
        suite.compare("duplicate_up", case, tolerance, found, &expected);
    }
}

fn conv2d<B: Backend>(suite: &mut Suite<'_, B>, format: Format, shape: [usize; 3], out: usize, geometry: Conv2d) {
    let (x, bias) = (suite.random.array(&shape), suite.random.array(&[out]));
    let Conv2d { kernel, stride, padding, upsample } = geometry;
    let case = format!(
        "{}, {shape:?} to {out}, kernel {kernel}, stride {stride}, padding {padding:?}, upsample {upsample}",
        format.name()
    );
    let padded = [shape[1] * upsample + padding[0] + padding[1], shape[2] * upsample + padding[2] + padding[3]];
    if padded.iter().any(|&side| side < kernel) {
        return;
    }
    let (matrix, values) = match weights::random(&mut suite.random, format, out, shape[0] * kernel * kernel) {
        Ok(weight) => weight,
        Err(error) => return suite.compare("conv2d", case, 0.0, Err(error), &x),
    };
    for bias in [None, Some(&bias)] {
        let found: Result<_> = (|| {
            let bias = bias.map(|bias| suite.upload(bias)).transpose()?;
            suite.backend.conv2d(&suite.upload(&x)?, &suite.backend.load(&matrix)?, bias.as_ref(), geometry)
        })();
        let case = if bias.is_some() { format!("{case}, bias") } else { case.clone() };
        let expected = reference::conv2d(&suite.factor(&x), &suite.factor(&values), bias, geometry);
        suite.compare("conv2d", case, suite.tolerance.product, found, &expected);
    }
}

fn channel_norm<B: Backend>(suite: &mut Suite<'_, B>, shape: [usize; 3]) {
    let (backend, tolerance) = (suite.backend, suite.tolerance.element);
    let (mut x, gamma) = (suite.random.array(&shape), suite.random.array(&shape[..1]));
    // a pixel of zeros must stay one
    for channel in x.values.chunks_exact_mut(shape[1] * shape[2]).filter(|channel| channel.len() > 1) {
        channel[1] = 0.0;
    }
    for silu in [false, true] {
        let found = (|| backend.channel_norm(&suite.upload(&x)?, &suite.upload(&gamma)?, silu))();
        let case = format!("{shape:?}{}", if silu { ", SiLU" } else { "" });
        suite.compare("channel_norm", case, tolerance, found, &reference::channel_norm(&x, &gamma, silu));
    }
}
