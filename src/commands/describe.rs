//! `atelier describe`: pictures and a question → an answer.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow};
use atelier_kernels::Backend;
use atelier_kernels::cpu::{Cpu, Products};
use atelier_pipelines::image_to_text::{
    Answer, Event, Finish, ImageToText, Message, Picture, PrefixCache, Request, Role,
};
use atelier_pipelines::progress::{Cancel, Progress};
use atelier_pipelines::{Error, Result as PipelineResult};

use super::chat;
use crate::display::Display;
use crate::failure::say;
use crate::interrupt;
use crate::pictures::Source;
use crate::report::answer::{Outcome, Seen, summary};
use crate::settings::{Describe, Verbosity};

/// Looks, answers, and converses if asked to.
///
/// # Errors
/// When the checkpoint, a picture or the question is bad, or Ctrl-C was pressed.
pub fn run(settings: &Describe) -> Result<()> {
    let start = Instant::now();
    let speaker = Speaker { settings };
    if let Some(seed) = settings.drawn {
        say(&format!("seed {seed}"));
    }
    if settings.chat {
        return chat::run(&speaker, &speaker.looker()?);
    }
    let cancel = Cancel::default();
    interrupt::cancel_on_ctrl_c(cancel.clone(), settings.verbosity == Verbosity::Quiet)?;
    let shown = settings.pictures.iter().map(|source| speaker.show(source)).collect::<Result<Vec<_>>>()?;
    let question = settings.question.as_deref().ok_or_else(|| anyhow!("there is no question"))?;
    let mut messages = speaker.opening();
    messages.push(Message::ask(shown.iter().map(|shown| Arc::clone(&shown.picture)), question));
    let looker = speaker.looker()?;
    let answer = speaker.answer(&looker, messages, &mut PrefixCache::off(), cancel, &mut String::new())?;
    if settings.json {
        let seen: Vec<Seen> = shown.iter().map(Shown::seen).collect();
        let notices: Vec<String> = shown.iter().flat_map(Shown::notes).collect();
        let answer = Answer { thinking: answer.thinking.filter(|_| settings.thoughts), ..answer };
        let outcome = Outcome::new(&settings.model, question, &seen, &answer, &notices);
        writeln!(io::stdout(), "{}", serde_json::to_string(&outcome.took(start.elapsed().as_secs_f64()))?)?;
    }
    Ok(())
}

/// A picture and where it came from.
pub(super) struct Shown {
    name: String,
    pub(super) picture: Arc<Picture>,
}

impl Shown {
    fn seen(&self) -> Seen {
        let (width, height) = self.picture.pixels().dimensions();
        Seen { name: self.name.clone(), width, height }
    }

    fn notes(&self) -> impl Iterator<Item = String> {
        self.picture.notes().iter().map(|note| format!("{}: {note}", self.name))
    }
}

/// Asks the model, and says what it answers.
pub(super) struct Speaker<'a> {
    pub(super) settings: &'a Describe,
}

impl Speaker<'_> {
    /// A line on standard error, unless quiet.
    pub(super) fn note(&self, text: &str) {
        if self.settings.verbosity != Verbosity::Quiet {
            say(text);
        }
    }

    /// Opens the model, and notes what it asks for in vain.
    fn looker(&self) -> PipelineResult<ImageToText<Cpu>> {
        let looker = ImageToText::open(&Cpu::new(Products::F32), &self.settings.files)?;
        for note in &looker.defaults().notes {
            self.note(&format!("note: {note}"));
        }
        Ok(looker)
    }

    /// Reads a picture, and notes what a person should know of it.
    pub(super) fn show(&self, source: &Source) -> Result<Shown> {
        let shown = Shown { name: source.name().into_owned(), picture: source.read()? };
        for note in shown.notes() {
            self.note(&format!("note: {note}"));
        }
        Ok(shown)
    }

    /// What stands before the first question.
    pub(super) fn opening(&self) -> Vec<Message> {
        self.settings.system.iter().map(|text| Message::text(Role::System, text)).collect()
    }

    /// Answers a conversation: the text goes to standard output as it comes (but for `--json`), and into `said`.
    pub(super) fn answer<B: Backend>(
        &self,
        looker: &ImageToText<B>,
        messages: Vec<Message>,
        memory: &mut PrefixCache<B>,
        cancel: Cancel,
        said: &mut String,
    ) -> Result<Answer> {
        let settings = self.settings;
        let request = Request { messages, ..settings.request.clone() };
        let display = Display::of_answer(settings.verbosity);
        let mut mouth = Mouth {
            aloud: !settings.json,
            thoughts: settings.thoughts && !settings.json && settings.verbosity != Verbosity::Quiet,
            thinking: false,
            failure: None,
            said,
        };
        let progress = Progress::new(&display, cancel);
        let result = looker.answer(&request, memory, &progress, &mut |event| {
            display.finish();
            mouth.hear(event)
        });
        display.finish();
        mouth.close()?;
        if let Err(Error::Cancelled) = result {
            self.note("stopped: the answer is not complete");
        }
        let answer = result?;
        if answer.finish == Finish::Length {
            let most = answer.usage.completion_tokens;
            self.note(&format!(
                "note: the answer was cut after {most} tokens: the limit of --max-tokens or of the model"
            ));
        }
        if settings.timings {
            say(&summary(&answer));
        }
        Ok(answer)
    }
}

/// Writes an answer as it comes.
struct Mouth<'a> {
    /// Text goes to standard output.
    aloud: bool,
    /// Thoughts go to standard error.
    thoughts: bool,
    /// The last that was written is a thought.
    thinking: bool,
    /// Standard output is gone.
    failure: Option<io::Error>,
    said: &'a mut String,
}

impl Mouth<'_> {
    fn hear(&mut self, event: Event<'_>) -> PipelineResult<()> {
        match event {
            Event::Thinking(thought) if self.thoughts => {
                let start = if self.thinking { "" } else { "thinking: " };
                let _ = write!(io::stderr(), "{start}{thought}");
                self.thinking = true;
            }
            Event::Text(text) => {
                self.end_thinking();
                self.said.push_str(text);
                if self.aloud {
                    self.write(text)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn end_thinking(&mut self) {
        if std::mem::take(&mut self.thinking) {
            say("\n");
        }
    }

    /// A reader that went away ends the answer, and is no failure of the model.
    fn write(&mut self, text: &str) -> PipelineResult<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| {
            self.failure = Some(error);
            Error::Cancelled
        })
    }

    /// Ends the line.
    fn close(mut self) -> Result<()> {
        self.end_thinking();
        if self.failure.is_none() && self.aloud && !self.said.is_empty() && !self.said.ends_with('\n') {
            // what went wrong is kept
            let _ = self.write("\n");
        }
        self.failure.map_or(Ok(()), |error| Err(error.into()))
    }
}
