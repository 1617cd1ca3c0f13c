//! Prompts → pictures and answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use atelier_pipelines::image_to_text::Picture;
use atelier_pipelines::progress::{Cancel, Observer};
use atelier_pipelines::text_to_image::picture::{FileType, encode};
use sha2::{Digest as _, Sha256};

use super::{AnswerLine, Finished, Manifest, PaintedLine, Prompt, State, lines, write};
use crate::journal::Journal;
use crate::judges::{Task, ask_all};
use crate::painters::{Job, Painted};
use crate::{Dimension, Error, Judge, Painter, Result, Rubric, View, parallel};

/// Where a run stands.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A picture is painted: how many are, of how many.
    Painted(&'a PaintedLine, usize, usize),
    /// An answer is there: how many are, of how many.
    Answered(&'a AnswerLine, usize, usize),
    /// A picture is finished.
    Finished(&'a Finished),
}

/// A benchmark run in a folder.
#[derive(Debug)]
pub struct Run {
    folder: PathBuf,
    prompts: Vec<Prompt>,
    state: State,
    painted: Journal<PaintedLine>,
    answers: Journal<AnswerLine>,
}

impl Run {
    /// Begins a run in a folder, or goes on with the one that is there. `prompts` are those of this shard.
    ///
    /// # Errors
    /// When the folder holds a run with other settings (the message names the first that differs), is in use, is damaged,
    /// or cannot be written.
    pub fn open(folder: &Path, manifest: Manifest, prompts: Vec<Prompt>) -> Result<Self> {
        let pictures = folder.join("pictures");
        fs::create_dir_all(&pictures).map_err(|source| Error::io(&pictures, source))?;
        let path = folder.join("manifest.json");
        if path.is_file() {
            let text = fs::read(&path).map_err(|source| Error::io(&path, source))?;
            let old: Manifest = serde_json::from_slice(&text).map_err(|error| Error::file(&path, error.to_string()))?;
            if let Some(problem) = difference(&old, &manifest) {
                let problem = format!("{problem}: go on with the same settings, or choose another folder");
                return Err(Error::file(&path, problem));
            }
        } else {
            write(&path, (serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n").as_bytes())?;
        }
        let (painted, old_painted) = Journal::open(&folder.join("painted.jsonl"))?;
        let (answers, old_answers) = Journal::open(&folder.join("answers.jsonl"))?;
        let mut state = State { manifest, painted: BTreeMap::new(), answers: BTreeMap::new() };
        state.add(old_painted, old_answers);
        for line in state.painted.values() {
            let path = folder.join(&line.file);
            if fs::read(&path).is_ok_and(|bytes| sha256(&bytes) == line.sha256) {
                continue;
            }
            return Err(Error::file(
                path,
                "is not the picture that was painted: restore it, or begin in another folder",
            ));
        }
        Ok(Self { folder: folder.to_owned(), prompts, state, painted, answers })
    }

    /// How many pictures are still to be painted.
    #[must_use]
    pub fn to_paint(&self) -> usize {
        self.prompts.iter().filter(|prompt| !self.state.painted.contains_key(&prompt.index)).count()
    }

    /// Paints what is not painted yet.
    ///
    /// # Errors
    /// Those of the painter and of writing; what is painted stays.
    pub fn paint(
        &mut self,
        painter: &dyn Painter,
        observer: &dyn Observer,
        cancel: &Cancel,
        hear: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        let Self { folder, prompts, state, painted: journal, .. } = self;
        let Manifest { size, steps, seed, .. } = state.manifest;
        let seed = |prompt: &Prompt| seed.wrapping_add(prompt.index as u64);
        let open: Vec<_> = prompts.iter().filter(|prompt| !state.painted.contains_key(&prompt.index)).collect();
        let work = |prompt: &&Prompt| {
            cancel.check()?;
            let job = Job { prompt: prompt.prompt.clone(), size, steps, seed: seed(prompt) };
            painter.paint(&job, observer, cancel)
        };
        parallel::each(painter.concurrency(), &open, &work, &mut |prompt, picture: Painted| {
            let file = format!("pictures/{:04}.png", prompt.index + 1);
            let bytes = encode(&picture.picture, picture.has_alpha, FileType::Png, &[])?.bytes;
            write(&folder.join(&file), &bytes)?;
            let line = PaintedLine {
                prompt: (*prompt).clone(),
                seed: seed(prompt),
                file,
                sha256: sha256(&bytes),
                size: picture.picture.dimensions(),
                steps: picture.steps,
                seconds: picture.seconds,
                stages: picture.stages,
            };
            journal.append(&line)?;
            state.painted.insert(prompt.index, line.clone());
            hear(Event::Painted(&line, state.painted.len(), prompts.len()));
            Ok(())
        })
    }

    /// How many questions are still to be asked about the pictures that are painted.
    #[must_use]
    pub fn to_ask(&self) -> usize {
        self.questions().filter(|(index, dimension)| !self.state.answers.contains_key(&(*index, *dimension))).count()
    }

    fn questions(&self) -> impl Iterator<Item = (usize, Dimension)> {
        let painted = self.state.painted.values();
        painted.flat_map(|line| line.prompt.applicable().dimensions().into_iter().map(|d| (line.prompt.index, d)))
    }

    /// Asks what has not been asked yet.
    ///
    /// # Errors
    /// Those of the judge and of writing; answers that are there stay.
    pub fn judge(
        &mut self,
        judge: &dyn Judge,
        rubric: &Rubric,
        cancel: &Cancel,
        hear: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        let all: Vec<_> = self.questions().collect();
        let Self { folder, state, answers: journal, .. } = self;
        let open = all.iter().filter(|(index, dimension)| !state.answers.contains_key(&(*index, *dimension)));
        let tasks: Vec<_> = open
            .filter_map(|&(picture, dimension)| {
                let prompt = &state.painted.get(&picture)?.prompt.prompt;
                Some(Task { picture, question: rubric.question(prompt, dimension) })
            })
            .collect();
        let files: BTreeMap<_, _> =
            state.painted.iter().map(|(index, line)| (*index, folder.join(&line.file))).collect();
        let look = |index: usize| {
            let path = &files[&index];
            let bytes = fs::read(path).map_err(|source| Error::io(path, source))?;
            Ok(View::new(&Picture::decode(&bytes)?))
        };
        let mut results = Journal::<serde_json::Value>::open(&folder.join("results.jsonl"))?.0;
        ask_all(judge, &tasks, &look, cancel, &mut |task, asked| {
            let line = AnswerLine { index: task.picture, asked };
            journal.append(&line)?;
            state.answers.insert((task.picture, task.question.dimension), line.asked.clone());
            hear(Event::Answered(&line, state.answers.len(), all.len()));
            if let Some(finished) = state.finished_at(task.picture) {
                results.append(&serde_json::to_value(finished.line()).unwrap_or_default())?;
                hear(Event::Finished(&finished));
            }
            Ok(())
        })
    }

    /// Everything that is finished, in order; `results.jsonl` is put in the same order.
    ///
    /// # Errors
    /// When `results.jsonl` cannot be written.
    pub fn finish(&self) -> Result<Vec<Finished>> {
        let finished = self.state.finished();
        let path = self.folder.join("results.jsonl");
        let text: String =
            finished.iter().map(|picture| serde_json::to_string(&picture.line()).unwrap_or_default() + "\n").collect();
        let old: Vec<serde_json::Value> = lines(&path)?;
        let new: Vec<_> = finished.iter().map(|p| serde_json::to_value(p.line()).unwrap_or_default()).collect();
        if old != new {
            write(&path, text.as_bytes())?;
        }
        Ok(finished)
    }
}

/// SHA-256 in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The first setting that differs.
pub(super) fn difference(old: &Manifest, new: &Manifest) -> Option<String> {
    let (old, new) = (serde_json::to_value(old).ok()?, serde_json::to_value(new).ok()?);
    let (name, value) = new.as_object()?.iter().find(|(name, value)| old.get(name) != Some(*value))?;
    Some(format!("{name} was {}, now it is {value}", old.get(name).unwrap_or(&serde_json::Value::Null)))
}
