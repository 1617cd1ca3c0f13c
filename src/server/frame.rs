//! What happens to every request before and after its route: id, log, origin, key, body.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use tracing_subscriber::EnvFilter;

use super::error::ApiError;
use super::state::App;
use crate::cli::serve::LogFormat;

/// Time in which a body must have arrived.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Bytes of a body that is too large which are read before its connection is cut.
const SURPLUS: usize = 256 << 20;
const REQUEST_ID: &str = "x-request-id";

/// Log lines on standard error; `RUST_LOG` sets what is told, `info` without it.
pub(super) fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // a second server in one process keeps the first one's log
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// Gives the request an id, and counts and logs how it was answered. What was asked is not logged.
pub(super) async fn record(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = request_id(request.headers());
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let method = request.method().to_string();
    let mut response = next.run(request).await;
    let (status, time) = (response.status(), start.elapsed());
    app.metrics.answered(&route, &method, status.as_u16(), time);
    let ms = time.as_millis() as u64;
    tracing::info!(id, method, route, status = status.as_u16(), ms, "answered");
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The client's id when it is harmless, a drawn one otherwise.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| {
        (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    });
    given.map_or_else(|| format!("req_{:016x}", getrandom::u64().unwrap_or_default()), ToOwned::to_owned)
}

/// Refuses pages of other sites: a browser would otherwise let any page use a server on this machine.
pub(super) async fn origin(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let local = app.settings.address.ip().is_loopback();
    if local && app.settings.api_key.is_none() && !is_this_machine(host) {
        return Err(forbidden("The server listens on this machine alone, but was called by another name."));
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).is_some_and(|(_, at)| at == host);
        if !own && !app.settings.cors_origins.contains(origin) {
            return Err(forbidden("Pages of other sites may not call this server: see --cors-origin."));
        }
    }
    Ok(next.run(request).await)
}

/// Whether a `Host` header names this machine; no host at all comes from no browser.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn forbidden(message: &str) -> ApiError {
    ApiError { status: StatusCode::FORBIDDEN, code: Some("forbidden"), ..ApiError::invalid(message) }
}

/// Wants the key, when there is one.
pub(super) async fn key(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiError> {
    if let Some(key) = &app.settings.api_key {
        let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|value| value.split_once(' '));
        let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, key)| key.trim());
        if !equal(sent.as_bytes(), key.as_bytes()) {
            return Err(ApiError::unauthorized());
        }
    }
    Ok(next.run(request).await)
}

/// Comparison whose time does not tell how much was right.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// Takes in the whole body, within the limits of size and time. What is too large is still read for a while, and thrown
/// away: a client that is cut off while it sends sees a broken connection and no answer.
pub(super) async fn body(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let limit = app.settings.max_body;
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIME, take_in(body, limit)).await;
    let bytes = read.map_err(|_| ApiError::slow_body())??;
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

async fn take_in(mut body: Body, limit: usize) -> Result<Vec<u8>, ApiError> {
    let (mut bytes, mut surplus) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::invalid("The body could not be read to its end."))?;
        let Ok(data) = frame.into_data() else { continue };
        if surplus == 0 && bytes.len() + data.len() <= limit {
            bytes.extend_from_slice(&data);
            continue;
        }
        bytes = Vec::new();
        surplus += data.len();
        if surplus > SURPLUS {
            break;
        }
    }
    if surplus > 0 { Err(ApiError::too_large_body()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for host in ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "LOCALHOST:80", ""] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["example.org", "example.org:8080", "10.0.0.1", "localhost.example.org", "[fe80::1]:80"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn ids_are_taken_only_when_harmless() {
        let with = |id: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_static(id));
            request_id(&headers)
        };
        assert_eq!(with("abc-1.2_3"), "abc-1.2_3");
        assert!(with("a b").starts_with("req_"));
        assert!(request_id(&HeaderMap::new()).starts_with("req_"));
    }

    #[test]
    fn keys() {
        assert!(equal(b"secret", b"secret"));
        for other in [&b"secre"[..], b"secreT", b"", b"secrets"] {
            assert!(!equal(other, b"secret"));
        }
    }
}
