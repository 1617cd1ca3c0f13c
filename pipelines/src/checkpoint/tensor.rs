//! A tensor as it stands in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use atelier_kernels::Format;
use bytes::Bytes;

use crate::{Error, Result};

/// How the numbers are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dtype {
    /// In a form that the kernels read.
    Known(Format),
    /// In a form that nothing here reads, by its name in the file; an error when it is used.
    Other(String),
}

impl Dtype {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Known(format) => format.name(),
            Self::Other(name) => name,
        }
    }
}

/// One tensor: its bytes are a part of the (mapped) file.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub dtype: Dtype,
    /// Row-major, slowest axis first.
    pub shape: Vec<usize>,
    pub data: Bytes,
}

/// Tensors of one or more files, by name.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Files in order of loading.
    pub files: Vec<PathBuf>,
    /// Name to tensor and index of its file.
    pub tensors: BTreeMap<String, (Stored, usize)>,
}

impl Table {
    /// Adds the tensors of a file.
    pub(super) fn add(&mut self, file: &Path, tensors: Vec<(String, Stored)>) -> Result<()> {
        let index = self.files.len();
        self.files.push(file.to_owned());
        for (name, stored) in tensors {
            if let Some((_, earlier)) = self.tensors.get(&name) {
                let earlier = if *earlier == index {
                    "in this file already".to_owned()
                } else {
                    self.files[*earlier].display().to_string()
                };
                return Err(Error::checkpoint(file, format!("tensor {name}: stands twice, the first time {earlier}")));
            }
            self.tensors.insert(name, (stored, index));
        }
        Ok(())
    }
}

/// Product of a shape, if it fits.
pub(super) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side))
}

/// Refuses spans of the data area that overlap. `spans` are `(start, end, tensor)`; they come back sorted.
pub(super) fn check_overlap(file: &Path, spans: &mut [(usize, usize, &str)]) -> Result<()> {
    spans.sort_unstable();
    let mut reach: Option<(usize, &str)> = None;
    for &(start, end, name) in spans.iter().filter(|(start, end, _)| start < end) {
        if let Some((before, other)) = reach
            && start < before
        {
            return Err(Error::checkpoint(
                file,
                format!("tensor {name}: its bytes {start}..{end} overlap those of {other}, which end at {before}"),
            ));
        }
        reach = Some((end, name));
    }
    Ok(())
}
