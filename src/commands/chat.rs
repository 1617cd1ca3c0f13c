//! `atelier describe --chat`: a conversation, one line a turn.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use atelier_kernels::Backend;
use atelier_pipelines::Error;
use atelier_pipelines::image_to_text::{Content, ImageToText, Message, Picture, PrefixCache, Role};

use super::describe::{Shown, Speaker};
use crate::interrupt::Answers;
use crate::pictures::Source;
use crate::settings::TEXT_LIMIT;

/// Memory for what has been read of conversations, in bytes.
const MEMORY: u64 = 4 << 30;

const HELP: &str = "\
a line is a question; these are commands:
  /image PATH   shows a picture, together with the next question
  /reset        begins a new conversation
  /help         says this
  /quit         ends, as does Ctrl-D
Ctrl-C stops an answer";

/// Converses until `/quit` or the end of standard input.
///
/// # Errors
/// When a picture or the first question is bad, or the model fails.
pub(super) fn run<B: Backend>(speaker: &Speaker<'_>, looker: &ImageToText<B>) -> Result<()> {
    let settings = speaker.settings;
    let mut chat = Chat {
        speaker,
        looker,
        memory: PrefixCache::new(MEMORY),
        answers: Answers::new()?,
        messages: speaker.opening(),
        waiting: Vec::new(),
    };
    for source in &settings.pictures {
        chat.waiting.push(speaker.show(source)?.picture);
    }
    if let Some(question) = &settings.question {
        chat.ask(question)?;
    }
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if terminal {
        speaker.note("/help lists the commands");
    }
    loop {
        if terminal {
            let _ = write!(io::stderr(), "> ");
        }
        match line()? {
            Line::End => {
                if terminal {
                    speaker.note("");
                }
                break;
            }
            Line::Unreadable(problem) => speaker.note(problem),
            Line::Text(text) => match Turn::of(&text) {
                Turn::Quit => break,
                turn => chat.take(&turn)?,
            },
        }
    }
    Ok(())
}

/// What was typed.
enum Line {
    Text(String),
    Unreadable(&'static str),
    End,
}

fn line() -> io::Result<Line> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(TEXT_LIMIT).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(Line::End);
    }
    if bytes.len() as u64 == TEXT_LIMIT && !bytes.ends_with(b"\n") {
        io::stdin().lock().skip_until(b'\n')?;
        return Ok(Line::Unreadable("the line is too long"));
    }
    Ok(String::from_utf8(bytes).map_or(Line::Unreadable("the line is not UTF-8 text"), Line::Text))
}

/// What a line means.
#[derive(Debug, PartialEq, Eq)]
enum Turn<'a> {
    Nothing,
    Question(&'a str),
    Image(&'a str),
    Reset,
    Help,
    Quit,
    Unknown(&'a str),
}

impl<'a> Turn<'a> {
    fn of(line: &'a str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (word, rest.trim()) {
            ("", _) => Self::Nothing,
            ("/image", path) if !path.is_empty() => Self::Image(path),
            ("/reset", "") => Self::Reset,
            ("/help", _) => Self::Help,
            ("/quit" | "/exit", "") => Self::Quit,
            (word, _) if word.starts_with('/') => Self::Unknown(line),
            _ => Self::Question(line),
        }
    }
}

struct Chat<'a, B: Backend> {
    speaker: &'a Speaker<'a>,
    looker: &'a ImageToText<B>,
    memory: PrefixCache<B>,
    answers: Answers,
    messages: Vec<Message>,
    /// Pictures that the next question is about.
    waiting: Vec<Arc<Picture>>,
}

impl<B: Backend> Chat<'_, B> {
    fn take(&mut self, turn: &Turn<'_>) -> Result<()> {
        match *turn {
            Turn::Question(text) => self.ask(text)?,
            Turn::Image(path) => self.show(path),
            Turn::Reset => {
                self.messages = self.speaker.opening();
                self.waiting.clear();
                self.speaker.note("a new conversation");
            }
            Turn::Help => self.speaker.note(HELP),
            Turn::Unknown(line) => self.speaker.note(&format!("{line}: no such command; /help lists them")),
            Turn::Nothing | Turn::Quit => {}
        }
        Ok(())
    }

    fn show(&mut self, path: &str) {
        let source =
            if path.starts_with("data:") { Source::Data(path.into()) } else { Source::File(PathBuf::from(path)) };
        match self.speaker.show(&source) {
            Ok(Shown { picture, .. }) => {
                let (width, height) = picture.pixels().dimensions();
                self.speaker.note(&format!("{width}x{height}; the next question is about it"));
                self.waiting.push(picture);
            }
            Err(error) => self.speaker.note(&format!("{error:#}")),
        }
    }

    /// One turn. What cannot be answered is told and forgotten; an answer that was stopped stays as far as it came.
    fn ask(&mut self, question: &str) -> Result<()> {
        self.messages.push(Message {
            role: Role::User,
            content: self.waiting.iter().cloned().map(Content::Image).chain([Content::Text(question.into())]).collect(),
            thinking: None,
        });
        let mut said = String::new();
        let cancel = self.answers.begin();
        let result = self.speaker.answer(self.looker, self.messages.clone(), &mut self.memory, cancel, &mut said);
        self.answers.end();
        let kept = match result {
            Ok(answer) => Some(answer.message()),
            Err(error) => match error.downcast_ref::<Error>() {
                Some(Error::Cancelled) => (!said.is_empty()).then(|| Message::text(Role::Assistant, said)),
                Some(Error::Input(problem)) => {
                    self.speaker.note(&format!("error: {problem}"));
                    None
                }
                _ => return Err(error),
            },
        };
        if let Some(message) = kept {
            self.messages.push(message);
            self.waiting.clear();
        } else {
            // its pictures wait for the next question
            self.messages.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_questions_or_commands() {
        for (line, expected) in [
            ("\r\n", Turn::Nothing),
            (" what is it? \n", Turn::Question("what is it?")),
            ("/image  a b.png\r\n", Turn::Image("a b.png")),
            ("/image\n", Turn::Unknown("/image")),
            ("/reset", Turn::Reset),
            ("/quit\n", Turn::Quit),
            ("/exit", Turn::Quit),
            ("/help", Turn::Help),
            ("/sing it\n", Turn::Unknown("/sing it")),
            ("雪/a", Turn::Question("雪/a")),
        ] {
            assert_eq!(Turn::of(line), expected, "{line:?}");
        }
    }
}
