//! Files of checkpoints, right and wrong.

use std::fmt::Write as _;
use std::path::Path;

use atelier_pipelines::checkpoint::{Files, Part};
use tempfile::TempDir;

/// A folder with these files.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    folder
}

pub(crate) fn open(folder: &Path) -> atelier_pipelines::Result<Part> {
    Part::open(&Files::folder(folder), "")
}

/// A part of one file.
pub(crate) fn part(name: &str, bytes: &[u8]) -> atelier_pipelines::Result<Part> {
    open(folder(&[(name, bytes)]).path())
}

/// The one-paragraph message of an error, which must hold all `pieces`.
pub(crate) fn assert_refused<T: std::fmt::Debug>(result: atelier_pipelines::Result<T>, pieces: &[&str]) {
    let message = result.expect_err("should be refused").to_string();
    assert!(!message.contains('\n'), "more than a paragraph: {message}");
    for piece in pieces {
        assert!(message.contains(piece), "{piece:?} is not in: {message}");
    }
}

/// A tensor: name, dtype as the header says it, shape, bytes.
pub(crate) type Tensor<'a> = (&'a str, &'a str, &'a [usize], Vec<u8>);

/// Little-endian bytes of `f32` values.
pub(crate) fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A safetensors file from a header's text and data.
pub(crate) fn raw_safetensors(header: &[u8], data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header, data].concat()
}

pub(crate) fn safetensors(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let (mut header, mut data) = (String::from(r#"{"__metadata__":{"format":"pt"}"#), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        write!(header, r#","{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#).unwrap();
        data.extend_from_slice(bytes);
    }
    header.push('}');
    raw_safetensors(header.as_bytes(), &data)
}

/// Writes GGUF field by field.
#[derive(Default)]
pub(crate) struct Gguf(pub(crate) Vec<u8>);

impl Gguf {
    pub(crate) fn new(version: u32, tensors: u64, pairs: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(pairs)
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn string(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// A tensor's description; `shape` is slowest axis first, as in the state dict.
    pub(crate) fn tensor(self, name: &str, shape: &[usize], code: u32, offset: u64) -> Self {
        let described = self.string(name).u32(shape.len() as u32);
        shape.iter().rev().fold(described, |file, &side| file.u64(side as u64)).u32(code).u64(offset)
    }

    pub(crate) fn pad(mut self, alignment: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }
}

/// A GGUF file of tensors `(name, type code, shape, bytes)`, with metadata of every kind.
pub(crate) fn gguf(version: u32, tensors: &[(&str, u32, &[usize], Vec<u8>)]) -> Vec<u8> {
    let mut file = Gguf::new(version, tensors.len() as u64, 4)
        .string("general.architecture")
        .u32(8)
        .string("qwen_image")
        .string("general.alignment")
        .u32(4)
        .u32(64)
        .string("words")
        .u32(9)
        .u32(8)
        .u64(2)
        .string("a")
        .string("bc")
        .string("numbers")
        .u32(9)
        .u32(9)
        .u64(1)
        .u32(6)
        .u64(3)
        .bytes(&[0; 12]);
    let mut offset = 0;
    for (name, code, shape, bytes) in tensors {
        file = file.tensor(name, shape, *code, offset);
        offset = (offset + bytes.len() as u64).next_multiple_of(64);
    }
    file = file.pad(64);
    for (i, (_, _, _, bytes)) in tensors.iter().enumerate() {
        file = file.bytes(bytes);
        if i + 1 < tensors.len() {
            file = file.pad(64);
        }
    }
    file.0
}
