//! Flags of `atelier bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::judge::{JudgeOptions, count};
use super::{Device, Dtype, size};

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Paint a set of prompts, judge every picture, time every stage, report. Started again it goes on where it stopped.
    Image(Box<BenchImage>),
    /// Put the shards of a run together.
    Merge(BenchMerge),
}

/// Flags of `atelier bench image`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct BenchImage {
    /// Prompts: .jsonl, .json or .csv with prompt, ID and dims_en (the benchmark's own files too), or .txt.
    #[arg(long, value_name = "FILE")]
    pub prompts: PathBuf,
    /// Only the first so many prompts [default: all].
    #[arg(long, value_name = "N", value_parser = count(1..=1_000_000))]
    pub num_prompts: Option<usize>,
    /// Which language to paint where a file has several: a column `prompt_LANGUAGE` comes before `prompt`.
    #[arg(long, value_name = "LANGUAGE", default_value = "en")]
    pub language: String,
    /// Only part i of n, such as 2/8; "atelier bench merge" puts the parts together.
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub shard: Option<(usize, usize)>,
    /// Folder of the run: pictures, journals and reports.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Show another run's folder beside this one in the report, or "m1000" for the published rows.
    #[arg(long, value_name = "DIR")]
    pub compare: Option<PathBuf>,

    /// Width and height, such as 2048x2048 [default: the model's].
    #[arg(long, value_name = "WxH", value_parser = size, help_heading = "Picture")]
    pub size: Option<(u32, u32)>,
    /// Denoising steps [default: the model's].
    #[arg(long, value_name = "N", value_parser = count(1..=1000), help_heading = "Picture")]
    pub steps: Option<usize>,
    /// Seed of the first prompt; each prompt takes the next.
    #[arg(short, long, value_name = "SEED", default_value_t = 0, help_heading = "Picture")]
    pub seed: u64,

    /// Painter: a folder in diffusers layout, or "demo" [default: what $ATELIER_MODEL names, else demo]; with --painter-url
    /// the name of a model of the server [default: its first].
    #[arg(long, value_name = "MODEL", help_heading = "Painter")]
    pub model: Option<PathBuf>,
    /// Where a local painter computes.
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Painter")]
    pub device: Device,
    /// Precision of the noise and of rounding between operations; auto follows the checkpoint.
    #[arg(long, value_name = "TYPE", default_value = "auto", help_heading = "Painter")]
    pub dtype: Dtype,
    /// Paint with an OpenAI-compatible images endpoint; a key stands in $ATELIER_PAINTER_API_KEY.
    #[arg(long, value_name = "URL", help_heading = "Painter")]
    pub painter_url: Option<String>,
    /// Pictures that the server paints at once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=1024), help_heading = "Painter")]
    pub painter_concurrency: usize,
    /// Seconds to wait for a picture of the server.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = count(1..=86_400), help_heading = "Painter")]
    pub painter_timeout: usize,
    /// How often a failed request is tried again, with pauses that double.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count(0..=100), help_heading = "Painter")]
    pub painter_retries: usize,

    #[command(flatten)]
    pub judge: JudgeOptions,

    /// Print no progress; the table is printed all the same.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Flags of `atelier bench merge`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct BenchMerge {
    /// Folders of the shards.
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// Folder for the whole run; it must be empty or new.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

/// `2/8`.
fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
    parts.filter(|(i, n)| (1..=*n).contains(i)).ok_or_else(|| "I/N is needed, such as 2/8, with I from 1 to N".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards() {
        assert_eq!((shard("1/1"), shard("2/8")), (Ok((1, 1)), Ok((2, 8))));
        for text in ["", "2", "0/2", "3/2", "1/0", "a/b", "-1/2", "1/2/3"] {
            assert!(shard(text).is_err(), "{text}");
        }
    }
}
