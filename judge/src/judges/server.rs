//! A judge behind an OpenAI-compatible server, such as SGLang or vLLM.

use std::sync::atomic::{AtomicBool, Ordering};

use atelier_pipelines::progress::Cancel;
use serde_json::{Value, json};

use super::{Answer, Judge, REPETITION_PENALTY, SEED, View};
use crate::http::Server;
use crate::{Error, Question, Result};

/// Fields that SGLang and vLLM know and others may refuse.
const EXTENSIONS: [&str; 3] = ["top_k", "repetition_penalty", "chat_template_kwargs"];

/// A model that a server runs.
#[derive(Debug)]
pub struct ServerJudge {
    server: Server,
    model: String,
    concurrency: usize,
    max_tokens: usize,
    /// The server has refused the extensions.
    plain: AtomicBool,
}

impl ServerJudge {
    /// The model of that name, or the first that the server lists.
    ///
    /// # Errors
    /// When the server has to be asked for its models and does not name one.
    pub fn connect(
        server: Server,
        model: Option<String>,
        concurrency: usize,
        max_tokens: usize,
        cancel: &Cancel,
    ) -> Result<Self> {
        let model = match model {
            Some(model) => model,
            None => first_model(&server, cancel)?,
        };
        Ok(Self { server, model, concurrency: concurrency.max(1), max_tokens, plain: AtomicBool::new(false) })
    }
}

/// The first model that a server lists.
pub(crate) fn first_model(server: &Server, cancel: &Cancel) -> Result<String> {
    server.get("/models", cancel, |answer| {
        let name = answer.pointer("/data/0/id").and_then(Value::as_str).map(str::to_owned);
        name.ok_or_else(|| "lists no model".into())
    })
}

impl Judge for ServerJudge {
    fn name(&self) -> String {
        self.model.clone()
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn answer(&self, question: &Question, view: &View, cancel: &Cancel) -> Result<Answer> {
        let mut body = json!({
            "model": self.model,
            "messages": [
                {"role": "system", "content": question.system},
                {"role": "user", "content": [
                    {"type": "text", "text": question.before},
                    {"type": "image_url", "image_url": {"url": view.uri()}},
                    {"type": "text", "text": question.after},
                ]},
            ],
            "temperature": 0,
            "seed": SEED,
            "max_tokens": self.max_tokens,
        });
        if self.plain.load(Ordering::Relaxed) {
            return self.server.post("/chat/completions", &body, cancel, read);
        }
        let plain = body.clone();
        body["top_k"] = 1.into();
        // as it is written in decimal, not as the nearest f32
        body["repetition_penalty"] = json!((f64::from(REPETITION_PENALTY) * 100.0).round() / 100.0);
        body["chat_template_kwargs"] = json!({"enable_thinking": true});
        match self.server.post("/chat/completions", &body, cancel, read) {
            Err(Error::Refused { problem, .. }) if EXTENSIONS.iter().any(|field| problem.contains(field)) => {
                self.plain.store(true, Ordering::Relaxed);
                self.server.post("/chat/completions", &plain, cancel, read)
            }
            other => other,
        }
    }
}

/// The first choice. A server that parts thinking from the answer leaves only the answer here.
fn read(answer: &Value) -> std::result::Result<Answer, String> {
    let choice = answer.pointer("/choices/0").ok_or("holds no choice")?;
    let text = match choice.pointer("/message/content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if choice.pointer("/message").is_some() => String::new(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => return Err("holds no message".into()),
    };
    let cut = choice.get("finish_reason").and_then(Value::as_str) == Some("length");
    Ok(Answer { text, cut, tokens: answer.pointer("/usage/completion_tokens").and_then(Value::as_u64) })
}
