//! `GET /` and `/openapi.json`.

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};

use crate::recipe::VERSION;

/// Nothing from outside, and no other page may frame it.
const POLICY: &str = "default-src 'none'; img-src 'self' data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(crate) async fn page() -> Response {
    let headers: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, include_str!("../page/index.html")).into_response()
}

/// The description of the API.
pub(crate) async fn openapi() -> Response {
    let text = include_str!("../openapi.json").replace("\"version\": \"\"", &format!("\"version\": \"{VERSION}\""));
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
