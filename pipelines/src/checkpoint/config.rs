//! JSON → config structs, no key overlooked.

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Reads a JSON config into `T`.
///
/// `T` is a plain `#[derive(Deserialize)]` struct; a field without `Option` or `#[serde(default)]` must be there. A key
/// (at any depth, with its dotted path such as `text_config.use_cache`) that is no field of `T` is an error, unless its
/// path is in `known_ignored` (with all below it) or its name starts with `_`. `T` must not use `#[serde(flatten)]`.
///
/// # Errors
/// [`Error::Checkpoint`] with key path, line and column: no UTF-8, no JSON, a missing or unknown key, another type.
pub fn parse<T: DeserializeOwned>(file: &Path, bytes: &[u8], known_ignored: &[&str]) -> Result<T> {
    let mut unknown = Vec::new();
    let value = read(file, bytes, |path| {
        let key = path.rsplit('.').next().unwrap_or(path);
        if !key.starts_with('_') && !known_ignored.contains(&path) {
            unknown.push(path.to_owned());
        }
    })?;
    match unknown.as_slice() {
        [] => Ok(value),
        keys => Err(Error::checkpoint(
            file,
            format!(
                "unknown {} {}: this version does not know what it asks for, so the model could come out wrong",
                if keys.len() == 1 { "key" } else { "keys" },
                keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
            ),
        )),
    }
}

/// As [`parse`], skipping every unknown key.
pub(super) fn parse_lenient<T: DeserializeOwned>(file: &Path, bytes: &[u8]) -> Result<T> {
    read(file, bytes, |_| ())
}

fn read<T: DeserializeOwned>(file: &Path, bytes: &[u8], mut unknown: impl FnMut(&str)) -> Result<T> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::checkpoint(file, format!("no UTF-8 text: bad byte at {}", error.valid_up_to())))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let result = serde_ignored::deserialize(tracked, |path| unknown(&path.to_string().replace(".?", "")));
    let value = result.map_err(|error: serde_json::Error| {
        let path = track.path().to_string();
        let key = if path == "." { String::new() } else { format!("key `{path}`: ") };
        Error::checkpoint(file, format!("{key}{error}"))
    })?;
    json.end().map_err(|error| Error::checkpoint(file, error.to_string()))?;
    Ok(value)
}
