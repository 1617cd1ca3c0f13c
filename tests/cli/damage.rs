//! Damaged checkpoints: each is refused with a message that names the file and what is wrong with it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Folder, copy_folder, tiny};

/// Paints with a copy of the tiny checkpoint after `damage`.
#[track_caller]
fn refused(damage: impl Fn(&Path), expected: &[&str]) {
    let folder = Folder::new();
    let model = folder.join("model");
    copy_folder(&tiny(), &model);
    damage(&model);
    let arguments = ["generate", "a", "--model", "model", "--size", "64x32", "--steps", "1", "-o", "a.png"];
    let run = folder.atelier(&arguments).fails(1, expected[0]);
    let error = run.stderr.split_once("error: ").unwrap().1;
    for expected in expected {
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
    }
    assert_eq!(folder.names(), ["model"]);
}

/// Changes a JSON file.
fn edit(path: &Path, change: impl Fn(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Changes the header of a safetensors file; the data stays.
fn edit_header(path: &Path, change: impl Fn(&mut Value)) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    change(&mut header);
    let header = header.to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &bytes[8 + length..]].concat();
    fs::write(path, bytes).unwrap();
}

/// Gives a JSON key a value, or removes it.
fn set(file: &'static str, key: &'static str, value: Option<Value>) -> impl Fn(&Path) {
    move |model| {
        edit(&model.join(file), |config| {
            let config = config.as_object_mut().unwrap();
            match value.clone() {
                Some(value) => config.insert(key.into(), value),
                None => config.remove(key),
            };
        });
    }
}

const TRANSFORMER: &str = "transformer/diffusion_pytorch_model.safetensors";
const VAE: &str = "vae/diffusion_pytorch_model.safetensors";
const TEXT: &str = "text_encoder/model.safetensors";

#[test]
fn missing_files() {
    for file in [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "transformer/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "processor/tokenizer.json",
    ] {
        let name = file.rsplit('/').next().unwrap();
        refused(|model| fs::remove_file(model.join(file)).unwrap(), &[name]);
    }
    for file in [TRANSFORMER, VAE, TEXT] {
        let (part, _) = file.split_once('/').unwrap();
        refused(|model| fs::remove_file(model.join(file)).unwrap(), &[part]);
    }
    refused(|model| fs::remove_dir_all(model.join("vae")).unwrap(), &["vae"]);
}

#[test]
fn files_that_are_no_json() {
    for file in [
        "model_index.json",
        "scheduler/scheduler_config.json",
        "transformer/config.json",
        "vae/config.json",
        "text_encoder/config.json",
        "processor/tokenizer.json",
    ] {
        for text in [&b""[..], b"{", b"[]", b"\xff\xfe"] {
            refused(|model| fs::write(model.join(file), text).unwrap(), &[file.rsplit('/').next().unwrap()]);
        }
    }
}

/// Configurations that agree with themselves and lead to sizes that no machine has, or to another kind of picture.
#[test]
fn configurations_beyond_the_pipeline() {
    let eighth = |model: &Path| {
        edit(&model.join("vae/config.json"), |config| {
            config["dim_mult"] = json!([1, 2, 4, 4]);
            config["temperal_downsample"] = json!([false, true, true]);
            config["scale_factor_spatial"] = json!(8);
        });
    };
    refused(eighth, &["vae/config.json", "scale_factor_spatial is 8", "16"]);
    for key in ["patch_size", "spatial_merge_size", "temporal_patch_size"] {
        let huge = |model: &Path| {
            edit(&model.join("text_encoder/config.json"), |config| config["vision_config"][key] = json!(1 << 23));
        };
        refused(huge, &["text_encoder/config.json", key, "1024"]);
    }
}

