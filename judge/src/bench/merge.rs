//! Runs of parts → one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::run::{difference, sha256};
use super::{AnswerLine, Finished, Manifest, State, write};
use crate::{Error, Result};

/// Puts the shards of a run together in a new folder, pictures included. What painted may differ from shard to shard.
///
/// # Errors
/// When the folders are not parts of one run, a part is missing, not finished or there twice, or `target` is not empty.
pub fn merge(folders: &[impl AsRef<Path>], target: &Path) -> Result<State> {
    let states: Vec<_> =
        folders.iter().map(|folder| Ok((folder.as_ref(), State::read(folder.as_ref())?))).collect::<Result<_>>()?;
    let Some((_, first)) = states.first() else { return Err(Error::file(target, "there is nothing to merge")) };
    let mut manifest = first.manifest.clone();
    let mut merged = State { manifest: manifest.clone(), painted: BTreeMap::new(), answers: BTreeMap::new() };
    for (folder, state) in &states {
        let same = Manifest { shard: manifest.shard, device: manifest.device.clone(), ..state.manifest.clone() };
        if let Some(problem) = difference(&manifest, &same) {
            return Err(Error::file(*folder, format!("is no part of the same run: {problem}")));
        }
        for (index, line) in &state.painted {
            if merged.painted.insert(*index, line.clone()).is_some() {
                return Err(Error::file(*folder, format!("prompt {} is in another part as well", line.prompt.id)));
            }
        }
        merged.answers.extend(state.answers.clone());
    }
    let finished = merged.finished().len();
    if finished < manifest.num_prompts {
        let problem =
            format!("only {finished} of {} prompts are finished: a part is missing or not done", manifest.num_prompts);
        return Err(Error::file(target, problem));
    }
    if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::file(target, "is not empty"));
    }
    let pictures = target.join("pictures");
    fs::create_dir_all(&pictures).map_err(|source| Error::io(&pictures, source))?;
    for (folder, state) in &states {
        for line in state.painted.values() {
            let path = folder.join(&line.file);
            let bytes = fs::read(&path).map_err(|source| Error::io(&path, source))?;
            if sha256(&bytes) != line.sha256 {
                return Err(Error::file(path, "is not the picture that was painted"));
            }
            write(&target.join(&line.file), &bytes)?;
        }
    }
    let mut devices: Vec<_> = states.iter().map(|(_, state)| state.manifest.device.clone()).collect();
    devices.sort();
    devices.dedup();
    manifest.device = devices.join(" + ");
    manifest.shard = (1, 1);
    merged.manifest = manifest;
    let answers = merged.answers.iter().map(|((index, _), asked)| AnswerLine { index: *index, asked: asked.clone() });
    let finished = merged.finished();
    write(&target.join("painted.jsonl"), lines_of(merged.painted.values()).as_bytes())?;
    write(&target.join("answers.jsonl"), lines_of(answers).as_bytes())?;
    write(&target.join("results.jsonl"), lines_of(finished.iter().map(Finished::line)).as_bytes())?;
    let manifest = serde_json::to_string_pretty(&merged.manifest).unwrap_or_default() + "\n";
    write(&target.join("manifest.json"), manifest.as_bytes())?;
    Ok(merged)
}

fn lines_of<T: serde::Serialize>(lines: impl Iterator<Item = T>) -> String {
    lines.map(|line| serde_json::to_string(&line).unwrap_or_default() + "\n").collect()
}
