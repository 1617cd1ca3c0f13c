//! `POST /v1/images/generations`: prompt → pictures.

use std::convert::Infallible;
use std::sync::Arc;

use atelier_pipelines::progress::{Stage, Timing};
use atelier_pipelines::text_to_image::{Picture, Plan};
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use serde_json::{Value, json};

use super::picture_request::{Generation, Order, Output};
use crate::report::totals;
use crate::server::body::Body;
use crate::server::error::ApiError;
use crate::server::painter::{PaintEvent, Painting};
use crate::server::state::{App, now};

/// Paints.
pub(crate) async fn generations(
    State(app): State<Arc<App>>,
    Body(generation): Body<Generation>,
) -> Result<Response, ApiError> {
    app.check_model(generation.model.as_deref(), &app.painter.id)?;
    let order = generation.order(Vec::new())?;
    answer(&app, order, "image_generation").await
}

/// Puts an order in the queue and answers whole or as a stream whose events are named after `kind`.
pub(crate) async fn answer(app: &Arc<App>, order: Order, kind: &'static str) -> Result<Response, ApiError> {
    let Order { request, output, stream, progress } = order;
    let painting = app.painter.paint(request, app.settings.max_painted_pixels())?;
    let answer = Answer { painting, output, kind, created: now(), model: app.painter.id.clone() };
    let timeout = app.settings.request_timeout;
    if stream {
        return Ok(answer.stream(progress, tokio::time::Instant::now() + timeout));
    }
    match tokio::time::timeout(timeout, answer.whole()).await {
        Ok(result) => result.map(IntoResponse::into_response),
        Err(_) => Err(ApiError::timeout(timeout.as_secs())),
    }
}

/// An order under way.
struct Answer {
    painting: Painting,
    output: Output,
    kind: &'static str,
    created: u64,
    model: String,
}

/// Where a stream stands.
struct Streaming {
    answer: Answer,
    progress: bool,
    deadline: tokio::time::Instant,
    /// Finished pictures; they are sent when the times are known.
    finished: Vec<Value>,
    partial: usize,
    /// Events that are due.
    due: Vec<Event>,
    over: bool,
}

impl Answer {
    /// Waits for every picture.
    async fn whole(mut self) -> Result<Json<Value>, ApiError> {
        let mut data = Vec::new();
        while let Some(event) = self.painting.events.recv().await {
            match event {
                PaintEvent::Started(..) => {}
                PaintEvent::Picture(_, picture) => data.push(self.picture(picture).await?),
                PaintEvent::Done(Ok(timings)) => {
                    let mut body = self.description();
                    body["created"] = json!(self.created);
                    body["data"] = json!(data);
                    body["usage"] = usage(&timings, &self.painting.plan, data.len());
                    body["atelier"] = extension(&self.painting.plan, &timings);
                    return Ok(Json(body));
                }
                PaintEvent::Done(Err(error)) => return Err(error),
            }
        }
        Err(ApiError::internal("the painter ended without an answer"))
    }

    /// What all pictures of an answer have in common.
    fn description(&self) -> Value {
        let Plan { width, height, .. } = self.painting.plan;
        json!({
            "model": self.model,
            "size": format!("{width}x{height}"),
            "quality": "auto",
            "background": self.output.background,
            "output_format": self.output.name(),
        })
    }

    async fn picture(&self, picture: Picture) -> Result<Value, ApiError> {
        let seed = picture.seed;
        Ok(json!({ "b64_json": self.encode(picture).await?, "seed": seed }))
    }

    /// Picture → file → text, away from the threads that serve.
    async fn encode(&self, picture: Picture) -> Result<String, ApiError> {
        let output = self.output;
        let encoded = tokio::task::spawn_blocking(move || output.encode(&picture).map(|bytes| STANDARD.encode(bytes)));
        encoded.await.map_err(|error| ApiError::internal(error.to_string()))?
    }

