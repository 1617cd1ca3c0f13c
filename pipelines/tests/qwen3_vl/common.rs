//! Fixtures and comparison for the parity tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};

/// The largest difference over the largest magnitude of a stage's values that counts as equal: single precision with
/// another order of summation.
pub(crate) const STAGE: f32 = 1e-4;

/// A file or folder under `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// The tensors of a safetensors file as `f32` (integers of the fixtures are below 2^24) with their shapes.
pub(crate) struct Values(BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Values {
    pub(crate) fn open(name: &str) -> Self {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let convert = |dtype, data: &[u8]| -> Vec<f32> {
            match dtype {
                Dtype::F32 => data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
                Dtype::I64 => data.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b) as f32).collect(),
                Dtype::U8 => data.iter().map(|&b| f32::from(b)).collect(),
                other => panic!("{other:?} in {name}"),
            }
        };
        let tensor = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
            (name, (view.shape().to_vec(), convert(view.dtype(), view.data())))
        };
        Self(file.tensors().into_iter().map(tensor).collect())
    }

    pub(crate) fn shape(&self, name: &str) -> &[usize] {
        &self.0.get(name).unwrap_or_else(|| panic!("no value {name}")).0
    }

    pub(crate) fn get(&self, name: &str) -> &[f32] {
        &self.0.get(name).unwrap_or_else(|| panic!("no value {name}")).1
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<u32> {
        self.get(name).iter().map(|&v| v as u32).collect()
    }
}

/// Prints the largest difference, relative to the largest magnitude, and fails when it is above `tolerance`.
#[track_caller]
pub(crate) fn compare(stage: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{stage}: number of values");
    assert!(found.iter().all(|v| v.is_finite()), "{stage}: not finite");
    let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let difference = found.iter().zip(expected).fold(0.0f32, |a, (x, y)| a.max((x - y).abs()));
    let relative = difference / largest.max(f32::MIN_POSITIVE);
    println!("{stage}: largest difference {relative:.1e} of {largest:.3}");
    assert!(relative <= tolerance, "{stage}: {relative:.2e} of {largest:.3} is above {tolerance:.0e}");
}
