//! `atelier bench image`: what was typed means.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use atelier_judge::bench::Prompt;
use atelier_judge::http::{Options, Server};
use atelier_judge::painters::{LocalPainter, ServerPainter};
use atelier_judge::{Painter, rows};
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::progress::Cancel;
use atelier_pipelines::text_to_image::{Dtype, TextToImage};
use sha2::{Digest as _, Sha256};

use super::judge::options;
use super::{JudgeSettings, MODEL_VARIABLE, device, dtype, files, usual_model};
use crate::{cli, demo};

/// The variable that holds the key of the painter's server.
const KEY_VARIABLE: &str = "ATELIER_PAINTER_API_KEY";

/// What `atelier bench image` will do.
#[derive(Debug)]
pub struct BenchImage {
    /// The file of prompts, for people.
    pub file: String,
    /// All prompts, of every shard.
    pub prompts: Vec<Prompt>,
    /// Fingerprint of all prompts.
    pub fingerprint: String,
    /// Which part, of how many.
    pub shard: (usize, usize),
    /// The run's folder.
    pub output: PathBuf,
    /// Another run, or "m1000".
    pub compare: Option<PathBuf>,
    /// Width and height.
    pub size: Option<(u32, u32)>,
    /// Denoising steps.
    pub steps: Option<usize>,
    /// Seed of the first prompt.
    pub seed: u64,
    /// Who paints.
    pub painter: PainterSettings,
    /// Who judges.
    pub judge: JudgeSettings,
    /// Whether progress is left out.
    pub quiet: bool,
}

/// Who paints.
#[derive(Debug)]
pub enum PainterSettings {
    /// A model on this machine.
    Local {
        /// The checkpoint.
        files: Files,
        /// Its name.
        name: String,
        /// Precision.
        dtype: Dtype,
    },
    /// A model of a server.
    Server {
        /// The address.
        url: String,
        /// How it is asked.
        options: Options,
        /// The model's name.
        model: Option<String>,
        /// Pictures at once.
        concurrency: usize,
    },
}

/// Flags → meaning.
///
/// # Errors
/// When the prompts cannot be read, a folder is missing, or no judge is named.
pub fn bench_image(typed: &cli::BenchImage) -> Result<BenchImage> {
    device(typed.device)?;
    let prompts = prompts(&typed.prompts, typed.num_prompts, &typed.language)?;
    let fingerprint = fingerprint(std::iter::once(serde_json::to_vec(&prompts)?));
    let painter = if let Some(url) = &typed.painter_url {
        let options = options(KEY_VARIABLE, typed.painter_timeout, typed.painter_retries);
        Server::new(url, options.clone())?;
        let model = typed.model.as_ref().map(|model| model.display().to_string());
        PainterSettings::Server { url: url.clone(), options, model, concurrency: typed.painter_concurrency }
    } else {
        let model = typed.model.clone().unwrap_or_else(|| usual_model(MODEL_VARIABLE));
        let files = files(&model, "diffusers layout", demo::PAINTER)?;
        let name = model.file_name().map_or_else(|| model.display().to_string(), |n| n.to_string_lossy().into_owned());
        PainterSettings::Local { files, name, dtype: dtype(typed.dtype) }
    };
    Ok(BenchImage {
        file: typed.prompts.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        prompts,
        fingerprint,
        shard: typed.shard.unwrap_or((1, 1)),
        output: typed.output.clone(),
        compare: typed.compare.clone(),
        size: typed.size,
        steps: typed.steps,
        seed: typed.seed,
        painter,
        judge: JudgeSettings::new(&typed.judge)?,
        quiet: typed.quiet,
    })
}

/// Reads the first `count` prompts of a set.
fn prompts(path: &Path, count: Option<usize>, language: &str) -> Result<Vec<Prompt>> {
    let mut rows = rows::read(path)?;
    if let Some(count) = count {
        if count > rows.len() {
            bail!("{}: --num-prompts {count}, but there are {} prompts", path.display(), rows.len());
        }
        rows.truncate(count);
    }
    let columns = [format!("prompt_{language}"), "prompt".to_owned()];
    let columns = columns.each_ref().map(String::as_str);
    let mut prompts = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let at = || format!("{}: row {}", path.display(), index + 1);
        let prompt = rows::text(row, &columns)
            .with_context(|| format!("{}: there is no prompt: a column {} is expected", at(), columns.join(" or ")))?;
        let id = rows::text(row, &["ID", "id"]).unwrap_or_else(|| (index + 1).to_string());
        let prompt = Prompt { index, id, prompt, dims_en: rows::text(row, &["dims_en", "dims"]).unwrap_or_default() };
        let applicable = prompt.applicable();
        if applicable.dimensions().is_empty() {
            bail!("{}: dims_en names no facet of the benchmark: {}", at(), applicable.unknown().join("; "));
        }
        prompts.push(prompt);
    }
    Ok(prompts)
}

impl PainterSettings {
    /// Opens the checkpoint, or asks the server for its model.
    ///
    /// # Errors
    /// When the checkpoint is damaged or the server cannot be asked.
    pub fn open(&self, cancel: &Cancel) -> Result<Box<dyn Painter>> {
        Ok(match self {
            Self::Local { files, name, dtype } => {
                Box::new(LocalPainter::new(TextToImage::open_cpu(files.clone(), *dtype)?, name.clone()))
            }
            Self::Server { url, options, model, concurrency } => {
                let server = Server::new(url, options.clone())?;
                Box::new(ServerPainter::connect(server, model.clone(), *concurrency, cancel)?)
            }
        })
    }

    /// Changes when a configuration file of a local checkpoint changes.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn fingerprint(&self) -> Result<Option<String>> {
        Ok(match self {
            Self::Local { files: Files::Folder(folder), .. } => {
                let mut paths = Vec::new();
                for entry in walk(folder)? {
                    if entry.extension().is_some_and(|extension| extension == "json") {
                        paths.push(entry);
                    }
                }
                paths.sort();
                let read = |path: PathBuf| fs::read(&path).with_context(|| path.display().to_string());
                Some(fingerprint(paths.into_iter().map(read).collect::<Result<Vec<_>>>()?.into_iter()))
            }
            Self::Local { files: Files::Embedded(files), .. } => {
                let configs = files.iter().filter(|(name, _)| Path::new(name).extension().is_some_and(|e| e == "json"));
                Some(fingerprint(configs.map(|(_, bytes)| bytes.to_vec())))
            }
            Self::Server { .. } => None,
        })
    }
}

/// Files of a folder and of the folders in it.
fn walk(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let list = |folder: &Path| fs::read_dir(folder).with_context(|| folder.display().to_string());
    for entry in list(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            for inner in list(&path)? {
                found.push(inner?.path());
            }
        } else {
            found.push(path);
        }
    }
    found.retain(|path| path.is_file());
    Ok(found)
}

/// 16 hexadecimal digits of a SHA-256.
fn fingerprint(parts: impl Iterator<Item = Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut text = String::new();
    for byte in &hash.finalize()[..8] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
