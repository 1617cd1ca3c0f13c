//! What can go wrong in a pipeline, split by who can mend it.

use std::path::PathBuf;

/// Result of a pipeline.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a pipeline stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be served as it is: prompt, size, picture or option.
    #[error("{0}")]
    Input(String),
    /// A checkpoint is damaged, incomplete or of a kind that is not implemented.
    #[error("{}: {problem}", file.display())]
    Checkpoint {
        /// The file (or folder) at fault.
        file: PathBuf,
        /// What is wrong, with the tensor's or key's name, found and expected.
        problem: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's word on it.
        source: std::io::Error,
    },
    /// The machine has too little memory for what was asked.
    #[error("{0}")]
    Memory(String),
    /// Values went wrong during the computation (not finite).
    #[error("{0}")]
    Numbers(String),
    /// An operation failed on the device.
    #[error(transparent)]
    Kernel(#[from] atelier_kernels::Error),
    /// The run was cancelled by its [`Cancel`](crate::progress::Cancel) token.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// A damaged or unsupported checkpoint.
    pub fn checkpoint(file: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Checkpoint { file: file.into(), problem: problem.into() }
    }

    /// A request that cannot be served.
    pub fn input(problem: impl Into<String>) -> Self {
        Self::Input(problem.into())
    }

    /// A file that could not be read or written.
    pub fn io(file: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { file: file.into(), source }
    }
}
