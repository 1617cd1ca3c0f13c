//! Conversation → prompt text: the checkpoint's chat template.
//!
//! Templates are Jinja programs written for transformers, so they run in an environment with what transformers' own has:
//! `trim_blocks`, `lstrip_blocks`, loop controls, Python's methods of strings and maps, `raise_exception`, `strftime_now`,
//! its `tojson`, and `generation` blocks (which mark training text and print what is in them).

mod json;

use std::path::{Path, PathBuf};

use minijinja::{Environment, ErrorKind, State, Value, escape_formatter};
use serde::Deserialize;
use serde_json::Value as Json;

use super::chat::{Message, Role};
use super::tokenizer::Tokenizer;
use crate::checkpoint::Files;
use crate::{Error, Result};

const NAME: &str = "chat template";
/// The variable that says whether to think.
const THINKING: &str = "enable_thinking";
/// Steps that rendering may take: a template that never ends is an error. Real ones take a few hundred a message.
const FUEL: u64 = 20_000_000;

/// A checkpoint's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    file: PathBuf,
    /// The special tokens that have a name, as the template's variables.
    special: Vec<(&'static str, String)>,
    /// Whether the template reads a message's content as a list of parts.
    parts: bool,
}

impl ChatTemplate {
    /// Finds the template where transformers finds it: `chat_template` in `processor_config.json`, then
    /// `chat_template.json`, then `chat_template.jinja` (or `chat_templates/default.jinja`), then `chat_template` in
    /// `tokenizer_config.json`, of several the one with the name `default`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is none, or it is no Jinja template.
    pub fn load(files: &Files, tokenizer: &Tokenizer) -> Result<Self> {
        let (file, source) = find(files)?;
        Self::new(file, &source, tokenizer.special_tokens().to_vec())
    }

