//! A judge on this machine.

use std::sync::{Arc, Mutex, PoisonError};

use atelier_kernels::Backend;
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{
    Content, Finish, ImageToText, Message, PrefixCache, Request, Role, SamplingOverrides,
};
use atelier_pipelines::progress::{Cancel, Progress};

use super::{Answer, Judge, REPETITION_PENALTY, SEED, View};
use crate::{Question, Result};

/// Memory for the part that all questions about a picture begin with, in bytes.
const MEMORY: u64 = 4 << 30;

/// A model of the Qwen3-VL family or its successors.
#[derive(Debug)]
pub struct LocalJudge<B: Backend> {
    name: String,
    looker: ImageToText<B>,
    memory: Mutex<PrefixCache<B>>,
    max_tokens: usize,
}

impl<B: Backend> LocalJudge<B> {
    /// Opens a checkpoint in the Hub's layout; `name` is for reports.
    ///
    /// # Errors
    /// When a file is missing, damaged, or of a kind that is not implemented.
    pub fn open(backend: &B, files: &Files, name: impl Into<String>, max_tokens: usize) -> Result<Self> {
        let looker = ImageToText::open(backend, files)?;
        Ok(Self { name: name.into(), looker, memory: Mutex::new(PrefixCache::new(MEMORY)), max_tokens })
    }
}

impl<B: Backend> Judge for LocalJudge<B> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn answer(&self, question: &Question, view: &View, cancel: &Cancel) -> Result<Answer> {
        let content = vec![
            Content::Text(question.before.clone()),
            Content::Image(Arc::clone(view.picture())),
            Content::Text(question.after.clone()),
        ];
        let mut user = Message::text(Role::User, "");
        user.content = content;
        let mut request = Request::new(vec![Message::text(Role::System, &question.system), user]);
        request.thinking = self.looker.prompter().template().switches_thinking().then_some(true);
        request.max_tokens = self.max_tokens;
        request.sampling = SamplingOverrides {
            temperature: Some(0.0),
            top_k: Some(1),
            repetition_penalty: Some(REPETITION_PENALTY),
            seed: Some(SEED),
            ..SamplingOverrides::default()
        };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = Progress::new(&(), cancel.clone());
        let answer = self.looker.answer(&request, &mut memory, &progress, &mut |_| Ok(()))?;
        let text = match answer.thinking {
            Some(thinking) => format!("<think>\n{thinking}\n</think>\n\n{}", answer.text),
            None => answer.text,
        };
        let tokens = Some(answer.usage.completion_tokens as u64);
        Ok(Answer { text, cut: answer.finish == Finish::Length, tokens })
    }
}
