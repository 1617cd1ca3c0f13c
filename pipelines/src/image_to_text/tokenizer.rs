//! Text ↔ token ids: the checkpoint's tokenizer.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::DecoderWrapper;

use crate::checkpoint::Files;
use crate::{Error, Result};

const FILE: &str = "tokenizer.json";
const CONFIG: &str = "tokenizer_config.json";

/// The names under which a tokenizer keeps its special tokens, and a chat template finds them.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// What the reference's class puts where the config has no such key (a null there means that there is none).
const CLASS_DEFAULTS: [&str; 3] = ["eos_token", "unk_token", "pad_token"];
const END_OF_TEXT: &str = "<|endoftext|>";

/// The tokenizer of a checkpoint with its special tokens.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: tokenizers::Tokenizer,
    file: PathBuf,
    special: Vec<(&'static str, String)>,
    thinking: Option<(u32, u32)>,
    /// The byte that a character of a byte-level token stands for.
    bytes: Vec<Option<u8>>,
}

/// What a token adds to a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes; a character may be spread over several tokens.
    Bytes(Vec<u8>),
    /// Nothing: a special token, or an id without a token.
    Nothing,
}

/// `tokenizer_config.json`, so far as it matters here.
#[derive(Deserialize)]
struct TokenizerConfig {
    tokenizer_class: Option<String>,
    chat_template: Option<Value>,
    #[serde(flatten)]
    tokens: serde_json::Map<String, Value>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when one is missing, damaged, or of a kind that is not implemented.
    pub fn load(files: &Files) -> Result<Self> {
        let file = files.path(FILE);
        let fail = |problem: String| Error::checkpoint(&file, problem);
        let mut vocabulary = tokenizers::Tokenizer::from_bytes(files.read(FILE)?)
            .map_err(|error| fail(format!("is no tokenizer that can be read: {error}")))?;
        // A file may keep the settings of its last use.
        vocabulary.with_padding(None);
        vocabulary.with_truncation(None).map_err(|error| fail(error.to_string()))?;
        if !matches!(vocabulary.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return Err(fail("the `decoder` is of another type than the implemented ByteLevel".into()));
        }
        let config: TokenizerConfig = files.json(CONFIG)?;
        let special = special_tokens(&config).map_err(|problem| Error::checkpoint(files.path(CONFIG), problem))?;
        let thinking = vocabulary.token_to_id("<think>").zip(vocabulary.token_to_id("</think>"));
        Ok(Self { vocabulary, file, special, thinking, bytes: byte_characters() })
    }

    /// The chat template in the tokenizer's config: one, or several with names.
    pub(super) fn config_template(files: &Files) -> Result<Option<Value>> {
        if !files.exists(CONFIG) {
            return Ok(None);
        }
        Ok(files.json::<TokenizerConfig>(CONFIG)?.chat_template)
    }

    /// Names (`eos_token` and so on) and texts of the special tokens that have a name.
    #[must_use]
    pub fn special_tokens(&self) -> &[(&'static str, String)] {
        &self.special
    }

    /// Ids of the tokens that open and close the thinking, where the vocabulary has them.
    #[must_use]
    pub fn thinking(&self) -> Option<(u32, u32)> {
        self.thinking
    }

    /// The token of an id, as the vocabulary spells it.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.vocabulary.id_to_token(id)
    }

    /// The id of a token.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.vocabulary.token_to_id(token)
    }

    /// Whether a token is a special one, which no text shows.
    #[must_use]
    pub fn is_special(&self, token: &str) -> bool {
        self.vocabulary.get_added_vocabulary().is_special_token(token)
    }

    /// The token ids of a text. Special tokens in it are special tokens, as in the reference.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the tokenizer does not know a part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        // As the reference's processor: a template that begins the text by itself is not begun twice.
        let begun = self.special.iter().any(|(name, token)| *name == "bos_token" && text.starts_with(token));
        let encoding = self
            .vocabulary
            .encode_fast(text, !begun)
            .map_err(|error| Error::checkpoint(&self.file, format!("cannot tokenize: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// What a token adds to a text.
    #[must_use]
    pub fn piece(&self, id: u32) -> Piece {
        let Some(token) = self.token(id).filter(|token| !self.is_special(token)) else { return Piece::Nothing };
        let byte = |character: char| self.bytes.get(character as usize).copied().flatten();
        // An added token may be spelled with other characters: it stands for itself.
        Piece::Bytes(token.chars().map(byte).collect::<Option<_>>().unwrap_or_else(|| token.into_bytes()))
    }

    /// The text of an answer's tokens, special ones left out.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let pieces = ids.iter().map(|&id| self.piece(id));
        let bytes: Vec<u8> = pieces
            .flat_map(|piece| match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::Nothing => Vec::new(),
            })
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The file, for messages.
    pub(super) fn file(&self) -> &std::path::Path {
        &self.file
    }
}

/// A token is written as a string or as an object that holds it.
fn special_tokens(config: &TokenizerConfig) -> std::result::Result<Vec<(&'static str, String)>, String> {
    let class = config.tokenizer_class.as_deref().unwrap_or_default();
    let defaults = ["Qwen2Tokenizer", "Qwen2TokenizerFast", "Qwen3_5Tokenizer"].contains(&class);
    let mut special = Vec::new();
    for name in NAMES {
        let text = match config.tokens.get(name) {
            Some(Value::Null) => continue,
            Some(Value::String(text)) => text.clone(),
            Some(Value::Object(token)) => match token.get("content") {
                Some(Value::String(text)) => text.clone(),
                _ => return Err(format!("`{name}` has no `content`")),
            },
            Some(other) => return Err(format!("`{name}` is {other}; expected a string")),
            None if defaults && CLASS_DEFAULTS.contains(&name) => END_OF_TEXT.to_owned(),
            None => continue,
        };
        special.push((name, text));
    }
    Ok(special)
}

/// The alphabet of byte-level BPE: printable Latin-1 characters stand for themselves, the other bytes, in their order, for
/// the characters from 256 on.
fn byte_characters() -> Vec<Option<u8>> {
    let mut table = vec![None; 256 + 68];
    let mut next = 256;
    for byte in 0..=u8::MAX {
        match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => table[usize::from(byte)] = Some(byte),
            _ => {
                table[next] = Some(byte);
                next += 1;
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        let mut bytes: Vec<u8> = byte_characters().into_iter().flatten().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }
}
