//! Prompt → token ids.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Deserialize;
use tokenizers::Tokenizer;

use crate::checkpoint::Files;
use crate::image_to_text::Grid;
use crate::{Error, Result};

/// The system message that the model was trained with.
const SYSTEM: &str = "Comprehend and analyze the provided prompt.";

const IMAGE: &str = "<|image_pad|>";
const VIDEO: &str = "<|video_pad|>";
const VISION_START: &str = "<|vision_start|>";
const VISION_END: &str = "<|vision_end|>";

/// Where the tokenizer may stand, in this order.
const TOKENIZERS: [&str; 2] = ["processor/tokenizer.json", "tokenizer/tokenizer.json"];
const TEXT_ENCODER: &str = "text_encoder/config.json";

/// Turns prompts into tokens: the tokenizer and the template.
#[derive(Debug)]
pub struct Prompter {
    tokenizer: Tokenizer,
    file: PathBuf,
    /// The system message, whose states are dropped.
    prefix: Vec<u32>,
    image_token: u32,
    video_token: Option<u32>,
}

/// A prompt with its template, as the text encoder reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// All token ids.
    pub ids: Vec<u32>,
    /// How many leading tokens (the system message) are no part of the conditioning.
    pub dropped: usize,
}

/// The special tokens that the text encoder knows by id.
#[derive(Deserialize)]
struct SpecialIds {
    #[serde(rename = "image_token_id")]
    image: u32,
    #[serde(rename = "video_token_id")]
    video: u32,
    #[serde(rename = "vision_start_token_id")]
    vision_start: u32,
    #[serde(rename = "vision_end_token_id")]
    vision_end: u32,
}

impl Prompter {
    /// Reads the tokenizer and compares its special tokens with the text encoder's config.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is no readable tokenizer, a special token is missing, or it has another id than the
    /// text encoder's config says.
    pub fn load(files: &Files) -> Result<Self> {
        let Some(name) = TOKENIZERS.into_iter().find(|name| files.exists(name)) else {
            let problem = format!("there is no tokenizer; expected {}", TOKENIZERS.join(" or "));
            return Err(Error::checkpoint(files.path(""), problem));
        };
        let file = files.path(name);
        let fail = |problem: String| Error::checkpoint(&file, problem);
        let mut tokenizer = Tokenizer::from_bytes(files.read(name)?)
            .map_err(|error| fail(format!("is no tokenizer that can be read: {error}")))?;
        // A file may keep the settings of its last use.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| fail(error.to_string()))?;

        let known: SpecialIds = files.json(TEXT_ENCODER)?;
        for (token, id) in [
            (IMAGE, Some(known.image)),
            (VIDEO, Some(known.video)),
            (VISION_START, Some(known.vision_start)),
            (VISION_END, Some(known.vision_end)),
            ("<|im_start|>", None),
            ("<|im_end|>", None),
        ] {
            let special = tokenizer.get_added_vocabulary().is_special_token(token);
            match tokenizer.token_to_id(token).filter(|_| special) {
                // A tokenizer without videos is no trouble.
                None if token == VIDEO => {}
                None => return Err(fail(format!("the special token {token} is missing"))),
                Some(found) if id.is_some_and(|id| id != found) => {
                    return Err(fail(format!(
                        "{token} has id {found}; {} says {}: tokenizer and text encoder are of different models",
                        files.path(TEXT_ENCODER).display(),
                        id.unwrap_or_default()
                    )));
                }
                Some(_) => {}
            }
        }
        let mut prompter = Self {
            image_token: known.image,
            video_token: tokenizer.token_to_id(VIDEO),
            tokenizer,
            file,
            prefix: Vec::new(),
        };
        prompter.prefix = prompter.encode(&system())?;
        Ok(prompter)
    }

    /// The tokens of a prompt with reference pictures of these grids. An empty prompt counts as one space. Special tokens
    /// in the prompt are special tokens.
    ///
    /// # Errors
    /// [`Error::Input`] when the prompt holds an image token, or a video token beside reference pictures.
    pub fn tokens(&self, prompt: &str, images: &[Grid]) -> Result<Tokens> {
        let ids = self.encode(&template(prompt, images))?;
        if !ids.starts_with(&self.prefix) {
            let problem = "the system message has other tokens before a prompt than by itself, so it cannot be dropped";
            return Err(Error::checkpoint(&self.file, problem));
        }
        let count = |token| ids.iter().filter(|id| **id == token).count();
        let slots: usize = images.iter().map(|grid| grid.tokens()).sum();
        if count(self.image_token) != slots {
            return Err(reserved(IMAGE));
        }
        if !images.is_empty() && self.video_token.is_some_and(|token| count(token) > 0) {
            return Err(reserved(VIDEO));
        }
        Ok(Tokens { ids, dropped: self.prefix.len() })
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(|error| Error::checkpoint(&self.file, format!("cannot tokenize: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }
}

fn reserved(token: &str) -> Error {
    Error::input(format!("the prompt holds {token}, which stands for a picture's content; take it out of the prompt"))
}

fn system() -> String {
    format!("<|im_start|>system\n{SYSTEM}<|im_end|>\n")
}

/// The raw string of the reference pipeline (not its chat template), image tokens already repeated.
fn template(prompt: &str, images: &[Grid]) -> String {
    let mut text = system();
    text.push_str("<|im_start|>user\n");
    for (index, grid) in images.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{space}<image{}>{VISION_START}{}{VISION_END}", index + 1, IMAGE.repeat(grid.tokens()));
    }
    text.push_str(if prompt.is_empty() { " " } else { prompt });
    text.push_str("<|im_end|>\n<|im_start|>assistant\n");
    text
}