#[test]
fn wrong_configurations() {
    let t = "transformer/config.json";
    refused(set("model_index.json", "_class_name", Some(json!("FluxPipeline"))), &["model_index.json", "FluxPipeline"]);
    refused(set("model_index.json", "sample_sigmas", Some(json!("many"))), &["model_index.json", "sample_sigmas"]);
    refused(set(t, "num_layers", None), &[t, "num_layers"]);
    refused(set(t, "num_layers", Some(json!("three"))), &[t, "num_layers"]);
    refused(set(t, "num_layers", Some(json!(-1))), &[t, "num_layers"]);
    refused(set(t, "num_layers", Some(json!(2))), &["transformer"]);
    refused(set(t, "num_layers", Some(json!(4))), &["transformer", "missing"]);
    refused(set(t, "novelty", Some(json!(true))), &[t, "novelty"]);
    refused(set(t, "num_attention_heads", Some(json!(0))), &[t]);
    refused(set(t, "num_attention_heads", Some(json!(5))), &["transformer", "expected"]);
    refused(set(t, "axes_dims_rope", Some(json!([2, 4, 8]))), &[t]);
    refused(set(t, "in_channels", Some(json!(16))), &["in_channels"]);
    refused(set("vae/config.json", "z_dim", Some(json!(4))), &["z_dim"]);
    refused(set("vae/config.json", "latents_std", Some(json!([1.0]))), &["vae/config.json", "latents_std"]);
    refused(set("vae/config.json", "base_dim", Some(json!(1_000_000_000_000_u64))), &["vae"]);
    refused(set("text_encoder/config.json", "text_config", None), &["text_encoder/config.json", "text_config"]);
    refused(set("scheduler/scheduler_config.json", "shift", Some(json!("big"))), &["scheduler_config.json", "shift"]);
}

#[test]
fn lying_tensor_files() {
    for file in [TRANSFORMER, VAE, TEXT] {
        let bytes = fs::read(tiny().join(file)).unwrap();
        for (name, bytes) in [
            ("empty", Vec::new()),
            ("a few bytes", bytes[..5].to_vec()),
            ("cut in the header", bytes[..100].to_vec()),
            ("cut in the data", bytes[..bytes.len() - 1].to_vec()),
            ("longer than said", [&bytes[..], &[0; 16]].concat()),
            ("a header without end", [&u64::MAX.to_le_bytes()[..], &bytes[8..]].concat()),
            ("a header of zeros", [&bytes[..8], &vec![0; bytes.len() - 8][..]].concat()),
        ] {
            println!("{file}: {name}");
            refused(|model| fs::write(model.join(file), &bytes).unwrap(), &[file]);
        }
    }
}

#[test]
fn lying_tensor_headers() {
    let name = "proj_out.weight";
    let change = |change: fn(&mut Value)| move |model: &Path| edit_header(&model.join(TRANSFORMER), change);
    let swap: fn(&mut Value) = |header| {
        let tensor = header.as_object_mut().unwrap().remove("proj_out.weight").unwrap();
        header["proj_0ut.weight"] = tensor;
    };
    refused(change(swap), &[TRANSFORMER, name, "missing"]);
    refused(change(|header| header["proj_out.weight"]["shape"] = json!([36, 8])), &[TRANSFORMER, name, "expected"]);
    refused(change(|header| header["proj_out.weight"]["shape"] = json!([8])), &[TRANSFORMER, name]);
    refused(change(|header| header["proj_out.weight"]["dtype"] = json!("I64")), &[TRANSFORMER]);
    refused(change(|header| header["proj_out.weight"]["data_offsets"] = json!([0, 1_u64 << 40])), &[TRANSFORMER]);
    refused(change(|header| header["proj_out.weight"]["data_offsets"] = json!([8, 4])), &[TRANSFORMER]);
    refused(change(|header| header["proj_out.weight"]["shape"] = json!([u64::MAX, u64::MAX])), &[TRANSFORMER]);
}

#[test]
fn values_that_are_not_finite() {
    for file in [TRANSFORMER, VAE, TEXT] {
        refused(
            |model| {
                let path = model.join(file);
                let mut bytes = fs::read(&path).unwrap();
                let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                for value in bytes[8 + length..].chunks_exact_mut(4) {
                    value.copy_from_slice(&f32::NAN.to_le_bytes());
                }
                fs::write(path, bytes).unwrap();
            },
            &["finite"],
        );
    }
}
