//! Every kernel that this machine can run against `f64` loops.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::bf16;

use super::super::conv::Patches;
use super::super::linear::multiply;
use super::*;
use crate::cpu::blocks;
use crate::{Conv2d, Format};

const FORMATS: [(Format, GgmlDType); 6] = [
    (Format::F32, GgmlDType::F32),
    (Format::F16, GgmlDType::F16),
    (Format::Bf16, GgmlDType::BF16),
    (Format::Q8_0, GgmlDType::Q8_0),
    (Format::Q4K, GgmlDType::Q4K),
    (Format::Q6K, GgmlDType::Q6K),
];

fn values(n: usize) -> Vec<f32> {
    Tensor::randn(0f32, 1.0, n, &Device::Cpu).unwrap().to_vec1().unwrap()
}

/// A matrix at an odd address.
fn weight(format: Format, dtype: GgmlDType, rows: usize, columns: usize) -> Matrix {
    let dense = Tensor::from_vec(values(rows * columns), (rows, columns), &Device::Cpu).unwrap();
    let mut bytes = vec![0];
    bytes.extend_from_slice(&QTensor::quantize(&dense, dtype).unwrap().data().unwrap());
    Matrix::new(format, rows, columns, bytes::Bytes::from(bytes).slice(1..)).unwrap()
}

fn every_processor() -> impl Iterator<Item = (Processor, bool)> {
    let of = |products| Processor::available(products).into_iter();
    of(Products::F32).map(|p| (p, false)).chain(of(Products::Bf16).map(|p| (p, true)))
}

/// What goes into the product: the decoded weights, rounded if need be.
fn dense(weight: &Matrix, round: bool) -> Vec<f64> {
    let mut out = vec![0.0; weight.rows() * weight.columns()];
    for (row, out) in out.chunks_exact_mut(weight.columns()).enumerate() {
        blocks::decode_row(weight, row, 0, out);
    }
    factors(&out, round)
}

fn factors(values: &[f32], round: bool) -> Vec<f64> {
    values.iter().map(|v| f64::from(if round { bf16::from_f32(*v).to_f32() } else { *v })).collect()
}

/// Checks one product against `f64`. Roundings of `k` sums are about half a unit in the last place each and do not agree
/// with one another, so that the error grows as the root of `k` times the sum of the absolute products.
fn check(what: &str, found: f32, left: impl Iterator<Item = f64>, right: impl Iterator<Item = f64>, bias: f32) {
    let (mut sum, mut size) = (f64::from(bias), f64::from(bias).abs());
    let mut k = 0.0;
    for (a, b) in left.zip(right) {
        sum += a * b;
        size += (a * b).abs();
        k += 1.0;
    }
    let error = (f64::from(found) - sum).abs();
    assert!(
        error <= f64::from(f32::EPSILON) / 2.0 * (4.0 + f64::sqrt(k)) * size,
        "{what}: {found}, expected {sum}, sum of sizes {size}"
    );
}

#[test]
fn linear_layers_of_every_format_and_size() {
    for (format, dtype) in FORMATS {
        let depths: &[usize] = match format.block() {
            1 => &[1, 2, 7, 31, 255, 257, 513, 1030],
            32 => &[32, 96, 288, 544],
            _ => &[256, 768],
        };
        for &k in depths {
            for m in [1, 5, 12, 29] {
                let weight = weight(format, dtype, m, k);
                for n in [1, 2, 3, 7, 8, 9, 16, 33, 63] {
                    let x = values(n * k);
                    let bias = values(m);
                    for (processor, round) in every_processor() {
                        let out = multiply(processor, &x, n, &weight, Some(&bias));
                        let (dense, x) = (dense(&weight, round), factors(&x, round));
                        for (i, found) in out.iter().enumerate() {
                            let what = format!("{processor:?} {} [{n}, {k}] to {m}", format.name());
                            let left = x[i / m * k..][..k].iter().copied();
                            check(&what, *found, left, dense[i % m * k..][..k].iter().copied(), bias[i % m]);
                        }
                    }
                }
            }
        }
    }
}

/// The same numbers alone, among others, and with any number of threads.
#[test]
fn a_row_does_not_depend_on_its_company() {
    let (m, k, n) = (333, 700, 100);
    let weight = weight(Format::Bf16, GgmlDType::BF16, m, k);
    let x = values(n * k);
    for (processor, _) in every_processor() {
        let whole = multiply(processor, &x, n, &weight, None);
        let part = multiply(processor, &x[13 * k..60 * k], 47, &weight, None);
        assert_eq!(part, whole[13 * m..60 * m], "{processor:?}");
        let few = multiply(processor, &x[13 * k..16 * k], 3, &weight, None);
        let one = multiply(processor, &x[15 * k..16 * k], 1, &weight, None);
        assert_eq!(one, few[2 * m..], "{processor:?}");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert_eq!(pool.install(|| multiply(processor, &x, n, &weight, None)), whole, "{processor:?}");
    }
}

