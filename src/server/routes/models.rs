//! `GET /v1/models`, `/health`, `/metrics`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::recipe::VERSION;
use crate::server::error::ApiError;
use crate::server::metrics;
use crate::server::state::App;

fn entry(app: &App, id: &str) -> Value {
    json!({ "id": id, "object": "model", "created": app.started, "owned_by": "atelier" })
}

/// The models that are served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let data: Vec<Value> = app.model_ids().into_iter().map(|id| entry(&app, id)).collect();
    Json(json!({ "object": "list", "data": data }))
}

/// One of them.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    let known = app.model_ids();
    if known.contains(&id.as_str()) { Ok(Json(entry(&app, &id))) } else { Err(ApiError::no_model(&id, &known)) }
}

/// Whether requests are taken, and why not.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let draining = app.draining.load(Ordering::Relaxed);
    let (status, reason) = match draining {
        true => (StatusCode::SERVICE_UNAVAILABLE, Some("the server is shutting down and finishes what it has")),
        false => (StatusCode::OK, None),
    };
    let body = json!({
        "status": if draining { "draining" } else { "ok" },
        "reason": reason,
        "version": VERSION,
        "queues": queues(&app),
    });
    (status, Json(body)).into_response()
}

fn queues(app: &App) -> Value {
    let queue = |(id, (waiting, running)): (&str, (usize, usize))| {
        (id.to_owned(), json!({ "waiting": waiting, "running": running }))
    };
    app.loads().into_iter().map(queue).collect::<serde_json::Map<_, _>>().into()
}

/// Everything that is counted.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    for (id, (waiting, running)) in app.loads() {
        app.metrics.queue(id, waiting, running);
    }
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], app.metrics.text()).into_response()
}
