//! One safetensors file.

use atelier_kernels::Format;
use atelier_pipelines::checkpoint::{Files, Part};

use crate::build::{Tensor, assert_refused, f32s, folder, open, part, raw_safetensors, safetensors};

const NAME: &str = "model.safetensors";

fn sample() -> Vec<u8> {
    let half = |values: &[f32]| values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect::<Vec<_>>();
    let brain = |values: &[f32]| values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect::<Vec<_>>();
    let tensors: [Tensor<'_>; 6] = [
        ("a.weight", "F32", &[2, 3], f32s(&[1., 2., 3., 4., 5., 6.])),
        ("a.bias", "F16", &[2], half(&[0.5, -1.5])),
        ("norm.gamma", "BF16", &[4, 1, 1], brain(&[1., 2., 3., -4.])),
        ("conv.weight", "F32", &[2, 1, 2, 2], f32s(&[1., 2., 3., 4., 5., 6., 7., 8.])),
        ("patch.weight", "F32", &[1, 1, 2, 1, 1], f32s(&[9., 10.])),
        ("ids", "I64", &[1], vec![0; 8]),
    ];
    safetensors(&tensors)
}

#[test]
fn reads_what_the_public_crate_writes() {
    let data = f32s(&[1.0, 2.0, 3.0, 4.0]);
    let view = ::safetensors::tensor::TensorView::new(::safetensors::Dtype::F32, vec![2, 2], &data).unwrap();
    let part = part(NAME, &::safetensors::serialize([("w", view)], None).unwrap()).unwrap();
    assert_eq!(part.weights().array("w", &[2, 2]).unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn gives_tensors_in_stored_form() {
    let part = part(NAME, &sample()).unwrap();
    assert_eq!(part.bytes(), 24 + 4 + 8 + 32 + 8 + 8);
    assert_eq!(part.format(), Some(Format::F32));
    let weights = part.weights();
    let a = weights.scope("a");
    let matrix = a.matrix("weight", 2, 3).unwrap();
    assert_eq!((matrix.format(), matrix.rows(), matrix.columns()), (Format::F32, 2, 3));
    assert_eq!(matrix.data(), f32s(&[1., 2., 3., 4., 5., 6.]));
    // The map is shared, not copied.
    assert_eq!(matrix.data().as_ptr(), a.matrix("weight", 2, 3).unwrap().data().as_ptr());
    assert_eq!(a.vector("bias", 2).unwrap(), [0.5, -1.5]);
    assert_eq!(weights.scope("norm").vector("gamma", 4).unwrap(), [1., 2., 3., -4.]);
    let kernel = weights.kernel("conv.weight", 2, 1, 2).unwrap();
    assert_eq!((kernel.rows(), kernel.columns()), (2, 4));
    assert_eq!(weights.kernel3d("patch.weight", 1, 1, 2, 1).unwrap().columns(), 2);
    assert!(a.has("bias") && !a.has("gamma"));
    assert_refused(weights.finish(), &["1 of the part's 6 tensors belong to nothing", "ids [1] I64"]);
    weights.scope("ids").ignore("");
    weights.finish().unwrap();
    assert_refused(part.weights().finish(), &["6 of the part's 6 tensors", "and 1 more"]);
}

#[test]
fn an_embedded_checkpoint_reads_as_a_folder_does() {
    static FILES: &[(&str, &[u8])] = &[
        ("vae/config.json", br#"{"z_dim": 4}"#),
        (
            "vae/model.safetensors",
            b"\x3b\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}     \0\0\x80\x3f",
        ),
    ];
    let files = Files::Embedded(FILES);
    let part = Part::open(&files, "vae").unwrap();
    assert_eq!(part.weights().vector("w", 1).unwrap(), [1.0]);
    assert_eq!(part.config::<std::collections::HashMap<String, u32>>().unwrap()["z_dim"], 4);
    assert_refused(Part::open(&files, "transformer"), &["(embedded)/transformer: no weights here; found nothing"]);
    assert_refused(files.read("vae/x.json"), &["lacks this file", "config.json, model.safetensors"]);
}

#[test]
fn wrong_requests_name_tensor_found_and_expected() {
    let file = folder(&[(NAME, &sample())]);
    let weights = open(file.path()).unwrap().weights();
    let a = weights.scope("a");
    assert_refused(
        a.matrix("weight", 3, 2),
        &["model.safetensors: tensor a.weight: found shape [2, 3] F32, expected [3, 2]"],
    );
    assert_refused(a.matrix("wait", 2, 3), &["tensor a.wait is missing; expected shape [2, 3]", "a.bias, a.weight"]);
    assert_refused(
        weights.kernel("conv.weight", 2, 2, 2),
        &["found shape [2, 1, 2, 2] F32, expected [2, 2, 2, 2] or [2, 8]"],
    );
    assert_refused(weights.vector("norm.gamma", 3), &["found shape [4, 1, 1] BF16, expected [3]"]);
    assert_refused(weights.vector("a.weight", 6), &["found shape [2, 3] F32, expected [6]"]);
    assert_refused(weights.array("conv.weight", &[2, 4]), &["expected [2, 4]"]);
    assert_refused(weights.array("ids", &[1]), &["tensor ids: dtype I64 is not supported here"]);
    assert_refused(weights.matrix("ids", 1, 1), &["found shape [1] I64, expected [1, 1]"]);
    // A request of the wrong shape does not count as use.
    assert_refused(weights.finish(), &["a.weight"]);
}

#[test]
fn an_eight_bit_float_is_refused_by_name() {
    let file = safetensors(&[("w", "F8_E4M3", &[1, 2], vec![0; 2])]);
    let weights = part(NAME, &file).unwrap().weights();
    assert_refused(
        weights.matrix("w", 1, 2),
        &["tensor w: dtype F8_E4M3 is not supported; supported are F32, F16, BF16"],
    );
}

#[test]
fn damaged_headers_are_refused() {
    let entry = |shape: &str, offsets: &str| format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}"#);
    let one = |shape: &str, offsets: &str| format!(r#"{{"w":{}}}"#, entry(shape, offsets));
    let two = |a: &str, b: &str| format!(r#"{{"w":{},"v":{}}}"#, entry("[1]", a), entry("[1]", b));
    let cases: &[(String, usize, &[&str])] = &[
        (one("[2]", "[0,8]"), 4, &["tensor w stands at bytes 0..8 of the data, which has 4 bytes"]),
        (one("[2]", "[0,8]"), 12, &["it names 8 bytes of tensors, the file has 12"]),
        (one("[3]", "[0,8]"), 8, &["tensor w: 8 bytes do not hold shape [3] F32"]),
        (one("[4294967296,4294967296,2]", "[0,8]"), 8, &["tensor w: 8 bytes do not hold shape"]),
        (one("[2]", "[8,0]"), 8, &["tensor w stands at bytes 8..0"]),
        (one("[2]", "[0,18446744073709551616]"), 8, &["key `w.data_offsets[1]`: invalid type", "line 1 column"]),
        (one("[-1]", "[0,8]"), 8, &["key `w.shape[0]`: invalid value: integer `-1`"]),
        (two("[0,4]", "[2,6]"), 8, &["tensor v: its bytes 2..6 overlap those of w, which end at 4"]),
        (two("[0,4]", "[8,12]"), 12, &["it names 8 bytes of tensors, the file has 12"]),
        (two("[0,4]", "[4,8]").replace("\"v\"", "\"w\""), 8, &["tensor w: stands twice, the first time in this file"]),
        (one("[2]", "[0,8]").replace("F32", "F23"), 8, &["tensor w: unknown dtype F23"]),
        (one("[2]", "[0,8]").replace("\"shape\"", "\"chape\""), 8, &["key `w`: missing field `shape`"]),
        ("[]".to_owned(), 0, &["expected an object of tensors"]),
        ("{\"w\":".to_owned(), 0, &["EOF while parsing", "line 1 column 5"]),
        ("{} x".to_owned(), 0, &["trailing characters"]),
        (format!("{}{}", "[".repeat(9000), "]".repeat(9000)), 0, &["expected an object of tensors"]),
        (format!("{{\"w\":{}{}}}", "[".repeat(9000), "]".repeat(9000)), 0, &["key `w"]),
    ];
    for (header, data, pieces) in cases {
        assert_refused(part(NAME, &raw_safetensors(header.as_bytes(), &vec![0; *data])), pieces);
    }
    assert_refused(part(NAME, &raw_safetensors(b"{\"\xff\":1}", &[])), &["no UTF-8 text: bad byte at 2"]);
    assert_refused(part(NAME, &[1, 2, 3]), &["it has 3 bytes"]);
    assert_refused(part(NAME, &[]), &["it has 0 bytes"]);
    assert_refused(part(NAME, &[0xff; 20]), &["the header should take 18446744073709551615 bytes, the file has 12"]);
}

#[test]
fn every_truncation_is_refused() {
    let whole = sample();
    for length in 0..whole.len() {
        let message = part(NAME, &whole[..length]).expect_err("truncated").to_string();
        assert!(message.contains(NAME), "{message}");
    }
}

#[test]
fn folders_without_one_set_of_weights_are_refused() {
    assert_refused(part("pytorch_model.bin", b""), &["no weights here; found pytorch_model.bin", "model.gguf"]);
    assert_refused(open(folder(&[]).path()), &["found nothing"]);
    let file = folder(&[("x", b"")]);
    assert_refused(open(&file.path().join("x")), &["is a file, not a folder"]);
    assert_refused(open(&file.path().join("y")), &["there is no such folder"]);
    let both = folder(&[(NAME, &sample()), ("model.gguf", b"GGUF")]);
    assert_refused(open(both.path()), &["ambiguous: holds model.safetensors and model.gguf"]);
    let sharded = folder(&[(NAME, &sample()), ("model.safetensors.index.json", b"{}")]);
    assert_refused(open(sharded.path()), &["ambiguous"]);
}
