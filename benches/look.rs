//! Times looking on the models of `make_looking_models.py`, stage by stage; prints one JSON object. `torch_looking.py` runs it
//! in turns with torch.
//!
//! ```text
//! cargo bench --bench look -- FOLDER [RUNS] [STAGE]
//! ```
//!
//! With one thread (`RAYON_NUM_THREADS=1`) the time is processor time, which other programs disturb less; else wall time.

#![expect(clippy::print_stdout, reason = "a program for people and scripts")]

use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result};
use atelier_kernels::Backend;
use atelier_kernels::cpu::{Cpu, Products, on_threads};
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{Grid, Model, Patches};
use atelier_pipelines::progress::Cancel;
use serde_json::{Map, Value, json};

/// Tokens in the cache before decoding starts, and tokens decoded.
const CONTEXT: usize = 512;
const DECODED: usize = 32;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let folder = arguments.next().context("which FOLDER? (make_looking_models.py writes one)")?;
    let runs = arguments.next().map_or(Ok(3), |runs| runs.parse())?;
    let stage = arguments.next().unwrap_or_default();
    // where operations start soonest
    let results = on_threads(|| measure(Path::new(&folder), runs, &stage))?;
    println!("{}", serde_json::to_string_pretty(&json!({ "device": Cpu::default().describe(), "best_s": results }))?);
    Ok(())
}

fn measure(folder: &Path, runs: usize, only: &str) -> Result<Map<String, Value>> {
    let mut results = Map::new();
    for stored in ["f32", "bf16", "q8_0", "q4_k"] {
        let model = Model::open(&Cpu::new(Products::F32), &Files::folder(folder.join(stored)))?;
        let mut stage = |name: &str, work: &dyn Fn() -> Result<f64>| -> Result<()> {
            if name.contains(only) {
                results.insert(format!("{name} {stored}"), json!(work()?));
            }
            Ok(())
        };
        if matches!(stored, "f32" | "bf16") {
            stage("vit 1024x1024", &|| vision(&model, runs))?;
        }
        stage("prefill 512", &|| prefill(&model, 512, runs))?;
        stage("prefill 1024", &|| prefill(&model, 1024, runs))?;
        stage("decode token", &|| decode(&model, runs))?;
        stage("output layer", &|| output(&model, 3 * runs))?;
    }
    Ok(results)
}

fn vision(model: &Model<Cpu>, runs: usize) -> Result<f64> {
    let (side, cancel) = (1024 / 16, Cancel::default());
    let grid = Grid { height: side, width: side, merge: 2 };
    let patches = Patches { grid, values: waves(side * side * 3 * 2 * 16 * 16) };
    best(runs, || Ok(model.see(&patches, &cancel).map(drop)?))
}

fn prefill(model: &Model<Cpu>, tokens: usize, runs: usize) -> Result<f64> {
    let (inputs, cancel) = (model.inputs(&ids(tokens), &[])?, Cancel::default());
    best(runs, || {
        let mut cache = model.cache(tokens)?;
        Ok(model.read(&inputs, Some(&mut cache), &cancel).map(drop)?)
    })
}

/// Seconds of one token, embedding to last layer; the output layer is [measured by itself](output).
fn decode(model: &Model<Cpu>, runs: usize) -> Result<f64> {
    let (ids, cancel) = (ids(CONTEXT + DECODED), Cancel::default());
    let inputs = model.inputs(&ids, &[])?;
    let mut cache = model.cache(ids.len())?;
    model.read(&inputs.slice(model.backend(), 0, CONTEXT)?, Some(&mut cache), &cancel)?;
    let seconds = best(runs, || {
        cache.rewind(CONTEXT, None)?;
        for i in CONTEXT..ids.len() {
            model.read(&inputs.slice(model.backend(), i, 1)?, Some(&mut cache), &cancel)?;
        }
        Ok(())
    })?;
    Ok(seconds / DECODED as f64)
}

fn output(model: &Model<Cpu>, runs: usize) -> Result<f64> {
    let states = model.embed(&[7])?;
    best(runs, || Ok(model.logits(&states).map(drop)?))
}

fn ids(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i * 7 % 400).collect()
}

/// Values that are neither constant nor zero.
fn waves(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn best(runs: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = clock();
        work()?;
        best = best.min(clock() - start);
    }
    Ok(best)
}

fn clock() -> f64 {
    // "user" and "system" are too coarse; the first number here is nanoseconds on a processor
    if std::env::var("RAYON_NUM_THREADS").is_ok_and(|threads| threads == "1")
        && let Ok(times) = std::fs::read_to_string("/proc/thread-self/schedstat")
        && let Some(nanoseconds) = times.split(' ').next().and_then(|first| first.parse::<f64>().ok())
    {
        return nanoseconds / 1e9;
    }
    START.elapsed().as_secs_f64()
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
