//! Body of a request → typed fields, with errors that name the field.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// A JSON body.
#[derive(Debug)]
pub struct Body<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if !is_json(&request) {
            return Err(ApiError::media_type("application/json"));
        }
        // the frame has taken it in already
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|_| ApiError::invalid("The body could not be read to its end."))?;
        parse(&bytes).map(Self)
    }
}

/// `application/json`, with or without parameters.
fn is_json(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// JSON → fields.
///
/// # Errors
/// 400 that names the field when one is missing, unknown or of another type.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| explain(&error))?;
    json.end().map_err(|error| ApiError::invalid(format!("The body is not JSON: {error}.")))?;
    Ok(value)
}

fn explain(error: &serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let path = error.path().to_string();
    let message = error.inner().to_string();
    if error.inner().is_syntax() || error.inner().is_eof() {
        return ApiError::invalid(format!("The body is not JSON: {message}."));
    }
    // serde's own words; the position is no help in a body that was put together by a program
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text);
    let quoted = message.split('`').nth(1).unwrap_or_default();
    let inside = |field: &str| match path.as_str() {
        "." | "" => field.to_owned(),
        path if path == field || path.ends_with(&format!(".{field}")) => path.to_owned(),
        path => format!("{path}.{field}"),
    };
    if message.starts_with("unknown field") {
        ApiError::unknown_field(&inside(quoted))
    } else if message.starts_with("missing field") {
        ApiError::missing_field(&inside(quoted))
    } else if path == "." {
        ApiError::invalid(format!("The body is not as it should be: {message}."))
    } else {
        ApiError { code: Some("invalid_type"), ..ApiError::field(path, format!("{message}.")) }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Outer {
        prompt: String,
        n: Option<u8>,
        inner: Option<Vec<Inner>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read by serde")]
    struct Inner {
        kind: String,
    }

    #[test]
    fn errors_name_the_field() {
        for (text, code, param) in [
            (r#"{"prompt":"a","colour":1}"#, Some("unknown_parameter"), Some("colour")),
            (r#"{"n":1}"#, Some("missing_required_parameter"), Some("prompt")),
            (r#"{"prompt":"a","n":"two"}"#, Some("invalid_type"), Some("n")),
            (r#"{"prompt":"a","n":300}"#, Some("invalid_type"), Some("n")),
            (r#"{"prompt":"a","inner":[{"kind":"b"},{"kin":"b"}]}"#, Some("unknown_parameter"), Some("inner[1].kin")),
            (r#"{"prompt":"a","inner":[{}]}"#, Some("missing_required_parameter"), Some("inner[0].kind")),
            ("[]", None, None),
            ("", None, None),
            (r#"{"prompt":"a"} x"#, None, None),
            (r#"{"prompt":"a""#, None, None),
        ] {
            let error = parse::<Outer>(text.as_bytes()).unwrap_err();
            assert_eq!((error.code, error.param.as_deref()), (code, param), "{text}: {}", error.message);
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
        }
        assert!(parse::<Outer>(br#"{"prompt":"a","n":null}"#).is_ok());
    }
}
