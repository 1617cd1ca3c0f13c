//! `generation_config.json` → where answers end and how tokens are chosen by default.

use serde::Deserialize;
use serde_json::Value;

use super::sampling::Sampling;
use super::tokenizer::Tokenizer;
use crate::checkpoint::Files;
use crate::{Error, Result};

const FILE: &str = "generation_config.json";
const CONFIG: &str = "config.json";

/// What transformers takes for `top_k` where a file that samples says nothing.
const DEFAULT_TOP_K: usize = 50;

/// Keys that would change an answer and that are not implemented, with the values that ask for nothing.
const UNSUPPORTED: &[(&str, f64)] = &[
    ("num_beams", 1.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
    ("no_repeat_ngram_size", 0.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("top_h", f64::NAN),
    ("guidance_scale", 1.0),
    ("penalty_alpha", 0.0),
    ("bad_words_ids", f64::NAN),
    ("suppress_tokens", f64::NAN),
    ("begin_suppress_tokens", f64::NAN),
    ("forced_eos_token_id", f64::NAN),
    ("sequence_bias", f64::NAN),
    ("exponential_decay_length_penalty", f64::NAN),
];

/// The defaults of a checkpoint's answers.
#[derive(Debug, Clone)]
pub struct GenerationConfig {
    /// Tokens that end an answer.
    pub eos: Vec<u32>,
    /// How tokens are chosen where a request says nothing.
    pub sampling: Sampling,
    /// Most tokens of prompt and answer together (`max_position_embeddings`).
    pub context: usize,
    /// What the file asks for and does not get, for people.
    pub notes: Vec<String>,
}

#[derive(Deserialize, Default)]
struct Raw {
    eos_token_id: Option<Ids>,
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(u32),
    Several(Vec<u32>),
}

impl Ids {
    fn list(self) -> Vec<u32> {
        match self {
            Self::One(id) => vec![id],
            Self::Several(ids) => ids,
        }
    }
}

/// `config.json`, so far as it matters here.
#[derive(Deserialize)]
struct ModelConfig {
    text_config: TextConfig,
}

#[derive(Deserialize)]
struct TextConfig {
    max_position_embeddings: usize,
    eos_token_id: Option<Ids>,
}

impl GenerationConfig {
    /// Reads `generation_config.json`, where there is one, and `config.json`. Answers end at `eos_token_id` of the first
    /// that has it, or else at the tokenizer's `eos_token`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a value is out of range or of another type, or nothing says where answers end.
    pub fn load(files: &Files, tokenizer: &Tokenizer) -> Result<Self> {
        let file = files.path(FILE);
        let raw: Raw = if files.exists(FILE) { files.json(FILE)? } else { Raw::default() };
        let model: ModelConfig = files.json(CONFIG)?;
        let context = model.text_config.max_position_embeddings;
        if context == 0 {
            let problem = "`text_config.max_position_embeddings` is 0; expected 1 or more";
            return Err(Error::checkpoint(files.path(CONFIG), problem));
        }
        let named = || {
            let mut names = tokenizer.special_tokens().iter();
            names.find(|(name, _)| *name == "eos_token").and_then(|(_, token)| tokenizer.id(token))
        };
        let eos = match raw.eos_token_id.or(model.text_config.eos_token_id) {
            Some(ids) => ids.list(),
            None => named().into_iter().collect(),
        };
        if eos.is_empty() {
            return Err(Error::checkpoint(file, "`eos_token_id` is missing here, in config.json and in the tokenizer"));
        }
        let sampling = Sampling {
            temperature: match raw.do_sample {
                Some(true) => raw.temperature.unwrap_or(1.0),
                _ => 0.0,
            },
            top_k: raw.top_k.unwrap_or(DEFAULT_TOP_K),
            top_p: raw.top_p.unwrap_or(1.0),
            min_p: raw.min_p.unwrap_or(0.0),
            repetition_penalty: raw.repetition_penalty.unwrap_or(1.0),
            ..Sampling::GREEDY
        };
        // A temperature beside `do_sample: false` is checked all the same.
        let written = Sampling { temperature: raw.temperature.unwrap_or(sampling.temperature), ..sampling };
        written.check().map_err(|problem| Error::checkpoint(&file, problem))?;
        let notes = UNSUPPORTED
            .iter()
            .filter_map(|(key, nothing)| {
                let value = raw.rest.get(*key).filter(|value| !value.is_null())?;
                let asks = value.as_f64().is_none_or(|number| number.to_bits() != nothing.to_bits());
                asks.then(|| {
                    format!("{}: `{key}` is {value}, which is not implemented and is passed over", file.display())
                })
            })
            .collect();
        Ok(Self { eos, sampling, context, notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::folder;

    fn load(generation: &str, config: &str) -> Result<GenerationConfig> {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = Tokenizer::load(&Files::folder(crate::fixtures::folder().join("tiny/processor"))).unwrap();
        if !generation.is_empty() {
            std::fs::write(folder.path().join(FILE), generation).unwrap();
        }
        std::fs::write(folder.path().join(CONFIG), config).unwrap();
        GenerationConfig::load(&Files::folder(folder.path()), &tokenizer)
    }

    const MODEL: &str = r#"{"text_config": {"max_position_embeddings": 4096, "eos_token_id": 7}}"#;

    #[test]
    fn a_published_file_is_read() {
        let config = load(
            r#"{"bos_token_id": 1, "pad_token_id": 1, "do_sample": true, "eos_token_id": [5, 6], "top_p": 0.8,
                "top_k": 20, "temperature": 0.7, "repetition_penalty": 1.0, "transformers_version": "4.56.0"}"#,
            MODEL,
        )
        .unwrap();
        let expected = Sampling { temperature: 0.7, top_k: 20, top_p: 0.8, ..Sampling::GREEDY };
        assert_eq!((config.eos, config.sampling, config.context), (vec![5, 6], expected, 4096));
        assert!(config.notes.is_empty());
    }

    #[test]
    fn without_the_file_the_choice_is_greedy_and_ends_where_the_model_says() {
        let config = load("", MODEL).unwrap();
        assert_eq!((config.eos, config.sampling.temperature), (vec![7], 0.0));
        let tokenizer_says = load("{}", r#"{"text_config": {"max_position_embeddings": 9}}"#).unwrap();
        let tokenizer = Tokenizer::load(&Files::folder(folder().join("tiny/processor"))).unwrap();
        assert_eq!(tokenizer_says.eos, [tokenizer.id("<|im_end|>").unwrap()]);
    }

    #[test]
    fn wrong_values_are_refused_and_unknown_wishes_told() {
        for (file, problem) in [
            (r#"{"top_p": 1.5}"#, "`top_p` is 1.5"),
            (r#"{"temperature": -1}"#, "`temperature` is -1"),
            (r#"{"repetition_penalty": 0}"#, "`repetition_penalty` is 0"),
            (r#"{"eos_token_id": []}"#, "`eos_token_id` is missing"),
            (r#"{"top_k": -3}"#, "top_k"),
        ] {
            let error = load(file, MODEL).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        let config = load(r#"{"num_beams": 4, "typical_p": 1.0, "suppress_tokens": [1], "max_length": 20}"#, MODEL);
        let notes = config.unwrap().notes;
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("`num_beams` is 4") && notes[1].contains("`suppress_tokens` is [1]"));
    }
}
