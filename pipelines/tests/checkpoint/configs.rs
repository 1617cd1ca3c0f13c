//! Configs, the scheduler's and the root's file.

use std::path::Path;

use atelier_pipelines::checkpoint::{Files, ModelIndex, parse_config};
use atelier_pipelines::text_to_image::schedule::SchedulerConfig;
use serde::Deserialize;

use crate::build::{assert_refused, folder};

#[derive(Debug, PartialEq, Deserialize)]
struct Config {
    layers: usize,
    rope: Rope,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Rope {
    theta: f64,
    sections: Vec<usize>,
}

fn parse(json: &[u8], ignored: &[&str]) -> atelier_pipelines::Result<Config> {
    parse_config(Path::new("x/config.json"), json, ignored)
}

#[test]
fn a_key_is_a_field_or_knowingly_ignored() {
    let json = br#"{"_name": 1, "layers": 2, "use_cache": true, "rope": {"theta": 5e6, "sections": [3, 3], "kind": {"a": 1}}}"#;
    let expected = Config { layers: 2, rope: Rope { theta: 5e6, sections: vec![3, 3] } };
    assert_eq!(parse(json, &["use_cache", "rope.kind"]).unwrap(), expected);
    assert_refused(parse(json, &["use_cache"]), &["x/config.json: unknown key `rope.kind`: this version"]);
    assert_refused(parse(json, &["kind"]), &["unknown keys `use_cache`, `rope.kind`"]);
}

#[test]
fn errors_name_key_line_and_column() {
    let cases: &[(&[u8], &[&str])] = &[
        (br#"{"layers": 2}"#, &["missing field `rope` at line 1 column 13"]),
        (b"{\"layers\": 2,\n \"rope\": {\"theta\": 1.0}}", &["key `rope`: missing field `sections` at line 2"]),
        (br#"{"layers": "2", "rope": {}}"#, &["key `layers`: invalid type: string \"2\", expected usize"]),
        (br#"{"layers": -2}"#, &["key `layers`: invalid value: integer `-2`"]),
        (br#"{"layers": 2.5}"#, &["key `layers`: invalid type: floating point `2.5`"]),
        (br#"{"layers": null}"#, &["key `layers`: invalid type: null"]),
        (br#"{"layers": 2, "rope": {"theta": 1, "sections": [1, "x"]}}"#, &["key `rope.sections[1]`: invalid type"]),
        (br#"{"layers": 2, "layers": 3}"#, &["duplicate field `layers`"]),
        (br#""x""#, &["invalid type: string"]),
        (br"", &["EOF while parsing a value at line 1 column 0"]),
        (br#"{"layers": 2,"#, &["EOF while parsing"]),
        (br#"{"layers": 2, "rope": {"theta": 1, "sections": []}} {}"#, &["trailing characters"]),
        (b"{\"layers\xff\": 2}", &["no UTF-8 text: bad byte at 8"]),
    ];
    for (json, pieces) in cases {
        assert_refused(parse(json, &[]), pieces);
    }
}

const INDEX: &str = r#"{
    "_class_name": "QwenImage21Pipeline",
    "_diffusers_version": "0.42.1",
    "is_distilled": true,
    "processor": ["transformers", "Qwen3VLProcessor"],
    "sample_sigmas": [1.0, 0.5],
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "Qwen3VLForConditionalGeneration"],
    "transformer": ["diffusers", "QwenImage21Transformer2DModel"],
    "vae": ["diffusers", "AutoencoderKLQwenImage21"]
}"#;

fn index(json: &str) -> atelier_pipelines::Result<ModelIndex> {
    ModelIndex::open(&Files::folder(folder(&[("model_index.json", json.as_bytes())]).path()))
}

#[test]
fn the_model_index_says_what_the_checkpoint_is() {
    let plain = ModelIndex::open(&Files::folder("../tests/fixtures/tiny")).unwrap();
    assert_eq!((plain.sample_sigmas, plain.processor), (None, "processor"));
    let turbo = index(INDEX).unwrap();
    assert_eq!(turbo, ModelIndex { sample_sigmas: Some(vec![1.0, 0.5]), processor: "processor", default_side: None });
    let tokenizer = INDEX.replace(
        r#""processor": ["transformers", "Qwen3VLProcessor"]"#,
        r#""tokenizer": ["transformers", "Qwen2Tokenizer"]"#,
    );
    assert_eq!(index(&tokenizer).unwrap().processor, "tokenizer");
    let side = INDEX.replace(r#""is_distilled": true"#, r#""default_side": 128, "extra": [null, null]"#);
    assert_eq!(index(&side).unwrap().default_side, Some(128));
}

#[test]
fn other_checkpoints_are_refused_by_name() {
    let changed = |from: &str, to: &str| {
        assert!(INDEX.contains(from));
        index(&INDEX.replace(from, to))
    };
    assert_refused(
        changed("QwenImage21P", "FluxP"),
        &["the pipeline \"FluxPipeline\" is not supported; supported is QwenImage21Pipeline"],
    );
    assert_refused(changed("_class_name", "_class"), &["`_class_name` is missing"]);
    assert_refused(
        changed("AutoencoderKLQwenImage21", "AutoencoderKL"),
        &["key `vae`: [\"diffusers\",\"AutoencoderKL\"] is not supported"],
    );
    assert_refused(changed(r#"["transformers", "Qwen3VLProcessor"]"#, "7"), &["key `processor`: 7 is not supported"]);
    assert_refused(changed(r#""transformer""#, r#""_transformer""#), &["key `transformer` is missing"]);
    assert_refused(changed(r#""processor""#, r#""_p""#), &["keys `processor` and `tokenizer` are both missing"]);
    assert_refused(
        changed("\"is_distilled\": true", r#""controlnet": ["diffusers", "X"]"#),
        &["unknown component `controlnet`"],
    );
    assert_refused(changed("[1.0, 0.5]", "[0.5, 1.0]"), &["key `sample_sigmas`: value 2 is 1, after 0.5"]);
    assert_refused(changed("[1.0, 0.5]", "[\"1\"]"), &["key `sample_sigmas`: invalid type"]);
    assert_refused(changed("[1.0, 0.5]", "[1.0, 0.5"), &["expected `,` or `]` at line 7"]);
    let empty = folder(&[("sd.ckpt", b"")]);
    assert_refused(
        ModelIndex::open(&Files::folder(empty.path())),
        &["is not a checkpoint: no model_index.json; found sd.ckpt"],
    );
    assert_refused(ModelIndex::open(&Files::folder(empty.path().join("sd.ckpt"))), &["is a file; expected the folder"]);
    assert_refused(ModelIndex::open(&Files::folder(empty.path().join("x"))), &["there is no such folder"]);
}

fn scheduler(options: &str) -> atelier_pipelines::Result<SchedulerConfig> {
    let json = format!(r#"{{"_class_name": "FlowMatchEulerDiscreteScheduler"{options}}}"#);
    SchedulerConfig::read(&Files::folder(folder(&[("scheduler/scheduler_config.json", json.as_bytes())]).path()))
}

#[test]
fn scheduler_options_are_checked() {
    scheduler("").unwrap();
    scheduler(r#", "use_karras_sigmas": true, "shift": 3.0, "shift_terminal": null"#).unwrap();
    assert_refused(scheduler(r#", "use_karras_sigmas": true, "use_beta_sigmas": true"#), &["only one can be true"]);
    assert_refused(scheduler(r#", "stochastic_sampling": true"#), &["`stochastic_sampling` is not supported"]);
    assert_refused(scheduler(r#", "time_shift_type": "cubic""#), &["key `time_shift_type`: unknown variant `cubic`"]);
    assert_refused(scheduler(r#", "shift": "3""#), &["key `shift`: invalid type"]);
    assert_refused(scheduler(r#", "num_train_timesteps": 0"#), &["`num_train_timesteps` is 0"]);
    assert_refused(scheduler(r#", "solver_order": 2"#), &["unknown key `solver_order`"]);
    assert_refused(scheduler(r#", "use_dynamic_shifting": true, "base_image_seq_len": 4096"#), &["are both 4096"]);
    let other = folder(&[("scheduler/scheduler_config.json", br#"{"_class_name": "DDIMScheduler"}"#)]);
    assert_refused(
        SchedulerConfig::read(&Files::folder(other.path())),
        &["the scheduler DDIMScheduler is not supported"],
    );
    let none = folder(&[("scheduler/x", b"")]);
    assert_refused(
        SchedulerConfig::read(&Files::folder(none.path())),
        &["scheduler_config.json: the checkpoint lacks this file", "holds x"],
    );
}
