//! Conversation → token ids with places for the pictures.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::chat::{Content, Message, Role};
use super::config::Config;
use super::patches::{Grid, ImageProcessor};
use super::picture::Picture;
use super::positions::{ImageSlots, Position, positions};
use super::template::ChatTemplate;
use super::tokenizer::Tokenizer;
use crate::checkpoint::Files;
use crate::{Error, Result};

/// What a picture is known by: a digest of its size and pixels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PictureKey([u8; 32]);

impl PictureKey {
    /// The key of a picture.
    #[must_use]
    pub fn of(picture: &Picture) -> Self {
        let pixels = picture.pixels();
        let mut digest = Sha256::new();
        digest.update(pixels.width().to_le_bytes());
        digest.update(pixels.height().to_le_bytes());
        digest.update(pixels.as_raw());
        Self(digest.finalize().into())
    }
}

impl fmt::Debug for PictureKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A picture in a prompt.
#[derive(Debug, Clone)]
pub struct PromptImage {
    /// Its tokens.
    pub slots: ImageSlots,
    /// What it is known by.
    pub key: PictureKey,
    /// The picture.
    pub picture: Arc<Picture>,
}

/// A conversation as the model reads it.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// All token ids; a picture has as many image tokens as it has visual tokens.
    pub ids: Vec<u32>,
    /// The pictures, in order.
    pub images: Vec<PromptImage>,
    /// A position for every token.
    pub positions: Vec<Position>,
    /// The position of the token after the last.
    pub next: u32,
    /// How many tokens stand before the beginning of the model's answer (`<|im_start|>assistant ...`).
    pub turn: usize,
    /// Whether that beginning opens the model's thinking.
    pub thinking: bool,
}

impl Prompt {
    /// Number of visual tokens.
    #[must_use]
    pub fn image_tokens(&self) -> usize {
        self.images.iter().map(|image| image.slots.grid.tokens()).sum()
    }
}

/// Writes prompts: template, tokenizer and the settings of the pictures.
#[derive(Debug)]
pub struct Prompter {
    template: ChatTemplate,
    tokenizer: Tokenizer,
    processor: ImageProcessor,
    image: (u32, String),
    video: Option<(u32, String)>,
}

