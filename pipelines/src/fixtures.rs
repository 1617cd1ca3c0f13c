//! Reference values for tests: see `tests/fixtures/README.md`.

use std::collections::HashMap;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};

/// Tolerance of a stage: the largest relative error.
pub(crate) const STAGE: f32 = 1e-4;

/// The fixtures' folder.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures"))
}

/// The values of one scenario.
pub(crate) struct Values(HashMap<String, (Vec<usize>, Vec<f32>)>);

impl Values {
    pub(crate) fn read(scenario: &str) -> Self {
        Self::read_file(&folder().join(format!("values/{scenario}.safetensors")))
    }

    pub(crate) fn read_file(path: &std::path::Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let values = file.tensors().into_iter().filter_map(|(name, tensor)| {
            let values = match tensor.dtype() {
                Dtype::F32 => {
                    tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
                }
                Dtype::U8 => tensor.data().iter().map(|v| f32::from(*v)).collect(),
                _ => return None,
            };
            Some((name, (tensor.shape().to_vec(), values)))
        });
        Self(values.collect())
    }

    pub(crate) fn get(&self, name: &str) -> &[f32] {
        &self.entry(name).1
    }

    pub(crate) fn shape(&self, name: &str) -> &[usize] {
        &self.entry(name).0
    }

    fn entry(&self, name: &str) -> &(Vec<usize>, Vec<f32>) {
        self.0.get(name).unwrap_or_else(|| panic!("the fixture has no {name}"))
    }
}

/// The largest `|found - expected| / (|expected| + rms(expected))`.
pub(crate) fn relative_error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let squares: f64 = expected.iter().map(|v| f64::from(*v).powi(2)).sum();
    let rms = (squares / expected.len() as f64).sqrt() as f32;
    let errors = found.iter().zip(expected).map(|(f, e)| (f - e).abs() / (e.abs() + rms));
    errors.fold(0.0, |worst, error| if error.is_nan() { f32::INFINITY } else { worst.max(error) })
}

/// Prints the largest relative error and fails over `tolerance`.
pub(crate) fn assert_close(name: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert!(!expected.is_empty(), "{name} is empty");
    let error = relative_error(found, expected);
    println!("{name}: largest relative error {error:.1e}");
    assert!(error <= tolerance, "{name}: relative error {error:e} is over {tolerance:e}");
}
