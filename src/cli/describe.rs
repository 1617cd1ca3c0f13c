//! Flags of `atelier describe`.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Device, Seed};

const MODEL_HELP: &str = "Checkpoint: a folder in the Hub's layout, or \"demo\" for the small model inside the program \
    [default: what $ATELIER_VISION_MODEL names, else demo]";

/// Flags of `atelier describe`.
#[derive(Debug, Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "switches are what people type")]
pub struct Describe {
    /// Pictures to look at: PNG, JPEG, WebP, GIF, BMP or TIFF files, - for standard input, or data: URIs.
    #[arg(value_name = "IMAGE")]
    pub images: Vec<OsString>,
    /// What to ask; @FILE reads it from a file, - from standard input [default: Describe this picture.].
    #[arg(short, long, value_name = "QUESTION")]
    pub prompt: Option<String>,
    /// Instructions for the whole conversation; @FILE reads them from a file.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Converse in the terminal: one line a turn; /help lists the commands.
    #[arg(long, conflicts_with = "json")]
    pub chat: bool,

    #[arg(long, value_name = "PATH", help = MODEL_HELP, help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Where to compute.
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Model")]
    pub device: Device,
    /// Prompt tokens that are read at once: memory against speed [default: 512].
    #[arg(long, value_name = "N", value_parser = count(), help_heading = "Model")]
    pub prefill_chunk: Option<usize>,

    /// Most tokens of an answer, thinking included [default: 2048].
    #[arg(long, value_name = "N", value_parser = count(), help_heading = "Answer")]
    pub max_tokens: Option<usize>,
    /// Text that ends the answer and is no part of it; can be given several times.
    #[arg(long, value_name = "TEXT", help_heading = "Answer")]
    pub stop: Vec<String>,
    /// Whether the model thinks before it answers; "hide" lets it think unseen [default: the model's own].
    #[arg(long, value_name = "WHEN", help_heading = "Answer")]
    pub think: Option<Think>,

    /// Divides the logits: below 1 surer, above 1 bolder, 0 always the likeliest token [default: the model's].
    #[arg(long, value_name = "T", value_parser = |text: &str| number(text, 0.0..=100.0), help_heading = "Sampling")]
    pub temperature: Option<f32>,
    /// Only the likeliest tokens that together reach this probability [default: the model's].
    #[arg(long, value_name = "P", value_parser = |text: &str| number(text, f32::MIN_POSITIVE..=1.0), help_heading = "Sampling")]
    pub top_p: Option<f32>,
    /// Only the so many likeliest tokens; 0 for all [default: the model's].
    #[arg(long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<usize>,
    /// Only tokens with at least this share of the likeliest token's probability [default: the model's].
    #[arg(long, value_name = "P", value_parser = |text: &str| number(text, 0.0..=1.0), help_heading = "Sampling")]
    pub min_p: Option<f32>,
    /// Above 1 makes tokens that occurred less likely [default: the model's].
    #[arg(long, value_name = "X", value_parser = |text: &str| number(text, 0.01..=100.0), help_heading = "Sampling")]
    pub repetition_penalty: Option<f32>,
    /// Above 0 makes tokens that the answer holds less likely [default: the model's].
    #[arg(long, value_name = "X", value_parser = |text: &str| number(text, -2.0..=2.0), help_heading = "Sampling")]
    pub presence_penalty: Option<f32>,
    /// Number that fixes the draws: the same seed gives the same answer; -1 or "random" draws one [default: 0].
    #[arg(short, long, value_name = "SEED", help_heading = "Sampling")]
    pub seed: Option<Seed>,

    /// Print what looking, reading and writing took, on standard error.
    #[arg(long, help_heading = "Output")]
    pub timings: bool,
    /// Print one JSON object on standard output in place of the answer.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print no progress and no notes.
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print every stage as it ends, and the timings.
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

/// Whether the model thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Think {
    /// It thinks, and the thoughts are shown on standard error.
    On,
    /// It answers at once.
    Off,
    /// It thinks, and the thoughts are not shown.
    Hide,
}

fn count() -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(1..=1_000_000)
}

fn number(text: &str, range: RangeInclusive<f32>) -> Result<f32, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| match range.start() {
        &f32::MIN_POSITIVE => format!("a number above 0, at most {}, is needed", range.end()),
        start => format!("a number from {start} to {} is needed", range.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_ranges() {
        assert_eq!(number("0.5", 0.0..=1.0), Ok(0.5));
        assert_eq!(number("-2", -2.0..=2.0), Ok(-2.0));
        for bad in ["", "x", "nan", "inf", "-0.1", "1.01"] {
            assert_eq!(number(bad, 0.0..=1.0), Err("a number from 0 to 1 is needed".into()), "{bad}");
        }
        assert!(number("0", f32::MIN_POSITIVE..=1.0).unwrap_err().contains("above 0"));
    }
}
