//! Prompt → answer: prefill in chunks, then one token after the other.
//!
//! A [`Generation`] goes on by steps, so that one thread can have several in turn.

use std::sync::Arc;
use std::time::Instant;

use atelier_kernels::Backend;

use super::cache::{Cache, Checkpoint};
use super::inputs::Inputs;
use super::model::Model;
use super::prefix_cache::{Conversation, Sequence, thin};
use super::prompt::Prompt;
use super::request::{Answer, Event, Finish, Timings, Usage};
use super::sampling::Sampler;
use super::text::{Said, TextStream};
use super::vision::Features;
use crate::progress::Cancel;
use crate::{Error, Result};

/// Room for the answer's tokens that a cache begins with; it grows by half its size.
const FIRST_ROOM: usize = 256;

/// Visual tokens of a prompt's pictures; none of those that are in the cache already.
pub(super) type PictureFeatures<B> = Vec<Option<Arc<Features<B>>>>;

/// An answer in the making.
#[derive(Debug)]
pub struct Generation<'a, B: Backend> {
    model: &'a Model<B>,
    pub(super) prompt: Prompt,
    features: PictureFeatures<B>,
    cache: Cache<B>,
    checkpoints: Vec<Checkpoint<B>>,
    /// Where to take checkpoints, ascending.
    marks: Vec<usize>,
    chunk: usize,
    limits: Limits<'a>,
    sampler: Sampler,
    stream: TextStream<'a>,
    tokens: Vec<u32>,
    text: String,
    thinking: Option<String>,
    finish: Option<Finish>,
    usage: Usage,
    pub(super) timings: Timings,
    clock: Clock,
}

/// Where an answer ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits<'a> {
    /// Tokens that end it.
    pub(super) eos: &'a [u32],
    /// Most tokens of it.
    pub(super) tokens: usize,
}

#[derive(Debug)]
struct Clock {
    asked: Instant,
    read: Instant,
    first: Option<Instant>,
}

/// What a generation begins with.
#[derive(Debug)]
pub(super) struct Start<'a, B: Backend> {
    pub(super) asked: Instant,
    pub(super) prompt: Prompt,
    pub(super) features: PictureFeatures<B>,
    pub(super) cache: Cache<B>,
    pub(super) checkpoints: Vec<Checkpoint<B>>,
    /// How many tokens the prompt shares with an earlier one.
    pub(super) shared: usize,
    pub(super) chunk: usize,
    pub(super) limits: Limits<'a>,
    pub(super) sampler: Sampler,
    pub(super) stream: TextStream<'a>,
    pub(super) timings: Timings,
}

/// How large the cache of a prompt is at first.
pub(super) fn first_capacity(prompt: &Prompt, limits: Limits<'_>) -> usize {
    prompt.ids.len() + limits.tokens.min(FIRST_ROOM)
}

impl<'a, B: Backend> Generation<'a, B> {
    pub(super) fn new(model: &'a Model<B>, start: Start<'a, B>) -> Self {
        let Start { asked, prompt, features, cache, checkpoints, shared, chunk, limits, sampler, stream, .. } = start;
        let known = cache.len();
        let mut marks = Vec::new();
        if cache.recurrent() {
            // Where other prompts are likely to part: after each picture, before the answer, and where some have parted.
            marks.extend(prompt.images.iter().map(|image| image.slots.start + image.slots.grid.tokens()));
            marks.extend([prompt.turn, shared]);
            marks.retain(|mark| (known + 1..=prompt.ids.len()).contains(mark));
            marks.sort_unstable();
            marks.dedup();
        }
        let usage = Usage {
            prompt_tokens: prompt.ids.len(),
            image_tokens: prompt.image_tokens(),
            cached_tokens: known,
            ..Usage::default()
        };
        let timings = Timings { prefill_tokens: prompt.ids.len() - known, ..start.timings };
        let clock = Clock { asked, read: Instant::now(), first: None };
        Self {
            model,
            prompt,
            features,
            cache,
            checkpoints,
            marks,
            chunk,
            limits,
            sampler,
            stream,
            tokens: Vec::new(),
            text: String::new(),
            thinking: None,
            finish: None,
            usage,
            timings,
            clock,
        }
    }

    /// Tokens of the prompt that have been read, and all of them.
    #[must_use]
    pub fn read(&self) -> (usize, usize) {
        (self.cache.len().min(self.prompt.ids.len()), self.prompt.ids.len())
    }

