//! Speed of the matrix products at the models' shapes, each next to candle's on the same values in the same run.
//!
//! `cargo bench -p atelier-kernels [-- NAME]`: best of several rounds, on all threads. GFLOP/s count a multiplication and
//! an addition each.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::hint::black_box;
use std::time::Instant;

use atelier_kernels::cpu::{Cpu, Products};
use atelier_kernels::{Backend, Conv2d, Format, Matrix};
use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{Device, Module, Result, Tensor};

const FORMATS: [(Format, GgmlDType); 5] = [
    (Format::F32, GgmlDType::F32),
    (Format::Bf16, GgmlDType::BF16),
    (Format::Q8_0, GgmlDType::Q8_0),
    (Format::Q6K, GgmlDType::Q6K),
    (Format::Q4K, GgmlDType::Q4K),
];

/// Tokens, input and output channels: the transformer of the speed test, the text encoder, single tokens.
const LINEAR: [(usize, usize, usize); 7] = [
    (1024, 1024, 1024),
    (1024, 1024, 3072),
    (1024, 3072, 1024),
    (256, 2048, 2048),
    (256, 2048, 6144),
    (256, 6144, 2048),
    (1, 2048, 6144),
];

/// Input and output channels, side of the input, side of the kernel, upsampling: the VAE decoder for 256 x 256 pixels.
const CONV: [(usize, usize, usize, usize, usize); 8] = [
    (64, 1152, 16, 3, 1),
    (1152, 1152, 16, 3, 1),
    (1152, 1152, 32, 3, 1),
    (576, 576, 64, 3, 1),
    (288, 288, 128, 3, 1),
    (288, 288, 64, 3, 2),
    (144, 144, 256, 3, 1),
    (1152, 576, 64, 1, 1),
];

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    println!("{} and {}", Cpu::new(Products::F32).describe(), Cpu::new(Products::Bf16).describe());
    println!("{:<34} {:>9} {:>9} {:>9}", "GFLOP/s", "f32", "bf16", "candle");
    for (n, k, m) in LINEAR {
        for (format, dtype) in FORMATS {
            let name = format!("linear {} {n} x {k} -> {m}", format.name());
            if name.contains(&filter) {
                linear(&name, (n, k, m), format, dtype)?;
            }
        }
    }
    for (c, m, side, kernel, upsample) in CONV {
        let name = format!("conv {kernel}x{kernel} {c} -> {m}, {side} px{}", if upsample > 1 { ", up" } else { "" });
        if name.contains(&filter) {
            convolution(&name, c, m, side, Conv2d { upsample, ..Conv2d::same(kernel) })?;
        }
    }
    Ok(())
}

fn linear(name: &str, (n, k, m): (usize, usize, usize), format: Format, dtype: GgmlDType) -> Result<()> {
    let x = Tensor::randn(0f32, 1.0, (n, k), &Device::Cpu)?;
    let stored = QTensor::quantize(&Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu)?, dtype)?;
    let weight = Matrix::new(format, m, k, stored.data()?.into_owned().into()).expect("the shape of the bytes");
    let peer: Box<dyn Module> = if format == Format::F32 {
        Box::new(candle_nn::Linear::new(stored.dequantize(&Device::Cpu)?, None))
    } else {
        Box::new(QMatMul::from_arc(stored.into())?)
    };
    let flop = 2.0 * (n * k * m) as f64;
    let ours = |products| rate(flop, || Cpu::new(products).linear(&x, &weight, None).expect("shapes that fit"));
    let rates = [ours(Products::F32), ours(Products::Bf16), rate(flop, || peer.forward(&x).expect("shapes that fit"))];
    report(name, &rates);
    Ok(())
}

fn convolution(name: &str, c: usize, m: usize, side: usize, geometry: Conv2d) -> Result<()> {
    let kernel = geometry.kernel;
    let x = Tensor::randn(0f32, 1.0, (c, side, side), &Device::Cpu)?;
    let dense = Tensor::randn(0f32, 1.0, (m, c, kernel, kernel), &Device::Cpu)?;
    let weight = Matrix::from_f32(&dense.flatten_all()?.to_vec1()?, m, c * kernel * kernel).expect("the shape");
    let out = side * geometry.upsample;
    let flop = 2.0 * (m * c * kernel * kernel * out * out) as f64;
    let ours = |products| rate(flop, || Cpu::new(products).conv2d(&x, &weight, None, geometry).expect("fits"));
    let batch = x.unsqueeze(0)?;
    let peer = rate(flop, || {
        let x = if geometry.upsample > 1 { batch.upsample_nearest2d(out, out).expect("fits") } else { batch.clone() };
        x.conv2d(&dense, kernel / 2, 1, 1, 1).expect("fits")
    });
    report(name, &[ours(Products::F32), ours(Products::Bf16), peer]);
    Ok(())
}

/// GFLOP/s of the best of at least five rounds and half a second.
fn rate<T>(flop: f64, mut work: impl FnMut() -> T) -> f64 {
    black_box(work());
    let start = Instant::now();
    let mut best = f64::INFINITY;
    for round in 0.. {
        let start_round = Instant::now();
        black_box(work());
        best = best.min(start_round.elapsed().as_secs_f64());
        if round >= 4 && start.elapsed().as_secs_f64() > 0.5 {
            break;
        }
    }
    flop / best / 1e9
}

fn report(name: &str, [f32, bf16, candle]: &[f64; 3]) {
    println!("{name:<34} {f32:>9.1} {bf16:>9.1} {candle:>9.1}   {:.1} x candle", f32 / candle);
}
