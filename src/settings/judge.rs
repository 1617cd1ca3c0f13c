//! `atelier judge`: what was typed means.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use atelier_judge::http::{Options, Server};
use atelier_judge::judges::{LocalJudge, ServerJudge};
use atelier_judge::{Applicable, Judge as Referee, Rubric};
use atelier_kernels::cpu::{Cpu, Products};
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::progress::Cancel;

use super::{device, text_of};
use crate::cli;
use crate::failure::Usage;
use crate::output;
use crate::pictures::Source;

/// The variable that names a local judge when no flag does.
const MODEL_VARIABLE: &str = "ATELIER_JUDGE_MODEL";
/// The variable that holds the key of the judge's server.
const KEY_VARIABLE: &str = "ATELIER_JUDGE_API_KEY";

/// What `atelier judge` will do.
#[derive(Debug)]
pub struct Judge {
    /// What is judged.
    pub work: Work,
    /// Who judges.
    pub judge: JudgeSettings,
    /// Whether standard output gets one JSON object.
    pub json: bool,
    /// Whether progress and notes are left out.
    pub quiet: bool,
}

/// What is judged.
#[derive(Debug)]
pub enum Work {
    /// One picture.
    One {
        /// The picture.
        picture: Source,
        /// What it was painted from.
        prompt: String,
        /// What applies to it.
        applicable: Applicable,
    },
    /// The rows of a file.
    Many {
        /// The file.
        input: PathBuf,
        /// Where the results go.
        output: PathBuf,
    },
}

/// Who judges, and by which rubric.
#[derive(Debug)]
pub struct JudgeSettings {
    /// What is asked.
    pub rubric: Rubric,
    place: Place,
    max_tokens: usize,
}

#[derive(Debug)]
enum Place {
    Local { files: Files, name: String },
    Server { url: String, options: Options, model: Option<String>, concurrency: usize },
}

/// Flags → meaning.
///
/// # Errors
/// [`Usage`] when the flags make no sense; others when a file or folder they name is not as it should be.
pub fn judge(typed: Box<cli::Judge>) -> Result<Judge> {
    let typed = *typed;
    let work = match (&typed.input, &typed.output, &typed.image, &typed.prompt) {
        (Some(input), Some(output), ..) => {
            output::check(output)?;
            Work::Many { input: input.clone(), output: output.clone() }
        }
        (_, _, Some(image), Some(prompt)) => Work::One {
            picture: Source::parse(image)?,
            prompt: text_of(prompt, "prompt")?,
            applicable: applicable(typed.dims.as_deref())?,
        },
        _ => bail!(Usage("what to judge? Give a picture and --prompt, or --input and -o".into())),
    };
    let judge = JudgeSettings::new(&typed.judge)?;
    Ok(Judge { work, judge, json: typed.json, quiet: typed.quiet })
}

fn applicable(dims: Option<&str>) -> Result<Applicable> {
    let applicable = dims.map_or_else(Applicable::everything, Applicable::parse);
    if let Some(unknown) = applicable.unknown().first() {
        bail!(Usage(format!(
            "--dims: \"{unknown}\" is not known: write paths such as \"Quality / Detail / Noise\", joined by semicolons"
        )));
    }
    Ok(applicable)
}

impl JudgeSettings {
    /// Flags → meaning.
    ///
    /// # Errors
    /// [`Usage`] when no judge is named, others when a folder or the rubric is not as it should be.
    pub fn new(typed: &cli::JudgeOptions) -> Result<Self> {
        device(typed.judge_device)?;
        let rubric = typed.rubric.as_deref().map(Rubric::read).transpose()?.unwrap_or_default();
        let place = if let Some(url) = &typed.judge_url {
            let options = options(KEY_VARIABLE, typed.judge_timeout, typed.judge_retries);
            // an address that is none should be told before anything is painted
            Server::new(url, options.clone())?;
            let (url, model, concurrency) = (url.clone(), typed.judge_model.clone(), typed.judge_concurrency);
            Place::Server { url, options, model, concurrency }
        } else {
            let variable = || std::env::var(MODEL_VARIABLE).ok().filter(|value| !value.is_empty());
            let Some(model) = typed.judge_model.clone().or_else(variable) else {
                bail!(Usage("who judges? Name a checkpoint with --judge-model, or a server with --judge-url".into()));
            };
            if !Path::new(&model).is_dir() {
                bail!("{model}: there is no such folder: --judge-model wants a checkpoint in the Hub's layout");
            }
            Place::Local { files: Files::folder(Path::new(&model)), name: model }
        };
        Ok(Self { rubric, place, max_tokens: typed.judge_max_tokens })
    }

    /// Opens the checkpoint, or asks the server for its model.
    ///
    /// # Errors
    /// When the checkpoint is damaged or the server cannot be asked.
    pub fn open(&self, cancel: &Cancel) -> Result<Box<dyn Referee>> {
        Ok(match &self.place {
            Place::Local { files, name } => {
                let name = Path::new(name).file_name().map_or_else(|| name.into(), |name| name.to_string_lossy());
                Box::new(LocalJudge::open(&Cpu::new(Products::F32), files, name, self.max_tokens)?)
            }
            Place::Server { url, options, model, concurrency } => {
                let server = Server::new(url, options.clone())?;
                Box::new(ServerJudge::connect(server, model.clone(), *concurrency, self.max_tokens, cancel)?)
            }
        })
    }
}

/// How a server is asked; the key stands in the environment.
pub(super) fn options(key: &str, timeout: usize, retries: usize) -> Options {
    let key = std::env::var(key).ok().map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let timeout = Duration::from_secs(timeout as u64);
    Options { key, timeout, retries: retries as u32, ..Options::default() }
}
