//! Attention, norms and element-wise operations: best of several runs. `torch_attention.py` measures the same cases.
//!
//! `cargo bench -p atelier-kernels --bench attention [-- rates]`: `rates` leaves attention out.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::time::Instant;

use atelier_kernels::cpu::Cpu;
use atelier_kernels::{Activation, Attention, Backend, Result, Visible};

/// Queries, keys, heads, key and value heads, channels of a head.
const CASES: [(usize, usize, usize, usize, usize); 9] = [
    (1024, 1024, 16, 16, 64),
    (1024, 1024, 16, 16, 128),
    (4096, 4096, 16, 16, 64),
    (4096, 4096, 16, 16, 128),
    (1024, 1024, 16, 16, 72),
    (256, 256, 32, 8, 128),
    (1024, 1024, 1, 1, 1152),
    (4096, 4096, 1, 1, 1152),
    (1, 4096, 32, 8, 128),
];

fn main() -> Result<()> {
    let cpu = Cpu::default();
    let tensor = |shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.7).sin()).collect();
        cpu.upload(&values, shape)
    };
    let rates = std::env::args().any(|argument| argument == "rates");
    for (n, m, heads, kv_heads, dim) in CASES.into_iter().filter(|_| !rates) {
        let (q, k, v) = (tensor(&[n, heads * dim])?, tensor(&[m, kv_heads * dim])?, tensor(&[m, kv_heads * dim])?);
        let scale = 1.0 / (dim as f32).sqrt();
        let causal: Vec<u32> = (0..n).map(|i| u32::try_from(m - n + i + 1).unwrap_or(u32::MAX)).collect();
        for (name, visible) in [("all", Visible::All), ("causal", Visible::First(&causal))] {
            let shape = Attention { heads, kv_heads, scale, visible };
            let seconds = best(|| cpu.attention(&q, &k, &v, shape).map(drop))?;
            // products that the mask leaves
            let pairs = if name == "all" { n * m } else { n * (m - n) + n * (n + 1) / 2 };
            let work = 4.0 * (pairs * heads * dim) as f64;
            println!(
                "attention {name:<6} {n:>5} x {m:<5} {heads:>2}/{kv_heads:<2} heads of {dim:<4} {:>9.3} ms {:>7.1} GFLOP/s",
                seconds * 1e3,
                work / seconds / 1e9
            );
        }
    }
    let (x, y) = (tensor(&[1024, 4096])?, tensor(&[1024, 4096])?);
    let (weight, picture, gamma) = (tensor(&[4096])?, tensor(&[96, 256, 256])?, tensor(&[96])?);
    let (cos, sin) = (tensor(&[1024, 64])?, tensor(&[1024, 64])?);
    let rate = |name: &str, moved: usize, f: &dyn Fn() -> Result<candle_core::Tensor>| -> Result<()> {
        let seconds = best(|| f().map(drop))?;
        println!("{name:<20} {:>9.3} ms {:>7.1} GB/s", seconds * 1e3, 4.0 * moved as f64 / seconds / 1e9);
        Ok(())
    };
    let (size, pixels) = (1024 * 4096, 96 * 256 * 256);
    rate("add", 3 * size, &|| cpu.add(&x, &y))?;
    rate("gated_add", 3 * size, &|| cpu.gated_add(&x, &weight, &y))?;
    rate("silu", 2 * size, &|| cpu.activate(&x, Activation::Silu))?;
    rate("gelu", 2 * size, &|| cpu.activate(&x, Activation::Gelu))?;
    rate("gelu_tanh", 2 * size, &|| cpu.activate(&x, Activation::GeluTanh))?;
    rate("tanh", 2 * size, &|| cpu.activate(&x, Activation::Tanh))?;
    rate("swiglu", 3 * size, &|| cpu.swiglu(&x, &y))?;
    rate("rms_norm", 2 * size, &|| cpu.rms_norm(&x, &weight, 1e-6))?;
    rate("layer_norm", 2 * size, &|| cpu.layer_norm(&x, &weight, Some(&weight), 1e-6))?;
    rate("channel_norm", 2 * pixels, &|| cpu.channel_norm(&picture, &gamma, false))?;
    rate("channel_norm + silu", 2 * pixels, &|| cpu.channel_norm(&picture, &gamma, true))?;
    rate("rotary", 2 * size, &|| cpu.rotary(&x, 32, &cos, &sin, atelier_kernels::Rotary::Halves))?;
    rate("transpose", 2 * size, &|| cpu.transpose(&x))?;
    rate("columns", size, &|| cpu.columns(&x, 1024, 2048))?;
    rate("concat", 4 * size, &|| cpu.concat(&[&x, &y]))?;
    Ok(())
}

/// The shortest of the runs that fit into a second, five at least.
fn best(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let (start, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs < 5 || (start.elapsed().as_secs_f64() < 1.0 && runs < 1000) {
        let run = Instant::now();
        f()?;
        best = best.min(run.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok(best)
}
