//! Conversation with pictures → answer, with the Qwen3-VL and Qwen3.5 families.
//!
//! [`ImageToText::answer`] is the table of the modules below as code; the models are the painter's text encoder too.

// a conversation, as a person has it
pub mod chat;
// what is asked and what is answered
pub mod request;
// config.json → sizes
pub mod config;
// generation_config.json → defaults of an answer
pub mod generation_config;
// file bytes → upright pixels
pub mod picture;
// picture → patches and their grid
pub mod patches;
// conversation → prompt text
pub mod template;
// text ↔ token ids
pub mod tokenizer;
// conversation → token ids with places for the pictures
pub mod prompt;
// what the models are made of
mod attention;
mod delta_net;
mod experts;
mod layers;
mod rotary;
// patches → visual tokens
pub mod vision;
// token ids, grids → positions on three axes
pub mod positions;
// token ids, visual tokens → decoder inputs
pub mod inputs;
// inputs, cache → hidden states
pub mod cache;
pub mod decoder;
// pictures and tokens → logits
pub mod model;
// logits → token
pub mod sampling;
// tokens → text, as it comes
pub mod text;
// earlier conversations → what a new one need not read
pub mod prefix_cache;
// prompt → answer, step by step
pub mod generate;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use atelier_kernels::Backend;

use crate::checkpoint::Files;
use crate::progress::{Place, Progress, Size, Stage, Timing};
use crate::{Error, Result};

pub use cache::{Cache, Checkpoint};
pub use chat::{Content, Message, Role};
pub use config::{Config, Family};
pub use decoder::Decoder;
pub use generate::Generation;
pub use generation_config::GenerationConfig;
pub use inputs::Inputs;
pub use model::Model;
pub use patches::{Grid, ImageProcessor, Patches};
pub use picture::Picture;
pub use prefix_cache::PrefixCache;
pub use prompt::{Prompt, Prompter};
pub use request::{Answer, Event, Finish, Request, Timings, Usage, VisionTiming};
pub use sampling::{Sampling, SamplingOverrides};
pub use vision::{Features, VisionTower};

use generate::{Limits, PictureFeatures, Start, check_context, first_capacity};
use prefix_cache::{Conversation, Known, Sequence};
use sampling::Sampler;
use text::TextStream;

/// A model that answers questions about pictures.
#[derive(Debug)]
pub struct ImageToText<B: Backend> {
    model: Model<B>,
    prompter: Prompter,
    defaults: GenerationConfig,
    /// Tells this pipeline's states in a [`PrefixCache`] from another's.
    id: u64,
}

impl<B: Backend> ImageToText<B> {
    /// Opens a checkpoint in the Hub's layout.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a file is missing, damaged, or asks for something that is not implemented.
    pub fn open(backend: &B, files: &Files) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let model = Model::open(backend, files)?;
        let prompter = Prompter::load(files, model.config())?;
        let defaults = GenerationConfig::load(files, prompter.tokenizer())?;
        Ok(Self { model, prompter, defaults, id: NEXT.fetch_add(1, Ordering::Relaxed) })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model<B> {
        &self.model
    }

    /// What writes the prompts.
    #[must_use]
    pub fn prompter(&self) -> &Prompter {
        &self.prompter
    }

    /// What holds where a request says nothing.
    #[must_use]
    pub fn defaults(&self) -> &GenerationConfig {
        &self.defaults
    }

