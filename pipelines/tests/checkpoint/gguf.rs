//! GGUF files.

use atelier_kernels::Format;

use crate::build::{Gguf, assert_refused, f32s, gguf, part};

const NAME: &str = "diffusion_pytorch_model.gguf";

fn sample(version: u32) -> Vec<u8> {
    let bytes = |count: usize| (0..count).map(|i| i as u8).collect::<Vec<u8>>();
    gguf(
        version,
        &[
            ("norm.weight", 0, &[3], f32s(&[1.0, 2.0, 3.0])),
            ("half", 1, &[2, 5], bytes(20)),
            ("brain", 30, &[3, 1], bytes(6)),
            ("q8", 8, &[2, 64], bytes(2 * 2 * 34)),
            ("q4", 12, &[1, 512], bytes(2 * 144)),
            ("q6", 14, &[2, 256], bytes(2 * 210)),
        ],
    )
}

#[test]
fn reads_every_supported_type() {
    for version in [2, 3] {
        let part = part(NAME, &sample(version)).unwrap();
        let weights = part.weights();
        assert_eq!(weights.vector("norm.weight", 3).unwrap(), [1.0, 2.0, 3.0]);
        for (name, format, rows, columns) in [
            ("half", Format::F16, 2, 5),
            ("brain", Format::Bf16, 3, 1),
            ("q8", Format::Q8_0, 2, 64),
            ("q4", Format::Q4K, 1, 512),
            ("q6", Format::Q6K, 2, 256),
        ] {
            let matrix = weights.matrix(name, rows, columns).unwrap();
            assert_eq!(matrix.format(), format);
            assert!(matrix.data().iter().enumerate().all(|(i, &byte)| byte == i as u8), "{name}");
        }
        weights.finish().unwrap();
        assert_eq!(weights.kernel("q8", 2, 16, 2).unwrap().columns(), 64);
        assert_eq!(part.format(), Some(Format::Q6K));
        assert_refused(weights.vector("q8", 128), &["found shape [2, 64] Q8_0, expected [128]"]);
        assert_refused(weights.array("q8", &[2, 64]), &["tensor q8: dtype Q8_0 is not supported here"]);
    }
}

#[test]
fn every_truncation_is_refused() {
    let whole = sample(3);
    for length in 0..whole.len() {
        let message = part(NAME, &whole[..length]).expect_err("truncated").to_string();
        assert!(message.contains(NAME), "{message}");
    }
}

#[test]
fn damaged_files_are_refused() {
    let one =
        |shape: &[usize], code, offset| Gguf::new(3, 1, 0).tensor("w", shape, code, offset).pad(32).bytes(&[0; 64]);
    let two = |a, b, offset| {
        let file = Gguf::new(3, 2, 0).tensor(a, &[12], 0, 0).tensor(b, &[4], 0, offset);
        file.pad(32).bytes(&[0; 64])
    };
    let pair = |kind: u32| Gguf::new(3, 0, 1).string("key").u32(kind);
    let cases: Vec<(Gguf, &[&str])> = vec![
        (Gguf(b"GGML\0\0\0\0".to_vec()), &["does not start with `GGUF`"]),
        (Gguf::new(1, 0, 0), &["GGUF version 1; versions 2 and 3, little endian, are supported"]),
        (Gguf::new(3_u32.swap_bytes(), 0, 0), &["GGUF version 50331648"]),
        (one(&[32], 2, 0), &["tensor w: type Q4_0 is not supported; supported are F32, F16, BF16, Q8_0, Q4_K, Q6_K"]),
        (one(&[32], 13, 0), &["type Q5_K is not supported"]),
        (one(&[32], 999, 0), &["type number 999 is not supported"]),
        (one(&[2, 33], 8, 0), &["rows of 33 are no multiple of Q8_0's block of 32"]),
        (one(&[17], 0, 0), &["shape [17] F32 at byte 0 of the data, which has 64 bytes"]),
        (one(&[4], 0, 64), &["at byte 64 of the data, which has 64 bytes"]),
        (one(&[4], 0, u64::MAX - 31), &["of the data, which has 64 bytes"]),
        (one(&[usize::MAX, usize::MAX], 0, 0), &["truncated or lying header: shape"]),
        (one(&[4], 0, 16), &["byte 16 is no multiple of the alignment 32"]),
        (one(&[1, 1, 1, 1, 1], 0, 0), &["tensor w: lying header: 5 axes"]),
        (two("w", "v", 32), &["tensor v: its bytes 32..48 overlap those of w, which end at 48"]),
        (two("w", "w", 0), &["overlap"]),
        (Gguf::new(3, 2, 0).tensor("w", &[0], 0, 0).tensor("w", &[0], 0, 0), &["tensor w: stands twice"]),
        (Gguf::new(3, u64::MAX, 0), &["a tensor's name should take 8 bytes at byte 24, the file has 24"]),
        (Gguf::new(3, 0, u64::MAX), &["a metadata key should take 8 bytes"]),
        (Gguf::new(3, 0, 1).u64(u64::MAX), &["a metadata key should take 18446744073709551615 bytes"]),
        (Gguf::new(3, 0, 1).u64(2).bytes(&[0xff, 0xfe]), &["a metadata key at byte 34 is no UTF-8"]),
        (pair(13), &["metadata `key` has the unknown type 13"]),
        (pair(8).u64(1 << 40), &["key should take 1099511627776 bytes"]),
        (pair(9).u32(10).u64(u64::MAX), &["key should take 18446744073709551615 bytes"]),
        (pair(9).u32(8).u64(u64::MAX), &["key should take 8 bytes"]),
        ((0..9).fold(pair(9), |file, _| file.u32(9).u64(1)), &["metadata `key` has the unknown type 9"]),
        (
            Gguf::new(3, 0, 1).string("general.alignment").u32(4).u32(0),
            &["`general.alignment` is 0; expected a power of two"],
        ),
        (Gguf::new(3, 0, 1).string("general.alignment").u32(4).u32(24), &["`general.alignment` is 24"]),
        (Gguf::new(3, 0, 1).string("general.alignment").u32(10).u64(64), &["`general.alignment` has the type 10"]),
    ];
    for (file, pieces) in cases {
        assert_refused(part(NAME, &file.0), pieces);
    }
}
