//! Every family's tiny checkpoint against transformers and against itself: vision, positions, layers, logits, tokens,
//! chunks, caches.

#![expect(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod experts;
mod stages;

use std::path::{Path, PathBuf};

use atelier_pipelines::image_to_text::Cache;
use atelier_pipelines::progress::Cancel;

use stages::{Reference, STAGE, difference};

const FAMILIES: [&str; 3] = ["qwen3_vl", "qwen3_5", "qwen3_5_moe"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn reference(family: &str) -> Reference {
    // Qwen3-VL's is the painter's text encoder.
    let folder = if family == "qwen3_vl" { "tiny/text_encoder".into() } else { format!("looking/{family}") };
    Reference::open(&fixture(&folder), &fixture(&format!("looking/{family}.safetensors"))).unwrap()
}

fn cache(reference: &Reference, more: usize) -> Cache<atelier_kernels::cpu::Cpu> {
    reference.model.cache(reference.ids.len() + more).unwrap()
}

fn assert_close(case: &str, found: &[f32], expected: &[f32]) {
    let difference = difference(found, expected);
    assert!(difference <= STAGE, "{case}: {difference:.1e}");
}

#[test]
fn every_stage_is_that_of_transformers() {
    for family in FAMILIES {
        let mut reference = reference(family);
        reference.read().unwrap();
        println!("{family}: {:?}", reference.differences);
        // vision, positions, every layer before and after, logits
        assert!(reference.differences.len() > 10, "{}", reference.differences.len());
        for (stage, difference) in &reference.differences {
            assert!(*difference <= STAGE, "{family} {stage}: {difference:.1e}");
        }
    }
}

#[test]
fn the_tokens_that_follow_are_those_of_transformers() {
    for family in FAMILIES {
        let reference = reference(family);
        let expected = reference.expected_tokens().unwrap();
        assert_eq!(expected.len(), 64);
        let (tokens, by_step) = reference.greedy(&mut cache(&reference, 64)).unwrap();
        assert_eq!(tokens, expected, "{family}");

        // reading all of them at once gives what reading them one by one gave
        let all = reference.at_once(&tokens).unwrap();
        let vocabulary = reference.model.config().text.vocabulary;
        for (step, logits) in by_step.iter().enumerate() {
            let row = &all[(reference.ids.len() - 1 + step) * vocabulary..][..vocabulary];
            assert_close(&format!("{family}, step {step}"), logits, row);
        }
    }
}

#[test]
fn a_prompt_may_be_read_in_chunks() {
    for family in FAMILIES {
        let reference = reference(family);
        let whole = reference.at_once(&[]).unwrap();
        for chunk in [1, 2, 3, 7, 32, 64, 1000] {
            let found = reference.in_chunks(&mut cache(&reference, 0), chunk).unwrap();
            assert_close(&format!("{family}, chunks of {chunk}"), &found, &whole);
        }
    }
}

#[test]
fn going_back_is_as_if_nothing_had_been_read() {
    for family in FAMILIES {
        let reference = reference(family);
        let (backend, cancel) = (reference.backend(), Cancel::default());
        let read = |cache: &mut Cache<_>, start, length| {
            let part = reference.inputs.slice(backend, start, length).unwrap();
            reference.logits(&reference.model.read(&part, Some(cache), &cancel).unwrap()).unwrap()
        };
        for length in [0, 1, 2, 3, 50] {
            let mut fresh = cache(&reference, 0);
            if length > 0 {
                read(&mut fresh, 0, length);
            }
            let mut used = cache(&reference, 0);
            if length > 0 {
                read(&mut used, 0, length);
            }
            let checkpoint = used.checkpoint();
            read(&mut used, length, 9);
            let other = used.checkpoint();
            read(&mut used, length + 9, 5);

            let recurrent = family != "qwen3_vl";
            assert_eq!(used.recurrent(), recurrent);
            assert_eq!((checkpoint.len(), checkpoint.bytes() > 0), (length, recurrent));
            assert_eq!(used.rewind(length, None).is_err(), recurrent, "{family}: without a checkpoint");
            assert!(used.rewind(length, Some(&other)).is_err(), "{family}: with a checkpoint of another length");
            assert!(used.rewind(length + 15, None).is_err(), "{family}: to more than there is");
            let mut copy = used.copy(backend, length, Some(&checkpoint), length + 20).unwrap();
            used.rewind(length, Some(&checkpoint)).unwrap();
            // another continuation than the one that was forgotten
            let expected = read(&mut fresh, 60, 15);
            assert_eq!(read(&mut used, 60, 15), expected, "{family} back to {length}");
            assert_eq!(read(&mut copy, 60, 15), expected, "{family} copied to {length}");
        }
    }
}

#[test]
fn a_cache_counts_its_bytes() {
    for (family, keys, state) in [
        ("qwen3_vl", 3 * 2 * 2 * 16, 0),
        ("qwen3_5", 2 * 2 * 40, 4 * (3 * 168 + 6 * 12 * 20)),
        ("qwen3_5_moe", 2 * 2 * 2 * 40, 2 * (3 * 168 + 6 * 12 * 20)),
    ] {
        let reference = reference(family);
        let cache = reference.model.cache(10).unwrap();
        assert_eq!((cache.capacity(), cache.bytes()), (10, 4 * (10 * keys + state)), "{family}");
        assert_eq!(cache.checkpoint().bytes(), 4 * state);
    }
}
