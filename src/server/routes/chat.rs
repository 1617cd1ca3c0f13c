//! `POST /v1/chat/completions`: a conversation with pictures → answers.

use std::convert::Infallible;
use std::sync::Arc;

use atelier_pipelines::image_to_text::{Answer, Finish, Usage};
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::chat_request::{Chat, Questions};
use crate::server::body::Body;
use crate::server::error::ApiError;
use crate::server::looker::{LookEvent, Looking};
use crate::server::state::{App, now};

/// Answers.
///
/// # Errors
/// Those of the fields, the queue and the looker.
pub async fn completions(State(app): State<Arc<App>>, Body(chat): Body<Chat>) -> Result<Response, ApiError> {
    let looker = app.looker.as_ref().ok_or_else(|| ApiError::no_model("", &app.model_ids()))?;
    app.check_model(chat.model.as_deref(), &looker.id)?;
    let Questions { requests, stream, include_usage } = chat.questions(&app.settings).await?;
    let head = Head { id: format!("chatcmpl-{:016x}", draw()), created: now(), model: looker.id.clone() };
    let looking = requests.into_iter().map(|request| looker.look(request)).collect::<Result<Vec<_>, _>>()?;
    let timeout = app.settings.request_timeout;
    if stream {
        let deadline = tokio::time::Instant::now() + timeout;
        return Ok(streamed(head, looking, include_usage, deadline, timeout.as_secs()));
    }
    match tokio::time::timeout(timeout, whole(head, looking)).await {
        Ok(result) => result.map(IntoResponse::into_response),
        Err(_) => Err(ApiError::timeout(timeout.as_secs())),
    }
}

fn draw() -> u64 {
    getrandom::u64().unwrap_or_default()
}

/// What all parts of a reply have in common.
struct Head {
    id: String,
    created: u64,
    model: String,
}

impl Head {
    fn json(&self, object: &str) -> Value {
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model })
    }

    fn chunk(&self, choices: Value, usage: Value) -> Event {
        let mut chunk = self.json("chat.completion.chunk");
        chunk["choices"] = choices;
        chunk["usage"] = usage;
        Event::default().data(chunk.to_string())
    }
}

/// Waits for every answer.
async fn whole(head: Head, looking: Vec<Looking>) -> Result<Json<Value>, ApiError> {
    let mut answers = Vec::new();
    for mut looking in looking {
        let answer = loop {
            match looking.events.recv().await {
                Some(LookEvent::Done(result)) => break result?,
                Some(_) => {}
                None => return Err(ApiError::internal("the looker ended without an answer")),
            }
        };
        answers.push(*answer);
    }
    let choice = |(index, answer): (usize, &Answer)| {
        let mut message = json!({ "role": "assistant", "content": answer.text, "refusal": null });
        if let Some(thinking) = &answer.thinking {
            message["reasoning_content"] = json!(thinking);
        }
        json!({ "index": index, "message": message, "logprobs": null, "finish_reason": finish(answer) })
    };
    let mut body = head.json("chat.completion");
    body["choices"] = answers.iter().enumerate().map(choice).collect();
    body["usage"] = usage(&answers.iter().map(|answer| answer.usage).collect::<Vec<_>>());
    body["atelier"] = json!({ "timings": answers.iter().map(timings).collect::<Vec<_>>() });
    Ok(Json(body))
}

fn finish(answer: &Answer) -> &'static str {
    match answer.finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

/// Tokens of all answers; the prompt counts once, as it does with OpenAI.
fn usage(all: &[Usage]) -> Value {
    let prompt = all.first().copied().unwrap_or_default();
    let completion: usize = all.iter().map(|usage| usage.completion_tokens).sum();
    let thinking: usize = all.iter().map(|usage| usage.thinking_tokens).sum();
    json!({
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": prompt.prompt_tokens + completion,
        "prompt_tokens_details": { "cached_tokens": prompt.cached_tokens, "image_tokens": prompt.image_tokens },
        "completion_tokens_details": { "reasoning_tokens": thinking },
    })
}

/// The figures that the tables of such models speak of.
fn timings(answer: &Answer) -> Value {
    let timings = &answer.timings;
    let ms = |seconds: f64| seconds * 1000.0;
    json!({
        "vision_ms": timings.vision.iter().map(|vision| ms(vision.seconds)).collect::<Vec<_>>(),
        "prefill_tokens": timings.prefill_tokens,
        "prefill_tokens_per_s": timings.prefill_rate(),
        "ttft_ms": ms(timings.ttft_seconds),
        "decode_tokens": timings.decode_tokens,
        "decode_tokens_per_s": timings.decode_rate(),
        "tpot_ms": timings.tpot().map(ms),
    })
}

fn streamed(
    head: Head,
    looking: Vec<Looking>,
    include_usage: bool,
    deadline: tokio::time::Instant,
    seconds: u64,
) -> Response {
    let count = looking.len();
    let sources = looking.into_iter().enumerate().map(|(index, looking)| {
        stream::unfold(Some(looking), move |state| async move {
            let mut looking = state?;
            let event = match tokio::time::timeout_at(deadline, looking.events.recv()).await {
                Ok(Some(event)) => event,
                Ok(None) => LookEvent::Done(Err(ApiError::internal("the looker ended without an answer"))),
                Err(_) => LookEvent::Done(Err(ApiError::timeout(seconds))),
            };
            let over = matches!(event, LookEvent::Done(_));
            Some(((index, event), (!over).then_some(looking)))
        })
        .boxed()
    });
    let mut telling =
        Telling { head, include_usage, left: count, usages: vec![Usage::default(); count], failed: false };
    let events = stream::select_all(sources)
        .flat_map(move |(index, event)| stream::iter(telling.tell(index, event).into_iter().map(Ok::<_, Infallible>)));
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// Where a stream stands.
struct Telling {
    head: Head,
    include_usage: bool,
    /// Answers that are not complete.
    left: usize,
    usages: Vec<Usage>,
    failed: bool,
}

impl Telling {
    /// What the client hears of an event.
    fn tell(&mut self, index: usize, event: LookEvent) -> Vec<Event> {
        if self.failed {
            return Vec::new();
        }
        let choice = |delta: Value, finish: Option<&str>| json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        match event {
            LookEvent::Prompt(_) => {
                let delta = json!({ "role": "assistant", "content": "" });
                vec![self.head.chunk(choice(delta, None), Value::Null)]
            }
            LookEvent::Thinking(text) => {
                vec![self.head.chunk(choice(json!({ "reasoning_content": text }), None), Value::Null)]
            }
            LookEvent::Text(text) => vec![self.head.chunk(choice(json!({ "content": text }), None), Value::Null)],
            LookEvent::Done(Err(error)) => {
                self.failed = true;
                vec![Event::default().data(error.json().to_string())]
            }
            LookEvent::Done(Ok(answer)) => {
                self.usages[index] = answer.usage;
                self.left -= 1;
                let mut events = vec![self.head.chunk(choice(json!({}), Some(finish(&answer))), Value::Null)];
                if self.left == 0 {
                    if self.include_usage {
                        events.push(self.head.chunk(json!([]), usage(&self.usages)));
                    }
                    events.push(Event::default().data("[DONE]"));
                }
                events
            }
        }
    }
}
