//! Flags of `atelier judge`, and those that say who judges.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::Device;

/// Flags of `atelier judge`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Judge {
    /// Picture to judge: a file, - for standard input, or a data: URI.
    #[arg(value_name = "IMAGE", required_unless_present = "input")]
    pub image: Option<OsString>,
    /// What it was painted from; @FILE reads it from a file.
    #[arg(short, long, value_name = "PROMPT", required_unless_present = "input")]
    pub prompt: Option<String>,
    /// What applies to it, such as "Quality / Detail / Noise; Aesthetics" [default: everything].
    #[arg(long, value_name = "PATHS")]
    pub dims: Option<String>,
    /// Judge many: a .jsonl, .json or .csv file of rows with prompt, image_path and, if you like, dims_en.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["image", "prompt", "dims"], requires = "output")]
    pub input: Option<PathBuf>,
    /// With --input: a line of JSON for each row, written as soon as the row is judged; rows that are there are not judged
    /// again.
    #[arg(short, long, value_name = "JSONL", requires = "input")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub judge: JudgeOptions,

    /// Print one JSON object in place of the table.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print no progress and no notes.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Who judges, and by which rubric.
#[derive(Debug, Args)]
#[group(skip)]
pub struct JudgeOptions {
    /// Judge: a folder in the Hub's layout [default: what $ATELIER_JUDGE_MODEL names]; with --judge-url the name of a model
    /// of the server [default: its first].
    #[arg(long, value_name = "MODEL", help_heading = "Judge")]
    pub judge_model: Option<String>,
    /// Judge with an OpenAI-compatible server at this address, such as host:30000 after http://; a key stands in $ATELIER_JUDGE_API_KEY.
    #[arg(long, value_name = "URL", help_heading = "Judge")]
    pub judge_url: Option<String>,
    /// Questions that the server gets at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(1..=1024), help_heading = "Judge")]
    pub judge_concurrency: usize,
    /// Seconds to wait for an answer of the server.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = count(1..=86_400), help_heading = "Judge")]
    pub judge_timeout: usize,
    /// How often a failed request is tried again, with pauses that double.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count(0..=100), help_heading = "Judge")]
    pub judge_retries: usize,
    /// Most tokens of an answer, thinking included.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = count(1..=1_000_000), help_heading = "Judge")]
    pub judge_max_tokens: usize,
    /// What the judge is asked: a Markdown file, or a checkout of Qwen-Image-Bench (its checklists.py) [default: our own
    /// wording].
    #[arg(long, value_name = "PATH", help_heading = "Judge")]
    pub rubric: Option<PathBuf>,
    /// Where a local judge computes.
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Judge")]
    pub judge_device: Device,
}

pub(super) fn count(range: std::ops::RangeInclusive<u64>) -> clap::builder::RangedU64ValueParser<usize> {
    clap::builder::RangedU64ValueParser::new().range(range)
}
