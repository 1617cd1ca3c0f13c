//! `model_index.json` → what the checkpoint is.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Files;
use crate::text_to_image::schedule;
use crate::{Error, Result};

/// The one pipeline class that is implemented.
const PIPELINE: &str = "QwenImage21Pipeline";

/// Parts and the classes that may fill them. A processor is there as a whole or as its tokenizer alone.
const COMPONENTS: [(&str, &[&str]); 6] = [
    ("scheduler", &["FlowMatchEulerDiscreteScheduler"]),
    ("text_encoder", &["Qwen3VLForConditionalGeneration"]),
    ("transformer", &["QwenImage21Transformer2DModel"]),
    ("vae", &["AutoencoderKLQwenImage21"]),
    ("processor", &["Qwen3VLProcessor"]),
    ("tokenizer", &["Qwen2Tokenizer", "Qwen2TokenizerFast"]),
];

/// The root of a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelIndex {
    /// The sigmas that a distilled model was trained for, without the terminal 0; they decide the number of steps.
    pub sample_sigmas: Option<Vec<f64>>,
    /// The folder of the processor (tokenizer, chat template, image settings): `processor` or `tokenizer`.
    pub processor: &'static str,
    /// The side in pixels of the square that is painted when no size is asked for. The key is our own, for models that
    /// were not made for the usual 1024; diffusers passes over it.
    pub default_side: Option<u32>,
}

impl ModelIndex {
    /// Reads and checks `model_index.json`: the pipeline's class, and the class of every component. Other keys with plain
    /// values (numbers, words, switches) do not change what is computed and are passed over.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the folder is no such checkpoint, names another pipeline or component class, or lacks a
    /// component.
    pub fn open(files: &Files) -> Result<Self> {
        const NAME: &str = "model_index.json";
        if !files.exists(NAME) {
            return Err(not_a_checkpoint(files));
        }
        let bad = |problem: String| Error::checkpoint(files.path(NAME), problem);
        let mut index: Map<String, Value> = files.json(NAME)?;
        match index.remove("_class_name") {
            Some(Value::String(class)) if class == PIPELINE => {}
            Some(class) => {
                return Err(bad(format!(
                    "key `_class_name`: the pipeline {class} is not supported; supported is {PIPELINE}"
                )));
            }
            None => return Err(bad(format!("key `_class_name` is missing; expected {PIPELINE}"))),
        }
        let sample_sigmas: Option<Vec<f64>> = optional(&mut index, "sample_sigmas").map_err(&bad)?;
        if let Some(Err(problem)) = sample_sigmas.as_deref().map(schedule::check) {
            return Err(bad(format!("key `sample_sigmas`: {problem}")));
        }
        let default_side = optional(&mut index, "default_side").map_err(&bad)?;
        let mut there = Vec::new();
        for (name, classes) in COMPONENTS {
            if let Some(found) = index.remove(name).filter(|value| !is_absent(value)) {
                let known = found.get(1).and_then(Value::as_str).is_some_and(|class| classes.contains(&class));
                if !known {
                    return Err(bad(format!(
                        "key `{name}`: {found} is not supported; supported is {}",
                        classes.join(" or ")
                    )));
                }
                there.push(name);
            }
        }
        if let Some((name, _)) = COMPONENTS[..4].iter().find(|(name, _)| !there.contains(name)) {
            return Err(bad(format!("key `{name}` is missing: the pipeline cannot run without it")));
        }
        let processor = match there.get(4) {
            Some(name) => *name,
            None => {
                return Err(bad("keys `processor` and `tokenizer` are both missing; expected one of them".to_owned()));
            }
        };
        let unknown = index.iter().find(|(_, value)| !is_absent(value) && (value.is_array() || value.is_object()));
        match unknown {
            Some((name, value)) => Err(bad(format!("unknown component `{name}`: {value}"))),
            None => Ok(Self { sample_sigmas, processor, default_side }),
        }
    }
}

/// The value of a key that may be missing or `null`.
fn optional<T: DeserializeOwned>(index: &mut Map<String, Value>, key: &str) -> std::result::Result<Option<T>, String> {
    let value = index.remove(key).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| format!("key `{key}`: {error}"))
}

/// `null`, or `[null, null]`: an optional component that the checkpoint does without.
fn is_absent(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(|parts| parts.iter().all(Value::is_null))
}

fn not_a_checkpoint(files: &Files) -> Error {
    let root = files.path("");
    let problem = match files {
        Files::Folder(_) if root.is_file() => "is a file; expected the folder of a diffusers checkpoint".to_owned(),
        Files::Folder(_) if !root.exists() => "there is no such folder".to_owned(),
        _ => format!(
            "is not a checkpoint: no model_index.json; found {}; expected a diffusers folder with model_index.json, \
             transformer/, vae/, text_encoder/, processor/ and scheduler/",
            files.found("")
        ),
    };
    Error::checkpoint(root, problem)
}
