//! What is asked of the looker, and what it answers.

use serde::{Deserialize, Serialize};

use super::chat::Message;
use super::sampling::SamplingOverrides;
use crate::{Error, Result};

/// Most stop strings of a request, and their longest length in bytes.
const STOP_LIMITS: (usize, usize) = (16, 1024);

/// A question to the model.
#[derive(Debug, Clone)]
pub struct Request {
    /// The conversation; the model answers its last message.
    pub messages: Vec<Message>,
    /// Whether the model thinks before it answers (the template's `enable_thinking`); `None` leaves it to the template.
    pub thinking: Option<bool>,
    /// How tokens are chosen, where not as the checkpoint says.
    pub sampling: SamplingOverrides,
    /// Most tokens of the answer, thinking included; the model's context is a limit too.
    pub max_tokens: usize,
    /// Texts that end the answer; they are no part of it. The thinking may hold them.
    pub stop: Vec<String>,
    /// Prompt tokens that are read at once: memory against speed. The answer is the same.
    pub prefill_chunk: usize,
}

impl Request {
    /// Prompt tokens that are read at once where nothing is said.
    pub const PREFILL_CHUNK: usize = 512;
    /// Tokens of an answer where nothing is said.
    pub const MAX_TOKENS: usize = 2048;

    /// An answer to a conversation, everything else the model's own.
    #[must_use]
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            thinking: None,
            sampling: SamplingOverrides::default(),
            max_tokens: Self::MAX_TOKENS,
            stop: Vec::new(),
            prefill_chunk: Self::PREFILL_CHUNK,
        }
    }

    /// Refuses what no model could answer.
    pub(super) fn check(&self) -> Result<()> {
        for (name, value) in [("max_tokens", self.max_tokens), ("prefill_chunk", self.prefill_chunk)] {
            if value == 0 {
                return Err(Error::input(format!("`{name}` is 0; expected 1 or more")));
            }
        }
        let (count, length) = STOP_LIMITS;
        if self.stop.len() > count {
            return Err(Error::input(format!("{} stop strings; at most {count} are possible", self.stop.len())));
        }
        match self.stop.iter().find(|stop| stop.is_empty() || stop.len() > length) {
            Some(stop) => Err(Error::input(format!("a stop string has {} bytes; expected 1 to {length}", stop.len()))),
            None => Ok(()),
        }
    }
}

/// What happens while a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The prompt has been read; the answer begins.
    Prompt(Usage),
    /// The model thinks.
    Thinking(&'a str),
    /// The model answers.
    Text(&'a str),
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finish {
    /// The model ended it, or a stop string came.
    Stop,
    /// It reached `max_tokens` or the end of the model's context.
    Length,
}

/// How many tokens a question took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Tokens of the prompt, those of the pictures included.
    pub prompt_tokens: usize,
    /// Visual tokens of the pictures.
    pub image_tokens: usize,
    /// Tokens of the prompt that were known from an earlier question.
    pub cached_tokens: usize,
    /// Tokens of the answer, thinking and the one that ended it included.
    pub completion_tokens: usize,
    /// Tokens of the answer up to the end of the thinking.
    pub thinking_tokens: usize,
}

/// What looking at a picture took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VisionTiming {
    /// Width and height after the resize, in pixels.
    pub size: (usize, usize),
    /// Visual tokens.
    pub tokens: usize,
    /// Seconds in the vision tower, resize not included; 0 when the picture was known.
    pub seconds: f64,
    /// Whether the picture was known from an earlier question.
    pub cached: bool,
}

/// How long a question took. All times are wall-clock seconds, the device synchronised.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Timings {
    /// Every picture, in order.
    pub vision: Vec<VisionTiming>,
    /// Prompt tokens that were read, without those known from an earlier question.
    pub prefill_tokens: usize,
    /// From the end of looking to the logits of the first token.
    pub prefill_seconds: f64,
    /// Time to first token: from the request to the choice of the first token.
    pub ttft_seconds: f64,
    /// Tokens after the first.
    pub decode_tokens: usize,
    /// From the first token to the last.
    pub decode_seconds: f64,
}

impl Timings {
    /// Prompt tokens read in a second.
    #[must_use]
    pub fn prefill_rate(&self) -> Option<f64> {
        rate(self.prefill_tokens as f64, self.prefill_seconds)
    }

    /// Tokens a second after the first.
    #[must_use]
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.decode_tokens as f64, self.decode_seconds)
    }

    /// Seconds per output token after the first (TPOT).
    #[must_use]
    pub fn tpot(&self) -> Option<f64> {
        rate(self.decode_seconds, self.decode_tokens as f64)
    }

    /// Pictures a second in the vision tower, of those that were looked at.
    #[must_use]
    pub fn vision_rate(&self) -> Option<f64> {
        let looked: Vec<f64> = self.vision.iter().filter(|v| !v.cached).map(|v| v.seconds).collect();
        rate(looked.len() as f64, looked.iter().sum())
    }
}

fn rate(count: f64, per: f64) -> Option<f64> {
    (count > 0.0 && per > 0.0).then(|| count / per)
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The answer, without the thinking.
    pub text: String,
    /// What the model thought before, where it did.
    pub thinking: Option<String>,
    /// The tokens as they were chosen, thinking and special ones included.
    pub tokens: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens.
    pub usage: Usage,
    /// Times.
    pub timings: Timings,
}

impl Answer {
    /// The answer as a message of the conversation.
    #[must_use]
    pub fn message(&self) -> Message {
        Message { thinking: self.thinking.clone(), ..Message::text(super::chat::Role::Assistant, &self.text) }
    }
}
