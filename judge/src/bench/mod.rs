//! Prompts → pictures → scores → reports, in a folder that can be continued after any interruption.
//!
//! | file | what |
//! |---|---|
//! | `manifest.json` | what was asked for: a run with other settings is refused |
//! | `pictures/0001.png` | the pictures |
//! | `painted.jsonl` | a line for each picture, written when it is on the disk |
//! | `answers.jsonl` | a line for each answer of the judge, word for word |
//! | `results.jsonl` | a line for each picture that is painted and judged, with its scores and times |
//! | `report.md`, `.csv`, `.json`, `.html` | the tables |

// prompts → pictures and answers
mod run;
// runs of parts → one run
mod merge;
// two runs side by side
mod compare;
// results → Markdown, CSV, JSON
mod report;
// results → a page with the pictures
mod html;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::{Applicable, Asked, Dimension, Error, PictureScores, Result};

pub use compare::{Figures, Published, PublishedRow, side_by_side};
pub use merge::merge;
pub use report::{Report, cells, columns};
pub use run::{Event, Run};

/// What a run was asked for. Another run in the same folder must be asked for the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the program.
    pub version: String,
    /// The painter.
    pub model: String,
    /// Fingerprint of its configuration files, where they are on this machine.
    pub model_fingerprint: Option<String>,
    /// What painted.
    pub device: String,
    /// The judge.
    pub judge: String,
    /// Name of the rubric.
    pub rubric: String,
    /// Fingerprint of the rubric.
    pub rubric_fingerprint: String,
    /// Width and height that were asked for.
    pub size: Option<(u32, u32)>,
    /// Steps that were asked for.
    pub steps: Option<usize>,
    /// Seed of the first prompt; each takes the next.
    pub seed: u64,
    /// How many prompts are used, by all shards together.
    pub num_prompts: usize,
    /// The file of prompts.
    pub prompts: String,
    /// Fingerprint of the prompts that are used.
    pub prompts_fingerprint: String,
    /// Which part this is, from 1, and of how many.
    pub shard: (usize, usize),
}

/// A prompt of the benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompt {
    /// Its place in the file, from 0.
    pub index: usize,
    /// Its name in the file, or its place from 1.
    pub id: String,
    /// What to paint.
    pub prompt: String,
    /// What applies to it.
    pub dims_en: String,
}

impl Prompt {
    /// What applies to it.
    #[must_use]
    pub fn applicable(&self) -> Applicable {
        Applicable::parse(&self.dims_en)
    }
}

/// A painted picture: a line of `painted.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaintedLine {
    /// What it was painted from.
    pub prompt: Prompt,
    /// The seed.
    pub seed: u64,
    /// The file, in the run's folder.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Steps, if known.
    pub steps: Option<usize>,
    /// Seconds to paint it, without reading weights.
    pub seconds: f64,
    /// Seconds of each stage.
    pub stages: Vec<(String, f64)>,
}

/// An answer of the judge: a line of `answers.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerLine {
    /// Which prompt.
    pub index: usize,
    /// The answer.
    pub asked: Asked,
}

/// A finished picture.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The picture.
    pub painted: PaintedLine,
    /// Seconds of all answers together.
    pub judge_seconds: f64,
    /// The scores.
    pub scores: PictureScores,
}

/// What has been done in a folder.
#[derive(Debug)]
pub struct State {
    /// What was asked for.
    pub manifest: Manifest,
    /// Pictures by the index of their prompt.
    pub painted: BTreeMap<usize, PaintedLine>,
    /// Answers by prompt and dimension.
    pub answers: BTreeMap<(usize, Dimension), Asked>,
}

impl State {
    /// Reads a folder. A torn last line of a journal is cut off.
    ///
    /// # Errors
    /// When it holds no run, a damaged one, or one that is going on.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("manifest.json");
        let text = fs::read(&path).map_err(|source| Error::io(&path, source))?;
        let manifest = serde_json::from_slice(&text).map_err(|error| Error::file(&path, error.to_string()))?;
        let mut state = Self { manifest, painted: BTreeMap::new(), answers: BTreeMap::new() };
        state.add(lines(&folder.join("painted.jsonl"))?, lines(&folder.join("answers.jsonl"))?);
        Ok(state)
    }

    fn add(&mut self, painted: Vec<PaintedLine>, answers: Vec<AnswerLine>) {
        self.painted.extend(painted.into_iter().map(|line| (line.prompt.index, line)));
        for AnswerLine { index, asked } in answers {
            if let Some(dimension) = asked.dimension() {
                self.answers.insert((index, dimension), asked);
            }
        }
    }

    /// Pictures that are painted and judged, in order.
    #[must_use]
    pub fn finished(&self) -> Vec<Finished> {
        self.painted.keys().filter_map(|index| self.finished_at(*index)).collect()
    }

    fn finished_at(&self, index: usize) -> Option<Finished> {
        let painted = self.painted.get(&index)?;
        let mut readings = BTreeMap::new();
        let mut judge_seconds = 0.0;
        for dimension in painted.prompt.applicable().dimensions() {
            let asked = self.answers.get(&(index, dimension))?;
            judge_seconds += asked.seconds;
            readings.insert(dimension, asked.reading(dimension));
        }
        Some(Finished { painted: painted.clone(), judge_seconds, scores: PictureScores::new(readings) })
    }
}

/// A line of `results.jsonl`, `report.json` and the tables.
#[derive(Debug, Serialize)]
pub struct ResultLine<'a> {
    #[serde(flatten)]
    painted: &'a PaintedLine,
    judge_seconds: f64,
    scores: &'a PictureScores,
}

impl Finished {
    /// As it is written.
    #[must_use]
    pub fn line(&self) -> ResultLine<'_> {
        ResultLine { painted: &self.painted, judge_seconds: self.judge_seconds, scores: &self.scores }
    }
}

/// Reads a journal, which may not be there yet and whose last line may be torn.
fn lines<T: Serialize + serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    match path.try_exists() {
        Ok(false) => Ok(Vec::new()),
        Ok(true) => Journal::open(path).map(|(_, lines)| lines),
        Err(source) => Err(Error::io(path, source)),
    }
}

/// Writes a file under a passing name, brings it to the disk and renames it.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let error = |source| Error::io(path, source);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part: PathBuf = path.with_file_name(name);
    let written = (|| -> io::Result<()> {
        let mut file = fs::File::create(&part)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        // the new name should outlive a power cut too; not every system can do that
        if let Some(Ok(folder)) = path.parent().map(fs::File::open) {
            let _ = folder.sync_all();
        }
        Ok(())
    })();
    written.map_err(error)
}