impl Prompter {
    /// Reads template, tokenizer and image processor, and compares their special tokens with the model's.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a file is missing or damaged, or the files are of different models.
    pub fn load(files: &Files, config: &Config) -> Result<Self> {
        let tokenizer = Tokenizer::load(files)?;
        let template = ChatTemplate::load(files, &tokenizer)?;
        let processor = ImageProcessor::load(files, "")?;
        let special =
            |id: u32| tokenizer.token(id).filter(|token| tokenizer.is_special(token)).map(|token| (id, token));
        let Some(image) = special(config.image_token_id) else {
            let problem = format!(
                "has no special token with id {}, `image_token_id` of config.json: tokenizer and model are of different \
                 models",
                config.image_token_id
            );
            return Err(Error::checkpoint(tokenizer.file(), problem));
        };
        let video = special(config.video_token_id);
        Ok(Self { template, tokenizer, processor, image, video })
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The settings of the pictures.
    #[must_use]
    pub fn processor(&self) -> &ImageProcessor {
        &self.processor
    }

    /// The chat template.
    #[must_use]
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// The tokens of a conversation and of the beginning of the model's answer to it.
    ///
    /// As the reference's processor does, the one image token that the template writes for a picture is repeated for each
    /// of its visual tokens before the text is tokenized. There, a text that holds an image token takes a picture's place
    /// or fails later; here it is refused.
    ///
    /// # Errors
    /// [`Error::Input`] when there is no message or an empty one, a text holds a token that stands for pictures, a picture
    /// has no size that the model takes, or the template refuses the conversation.
    pub fn prompt(&self, messages: &[Message], thinking: Option<bool>) -> Result<Prompt> {
        self.check(messages)?;
        let pictures: Vec<_> = messages.iter().flat_map(Message::pictures).collect();
        let grids = pictures.iter().map(|picture| self.grid(picture)).collect::<Result<Vec<_>>>()?;
        let text = self.template.render(messages, true, thinking)?;
        let before = self.template.render(messages, false, thinking)?;
        let answer = &text[common_text(&text, &before)..];
        let ids = self.tokenizer.encode(&self.expand(&text, &grids)?)?;
        let answer = self.tokenizer.encode(answer)?;
        let turn = if ids.ends_with(&answer) { ids.len() - answer.len() } else { ids.len() };
        let thinking = self.tokenizer.thinking().is_some_and(|(open, close)| {
            answer.iter().rev().find(|&&id| id == open || id == close).is_some_and(|&id| id == open)
        });
        let slots = self.place(&ids, &grids)?;
        let (positions, next) = positions(ids.len(), &slots);
        let image = |(slots, picture): (_, &&Arc<Picture>)| PromptImage {
            slots,
            key: PictureKey::of(picture),
            picture: Arc::clone(picture),
        };
        let images = slots.into_iter().zip(&pictures).map(image).collect();
        Ok(Prompt { ids, images, positions, next, turn, thinking })
    }

    /// How a picture is cut.
    ///
    /// # Errors
    /// [`Error::Input`] when the model takes no picture of this shape.
    pub fn grid(&self, picture: &Picture) -> Result<Grid> {
        let pixels = picture.pixels();
        let (width, height) = self.processor.target(pixels.width() as usize, pixels.height() as usize)?;
        let patch = self.processor.patch();
        Ok(Grid { height: height / patch, width: width / patch, merge: self.processor.merge() })
    }

    fn check(&self, messages: &[Message]) -> Result<()> {
        if messages.is_empty() {
            return Err(Error::input("there is no message to answer"));
        }
        for (number, message) in (1..).zip(messages) {
            let name = format!("message {number} ({})", format!("{:?}", message.role).to_lowercase());
            // A model may have answered with nothing.
            if message.is_empty() && message.role != Role::Assistant {
                return Err(Error::input(format!("{name} is empty: it needs a text or a picture")));
            }
            let reserved = [Some(&self.image), self.video.as_ref()];
            let texts = message.texts().chain(message.thinking.as_deref());
            for text in texts {
                if let Some((_, token)) =
                    reserved.into_iter().flatten().find(|(_, token)| text.contains(token.as_str()))
                {
                    return Err(Error::input(format!(
                        "{name} holds {token}, which stands for the content of a picture or video; take it out of the text"
                    )));
                }
            }
            if !self.template.parts() && message.content.iter().any(|content| matches!(content, Content::Image(_))) {
                return Err(Error::input(format!(
                    "{name} holds a picture; the chat template {} takes text alone",
                    self.template.file().display()
                )));
            }
        }
        Ok(())
    }

    /// Repeats the image tokens.
    fn expand(&self, text: &str, grids: &[Grid]) -> Result<String> {
        let token = &self.image.1;
        let pieces: Vec<&str> = text.split(token.as_str()).collect();
        if pieces.len() != grids.len() + 1 {
            return Err(Error::input(format!(
                "the chat template {} made {} places of {token} for {} pictures",
                self.template.file().display(),
                pieces.len() - 1,
                grids.len()
            )));
        }
        let repeated = grids.iter().map(|grid| token.repeat(grid.tokens())).chain([String::new()]);
        Ok(pieces.into_iter().zip(repeated).map(|(piece, tokens)| piece.to_owned() + &tokens).collect())
    }

    /// Finds the pictures' tokens.
    fn place(&self, ids: &[u32], grids: &[Grid]) -> Result<Vec<ImageSlots>> {
        let mut found = (0..ids.len()).filter(|&at| ids[at] == self.image.0).peekable();
        let mut slots = Vec::new();
        for &grid in grids {
            let start = found.peek().copied().unwrap_or(0);
            if !(start..start + grid.tokens()).all(|at| found.next_if_eq(&at).is_some()) {
                break;
            }
            slots.push(ImageSlots { start, grid });
        }
        if slots.len() == grids.len() && found.next().is_none() {
            return Ok(slots);
        }
        let problem = format!("does not make one token of each {}, as the pictures need", self.image.1);
        Err(Error::checkpoint(self.tokenizer.file(), problem))
    }
}

/// Bytes of whole characters that two texts begin with.
fn common_text(a: &str, b: &str) -> usize {
    let mut pairs = a.char_indices().zip(b.chars());
    pairs.find(|((_, a), b)| a != b).map_or(a.len().min(b.len()), |((at, _), _)| at)
}

#[cfg(test)]
mod tests;
