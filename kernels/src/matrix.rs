//! Weights in their stored form.

use bytes::Bytes;

use crate::{Error, Result};

/// How the numbers of a matrix are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// IEEE single precision, little endian.
    F32,
    /// IEEE half precision, little endian.
    F16,
    /// The upper half of a single-precision number, little endian.
    Bf16,
    /// GGML: 32 signed bytes and an f16 scale.
    Q8_0,
    /// GGML K-quant: 256 weights of 4 bits, 8 sub-blocks with 6-bit scales and minima.
    Q4K,
    /// GGML K-quant: 256 weights of 6 bits, 16 sub-blocks with 8-bit scales.
    Q6K,
}

impl Format {
    /// Weights in one block; rows are a whole number of blocks.
    #[must_use]
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q8_0 => 32,
            Self::Q4K | Self::Q6K => 256,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q6K => 210,
        }
    }

    /// The name that people know.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q6K => "Q6_K",
        }
    }
}

/// A weight of `rows` x `columns`, row-major, each row a whole number of blocks.
///
/// The bytes are shared (usually a part of a memory-mapped file), so a clone or a range of rows costs nothing.
#[derive(Debug, Clone)]
pub struct Matrix {
    format: Format,
    rows: usize,
    columns: usize,
    data: Bytes,
}

impl Matrix {
    /// A matrix over `data`.
    ///
    /// # Errors
    /// When the row length is no multiple of the format's block, or `data` has another size than the shape calls for.
    pub fn new(format: Format, rows: usize, columns: usize, data: Bytes) -> Result<Self> {
        if !columns.is_multiple_of(format.block()) {
            return Err(Error::shape(
                "weight",
                format!("rows of {columns} are no multiple of {}'s block of {}", format.name(), format.block()),
            ));
        }
        let expected = (columns / format.block())
            .checked_mul(format.block_bytes())
            .and_then(|row| row.checked_mul(rows))
            .unwrap_or(usize::MAX);
        if data.len() != expected {
            return Err(Error::Size { format: format.name(), rows, columns, expected, found: data.len() });
        }
        Ok(Self { format, rows, columns, data })
    }

    /// A matrix of `f32` values, for tests and for weights made at run time.
    ///
    /// # Errors
    /// When `values` are not `rows * columns`.
    pub fn from_f32(values: &[f32], rows: usize, columns: usize) -> Result<Self> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self::new(Format::F32, rows, columns, Bytes::from(bytes))
    }

    /// How the numbers are stored.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Output channels of a linear layer.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input channels of a linear layer.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The stored bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.columns / self.format.block() * self.format.block_bytes()
    }

    /// `count` rows from `start` on, sharing the bytes.
    ///
    /// # Errors
    /// When the range leaves the matrix.
    pub fn slice(&self, start: usize, count: usize) -> Result<Self> {
        if start.checked_add(count).is_none_or(|end| end > self.rows) {
            return Err(Error::shape("weight", format!("rows {start}..+{count} of a matrix of {} rows", self.rows)));
        }
        let row = self.row_bytes();
        Ok(Self { rows: count, data: self.data.slice(start * row..(start + count) * row), ..self.clone() })
    }
}
