//! Products of one token or a few, bound by reading the weights: gigabytes of weights per second, next to the rate at which
//! the same threads can read memory at all, measured in turns.
//!
//! `cargo bench -p atelier-kernels --bench few [-- NAME]`; `torch_few.py` measures torch. The weights of a case are a
//! quarter of a gigabyte, more than any cache.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

use atelier_kernels::cpu::{Cpu, Products};
use atelier_kernels::{Backend, Format, Matrix};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;

const FORMATS: [(Format, GgmlDType); 6] = [
    (Format::F32, GgmlDType::F32),
    (Format::Bf16, GgmlDType::BF16),
    (Format::F16, GgmlDType::F16),
    (Format::Q8_0, GgmlDType::Q8_0),
    (Format::Q6K, GgmlDType::Q6K),
    (Format::Q4K, GgmlDType::Q4K),
];
/// Input and output channels: an attention projection and both ways of the MLP of a 2B decoder.
const SHAPES: [(usize, usize); 3] = [(2048, 2048), (2048, 6144), (6144, 2048)];
const TOKENS: [usize; 4] = [1, 2, 4, 8];
const BYTES: usize = 256 << 20;
/// Passes over them that are timed together.
const PASSES: usize = 4;

fn main() -> Result<()> {
    // on a thread of the pool, as the program runs
    rayon::scope(|_| run())
}

fn run() -> Result<()> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    println!("{}", Cpu::new(Products::F32).describe());
    println!("{:<26} {:>9} {:>9} {:>9} {:>9} {:>9}", "GB/s, tokens:", "memory", 1, 2, 4, 8);
    for (k, m) in SHAPES {
        for (format, dtype) in FORMATS {
            let name = format!("{} {k} -> {m}", format.name());
            if name.contains(&filter) {
                case(&name, (k, m), format, dtype)?;
            }
        }
    }
    Ok(())
}

fn case(name: &str, (k, m): (usize, usize), format: Format, dtype: GgmlDType) -> Result<()> {
    let stored = QTensor::quantize(&Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu)?, dtype)?.data()?.into_owned();
    let copies = BYTES.div_ceil(stored.len());
    let bytes = bytes::Bytes::from(stored.repeat(copies));
    let weight = |i: usize| Matrix::new(format, m, k, bytes.slice(i * stored.len()..(i + 1) * stored.len()));
    let weights: Vec<Matrix> = (0..copies).map(|i| weight(i).expect("the shape of the bytes")).collect();
    let cpu = Cpu::new(Products::F32);
    let x = |n: usize| Tensor::randn(0f32, 1.0, (n, k), &Device::Cpu);
    let x = TOKENS.iter().map(|n| x(*n)).collect::<Result<Vec<_>>>()?;
    let mut best = [f64::INFINITY; 1 + TOKENS.len()];
    for _ in 0..5 {
        for (i, best) in best.iter_mut().enumerate() {
            let start = clock();
            for _ in 0..PASSES {
                if i == 0 {
                    black_box(read(&bytes));
                } else {
                    for weight in &weights {
                        black_box(cpu.linear(&x[i - 1], weight, None).expect("shapes that fit"));
                    }
                }
            }
            *best = best.min((clock() - start) / PASSES as f64);
        }
    }
    let rate = |seconds: &f64| format!("{:>9.1}", bytes.len() as f64 / seconds / 1e9);
    println!("{name:<26} {}", best.iter().map(rate).collect::<Vec<_>>().join(" "));
    Ok(())
}

/// Seconds. With one thread the processor time of it, which other programs on the machine disturb less; else wall time.
fn clock() -> f64 {
    if rayon::current_num_threads() == 1
        && let Ok(times) = std::fs::read_to_string("/proc/thread-self/schedstat")
        && let Some(nanoseconds) = times.split(' ').next().and_then(|first| first.parse::<f64>().ok())
    {
        return nanoseconds / 1e9;
    }
    START.elapsed().as_secs_f64()
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reads every byte once, on all threads.
fn read(bytes: &[u8]) -> u64 {
    let share = bytes.len().div_ceil(8 * rayon::current_num_threads()).next_multiple_of(64);
    let sum = |bytes: &[u8]| {
        let mut sums = [0_u64; 32];
        for chunk in bytes.as_chunks::<256>().0 {
            for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
                *sum ^= u64::from_ne_bytes(*word);
            }
        }
        sums.iter().fold(0, |a, b| a ^ b)
    };
    bytes.par_chunks(share).map(sum).reduce(|| 0, |a, b| a ^ b)
}
