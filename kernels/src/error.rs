//! What can go wrong in an operation.

/// Result of a kernel operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Operands do not fit together: a mistake in a model, or a checkpoint whose shapes disagree.
    #[error("{operation}: {problem}")]
    Shape {
        /// Name of the operation.
        operation: &'static str,
        /// What does not fit, with the shapes.
        problem: String,
    },
    /// The bytes of a weight are not what its format and shape call for.
    #[error("weight of {rows}x{columns} as {format} takes {expected} bytes, found {found}")]
    Size {
        /// Name of the storage format.
        format: &'static str,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        columns: usize,
        /// Bytes that format and shape call for.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The tensor library under the CPU backend failed.
    #[error("tensor library: {0}")]
    Tensor(#[from] candle_core::Error),
    /// A device failed or refused.
    #[error("device: {0}")]
    Device(String),
}

impl Error {
    pub(crate) fn shape(operation: &'static str, problem: impl Into<String>) -> Self {
        Self::Shape { operation, problem: problem.into() }
    }
}
