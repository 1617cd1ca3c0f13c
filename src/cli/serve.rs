//! Flags of `atelier serve`; a settings file has the same names.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::Device;

/// Flags of `atelier serve`. Each can also be set by its variable or in the file that --config names; what was typed wins
/// over the variable, the variable over the file.
#[derive(Debug, Default, Args, Deserialize)]
#[group(skip)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Serve {
    /// TOML file with settings named as these flags, such as max-queue = 8.
    #[arg(long, value_name = "FILE", env = "ATELIER_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1, this machine alone].
    #[arg(long, value_name = "ADDRESS", env = "ATELIER_HOST", help_heading = "Network")]
    pub host: Option<IpAddr>,
    /// Port to listen on; 0 takes a free one [default: 8080].
    #[arg(long, value_name = "PORT", env = "ATELIER_PORT", help_heading = "Network")]
    pub port: Option<u16>,
    /// Variable that holds the key clients must send as "Authorization: Bearer KEY" [default: no key is wanted].
    #[arg(long, value_name = "NAME", env = "ATELIER_API_KEY_ENV", help_heading = "Network")]
    pub api_key_env: Option<String>,
    /// Page of another site that may call this server from a browser, such as `https://example.org`; may be repeated.
    #[arg(long, value_name = "ORIGIN", env = "ATELIER_CORS_ORIGIN", value_delimiter = ',', help_heading = "Network")]
    pub cors_origin: Vec<String>,
    /// Fetch pictures that requests name by http(s) address; addresses inside this network are always refused.
    #[arg(long, env = "ATELIER_ALLOW_REMOTE_IMAGES", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL", help_heading = "Network")]
    pub allow_remote_images: Option<bool>,

    /// Checkpoint that paints: a folder, or "demo" [default: what $ATELIER_MODEL names, else demo].
    #[arg(long, value_name = "PATH", env = "ATELIER_IMAGE_MODEL", help_heading = "Models")]
    pub image_model: Option<PathBuf>,
    /// Checkpoint that looks: a folder, or "demo" [default: what `$ATELIER_VISION_MODEL` names, else demo].
    #[arg(long, value_name = "PATH", help_heading = "Models")]
    pub vision_model: Option<PathBuf>,
    /// Where to compute [default: auto].
    #[arg(long, value_name = "DEVICE", env = "ATELIER_DEVICE", help_heading = "Models")]
    pub device: Option<Device>,

    /// Answers that are made side by side [default: 4].
    #[arg(long, value_name = "N", env = "ATELIER_MAX_ANSWERS", help_heading = "Limits")]
    pub max_answers: Option<usize>,
    /// Memory for what earlier conversations left behind, in MiB; 0 turns it off [default: 1024].
    #[arg(long, value_name = "MIB", env = "ATELIER_PREFIX_CACHE", help_heading = "Limits")]
    pub prefix_cache: Option<usize>,
    /// Requests that may wait for each model; more are told to come back later [default: 16].
    #[arg(long, value_name = "N", env = "ATELIER_MAX_QUEUE", help_heading = "Limits")]
    pub max_queue: Option<usize>,
    /// Largest body of a request, in MiB [default: 64].
    #[arg(long, value_name = "MIB", env = "ATELIER_MAX_BODY", help_heading = "Limits")]
    pub max_body: Option<usize>,
    /// Largest picture that is taken or painted, in million pixels: sent ones are read up to this size, painted ones to a
    /// quarter of it [default: 32].
    #[arg(long, value_name = "MP", env = "ATELIER_MAX_IMAGE_PIXELS", help_heading = "Limits")]
    pub max_image_pixels: Option<u32>,
    /// Seconds that a request may take, waiting included [default: 600].
    #[arg(long, value_name = "SECONDS", env = "ATELIER_REQUEST_TIMEOUT", help_heading = "Limits")]
    pub request_timeout: Option<u64>,

    /// How log lines on standard error look [default: text].
    #[arg(long, value_name = "FORMAT", env = "ATELIER_LOG_FORMAT", help_heading = "Log")]
    pub log_format: Option<LogFormat>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
