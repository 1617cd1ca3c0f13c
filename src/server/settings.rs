//! Flags, variables and the settings file → how to serve.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::checkpoint::Files;
use axum::http::HeaderValue;

use crate::cli::serve::{LogFormat, Serve};
use crate::demo;
use crate::failure::Usage;
use crate::settings as common;

/// How to serve.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub address: SocketAddr,
    /// What clients must send.
    pub api_key: Option<String>,
    /// Sites whose pages may call.
    pub cors_origins: Vec<HeaderValue>,
    /// Whether pictures are fetched from http(s) addresses.
    pub remote_images: bool,
    /// The painter's checkpoint.
    pub image_model: Model,
    /// The looker's checkpoint; none when this build has none and none was named.
    pub vision_model: Option<Model>,
    /// Answers that are made side by side.
    pub max_answers: usize,
    /// Bytes for what earlier conversations left behind.
    pub prefix_cache: u64,
    /// Requests that may wait for each model.
    pub max_queue: usize,
    /// Largest body in bytes.
    pub max_body: usize,
    /// Largest picture that is read, in pixels.
    pub max_image_pixels: u64,
    /// Longest time of a request.
    pub request_timeout: Duration,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// A checkpoint and the name clients know it by.
#[derive(Debug, Clone)]
pub struct Model {
    /// The folder's name, or that of the model inside the program.
    pub id: String,
    /// Its files.
    pub files: Files,
}

impl Settings {
    /// Largest picture that is painted, in pixels: 2048x2048 fits the default.
    #[must_use]
    pub fn max_painted_pixels(&self) -> u64 {
        self.max_image_pixels / 4
    }
}

/// Flags → settings.
///
/// # Errors
/// [`Usage`] when a setting makes no sense; others when a file, folder or variable is not as it should be.
pub fn settings(typed: Serve) -> Result<Settings> {
    let file = typed.config.as_deref().map(read).transpose()?.unwrap_or_default();
    if let Some(device) = typed.device.or(file.device) {
        common::device(device)?;
    }
    let address = SocketAddr::new(
        typed.host.or(file.host).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        typed.port.or(file.port).unwrap_or(8080),
    );
    let cors = if typed.cors_origin.is_empty() { file.cors_origin } else { typed.cors_origin };
    let painter = typed.image_model.or(file.image_model).unwrap_or_else(|| common::usual_model(common::MODEL_VARIABLE));
    let looker = typed.vision_model.or(file.vision_model);
    let looker = looker.unwrap_or_else(|| common::usual_model(common::describe::MODEL_VARIABLE));
    let no_looker = demo::LOOKER.is_empty() && looker == Path::new(common::DEMO);
    let mebibytes = typed.prefix_cache.or(file.prefix_cache).unwrap_or(1024) as u64;
    Ok(Settings {
        address,
        api_key: typed.api_key_env.or(file.api_key_env).map(|name| api_key(&name)).transpose()?,
        cors_origins: cors.iter().map(|origin| self::origin(origin)).collect::<Result<_>>()?,
        remote_images: typed.allow_remote_images.or(file.allow_remote_images).unwrap_or(false),
        image_model: model(&painter, "diffusers layout", demo::PAINTER, "atelier-painter")?,
        vision_model: match no_looker {
            true => None,
            false => Some(model(&looker, "the Hub's layout", demo::LOOKER, "atelier-looker")?),
        },
        max_answers: limit("--max-answers", typed.max_answers.or(file.max_answers), 4, 1)?,
        prefix_cache: mebibytes.saturating_mul(1 << 20),
        max_queue: typed.max_queue.or(file.max_queue).unwrap_or(16),
        max_body: limit("--max-body", typed.max_body.or(file.max_body), 64, 1 << 20)?,
        max_image_pixels: limit(
            "--max-image-pixels",
            typed.max_image_pixels.or(file.max_image_pixels).map(|count| count as usize),
            32,
            1 << 20,
        )? as u64,
        request_timeout: Duration::from_secs(match typed.request_timeout.or(file.request_timeout) {
            Some(0) => bail!(Usage("--request-timeout 0: at least one second is needed".into())),
            seconds => seconds.unwrap_or(600),
        }),
        log_format: typed.log_format.or(file.log_format).unwrap_or(LogFormat::Text),
    })
}

fn read(path: &Path) -> Result<Serve> {
    let text = std::fs::read_to_string(path).with_context(|| format!("the settings file {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("the settings file {}", path.display()))
}

/// A number of `unit`s.
fn limit(flag: &str, given: Option<usize>, usual: usize, unit: usize) -> Result<usize> {
    match given.unwrap_or(usual).checked_mul(unit) {
        None | Some(0) => bail!(Usage(format!("{flag}: a number from 1 to {} is needed", usize::MAX / unit))),
        Some(limit) => Ok(limit),
    }
}

fn api_key(variable: &str) -> Result<String> {
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(key.trim().to_owned()),
        _ => bail!("--api-key-env {variable}: the variable {variable} is not set, so no client could ever call"),
    }
}

fn origin(text: &str) -> Result<HeaderValue> {
    let problem = || Usage(format!("--cors-origin {text}: an origin such as https://example.org is needed"));
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(problem)?;
    if host.is_empty() || host.contains('/') {
        bail!(problem());
    }
    HeaderValue::from_str(text).map_err(|_| problem().into())
}

fn model(path: &Path, layout: &str, demo: &'static [(&str, &[u8])], demo_id: &str) -> Result<Model> {
    let files = common::files(path, layout, demo)?;
    let id = if matches!(files, Files::Embedded(_)) { demo_id.into() } else { files.name() };
    Ok(Model { id, files })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_defaults_are_safe() {
        let found = settings(Serve::default()).unwrap();
        assert!(found.address.ip().is_loopback() && !found.remote_images && found.cors_origins.is_empty());
        assert_eq!((found.max_body, found.max_painted_pixels()), (64 << 20, 8 << 20));
    }

    #[test]
    fn what_was_typed_wins_over_the_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "host = \"0.0.0.0\"\nport = 9000\nmax-queue = 3\nallow-remote-images = true").unwrap();
        let typed = Serve { config: Some(file.path().into()), port: Some(9001), ..Serve::default() };
        let found = settings(typed).unwrap();
        assert_eq!(found.address.to_string(), "0.0.0.0:9001");
        assert!(found.remote_images);
        assert_eq!(found.max_queue, 3);
    }

    #[test]
    fn a_wrong_file_is_refused_by_name() {
        for (text, word) in [("max_queue = 3", "max_queue"), ("port = \"x\"", "port"), ("port = ", "line 1")] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let error = settings(Serve { config: Some(file.path().into()), ..Serve::default() }).unwrap_err();
            let message = format!("{error:#}");
            assert!(message.contains(word) && message.contains("settings file"), "{text}: {message}");
        }
    }

    #[test]
    fn settings_that_make_no_sense() {
        for typed in [
            Serve { max_body: Some(0), ..Serve::default() },
            Serve { max_body: Some(usize::MAX), ..Serve::default() },
            Serve { request_timeout: Some(0), ..Serve::default() },
            Serve { cors_origin: vec!["example.org".into()], ..Serve::default() },
            Serve { cors_origin: vec!["https://example.org/page".into()], ..Serve::default() },
        ] {
            assert!(settings(typed).unwrap_err().is::<Usage>());
        }
        let error = settings(Serve { api_key_env: Some("ATELIER_NO_SUCH".into()), ..Serve::default() }).unwrap_err();
        assert!(error.to_string().contains("ATELIER_NO_SUCH"));
    }
}
