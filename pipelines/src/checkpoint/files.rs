//! Where the bytes come from: a folder or the program itself.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::config;
use crate::{Error, Result};

/// Where a checkpoint's files come from. Names are relative paths with `/`.
#[derive(Debug, Clone)]
pub enum Files {
    /// A folder on disk.
    Folder(PathBuf),
    /// Files that are part of the program: relative path and bytes.
    Embedded(&'static [(&'static str, &'static [u8])]),
}

impl Files {
    /// The files of a folder.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self::Folder(path.into())
    }

    /// A short name for people: the folder's own.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Folder(root) => {
                let full = root.canonicalize().unwrap_or_else(|_| root.clone());
                full.file_name().unwrap_or(root.as_os_str()).to_string_lossy().into_owned()
            }
            Self::Embedded(_) => "demo".to_owned(),
        }
    }

    /// Whether there is a file of this name.
    #[must_use]
    pub fn exists(&self, rel: &str) -> bool {
        match self {
            Self::Folder(root) => root.join(rel).is_file(),
            Self::Embedded(files) => files.iter().any(|(name, _)| *name == rel),
        }
    }

    /// The whole file, read into memory: for configs and tokenizers.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is no such file, [`Error::Io`] when it cannot be read.
    pub fn read(&self, rel: &str) -> Result<Bytes> {
        match self {
            Self::Folder(root) => {
                let path = root.join(rel);
                std::fs::read(&path).map(Bytes::from).map_err(|error| self.explain(rel, path, error))
            }
            Self::Embedded(_) => self.embedded(rel),
        }
    }

    /// The whole file, memory-mapped: for weights. Pages are read when they are used and can be dropped under memory
    /// pressure. The file must not be changed while it is mapped.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn map(&self, rel: &str) -> Result<Bytes> {
        match self {
            Self::Folder(root) => {
                let path = root.join(rel);
                map(&path).map_err(|error| self.explain(rel, path, error))
            }
            Self::Embedded(_) => self.embedded(rel),
        }
    }

    /// The full name of a file, for messages. An empty name is the root.
    #[must_use]
    pub fn path(&self, rel: &str) -> PathBuf {
        match self {
            Self::Folder(root) if rel.is_empty() => root.clone(),
            Self::Folder(root) => root.join(rel),
            Self::Embedded(_) if rel.is_empty() => PathBuf::from("(embedded)"),
            Self::Embedded(_) => Path::new("(embedded)").join(rel),
        }
    }

    /// A JSON file; keys that `T` does not know are skipped.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with key path, line and column when the file is missing, no UTF-8, no JSON, lacks a key or
    /// holds another type.
    pub fn json<T: DeserializeOwned>(&self, rel: &str) -> Result<T> {
        config::parse_lenient(&self.path(rel), &self.read(rel)?)
    }

    /// A JSON file in which every key must be a field of `T`, in `known_ignored`, or start with `_`: see
    /// [`parse_config`](super::parse_config).
    ///
    /// # Errors
    /// As [`json`](Self::json), and on an unknown key.
    pub fn json_strict<T: DeserializeOwned>(&self, rel: &str, known_ignored: &[&str]) -> Result<T> {
        config::parse(&self.path(rel), &self.read(rel)?, known_ignored)
    }

    /// The names of what stands directly in a folder (`""` for the root), sorted; folders end with `/`.
    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Self::Folder(root) => std::fs::read_dir(root.join(folder))
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| {
                    let slash = if entry.path().is_dir() { "/" } else { "" };
                    format!("{}{slash}", entry.file_name().to_string_lossy())
                })
                .collect(),
            Self::Embedded(files) => files
                .iter()
                .filter_map(|(name, _)| {
                    let rest = if folder.is_empty() { *name } else { name.strip_prefix(folder)?.strip_prefix('/')? };
                    Some(rest.split_once('/').map_or_else(|| rest.to_owned(), |(first, _)| format!("{first}/")))
                })
                .collect(),
        };
        names.sort();
        names.dedup();
        names
    }

    fn embedded(&self, rel: &str) -> Result<Bytes> {
        match self {
            Self::Embedded(files) => files.iter().find(|(name, _)| *name == rel).map(|(_, data)| *data),
            Self::Folder(_) => None,
        }
        .map(Bytes::from_static)
        .ok_or_else(|| self.missing(rel))
    }

    fn explain(&self, rel: &str, path: PathBuf, error: std::io::Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => self.missing(rel),
            _ if path.is_dir() => Error::checkpoint(path, "is a folder where a file is expected"),
            _ => Error::io(path, error),
        }
    }

    fn missing(&self, rel: &str) -> Error {
        let folder = rel.rsplit_once('/').map_or("", |(folder, _)| folder);
        let problem = match self {
            Self::Folder(root) if root.is_file() => {
                format!("{} is a file; a checkpoint is a folder with this file in it", root.display())
            }
            Self::Folder(root) if !root.exists() => format!("there is no folder {}", root.display()),
            _ => {
                format!("the checkpoint lacks this file; {} holds {}", self.path(folder).display(), self.found(folder))
            }
        };
        Error::checkpoint(self.path(rel), problem)
    }

    /// What stands in a folder, for messages.
    pub(super) fn found(&self, folder: &str) -> String {
        const SHOWN: usize = 12;
        let names = self.list(folder);
        match names.len() {
            0 => "nothing".to_owned(),
            n if n > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
            _ => names.join(", "),
        }
    }
}

#[expect(unsafe_code, reason = "a file can only be memory-mapped by an unsafe call")]
fn map(path: &Path) -> std::io::Result<Bytes> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::Error::from(ErrorKind::IsADirectory));
    }
    if file.metadata()?.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and shared as bytes that carry no invariant: a file that another program changes
    // meanwhile gives other numbers. One that is cut short raises a bus error, which no reader of maps can prevent; the
    // documentation of `Files::map` says so.
    let map = unsafe { memmap2::Mmap::map(&file)? };
    Ok(Bytes::from_owner(map))
}
