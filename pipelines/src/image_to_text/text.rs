//! Tokens → text, as it comes.
//!
//! Text leaves in whole characters, without special tokens, the thinking apart from the answer, and never a part of a stop
//! string.

use super::tokenizer::{Piece, Tokenizer};

/// A part of what the model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Thinking, before the answer.
    Thinking(String),
    /// The answer.
    Text(String),
}

/// Turns the tokens of one answer into text.
#[derive(Debug)]
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    stop: Vec<String>,
    phase: Phase,
    /// Bytes of an unfinished character, at most 3.
    bytes: Vec<u8>,
    /// Text that is held back: what may become a stop string, or newlines that may end the thinking.
    held: String,
    /// Newlines are left out until other text comes: those around the thinking are no part of it or of the answer.
    skip_newlines: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has been said yet: thinking may begin.
    Start,
    Thinking,
    Answer,
    /// A stop string has come; nothing more is said.
    Stopped,
}

impl<'a> TextStream<'a> {
    /// A stream that ends at any of the `stop` strings. `thinking`: the prompt has opened the thinking already.
    #[must_use]
    pub fn new(tokenizer: &'a Tokenizer, stop: Vec<String>, thinking: bool) -> Self {
        let phase = if thinking { Phase::Thinking } else { Phase::Start };
        Self { tokenizer, stop, phase, bytes: Vec::new(), held: String::new(), skip_newlines: thinking }
    }

    /// Whether the model is thinking.
    #[must_use]
    pub fn thinking(&self) -> bool {
        self.phase == Phase::Thinking
    }

    /// Whether a stop string has come.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.phase == Phase::Stopped
    }

    /// What one more token lets out.
    pub fn push(&mut self, token: u32) -> Vec<Said> {
        let mut said = Vec::new();
        if self.stopped() {
            return said;
        }
        let thinking = self.tokenizer.thinking();
        if self.phase == Phase::Start && thinking.is_some_and(|(open, _)| open == token) {
            // What came before is at most white space.
            self.held.clear();
            self.begin(Phase::Thinking);
        } else if self.phase == Phase::Thinking && thinking.is_some_and(|(_, close)| close == token) {
            self.close_bytes(&mut said);
            self.held.clear();
            self.begin(Phase::Answer);
        } else if let Piece::Bytes(bytes) = self.tokenizer.piece(token) {
            self.bytes.extend(bytes);
            let text = whole_characters(&mut self.bytes);
            self.text(&text, &mut said);
        }
        said
    }

    /// What is left when no token follows.
    pub fn finish(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        self.close_bytes(&mut said);
        let held = std::mem::take(&mut self.held);
        match self.phase {
            Phase::Start | Phase::Answer => say(&mut said, Said::Text(held)),
            // Newlines at the end of the thinking are no part of it.
            Phase::Thinking | Phase::Stopped => {}
        }
        said
    }

    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.skip_newlines = true;
        self.bytes.clear();
    }

    /// An unfinished character will not be finished any more.
    fn close_bytes(&mut self, said: &mut Vec<Said>) {
        if !std::mem::take(&mut self.bytes).is_empty() {
            self.text("\u{fffd}", said);
        }
    }

    fn text(&mut self, mut text: &str, said: &mut Vec<Said>) {
        if self.skip_newlines {
            text = text.trim_start_matches('\n');
            if text.is_empty() {
                return;
            }
            self.skip_newlines = false;
        }
        self.held.push_str(text);
        if self.phase == Phase::Start {
            let open = self.tokenizer.thinking().is_some() && self.held.trim().is_empty();
            if open && first_stop(&self.held, &self.stop).is_none() {
                return;
            }
            self.phase = Phase::Answer;
        }
        match self.phase {
            Phase::Thinking => {
                let rest = self.held.split_off(self.held.trim_end_matches('\n').len());
                say(said, Said::Thinking(std::mem::replace(&mut self.held, rest)));
            }
            Phase::Start | Phase::Answer => {
                if let Some(start) = first_stop(&self.held, &self.stop) {
                    self.held.truncate(start);
                    self.phase = Phase::Stopped;
                    say(said, Said::Text(std::mem::take(&mut self.held)));
                } else {
                    let rest = self.held.split_off(self.held.len() - begun_stop(&self.held, &self.stop));
                    say(said, Said::Text(std::mem::replace(&mut self.held, rest)));
                }
            }
            Phase::Stopped => self.held.clear(),
        }
    }
}

fn say(said: &mut Vec<Said>, piece: Said) {
    let (Said::Thinking(text) | Said::Text(text)) = &piece;
    if !text.is_empty() {
        said.push(piece);
    }
}

/// Takes the whole characters from the front of `bytes`; what can be no character becomes U+FFFD, as
/// [`String::from_utf8_lossy`] would have it, and the beginning of a character stays.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest = bytes.as_slice();
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
                break;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                rest = after;
                match error.error_len() {
                    Some(wrong) => {
                        text.push('\u{fffd}');
                        rest = &rest[wrong..];
                    }
                    None => break,
                }
            }
        }
    }
    *bytes = rest.to_vec();
    text
}

/// Where the stop string begins that is complete first; of those that end together, the longest.
fn first_stop(text: &str, stop: &[String]) -> Option<usize> {
    let found = stop.iter().filter_map(|stop| text.find(stop.as_str()).map(|start| (start + stop.len(), start)));
    found.min().map(|(_, start)| start)
}

/// How many bytes at the end of `text` may be the beginning of a stop string.
fn begun_stop(text: &str, stop: &[String]) -> usize {
    let begun = |stop: &String| {
        let prefixes = stop.char_indices().map(|(end, _)| &stop[..end]);
        prefixes.filter(|prefix| text.ends_with(prefix)).map(str::len).max().unwrap_or(0)
    };
    stop.iter().map(begun).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
