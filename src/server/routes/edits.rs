//! `POST /v1/images/edits`: reference pictures and a prompt → pictures.

use std::sync::Arc;

use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest as _, Multipart, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use image::RgbaImage;
use serde_json::{Map, Value};

use super::images::answer;
use super::picture_request::Generation;
use crate::server::body;
use crate::server::error::ApiError;
use crate::server::state::App;
use atelier_pipelines::image_to_text::picture::decode_rgba;

/// Fields that hold numbers or switches; a form has only texts.
const NUMBERS: &[&str] =
    &["n", "output_compression", "partial_images", "seed", "steps", "cfg_scale", "stream", "progress"];

/// Paints from pictures.
pub(crate) async fn edits(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let form = Multipart::from_request(request, &app).await;
    let form = form.map_err(|_| ApiError::media_type("multipart/form-data with a boundary"))?;
    let (fields, files) = read(form).await?;
    let generation: Generation = body::parse(Value::Object(fields).to_string().as_bytes())?;
    app.check_model(generation.model.as_deref(), &app.painter.id)?;
    if files.is_empty() {
        return Err(ApiError::missing_field("image"));
    }
    if !app.painter.references {
        let id = &app.painter.id;
        return Err(ApiError::field("image", format!("{id} was not trained to look at reference pictures.")));
    }
    let decoded = tokio::task::spawn_blocking(move || decode(&files));
    let pictures = decoded.await.map_err(|error| ApiError::internal(error.to_string()))??;
    answer(&app, generation.order(pictures)?, "image_edit").await
}

/// A form → its texts as JSON, and the bytes of its pictures in order.
async fn read(mut form: Multipart) -> Result<(Map<String, Value>, Vec<axum::body::Bytes>), ApiError> {
    let (mut fields, mut files) = (Map::new(), Vec::new());
    while let Some(field) = form.next_field().await.map_err(|error| broken(&error))? {
        let name = field.name().unwrap_or_default().to_owned();
        if matches!(name.as_str(), "image" | "image[]") {
            files.push(field.bytes().await.map_err(|error| broken(&error))?);
            continue;
        }
        if name == "mask" {
            return Err(ApiError::field("mask", "Masks are not supported: say in the prompt what to change."));
        }
        let text = field.text().await.map_err(|error| broken(&error))?;
        let value = match NUMBERS.contains(&name.as_str()) {
            true => serde_json::from_str(&text).unwrap_or(Value::String(text)),
            false => Value::String(text),
        };
        fields.insert(name, value);
    }
    Ok((fields, files))
}

fn broken(error: &MultipartError) -> ApiError {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::too_large_body(),
        _ => ApiError::invalid(format!("The form cannot be read: {}.", error.body_text())),
    }
}

fn decode(files: &[axum::body::Bytes]) -> Result<Vec<RgbaImage>, ApiError> {
    let decode = |(index, bytes): (usize, &axum::body::Bytes)| {
        decode_rgba(bytes).map_err(|error| ApiError::field(format!("image[{index}]"), format!("{error}.")))
    };
    files.iter().enumerate().map(decode).collect()
}