    fn stream(self, progress: bool, deadline: tokio::time::Instant) -> Response {
        let state = Streaming {
            answer: self,
            progress,
            deadline,
            finished: Vec::new(),
            partial: 0,
            due: Vec::new(),
            over: false,
        };
        let events = stream::unfold(state, |mut state| async move {
            let event = state.next().await?;
            Some((Ok::<_, Infallible>(event), state))
        });
        Sse::new(events).keep_alive(KeepAlive::default()).into_response()
    }
}

impl Streaming {
    /// The next event for the client; none at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.due.is_empty() {
                return Some(self.due.remove(0));
            }
            if self.over {
                return None;
            }
            let event = match tokio::time::timeout_at(self.deadline, self.answer.painting.events.recv()).await {
                Ok(Some(event)) => event,
                Ok(None) => PaintEvent::Done(Err(ApiError::internal("the painter ended without an answer"))),
                Err(_) => PaintEvent::Done(Err(ApiError::timeout(self.deadline.elapsed().as_secs().max(1)))),
            };
            if let Err(error) = self.take(event).await {
                self.over = true;
                self.due.push(named("error", &error.json()));
            }
        }
    }

    async fn take(&mut self, event: PaintEvent) -> Result<(), ApiError> {
        match event {
            PaintEvent::Started(stage, index, count) if self.progress => {
                let kind = "atelier.progress";
                let data = json!({ "type": kind, "stage": stage, "index": index, "count": count });
                self.due.push(named(kind, &data));
            }
            PaintEvent::Started(..) => {}
            PaintEvent::Picture(number, picture) => {
                let preview = picture.preview;
                let mut data = self.answer.description();
                data["seed"] = json!(picture.seed);
                data["created_at"] = json!(now());
                data["b64_json"] = json!(self.answer.encode(picture).await?);
                data["picture_index"] = json!(number);
                if let Some(steps) = preview {
                    let kind = format!("{}.partial_image", self.answer.kind);
                    data["type"] = json!(kind);
                    data["partial_image_index"] = json!(self.partial);
                    data["steps"] = json!(steps);
                    self.partial += 1;
                    self.due.push(named(&kind, &data));
                } else {
                    self.partial = 0;
                    self.finished.push(data);
                }
            }
            PaintEvent::Done(result) => {
                let timings = result?;
                let plan = &self.answer.painting.plan;
                let (usage, extension) = (usage(&timings, plan, self.finished.len()), extension(plan, &timings));
                let kind = format!("{}.completed", self.answer.kind);
                for mut data in self.finished.drain(..) {
                    data["type"] = json!(kind);
                    data["usage"] = usage.clone();
                    data["atelier"] = extension.clone();
                    self.due.push(named(&kind, &data));
                }
                self.over = true;
            }
        }
        Ok(())
    }
}

fn named(kind: &str, data: &Value) -> Event {
    Event::default().event(kind).data(data.to_string())
}

/// Tokens as the models count them: prompt, reference patches after merging, and latents of all pictures.
fn usage(timings: &[Timing], plan: &Plan, pictures: usize) -> Value {
    let sum = |stage: Stage| timings.iter().filter(|t| t.stage == stage).map(|t| t.size.count).sum::<u64>();
    let images = sum(Stage::VisionEncode) / 4;
    let text = sum(Stage::TextEncode).saturating_sub(images);
    let output = u64::from(plan.width / 16) * u64::from(plan.height / 16) * pictures as u64;
    json!({
        "input_tokens": text + images,
        "input_tokens_details": { "text_tokens": text, "image_tokens": images },
        "output_tokens": output,
        "total_tokens": text + images + output,
    })
}

fn extension(plan: &Plan, timings: &[Timing]) -> Value {
    json!({
        "steps": plan.steps,
        "sigmas": plan.sigmas,
        "notices": plan.notices,
        "timings": totals(timings),
    })
}
