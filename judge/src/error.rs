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
    /// A server cannot be reached, fails, or answers what cannot be used, however often it is asked.
    #[error("{url}: {problem}")]
    Server {
        /// The address.
        url: String,
        /// What happened, and what to do.
        problem: String,
    },
    /// A server does not want this request (400, 413 or 422), whatever it answers to others.
    #[error("{url}: {problem}")]
    Refused {
        /// The address.
        url: String,
        /// Its reason.
        problem: String,
    },
    /// Painting or looking failed.
    #[error("{0}")]
    Pipeline(#[from] atelier_pipelines::Error),
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
