//! Compares a checkpoint with what transformers computed with it: for `tests/fixtures/compare_looking.py`.
//!
//! Arguments: the checkpoint's folder and the file of values. Prints the largest relative difference, and fails when one
//! is above 1e-4 or a token is another.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

#[path = "../tests/looking/stages.rs"]
mod stages;

use std::path::PathBuf;

use atelier_pipelines::{Error, Result};
use stages::{Reference, STAGE, difference};

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder, values] = arguments.as_slice() else {
        return Err(Error::input("expected a checkpoint's folder and a file of values"));
    };
    let mut reference = Reference::open(folder, values)?;
    reference.read()?;
    let mut cache = reference.model.cache(reference.ids.len())?;
    let chunks = reference.in_chunks(&mut cache, 5)?;
    reference.compare("logits", &chunks)?;
    let expected = reference.expected_tokens()?;
    let mut cache = reference.model.cache(reference.ids.len() + expected.len())?;
    let (tokens, by_step) = reference.greedy(&mut cache)?;
    let (all, vocabulary) = (reference.at_once(&tokens)?, reference.model.config().text.vocabulary);
    for (step, logits) in by_step.iter().enumerate() {
        let row = &all[(reference.ids.len() - 1 + step) * vocabulary..][..vocabulary];
        reference.differences.push((format!("decoding step {step}"), difference(logits, row)));
    }
    let largest = reference.differences.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (stage, largest) = largest.ok_or_else(|| Error::input("nothing was compared"))?;
    let same = tokens.iter().zip(&expected).take_while(|(a, b)| a == b).count();
    println!(
        "  largest difference {largest:.1e} ({stage}), {same} of {} tokens the same ({} stages)",
        expected.len(),
        reference.differences.len()
    );
    if *largest > STAGE || same < expected.len() {
        return Err(Error::input(format!("differs: {:?} {tokens:?} {expected:?}", reference.differences)));
    }
    Ok(())
}