    /// Whether the answer has its first token.
    #[must_use]
    pub fn begun(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether the answer is complete.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Reads a chunk of the prompt, or makes one more token of the answer and hands over what it lets out. Does nothing
    /// once the answer is complete.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; [`Error::Numbers`] when the model's logits are not numbers; those of `on`.
    pub fn step(&mut self, cancel: &Cancel, on: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<()> {
        cancel.check()?;
        if self.finished() {
            return Ok(());
        }
        let states = match self.tokens.last() {
            None => self.read_chunk(cancel)?,
            Some(&token) => Some(self.read_token(token, cancel)?),
        };
        let Some(states) = states else { return Ok(()) };
        let backend = self.model.backend();
        let last = backend.rows(&states, backend.shape(&states)[0] - 1, 1)?;
        let logits = backend.download(&self.model.logits(&last)?)?;
        let token = self.sampler.next(logits)?;
        self.take(token, on)
    }

    /// The last states of the prompt, once it has been read to its end.
    fn read_chunk(&mut self, cancel: &Cancel) -> Result<Option<B::Tensor>> {
        let (start, end) = self.read();
        let mark = self.marks.first().copied().unwrap_or(end);
        let stop = (start + self.chunk).min(mark).min(end);
        let inputs = self.inputs(start, stop)?;
        let states = self.model.read(&inputs, Some(&mut self.cache), cancel)?;
        if stop == mark && !self.marks.is_empty() {
            self.marks.remove(0);
            self.checkpoints.push(self.cache.checkpoint());
            thin(&mut self.checkpoints);
        }
        // Its visual tokens are in the cache now.
        for (features, image) in self.features.iter_mut().zip(&self.prompt.images) {
            if image.slots.start + image.slots.grid.tokens() <= stop {
                *features = None;
            }
        }
        Ok((stop == end).then_some(states))
    }

    /// Tokens of the prompt as the decoder reads them.
    fn inputs(&self, start: usize, end: usize) -> Result<Inputs<B>> {
        let pictures: Vec<_> = self
            .prompt
            .images
            .iter()
            .zip(&self.features)
            .filter_map(|(image, features)| Some((image.slots, features.as_deref()?)))
            .collect();
        let range = start..end;
        let next = self.prompt.positions.get(end).map_or(self.prompt.next, |position| position[0]);
        self.model.part(&self.prompt.ids, &self.prompt.positions, range, next, &pictures)
    }

    /// The states of the answer's last token.
    fn read_token(&mut self, token: u32, cancel: &Cancel) -> Result<B::Tensor> {
        let length = self.cache.len();
        if length == self.cache.capacity() {
            let most = self.prompt.ids.len() + self.limits.tokens;
            let capacity = (length + length.div_ceil(2)).min(most).max(length + 1);
            self.cache = self.cache.copy(self.model.backend(), length, None, capacity)?;
        }
        let position = self.prompt.next + (length - self.prompt.ids.len()) as u32;
        let inputs = Inputs {
            embeddings: self.model.embed(&[token])?,
            positions: vec![[position; 3]],
            next: position + 1,
            image_rows: Vec::new(),
            deepstack: Vec::new(),
        };
        self.model.read(&inputs, Some(&mut self.cache), cancel)
    }

    /// Takes a chosen token into the answer.
    fn take(&mut self, token: u32, on: &mut dyn FnMut(Event<'_>) -> Result<()>) -> Result<()> {
        let now = Instant::now();
        if self.tokens.is_empty() {
            self.clock.first = Some(now);
            self.timings.prefill_seconds = (now - self.clock.read).as_secs_f64();
            self.timings.ttft_seconds = (now - self.clock.asked).as_secs_f64();
            on(Event::Prompt(self.usage))?;
        } else if let Some(first) = self.clock.first {
            self.timings.decode_tokens += 1;
            self.timings.decode_seconds = (now - first).as_secs_f64();
        }
        self.tokens.push(token);
        self.usage.completion_tokens += 1;
        let thought = self.stream.thinking();
        let ended = self.limits.eos.contains(&token);
        let mut said = if ended { Vec::new() } else { self.stream.push(token) };
        if thought || self.stream.thinking() {
            self.usage.thinking_tokens = self.tokens.len();
        }
        if ended || self.stream.stopped() {
            self.finish = Some(Finish::Stop);
        } else if self.tokens.len() >= self.limits.tokens {
            self.finish = Some(Finish::Length);
        }
        if self.finished() {
            said.extend(self.stream.finish());
        }
        for said in said {
            match said {
                Said::Thinking(text) => {
                    self.thinking.get_or_insert_default().push_str(&text);
                    on(Event::Thinking(&text))?;
                }
                Said::Text(text) => {
                    self.text.push_str(&text);
                    on(Event::Text(&text))?;
                }
            }
        }
        Ok(())
    }

    /// What was read, for later conversations.
    pub(super) fn end(self) -> (Conversation<B>, Option<Answer>) {
        let mut sequence = Sequence::of(&self.prompt);
        sequence.ids.extend(&self.tokens);
        let sequence = sequence.first(self.cache.len());
        let answer = self.finish.map(|finish| Answer {
            text: self.text,
            thinking: self.thinking,
            tokens: self.tokens,
            finish,
            usage: self.usage,
            timings: self.timings,
        });
        (Conversation { sequence, cache: self.cache, checkpoints: self.checkpoints }, answer)
    }
}

/// Says that a conversation does not fit.
pub(super) fn check_context(prompt: &Prompt, context: usize) -> Result<()> {
    let found = prompt.ids.len();
    if found < context {
        return Ok(());
    }
    let images = match prompt.image_tokens() {
        0 => String::new(),
        tokens => format!(" ({tokens} of them for pictures: smaller ones take fewer)"),
    };
    Err(Error::input(format!(
        "the conversation has {found} tokens{images}; the model reads {context} at most, the answer included"
    )))
}
