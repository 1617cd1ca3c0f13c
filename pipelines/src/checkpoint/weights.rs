//! Tensors by name, each accounted for.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use atelier_kernels::{Format, Matrix};
use half::{bf16, f16};

use super::tensor::{Dtype, Stored, Table};
use crate::{Error, Result};

/// The tensors of a part, from a prefix on. Clones and scopes share the record of what was used, so that
/// [`finish`](Self::finish) can name what was not.
#[derive(Debug, Clone)]
pub struct Weights {
    table: Arc<Table>,
    used: Arc<Mutex<BTreeSet<String>>>,
    prefix: String,
}

impl Weights {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self { table, used: Arc::default(), prefix: String::new() }
    }

    /// The tensors below `name`, joined with a dot.
    #[must_use]
    pub fn scope(&self, name: impl Display) -> Self {
        Self { prefix: self.full(&name.to_string()), ..self.clone() }
    }

    /// Whether there is a tensor of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.table.tensors.contains_key(&self.full(name))
    }

    /// A linear layer's weight `[rows, columns]` in its stored form, sharing the file's bytes.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the tensor is missing, of another shape, or stored in a form that is not supported.
    pub fn matrix(&self, name: &str, rows: usize, columns: usize) -> Result<Matrix> {
        self.reshaped(name, &[&[rows, columns]], rows, columns)
    }

    /// `count` weights `[rows, columns]` in one tensor, as a matrix of `count * rows` rows.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn stack(&self, name: &str, count: usize, rows: usize, columns: usize) -> Result<Matrix> {
        self.reshaped(name, &[&[count, rows, columns], &[count * rows, columns]], count * rows, columns)
    }

    /// A convolution's weight `[out, inp, side, side]`, or flattened `[out, inp * side * side]`, as a matrix of the latter
    /// shape.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn kernel(&self, name: &str, out: usize, inp: usize, side: usize) -> Result<Matrix> {
        let columns = inp * side * side;
        self.reshaped(name, &[&[out, inp, side, side], &[out, columns]], out, columns)
    }

    /// A three-dimensional convolution's weight `[out, inp, time, side, side]`, or flattened
    /// `[out, inp * time * side * side]`, as a matrix of the latter shape.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn kernel3d(&self, name: &str, out: usize, inp: usize, time: usize, side: usize) -> Result<Matrix> {
        let columns = inp * time * side * side;
        self.reshaped(name, &[&[out, inp, time, side, side], &[out, columns]], out, columns)
    }

    /// The values of a tensor of `length` values with at most one axis other than 1: biases and norms, `[length]` or such
    /// as `[length, 1, 1]`. Stored as F32, F16 or BF16.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>> {
        self.values(name, &[length], |shape| {
            let mut sides = shape.iter().copied().filter(|&side| side != 1);
            sides.next().unwrap_or(1) == length && sides.next().is_none()
        })
    }

    /// The values of a tensor of just this shape, row-major. Stored as F32, F16 or BF16.
    ///
    /// # Errors
    /// As [`matrix`](Self::matrix).
    pub fn array(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.values(name, shape, |found| found == shape)
    }

    /// Marks the tensor of this name and all below it as known and not needed.
    pub fn ignore(&self, prefix: &str) {
        let full = self.full(prefix);
        let below = format!("{full}.");
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.table.tensors.keys().filter(|name| **name == full || name.starts_with(&below));
        used.extend(names.cloned());
    }

    /// Checks that every tensor of the part (not of this scope alone) was used or ignored.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the number of unused tensors and the first of them.
    pub fn finish(&self) -> Result<()> {
        const SHOWN: usize = 5;
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let unused: Vec<_> = self.table.tensors.iter().filter(|(name, _)| !used.contains(*name)).collect();
        let Some((_, (_, at))) = unused.first() else { return Ok(()) };
        let mut names: Vec<String> = unused
            .iter()
            .take(SHOWN)
            .map(|(name, (stored, _))| format!("{name} {:?} {}", stored.shape, stored.dtype.name()))
            .collect();
        if unused.len() > SHOWN {
            names.push(format!("and {} more", unused.len() - SHOWN));
        }
        Err(Error::checkpoint(
            &self.table.files[*at],
            format!(
                "{} of the part's {} tensors belong to nothing in the model that the config describes: {}",
                unused.len(),
                self.table.tensors.len(),
                names.join(", ")
            ),
        ))
    }

    fn full(&self, name: &str) -> String {
        match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}.{name}"),
        }
    }

    /// The file of a tensor; of the first file when there is no such tensor.
    fn file(&self, full: &str) -> PathBuf {
        let at = self.table.tensors.get(full).map_or(0, |(_, at)| *at);
        self.table.files.get(at).cloned().unwrap_or_default()
    }

    /// Finds a tensor whose shape is right, and marks it as used.
    fn take(&self, name: &str, expected: &str, fits: impl Fn(&[usize]) -> bool) -> Result<(String, &Stored)> {
        let full = self.full(name);
        let Some((stored, _)) = self.table.tensors.get(&full) else {
            let near = self.nearby(&full);
            return Err(Error::checkpoint(
                self.file(&full),
                format!("tensor {full} is missing; expected shape {expected}{near}"),
            ));
        };
        if !fits(&stored.shape) {
            let found = format!("{:?} {}", stored.shape, stored.dtype.name());
            let problem = format!("tensor {full}: found shape {found}, expected {expected}");
            return Err(Error::checkpoint(self.file(&full), problem));
        }
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(full.clone());
        Ok((full, stored))
    }

    /// What stands beside a missing tensor, for the message.
    fn nearby(&self, full: &str) -> String {
        const SHOWN: usize = 4;
        let folder = full.rsplit_once('.').map_or("", |(folder, _)| folder);
        let beside = self.table.tensors.keys().filter(|name| name.starts_with(folder));
        let names: Vec<&str> = beside.take(SHOWN).map(String::as_str).collect();
        if names.is_empty() { String::new() } else { format!("; found there {}, ...", names.join(", ")) }
    }

    fn reshaped(&self, name: &str, shapes: &[&[usize]], rows: usize, columns: usize) -> Result<Matrix> {
        let expected = shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(" or ");
        let (full, stored) = self.take(name, &expected, |found| shapes.contains(&found))?;
        let problem = match stored.dtype {
            Dtype::Known(format) => match Matrix::new(format, rows, columns, stored.data.clone()) {
                Ok(matrix) => return Ok(matrix),
                Err(error) => error.to_string(),
            },
            Dtype::Other(ref name) => {
                format!("dtype {name} is not supported; supported are F32, F16, BF16, and in GGUF Q8_0, Q4_K, Q6_K")
            }
        };
        Err(Error::checkpoint(self.file(&full), format!("tensor {full}: {problem}")))
    }

    fn values(&self, name: &str, shape: &[usize], fits: impl Fn(&[usize]) -> bool) -> Result<Vec<f32>> {
        let (full, stored) = self.take(name, &format!("{shape:?}"), fits)?;
        let (pairs, _) = stored.data.as_chunks::<2>();
        match stored.dtype {
            Dtype::Known(Format::F32) => {
                let (quads, _) = stored.data.as_chunks::<4>();
                Ok(quads.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
            }
            Dtype::Known(Format::F16) => Ok(pairs.iter().map(|&bytes| f16::from_le_bytes(bytes).to_f32()).collect()),
            Dtype::Known(Format::Bf16) => Ok(pairs.iter().map(|&bytes| bf16::from_le_bytes(bytes).to_f32()).collect()),
            ref other => Err(Error::checkpoint(
                self.file(&full),
                format!("tensor {full}: dtype {} is not supported here; supported are F32, F16, BF16", other.name()),
            )),
        }
    }
}
