//! Qwen3-VL configs: what is read, and what is refused by name.

use std::fs;
use std::path::Path;

use atelier_pipelines::Result;
use atelier_pipelines::image_to_text::Config;
use serde_json::{Value, json};

fn tiny() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/tiny/text_encoder/config.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn parse(config: &Value) -> Result<Config> {
    Config::parse(Path::new("model/config.json"), config.to_string().as_bytes())
}

/// The value at a dotted path, made when absent.
fn at<'a>(config: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(config, |value, key| &mut value[key])
}

#[test]
fn a_published_config_of_transformers_4_is_read() {
    // Qwen3-VL-8B-Instruct as on the Hub: rope_theta and rope_scaling, no rotary settings of the vision tower, and the
    // tower named like the model.
    let config = json!({
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "image_token_id": 151_655,
        "model_type": "qwen3_vl",
        "text_config": {
            "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151_643, "dtype": "bfloat16",
            "eos_token_id": 151_645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
            "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 262_144,
            "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
            "rope_scaling": { "mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default" },
            "rope_theta": 5_000_000, "use_cache": true, "vocab_size": 151_936
        },
        "tie_word_embeddings": false,
        "transformers_version": "4.57.0.dev0",
        "video_token_id": 151_656,
        "vision_config": {
            "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": 1152, "in_channels": 3, "initializer_range": 0.02, "intermediate_size": 4304,
            "model_type": "qwen3_vl", "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096,
            "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2
        },
        "vision_end_token_id": 151_653,
        "vision_start_token_id": 151_652
    });
    let config = parse(&config).unwrap();
    assert_eq!((config.text.rope_theta, config.text.mrope_section), (5e6, [24, 20, 20]));
    assert_eq!((config.vision.rope_theta, config.vision.position_side), (1e4, 48));
    assert_eq!(config.vision.deepstack, [8, 16, 24]);
}

#[test]
fn both_spellings_of_the_rotary_settings_are_the_same() {
    let new = parse(&tiny()).unwrap();
    let mut older = tiny();
    let text = older["text_config"].as_object_mut().unwrap();
    let mut rope = text.remove("rope_parameters").unwrap();
    let theta = rope.as_object_mut().unwrap().remove("rope_theta").unwrap();
    text.insert("rope_scaling".into(), rope);
    text.insert("rope_theta".into(), theta);
    assert_eq!(parse(&older).unwrap().text, new.text);
}

#[test]
fn what_is_not_implemented_is_refused_by_name() {
    for (path, value, words) in [
        ("model_type", json!("qwen2_vl"), "implemented is \"qwen3_vl\""),
        ("text_config.model_type", json!("qwen3_vl_moe_text"), "text_config.model_type"),
        ("text_config.hidden_act", json!("gelu"), "`text_config.hidden_act` is \"gelu\""),
        ("text_config.attention_bias", json!(true), "`text_config.attention_bias` is true"),
        ("text_config.sliding_window", json!(4096), "text_config.sliding_window"),
        ("text_config.rope_parameters.rope_type", json!("yarn"), "rope_type` is \"yarn\""),
        ("text_config.rope_parameters.mrope_interleaved", json!(false), "mrope_interleaved` is false"),
        ("text_config.rope_parameters.factor", json!(4.0), "`text_config.rope_parameters.factor`"),
        ("text_config.rope_scaling", json!({ "mrope_section": [1, 1, 1] }), "both `rope_parameters` and"),
        ("vision_config.hidden_act", json!("silu"), "`vision_config.hidden_act` is \"silu\""),
        ("vision_config.rope_parameters.rope_type", json!("default"), "axial"),
        ("quantization_config", json!({ "bits": 4 }), "quantization_config"),
    ] {
        let mut config = tiny();
        *at(&mut config, path) = value;
        let error = parse(&config).unwrap_err().to_string();
        assert!(error.starts_with("model/config.json: ") && error.contains(words), "{path}: {error}");
    }
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for (path, value, words) in [
        ("text_config.num_key_value_heads", json!(4), "no multiple of `num_key_value_heads`, 4"),
        ("text_config.num_key_value_heads", json!(0), "num_key_value_heads` is 0"),
        ("text_config.head_dim", json!(15), "even"),
        ("text_config.hidden_size", json!(48), "visual tokens would not fit"),
        ("text_config.hidden_size", json!(1u64 << 40), "expected 1 to"),
        ("text_config.hidden_size", json!(-40), "text_config.hidden_size"),
        ("text_config.num_hidden_layers", json!(1), "2 entries for 1 decoder layers"),
        ("text_config.rms_norm_eps", json!(0.0), "rms_norm_eps"),
        ("text_config.rope_parameters.rope_theta", json!(-1.0), "rope_theta"),
        ("vision_config.hidden_size", json!(30), "multiple of 4"),
        ("vision_config.num_position_embeddings", json!(26), "square"),
        ("vision_config.deepstack_visual_indexes", json!([2, 0]), "ascending"),
        ("vision_config.deepstack_visual_indexes", json!([0, 3]), "below 3"),
        ("vision_config.in_channels", json!(4), "in_channels"),
    ] {
        let mut config = tiny();
        *at(&mut config, path) = value;
        let error = parse(&config).unwrap_err().to_string();
        assert!(error.contains(words), "{path}: {error}");
    }
}

#[test]
fn a_missing_number_is_not_invented() {
    for (folder, optional) in [
        (
            "text_config",
            &[
                "attention_dropout",
                "bos_token_id",
                "eos_token_id",
                "initializer_range",
                "pad_token_id",
                "max_position_embeddings",
                "tie_word_embeddings",
                "use_cache",
            ][..],
        ),
        ("vision_config", &["initializer_range", "rope_parameters"][..]),
    ] {
        let keys: Vec<String> = tiny()[folder].as_object().unwrap().keys().cloned().collect();
        for key in keys {
            let mut config = tiny();
            config[folder].as_object_mut().unwrap().remove(&key);
            match parse(&config) {
                Ok(_) => assert!(optional.contains(&key.as_str()), "{folder}.{key} is missing and nobody minds"),
                Err(error) if key == "rope_parameters" => {
                    assert!(error.to_string().contains("rope_scaling"), "{error}");
                }
                Err(error) => assert!(error.to_string().contains(&key), "{folder}.{key}: {error}"),
            }
        }
    }
}