/// A column with a single one in it reads out a weight: exactly the decoded one, however it was decoded.
#[test]
fn few_columns_meet_the_decoded_weights() {
    for (format, dtype) in FORMATS {
        let (m, k) = (9, 512);
        let weight = weight(format, dtype, m, k);
        for (processor, round) in every_processor() {
            let dense = dense(&weight, round);
            for n in [1, 2, 4, FEW] {
                for first in (0..k).step_by(n) {
                    let mut x = vec![0.0; n * k];
                    (0..n).for_each(|j| x[j * k + first + j] = 1.0);
                    let out = multiply(processor, &x, n, &weight, None);
                    let weights: Vec<f32> = (0..n * m).map(|i| dense[i % m * k + first + i / m] as f32).collect();
                    assert_eq!(out, weights, "{processor:?} {}", format.name());
                }
            }
        }
    }
}

/// Few threads divide many columns, many threads the rows: the sums are the same.
#[test]
fn both_ways_to_divide_the_work_agree() {
    let (m, k, n) = (13, 1100, 2100);
    let weight = weight(Format::F32, GgmlDType::F32, m, k);
    let (x, bias) = (values(n * k), values(m));
    let with = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for (processor, _) in every_processor() {
        let [one, many] = [1, 4].map(|t| with(t).install(|| multiply(processor, &x, n, &weight, Some(&bias))));
        assert_eq!(one, many, "{processor:?}");
        let part = multiply(processor, &x[..20 * k], 20, &weight, Some(&bias));
        assert_eq!(part, one[..20 * m], "{processor:?}");
    }
}

#[test]
fn convolutions_of_every_geometry() {
    let geometries = [
        Conv2d::same(1),
        Conv2d::same(3),
        Conv2d { kernel: 3, stride: 2, padding: [0, 1, 0, 1], upsample: 1 },
        Conv2d { kernel: 3, stride: 1, padding: [1; 4], upsample: 2 },
        Conv2d { kernel: 2, stride: 3, padding: [2, 0, 1, 5], upsample: 3 },
        Conv2d { kernel: 1, stride: 2, padding: [0; 4], upsample: 1 },
        Conv2d { kernel: 5, stride: 1, padding: [0; 4], upsample: 1 },
    ];
    for (format, dtype) in [FORMATS[0], FORMATS[2]] {
        for geometry in geometries {
            for [c, h, w] in [[1, 5, 7], [3, 6, 65], [37, 9, 33], [130, 5, 5]] {
                let kernel = geometry.kernel;
                let (m, k) = (13, c * kernel * kernel);
                let weight = weight(format, dtype, m, k);
                let (x, bias) = (values(c * h * w), values(m));
                for (processor, round) in every_processor() {
                    let patches = Patches::new(&x, [c, h, w], geometry);
                    let out = product(processor, &weight, &patches, Some(&bias), Layout::Rows);
                    let (rows, columns) = geometry.output(h, w);
                    assert_eq!(out.len(), m * rows * columns);
                    let (dense, x) = (dense(&weight, round), factors(&x, round));
                    for (i, found) in out.iter().enumerate() {
                        let (o, y0, x0) = (i / (rows * columns), i / columns % rows, i % columns);
                        let patch = (0..k).map(|j| {
                            let at = |i: usize, offset: usize, padding: usize, size: usize| {
                                let at = (i * geometry.stride + offset).checked_sub(padding)? / geometry.upsample;
                                (at < size).then_some(at)
                            };
                            let y = at(y0, j / kernel % kernel, geometry.padding[0], h);
                            let column = at(x0, j % kernel, geometry.padding[2], w);
                            y.zip(column).map_or(0.0, |(y, column)| x[(j / (kernel * kernel) * h + y) * w + column])
                        });
                        let what = format!("{processor:?} {} {geometry:?} of {:?}", format.name(), [c, h, w]);
                        check(&what, *found, patch, dense[o * k..][..k].iter().copied(), bias[o]);
                    }
                }
            }
        }
    }
}

#[test]
fn empty_products() {
    for (processor, _) in every_processor() {
        for (m, n, k) in [(0, 20, 3), (3, 0, 3), (3, 20, 0), (3, 4, 0), (0, 4, 3)] {
            let weight = Matrix::from_f32(&vec![1.0; m * k], m, k).unwrap();
            let out = multiply(processor, &vec![1.0; n * k], n, &weight, Some(&vec![2.0; m]));
            assert_eq!(out, vec![2.0 + k as f32; n * m]);
        }
    }
}

#[test]
fn rounding_is_to_nearest_even() {
    let special = [0.0, -0.0, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE / 2.0, 1.003_906_3, 1.011_718_8, f32::NAN];
    for value in special.into_iter().chain(values(10_000)) {
        assert_eq!(panel::bf16_bits(value), u32::from(bf16::from_f32(value).to_bits()), "{value}");
    }
}