    /// A template from its source; `file` is its name for messages.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when it is no Jinja template.
    pub fn new(file: PathBuf, source: &str, special: Vec<(&'static str, String)>) -> Result<Self> {
        let mut environment = environment();
        environment
            .add_template_owned(NAME, without_generation_tags(source))
            .map_err(|error| Error::checkpoint(&file, format!("is no template: {}", explain(&error))))?;
        let mut template = Self { environment, file, special, parts: true };
        template.parts = template.reads_parts();
        Ok(template)
    }

    /// Whether the template reads a message's content as a list of parts, without which there can be no pictures.
    #[must_use]
    pub fn parts(&self) -> bool {
        self.parts
    }

    /// Whether the template asks whether to think.
    #[must_use]
    pub fn switches_thinking(&self) -> bool {
        let template = self.environment.get_template(NAME);
        template.is_ok_and(|template| template.undeclared_variables(false).contains(THINKING))
    }

    /// The file, for messages.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The text of a conversation; with `answer` the beginning of the model's answer follows it. `thinking` is the
    /// template's `enable_thinking`, which is not defined for `None`.
    ///
    /// # Errors
    /// [`Error::Input`] when the template refuses the conversation or cannot be run with it.
    pub fn render(&self, messages: &[Message], answer: bool, thinking: Option<bool>) -> Result<String> {
        self.run(messages, self.parts, answer, thinking).map_err(|error| {
            Error::input(format!("the chat template {} cannot write this conversation: {error}", self.file.display()))
        })
    }

    fn run(
        &self,
        messages: &[Message],
        parts: bool,
        answer: bool,
        thinking: Option<bool>,
    ) -> std::result::Result<String, String> {
        let messages: Vec<_> = messages.iter().map(|message| message.for_template(parts)).collect();
        let mut variables = vec![
            ("messages", Value::from_serialize(&messages)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(answer)),
        ];
        variables.extend(self.special.iter().map(|(name, token)| (*name, Value::from(token.as_str()))));
        variables.extend(thinking.map(|on| (THINKING, Value::from(on))));
        let variables: Value = variables.into_iter().collect();
        let template = self.environment.get_template(NAME).map_err(|error| explain(&error))?;
        template.render(variables).map_err(|error| explain(&error))
    }

    /// Templates of text models join strings, those with pictures walk over parts and mostly take strings too.
    fn reads_parts(&self) -> bool {
        const PROBE: &str = "probe of the content";
        let question = [Message::text(Role::User, PROBE)];
        // A list that is printed as a list names its keys.
        let read = |text: String| text.contains(PROBE) && !text.contains("'text'") && !text.contains("\"text\"");
        self.run(&question, true, true, None).is_ok_and(read)
    }
}

/// The template's file and source.
fn find(files: &Files) -> Result<(PathBuf, String)> {
    #[derive(Deserialize)]
    struct Holder {
        chat_template: Option<Json>,
    }
    for name in ["processor_config.json", "chat_template.json"] {
        if files.exists(name)
            && let Some(template) = files.json::<Holder>(name)?.chat_template.filter(|template| !template.is_null())
        {
            return named(files.path(name), template);
        }
    }
    for name in ["chat_template.jinja", "chat_templates/default.jinja"] {
        if files.exists(name) {
            let file = files.path(name);
            let source = String::from_utf8(files.read(name)?.to_vec())
                .map_err(|error| Error::checkpoint(&file, format!("no UTF-8 text: {error}")))?;
            return Ok((file, source));
        }
    }
    match Tokenizer::config_template(files)?.filter(|template| !template.is_null()) {
        Some(template) => named(files.path("tokenizer_config.json"), template),
        None => Err(Error::checkpoint(
            files.path(""),
            "there is no chat template; expected chat_template.jinja, chat_template.json, or `chat_template` in \
             tokenizer_config.json",
        )),
    }
}

/// One template, or of several the one named `default`.
fn named(file: PathBuf, template: Json) -> Result<(PathBuf, String)> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
        template: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Templates {
        One(String),
        List(Vec<Named>),
        Map(std::collections::BTreeMap<String, String>),
    }
    let several: Vec<(String, String)> = match serde_json::from_value(template) {
        Ok(Templates::One(source)) => return Ok((file, source)),
        Ok(Templates::List(list)) => list.into_iter().map(|named| (named.name, named.template)).collect(),
        Ok(Templates::Map(map)) => map.into_iter().collect(),
        Err(_) => {
            let problem = "`chat_template` is neither a template nor a list of templates with `name` and `template`";
            return Err(Error::checkpoint(file, problem));
        }
    };
    let names: Vec<_> = several.iter().map(|(name, _)| name.clone()).collect();
    // As in the reference the last of equal names wins.
    match several.into_iter().rev().find(|(name, _)| name == "default") {
        Some((_, source)) => Ok((file, source)),
        None => Err(Error::checkpoint(
            file,
            format!("`chat_template` has no template named default; it has {}", names.join(", ")),
        )),
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    // Prompts are no HTML.
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    // Truth and nothing print as in Python.
    environment.set_formatter(|out, state, value| match (value.kind(), value.is_true()) {
        (minijinja::value::ValueKind::Bool, true) => out.write_str("True").map_err(minijinja::Error::from),
        (minijinja::value::ValueKind::Bool, false) => out.write_str("False").map_err(minijinja::Error::from),
        (minijinja::value::ValueKind::None, _) => out.write_str("None").map_err(minijinja::Error::from),
        _ => escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", json::tojson);
    environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, minijinja::Error> {
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", strftime_now);
    environment
}

/// The time of day in Python's format codes.
fn strftime_now(_: &State<'_, '_>, format: &str) -> std::result::Result<String, minijinja::Error> {
    jiff::fmt::strtime::format(format, &jiff::Zoned::now())
        .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

/// `{% generation %}` blocks as plain ones: the marks are for training.
fn without_generation_tags(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        plain.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let word = tag[2..end].trim_matches(|c: char| c == '-' || c == '+' || c.is_whitespace());
        let instead = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        match instead {
            Some(instead) => plain.push_str(&tag[..end + 2].replacen(word, instead, 1)),
            None => plain.push_str(&tag[..end + 2]),
        }
        rest = &tag[end + 2..];
    }
    plain.push_str(rest);
    plain
}

/// The error with the line it happened on.
fn explain(error: &minijinja::Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), ToOwned::to_owned);
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

#[cfg(test)]
pub(super) mod tests;
