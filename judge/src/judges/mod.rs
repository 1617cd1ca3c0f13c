//! Question, picture → answer.

// a model on this machine
mod local;
// a model behind an OpenAI-compatible server
mod server;
// many questions at once
mod ask;

use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use atelier_pipelines::image_to_text::Picture;
use atelier_pipelines::progress::Cancel;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::{Dimension, Question, Reading, Result};

pub use ask::{Task, ask_all};
pub use local::LocalJudge;
pub use server::ServerJudge;
pub(crate) use server::first_model;

/// Longest side of a picture that judges get as it is.
const SIDE: u32 = 1024;

/// Tokens of an answer, thinking included, as the benchmark's own tools have it.
pub const MAX_TOKENS: usize = 4096;
/// Penalty on repeated tokens, likewise.
const REPETITION_PENALTY: f32 = 1.05;
/// Seed of the sampling, which greedy decoding does not need.
const SEED: u64 = 42;

/// Answers questions about pictures.
pub trait Judge: Send + Sync {
    /// What it is called in reports.
    fn name(&self) -> String;

    /// How many questions it answers at once.
    fn concurrency(&self) -> usize;

    /// Answers one question.
    ///
    /// # Errors
    /// [`Refused`](crate::Error::Refused) when it does not want this one; others when it cannot answer any.
    fn answer(&self, question: &Question, view: &View, cancel: &Cancel) -> Result<Answer>;
}

/// What a judge said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its words, with or without the thinking.
    pub text: String,
    /// Whether it was cut at the limit of tokens.
    pub cut: bool,
    /// Tokens of the answer, if they were counted.
    pub tokens: Option<u64>,
}

/// A picture as judges get it: RGB, and 1024x1024 (aspect not kept) when it is larger than that on any side.
#[derive(Debug)]
pub struct View {
    picture: Arc<Picture>,
    uri: OnceLock<String>,
}

impl View {
    /// Of a picture.
    #[must_use]
    pub fn new(picture: &Picture) -> Self {
        let (width, height) = picture.pixels().dimensions();
        let picture = if width.max(height) > SIDE { picture.resized(SIDE, SIDE) } else { picture.clone() };
        Self { picture: Arc::new(picture), uri: OnceLock::new() }
    }

    /// The pixels.
    #[must_use]
    pub fn picture(&self) -> &Arc<Picture> {
        &self.picture
    }

    /// The picture as a `data:` URI.
    pub fn uri(&self) -> &str {
        self.uri.get_or_init(|| {
            let mut png = Cursor::new(Vec::new());
            // writing to memory cannot fail, and every size that was read can be written
            let _ = self.picture.pixels().write_to(&mut png, image::ImageFormat::Png);
            format!("data:image/png;base64,{}", STANDARD.encode(png.into_inner()))
        })
    }
}

/// What came of a question: a line in a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which dimension was asked about, by its name.
    pub dimension: String,
    /// The answer, none when the judge refused.
    pub answer: Option<String>,
    /// Why it refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether the answer was cut at the limit of tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Tokens of the answer, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How long it took.
    pub seconds: f64,
}

impl Asked {
    /// The dimension, if it is one.
    #[must_use]
    pub fn dimension(&self) -> Option<Dimension> {
        Dimension::ALL.into_iter().find(|dimension| dimension.name() == self.dimension)
    }

    /// What can be read of it; a refusal is missing.
    #[must_use]
    pub fn reading(&self, dimension: Dimension) -> Reading {
        match &self.answer {
            None => Reading::Missing(self.refused.clone().unwrap_or_else(|| "there is no answer".into())),
            Some(answer) => match Reading::of(answer, dimension) {
                Reading::Missing(problem) if self.cut => {
                    Reading::Missing(format!("{problem}; it was cut at the limit of tokens"))
                }
                reading => reading,
            },
        }
    }
}
