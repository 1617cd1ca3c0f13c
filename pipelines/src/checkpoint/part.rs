//! A folder → one part: config and tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use atelier_kernels::Format;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::tensor::{Dtype, Table};
use super::{Files, Weights, gguf, safetensors};
use crate::{Error, Result};

/// Names of the weights in a folder, without and with shards. Just one of them may be there.
const SINGLE: [&str; 2] = ["diffusion_pytorch_model.safetensors", "model.safetensors"];
const SHARDED: [&str; 2] = ["diffusion_pytorch_model.safetensors.index.json", "model.safetensors.index.json"];
const GGUF: [&str; 2] = ["diffusion_pytorch_model.gguf", "model.gguf"];

/// One part of a checkpoint (transformer, VAE, text encoder): its config and its tensors. Dropping it, its [`Weights`] and
/// the matrices taken from them unmaps the files.
#[derive(Debug)]
pub struct Part {
    files: Files,
    folder: String,
    table: Arc<Table>,
}

impl Part {
    /// Opens the part in `folder` (`""` for the root) and reads its tensors' names, shapes and places, not their values.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when no weights are there, or more than one set of them; when a header is damaged, lies or
    /// names a type that is not supported (GGUF); when a shard is missing or lacks a tensor of the index.
    pub fn open(files: &Files, folder: &str) -> Result<Self> {
        let mut part =
            Self { files: files.clone(), folder: folder.trim_matches('/').to_owned(), table: Arc::default() };
        let found: Vec<&str> =
            [SINGLE, SHARDED, GGUF].into_iter().flatten().filter(|name| files.exists(&part.rel(name))).collect();
        let mut table = Table::default();
        match found.as_slice() {
            [] => return Err(part.no_weights()),
            [name] if SHARDED.contains(name) => part.read_shards(name, &mut table)?,
            [name] => part.read_file(name, &mut table)?,
            names => {
                let names = names.join(" and ");
                let problem = format!("ambiguous: holds {names}; keep the one to be used and move the others away");
                return Err(Error::checkpoint(files.path(&part.folder), problem));
            }
        }
        part.table = Arc::new(table);
        Ok(part)
    }

    /// The part's `config.json`; keys that `T` does not know are skipped.
    ///
    /// # Errors
    /// [`Error::Checkpoint`]: see [`Files::json`].
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        self.files.json(&self.rel("config.json"))
    }

    /// The part's `config.json`, in which every key must be a field of `T`, in `known_ignored` (dotted paths), or start
    /// with `_`: see [`parse_config`](super::parse_config).
    ///
    /// # Errors
    /// [`Error::Checkpoint`]: see [`Files::json_strict`].
    pub fn config_strict<T: DeserializeOwned>(&self, known_ignored: &[&str]) -> Result<T> {
        self.files.json_strict(&self.rel("config.json"), known_ignored)
    }

    /// The path of the config, for messages about values in it.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.files.path(&self.rel("config.json"))
    }

    /// The tensors. Each call starts anew with every tensor unused.
    #[must_use]
    pub fn weights(&self) -> Weights {
        Weights::new(Arc::clone(&self.table))
    }

    /// Bytes of all tensors as stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.table.tensors.values().map(|(stored, _)| stored.data.len() as u64).sum()
    }

    /// The format most of the bytes are stored in; `None` when no tensor is in a format that the kernels read.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        let mut totals: Vec<(usize, Format)> = Vec::new();
        for (stored, _) in self.table.tensors.values() {
            if let Dtype::Known(format) = stored.dtype {
                match totals.iter_mut().find(|(_, known)| *known == format) {
                    Some((total, _)) => *total += stored.data.len(),
                    None => totals.push((stored.data.len(), format)),
                }
            }
        }
        totals.into_iter().max_by_key(|(total, _)| *total).map(|(_, format)| format)
    }

    fn rel(&self, name: &str) -> String {
        if self.folder.is_empty() { name.to_owned() } else { format!("{}/{name}", self.folder) }
    }

    fn read_file(&self, name: &str, table: &mut Table) -> Result<()> {
        let rel = self.rel(name);
        let (path, bytes) = (self.files.path(&rel), self.files.map(&rel)?);
        let tensors = if GGUF.contains(&name) { gguf::read(&path, &bytes)? } else { safetensors::read(&path, &bytes)? };
        table.add(&path, tensors)
    }

    fn read_shards(&self, name: &str, table: &mut Table) -> Result<()> {
        let path = self.files.path(&self.rel(name));
        let index: ShardIndex = self.files.json(&self.rel(name))?;
        let shards: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
        if shards.is_empty() {
            return Err(Error::checkpoint(path, "`weight_map` names no tensor"));
        }
        for shard in shards {
            if shard.contains(['/', '\\']) || !shard.ends_with(".safetensors") {
                let problem =
                    format!("`weight_map` names the shard {shard:?}; expected a .safetensors file in this folder");
                return Err(Error::checkpoint(path, problem));
            }
            if !self.files.exists(&self.rel(shard)) {
                let found = self.files.found(&self.folder);
                let problem =
                    format!("`weight_map` names the shard {shard}, which is missing; the folder holds {found}");
                return Err(Error::checkpoint(path, problem));
            }
            self.read_file(shard, table)?;
        }
        for (tensor, shard) in &index.weight_map {
            let file = self.files.path(&self.rel(shard));
            let there = table.tensors.get(tensor).is_some_and(|(_, at)| table.files[*at] == file);
            if !there {
                return Err(Error::checkpoint(file, format!("lacks the tensor {tensor} that {name} says it holds")));
            }
        }
        Ok(())
    }

    fn no_weights(&self) -> Error {
        let path = self.files.path(&self.folder);
        let expected = format!("expected one of {}", [SINGLE, SHARDED, GGUF].concat().join(", "));
        let problem = match &self.files {
            Files::Folder(_) if path.is_file() => format!("is a file, not a folder with weights; {expected}"),
            Files::Folder(_) if !path.exists() => format!("there is no such folder; {expected} in it"),
            _ => format!("no weights here; found {}; {expected}", self.files.found(&self.folder)),
        };
        Error::checkpoint(path, problem)
    }
}

/// `*.safetensors.index.json`; its `metadata` (sizes) is not needed.
#[derive(Deserialize)]
struct ShardIndex {
    weight_map: BTreeMap<String, String>,
}
