//! Times the three heavy stages on the models of `make_models.py`, as `torch_peer.py` does; prints one JSON object.
//!
//! ```text
//! cargo bench --bench paint -- FOLDER [RUNS]
//! ```

#![expect(clippy::print_stdout, reason = "a program for people and scripts")]

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use atelier_kernels::Backend;
use atelier_kernels::cpu::{Cpu, Products};
use atelier_pipelines::checkpoint::{Files, Part};
use atelier_pipelines::progress::Cancel;
use atelier_pipelines::text_to_image::prompt::Tokens;
use atelier_pipelines::text_to_image::rope::Layout;
use atelier_pipelines::text_to_image::text_encoder::TextEncoder;
use atelier_pipelines::text_to_image::transformer::Transformer;
use atelier_pipelines::text_to_image::vae::{Half, Tiling, Vae};
use serde_json::json;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = arguments.next().context("which FOLDER? (make_models.py writes one)")?;
    let runs = arguments.next().map_or(Ok(7), |runs| runs.parse())?;
    let files = Files::folder(Path::new(&folder));
    let mut results = serde_json::Map::new();
    for (name, part, products) in [
        ("transformer_step", "transformer", Products::F32),
        ("transformer_step_bf16", "transformer-bf16", Products::Bf16),
        ("transformer_step_q8_0", "transformer-q8_0", Products::Bf16),
    ] {
        results.insert(name.into(), transformer_step(&files, part, products, runs)?);
    }
    results.insert("vae_decode".into(), vae_decode(&files, runs)?);
    results.insert("text_encoder".into(), text_encoder(&files, runs)?);
    println!("{}", serde_json::to_string_pretty(&json!({ "device": Cpu::default().describe(), "results": results }))?);
    Ok(())
}

/// 1,024 target tokens against a kept prefix of 64 text tokens.
fn transformer_step(files: &Files, part: &str, products: Products, runs: usize) -> Result<serde_json::Value> {
    let (backend, cancel) = (Cpu::new(products), Cancel::default());
    let transformer = Transformer::load(&backend, &Part::open(files, part)?)?;
    let config = transformer.config();
    let states = backend.upload(&waves(64 * config.context_in_dim), &[64, config.context_in_dim])?;
    let latents = backend.upload(&waves(1024 * config.in_channels), &[1024, config.in_channels])?;
    let layout = Layout::new(&[false; 64], &[], (32, 32))?;
    let mut prefix = transformer.prefix(&states, &[], &layout, &cancel)?;
    measure(runs, || Ok(transformer.velocity(&mut prefix, &latents, 0.5, &cancel).map(drop)?))
}

/// One 256x256 picture.
fn vae_decode(files: &Files, runs: usize) -> Result<serde_json::Value> {
    let (backend, cancel) = (Cpu::default(), Cancel::default());
    let vae = Vae::load(&backend, files, Half::Decoder)?;
    let channels = vae.config().z_dim;
    let latents = backend.upload(&waves(256 * channels), &[256, channels])?;
    measure(runs, || Ok(vae.decode(&latents, (16, 16), Tiling::Off, &cancel, &mut |_, _| ()).map(drop)?))
}

/// 256 tokens.
fn text_encoder(files: &Files, runs: usize) -> Result<serde_json::Value> {
    let (backend, cancel) = (Cpu::default(), Cancel::default());
    let encoder = TextEncoder::load(&backend, files, false)?;
    let tokens = Tokens { ids: (0..256).map(|i| i * 7 % 400).collect(), dropped: 0 };
    measure(runs, || Ok(encoder.encode(&tokens, &[], &cancel).map(drop)?))
}

/// Values that are neither constant nor zero.
fn waves(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin() * 1.3).collect()
}

fn measure(runs: usize, mut work: impl FnMut() -> Result<()>) -> Result<serde_json::Value> {
    work()?;
    let mut seconds = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(json!({ "best_s": seconds[0], "median_s": seconds[runs / 2], "runs": runs }))
}
