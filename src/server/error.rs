//! What goes wrong → a status and a body in OpenAI's shape.

use atelier_pipelines::Error;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An error as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// OpenAI's `type`.
    pub kind: &'static str,
    /// OpenAI's `code`, for programs.
    pub code: Option<&'static str>,
    /// The field that is wrong.
    pub param: Option<String>,
    /// For people.
    pub message: String,
    /// Seconds after which to try again.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status, kind, code, param: None, message: message.into(), retry_after: None }
    }

    /// 400: the request cannot be served as it is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", None, message)
    }

    /// 400: a field has a value that cannot be served.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), code: Some("invalid_value"), ..Self::invalid(message) }
    }

    /// 400: a field that nobody knows.
    #[must_use]
    pub fn unknown_field(param: &str) -> Self {
        let message = format!("Unknown parameter: '{param}'.");
        Self { param: Some(param.into()), code: Some("unknown_parameter"), ..Self::invalid(message) }
    }

    /// 400: a field that must be there.
    #[must_use]
    pub fn missing_field(param: &str) -> Self {
        let message = format!("Missing required parameter: '{param}'.");
        Self { param: Some(param.into()), code: Some("missing_required_parameter"), ..Self::invalid(message) }
    }

    /// 401: no key, or the wrong one.
    #[must_use]
    pub fn unauthorized() -> Self {
        let message = "This server wants an API key: Authorization: Bearer KEY.";
        Self::new(StatusCode::UNAUTHORIZED, "invalid_request_error", Some("invalid_api_key"), message)
    }

    /// 404: no such route.
    #[must_use]
    pub fn no_route(method: &str, path: &str) -> Self {
        let message = format!("There is no {method} {path}; GET /openapi.json lists what there is.");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", Some("unknown_url"), message)
    }

    /// 404: no such model.
    #[must_use]
    pub fn no_model(name: &str, known: &[&str]) -> Self {
        let message = format!("The model '{name}' is not served here; there is: {}.", known.join(", "));
        let error = Self::new(StatusCode::NOT_FOUND, "invalid_request_error", Some("model_not_found"), message);
        Self { param: Some("model".into()), ..error }
    }

    /// 405: the route exists for other methods.
    #[must_use]
    pub fn no_method(method: &str, path: &str) -> Self {
        let message = format!("{path} is not there for {method}.");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", Some("method_not_allowed"), message)
    }

    /// 408: the body did not come in time.
    #[must_use]
    pub fn slow_body() -> Self {
        let message = "The body did not arrive in time.";
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", Some("request_timeout"), message)
    }

    /// 413: more bytes than the server takes.
    #[must_use]
    pub fn too_large_body() -> Self {
        let message = "The body is larger than this server takes.";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", Some("request_too_large"), message)
    }

    /// 415: not the content type of the route.
    #[must_use]
    pub fn media_type(wanted: &str) -> Self {
        let message = format!("Content-Type must be {wanted}.");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", Some("unsupported_media_type"), message)
    }

    /// 429: the queue is full.
    #[must_use]
    pub fn busy(retry_after: u64) -> Self {
        let message = format!("The queue is full; try again in {retry_after} s.");
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", Some("rate_limit_exceeded"), message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// 500: not the client's fault.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", None, message)
    }

    /// 500: a panic, which is always a bug.
    #[must_use]
    pub fn panicked() -> Self {
        Self::internal("The request made the program fail: this is a bug, please report it.")
    }

    /// 503: the server is going down.
    #[must_use]
    pub fn draining() -> Self {
        let message = "The server is shutting down.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", Some("shutting_down"), message)
    }

    /// 504: the work took longer than the server allows.
    #[must_use]
    pub fn timeout(seconds: u64) -> Self {
        let message = format!("The request took longer than {seconds} s and was stopped.");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "server_error", Some("timeout"), message)
    }

    /// The body.
    #[must_use]
    pub fn json(&self) -> Value {
        let Self { kind, code, param, message, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

impl From<Error> for ApiError {
    /// What the client sent is the client's to mend; checkpoints, devices and files are the server's.
    fn from(error: Error) -> Self {
        match error {
            Error::Input(message) => Self::invalid(message),
            Error::Cancelled => Self::draining(),
            other => Self::internal(other.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.json())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