    /// Answers a conversation; `on` hears of it as it comes. What was read, whether the answer was finished or not, stays
    /// in `memory` for later conversations.
    ///
    /// # Errors
    /// [`Error::Input`] when the conversation cannot be answered as it is; [`Error::Cancelled`] between layers and tokens;
    /// those of `on`.
    pub fn answer(
        &self,
        request: &Request,
        memory: &mut PrefixCache<B>,
        progress: &Progress<'_>,
        on: &mut dyn FnMut(Event<'_>) -> Result<()>,
    ) -> Result<Answer> {
        let mut generation = self.begin(request, memory, progress)?;
        let outcome = Self::run(&mut generation, progress, on);
        let answer = self.end(generation, memory);
        outcome?;
        answer.ok_or_else(|| Error::input("the answer was not finished"))
    }

    /// Tokenizes a conversation, finds what is known of it and looks at the pictures that are not. What follows are the
    /// generation's steps, and [`end`](Self::end).
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn begin(
        &self,
        request: &Request,
        memory: &mut PrefixCache<B>,
        progress: &Progress<'_>,
    ) -> Result<Generation<'_, B>> {
        let asked = Instant::now();
        request.check()?;
        let sampling = self.defaults.sampling.with(&request.sampling)?;
        let length = request.messages.len();
        let prompt = progress.stage(Stage::Tokenize, Size::new(length, "messages"), || {
            self.prompter.prompt(&request.messages, request.thinking)
        })?;
        check_context(&prompt, self.defaults.context)?;
        if request.thinking.is_some() && !self.prompter.template().switches_thinking() {
            progress.notice("the chat template has no switch for thinking: it stays as it is");
        }
        let tokens = request.max_tokens.min(self.defaults.context - prompt.ids.len());
        let limits = Limits { eos: &self.defaults.eos, tokens };
        memory.claim(self.id);
        let backend = self.model.backend();
        let capacity = first_capacity(&prompt, limits);
        let sequence = Sequence::of(&prompt);
        let Known { cache, checkpoints, shared } = memory.begin(backend, &sequence, capacity)?;
        let cache = match cache {
            // A conversation that goes on has no room yet.
            Some(cache) if cache.capacity() < capacity => cache.copy(backend, cache.len(), None, capacity)?,
            Some(cache) => cache,
            None => self.model.cache(capacity)?,
        };
        let (features, vision) = match self.look(&prompt, cache.len(), memory, progress) {
            Ok(seen) => seen,
            Err(error) => {
                let sequence = sequence.first(cache.len());
                memory.keep(Conversation { sequence, cache, checkpoints });
                return Err(error);
            }
        };
        let sampler = Sampler::new(sampling, &prompt.ids);
        let stream = TextStream::new(self.prompter.tokenizer(), request.stop.clone(), prompt.thinking);
        let timings = Timings { vision, ..Timings::default() };
        let chunk = request.prefill_chunk;
        let start =
            Start { asked, prompt, features, cache, checkpoints, shared, chunk, limits, sampler, stream, timings };
        Ok(Generation::new(&self.model, start))
    }

    /// Puts what a generation has read into `memory`, and gives its answer if it is complete.
    pub fn end(&self, generation: Generation<'_, B>, memory: &mut PrefixCache<B>) -> Option<Answer> {
        let (conversation, answer) = generation.end();
        memory.claim(self.id);
        memory.keep(conversation);
        answer
    }

    fn run(
        generation: &mut Generation<'_, B>,
        progress: &Progress<'_>,
        on: &mut dyn FnMut(Event<'_>) -> Result<()>,
    ) -> Result<()> {
        let cancel = progress.cancel();
        let (known, all) = generation.read();
        progress.stage(Stage::Prefill, Size::new(all - known, "tokens"), || {
            while !generation.begun() {
                generation.step(cancel, on)?;
                progress.advanced(Stage::Prefill, generation.read().0 - known, all - known);
            }
            Ok(())
        })?;
        while !generation.finished() {
            generation.step(cancel, on)?;
        }
        let Timings { decode_tokens, decode_seconds: seconds, .. } = generation.timings;
        let size = Size::new(decode_tokens, "tokens");
        progress.record(Timing { stage: Stage::Decode, picture: None, index: None, seconds, size });
        Ok(())
    }

    /// Visual tokens of the pictures that are not wholly among the first `known` tokens.
    fn look(
        &self,
        prompt: &Prompt,
        known: usize,
        memory: &mut PrefixCache<B>,
        progress: &Progress<'_>,
    ) -> Result<(PictureFeatures<B>, Vec<VisionTiming>)> {
        let backend = self.model.backend();
        let processor = self.prompter.processor();
        let (mut all, mut timings) = (Vec::new(), Vec::new());
        for (index, image) in prompt.images.iter().enumerate() {
            let grid = image.slots.grid;
            let tokens = grid.tokens();
            let read = image.slots.start + tokens <= known;
            let mut features = memory.features(image.key);
            let cached = read || features.is_some();
            let mut seconds = 0.0;
            if !cached {
                let patches = processor.patches(image.picture.pixels())?;
                let place = Place { index: Some(index), count: prompt.images.len(), ..Place::default() };
                let seen = progress.stage_at(Stage::VisionEncode, place, Size::new(tokens, "tokens"), || {
                    let start = Instant::now();
                    let seen = self.model.see(&patches, progress.cancel())?;
                    backend.synchronize()?;
                    seconds = start.elapsed().as_secs_f64();
                    Ok(seen)
                })?;
                let seen = Arc::new(seen);
                memory.keep_features(backend, image.key, &seen);
                features = Some(seen);
            }
            all.push(features.filter(|_| !read));
            let size = (grid.width * processor.patch(), grid.height * processor.patch());
            timings.push(VisionTiming { size, tokens, seconds, cached });
        }
        Ok((all, timings))
    }
}
