//! No bytes make the readers panic, run long or take more memory than a small multiple of the file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use atelier_pipelines::checkpoint::{Files, ModelIndex, parse_config};
use atelier_pipelines::text_to_image::schedule::SchedulerConfig;
use proptest::prelude::*;
use serde::Deserialize;

use crate::build::{f32s, folder, gguf, open, raw_safetensors, safetensors};

/// Counts what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

#[expect(unsafe_code, reason = "an allocator is an unsafe trait")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.get().wrapping_add(layout.size());
        HELD.set(held);
        PEAK.set(PEAK.get().max(held));
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Opens a part of one file and asks it everything; what it answers must have cost memory in proportion to the file.
fn survives(name: &str, bytes: &[u8]) {
    let folder = folder(&[(name, bytes)]);
    let before = HELD.get();
    PEAK.set(before);
    if let Ok(part) = open(folder.path()) {
        let weights = part.weights();
        let _ = (part.bytes(), part.format(), weights.finish());
        let _ =
            (weights.matrix("w", 2, 3), weights.vector("w", 6), weights.array("v", &[2]), weights.kernel("q", 1, 8, 2));
        weights.ignore("w");
    }
    let taken = PEAK.get() - before;
    let allowed = 16_384 + 32 * bytes.len();
    assert!(taken <= allowed, "{taken} bytes of memory for a file of {}", bytes.len());
}

/// A valid file with some bytes changed, cut or added.
fn mutated(whole: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = whole.len();
    let edits = prop::collection::vec((0..length, any::<u8>()), 0..6);
    let cut = prop_oneof![3 => Just(length), 1 => 0..length];
    (edits, cut, prop::collection::vec(any::<u8>(), 0..4)).prop_map(move |(edits, cut, extra)| {
        let mut bytes = whole.clone();
        for (at, value) in edits {
            bytes[at] = value;
        }
        bytes.truncate(cut);
        bytes.extend(extra);
        bytes
    })
}

fn small_safetensors() -> Vec<u8> {
    safetensors(&[("w", "F32", &[2, 3], f32s(&[1.0; 6])), ("v", "BF16", &[2], vec![0; 4])])
}

fn small_gguf() -> Vec<u8> {
    gguf(3, &[("w", 0, &[2, 3], f32s(&[1.0; 6])), ("q", 8, &[1, 32], vec![0; 34])])
}

/// Text that looks like JSON more often than not.
fn json_like() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just(","),
        Just(":"),
        Just("1"),
        Just("-1"),
        Just("1e999"),
        Just("null"),
        Just("true"),
        Just("\"w\""),
        Just("\"layers\""),
        Just("\"rope\""),
        Just("\"dtype\""),
        Just("\"F32\""),
        Just("\"shape\""),
        Just("\"data_offsets\""),
        Just("\"__metadata__\""),
        Just("\"\\ud800\""),
        Just("18446744073709551615"),
    ];
    prop::collection::vec(token, 0..60).prop_map(|tokens| tokens.concat())
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read for the sake of reading")]
struct Config {
    layers: usize,
    rope: Option<Vec<f64>>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survives("model.safetensors", &bytes);
        survives("model.gguf", &bytes);
        survives("model.gguf", &[b"GGUF\x03\0\0\0", &bytes[..]].concat());
        let _ = parse_config::<Config>(Path::new("config.json"), &bytes, &[]);
    }

    #[test]
    fn arbitrary_headers(text in json_like(), data in 0_usize..40) {
        survives("model.safetensors", &raw_safetensors(text.as_bytes(), &vec![0; data]));
        survives("model.safetensors.index.json", text.as_bytes());
        let _ = parse_config::<Config>(Path::new("config.json"), text.as_bytes(), &["w"]);
    }

    #[test]
    fn mutated_safetensors(bytes in mutated(small_safetensors())) {
        survives("model.safetensors", &bytes);
    }

    #[test]
    fn mutated_gguf(bytes in mutated(small_gguf())) {
        survives("model.gguf", &bytes);
    }

    #[test]
    fn mutated_configs(
        index in mutated(std::fs::read("../tests/fixtures/tiny/model_index.json").unwrap()),
        scheduler in mutated(std::fs::read("../tests/fixtures/tiny/scheduler/scheduler_config.json").unwrap()),
    ) {
        let folder = folder(&[("model_index.json", &index), ("scheduler/scheduler_config.json", &scheduler)]);
        let files = Files::folder(folder.path());
        let _ = (ModelIndex::open(&files), SchedulerConfig::read(&files));
    }

    #[test]
    fn tensors_come_back_as_they_were_written(
        values in prop::collection::vec(any::<f32>(), 1..50),
        columns in 1_usize..7,
    ) {
        let rows = values.len() / columns;
        let values = &values[..rows * columns];
        for (name, file) in [
            ("model.safetensors", safetensors(&[("w", "F32", &[rows, columns], f32s(values))])),
            ("model.gguf", gguf(2, &[("w", 0, &[rows, columns], f32s(values))])),
        ] {
            let weights = open(folder(&[(name, &file)]).path()).unwrap().weights();
            let found = weights.array("w", &[rows, columns]).unwrap();
            prop_assert_eq!(f32s(&found), f32s(values));
            weights.finish().unwrap();
        }
    }
}

#[test]
fn every_truncated_config_is_refused() {
    let whole = std::fs::read("../tests/fixtures/tiny/scheduler/scheduler_config.json").unwrap();
    let end = whole.iter().rposition(|&byte| byte == b'}').unwrap();
    for length in 0..=end {
        let folder = folder(&[("scheduler/scheduler_config.json", &whole[..length])]);
        SchedulerConfig::read(&Files::folder(folder.path())).expect_err("truncated");
    }
}

#[test]
fn headers_of_many_tiny_tensors_stay_cheap() {
    let names: Vec<String> = (0..2000).map(|i| i.to_string()).collect();
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "F32", &[0_usize][..], Vec::new())).collect();
    survives("model.safetensors", &safetensors(&empty));
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), 0, &[0_usize][..], Vec::new())).collect();
    survives("model.gguf", &gguf(3, &empty));
}
