//! Several files with an index.

use atelier_kernels::Format;
use atelier_pipelines::checkpoint::{Files, Part};

use crate::build::{assert_refused, f32s, folder, open, safetensors};

const INDEX: &str = "diffusion_pytorch_model.safetensors.index.json";

fn shard(name: &str) -> Vec<u8> {
    safetensors(&[(name, "F32", &[1], f32s(&[1.0]))])
}

fn refused(index: &str, pieces: &[&str]) {
    let files = folder(&[
        (INDEX, index.as_bytes()),
        ("a.safetensors", &shard("a")),
        ("b.safetensors", &shard("b")),
        ("c.safetensors", &shard("a")),
    ]);
    assert_refused(open(files.path()), pieces);
}

#[test]
fn shards_hold_the_tensors_of_the_whole() {
    let fixtures = Files::folder("../tests/fixtures");
    let whole = Part::open(&fixtures, "tiny/transformer").unwrap();
    let sharded = Part::open(&fixtures, "variants/sharded-bf16/transformer").unwrap();
    assert_eq!((whole.format(), sharded.format()), (Some(Format::F32), Some(Format::Bf16)));
    assert_eq!(whole.bytes(), 2 * sharded.bytes());
    let values = |part: &Part| part.weights().array("proj_out.weight", &[8, 36]).unwrap();
    for (rounded, exact) in values(&sharded).into_iter().zip(values(&whole)) {
        assert_eq!(rounded.to_bits(), half::bf16::from_f32(exact).to_f32().to_bits());
    }
}

#[test]
fn an_index_that_lies_is_refused() {
    refused(
        r#"{"weight_map":{"a":"a.safetensors","d":"d.safetensors"}}"#,
        &["names the shard d.safetensors, which is missing"],
    );
    refused(
        r#"{"weight_map":{"a":"b.safetensors"}}"#,
        &["b.safetensors: lacks the tensor a that diffusion_pytorch_model"],
    );
    refused(r#"{"weight_map":{"a":"a.safetensors","b":"a.safetensors"}}"#, &["a.safetensors: lacks the tensor b"]);
    refused(
        r#"{"weight_map":{"a":"a.safetensors","x":"c.safetensors"}}"#,
        &["c.safetensors: tensor a: stands twice, the first time", "a.safetensors"],
    );
    refused(r#"{"weight_map":{"a":"../a.safetensors"}}"#, &["names the shard \"../a.safetensors\"; expected"]);
    refused(r#"{"weight_map":{}}"#, &["`weight_map` names no tensor"]);
    refused(r#"{"metadata":{}}"#, &["missing field `weight_map`"]);
    refused(r#"{"weight_map":{"a":3}}"#, &["key `weight_map.a`: invalid type: integer `3`, expected a string"]);
    refused(r#"{"weight_map":"#, &["EOF while parsing"]);
}
