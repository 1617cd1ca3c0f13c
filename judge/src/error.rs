//! What can go wrong in judging, split by who can mend it.

use std::path::PathBuf;

/// Result of judging.
pub type Result<T> = std::result::Result<T, Error>;

/// Why judging stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file says something that makes no sense.
    #[error("{}: {problem}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong, where, and what is expected.
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
}

impl Error {
    /// A file that makes no sense.
    pub fn file(file: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::File { file: file.into(), problem: problem.into() }
    }

    /// A file that could not be read or written.
    pub fn io(file: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { file: file.into(), source }
    }
}
