//! What was typed. The doc comments are the help texts.

pub mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod bench;
mod describe;
mod judge;

pub use bench::{Bench, BenchImage, BenchMerge};
pub use describe::{Describe, Think};
pub use judge::{Judge, JudgeOptions};

/// Largest side of a picture, in pixels.
const SIDE: std::ops::RangeInclusive<i64> = 32..=16384;

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted by Ctrl-C.";

/// Paints pictures from text with Qwen-Image 2.1, and answers questions about pictures with Qwen3-VL.
#[derive(Debug, Parser)]
#[command(name = "atelier", version, about, after_help = EXIT_CODES, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Paint pictures from a text.
    #[command(after_help = EXIT_CODES, allow_negative_numbers = true)]
    Generate(Box<Generate>),
    /// Look at pictures and answer a question about them.
    #[command(after_help = EXIT_CODES, allow_negative_numbers = true)]
    Describe(Box<Describe>),
    /// Paint and look over HTTP, in the shape of OpenAI's API, with a page at /.
    #[command(after_help = EXIT_CODES)]
    Serve(Box<serve::Serve>),
    /// Judge pictures as Qwen-Image-Bench does: points in five dimensions.
    #[command(after_help = EXIT_CODES)]
    Judge(Box<Judge>),
    /// Measure: paint a set of prompts, judge the pictures, time every stage, and report.
    #[command(subcommand, after_help = EXIT_CODES)]
    Bench(Bench),
}

impl Command {
    /// The word that was typed.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Generate(_) => "generate",
            Self::Describe(_) => "describe",
            Self::Serve(_) => "serve",
            Self::Judge(_) => "judge",
            Self::Bench(Bench::Image(_)) => "bench image",
            Self::Bench(Bench::Merge(_)) => "bench merge",
        }
    }
}

/// Flags of `atelier generate`.
#[derive(Debug, Args)]
#[group(skip)]
#[expect(clippy::struct_excessive_bools, reason = "switches are what people type")]
pub struct Generate {
    /// What to paint.
    pub prompt: Option<String>,
    /// What to paint; @FILE reads it from a file, - from standard input.
    #[arg(short = 'p', long = "prompt", value_name = "PROMPT", conflicts_with = "prompt")]
    pub prompt_flag: Option<String>,
    /// What to keep away from; needs --cfg-scale above 1.
    #[arg(short, long, value_name = "TEXT")]
    pub negative_prompt: Option<String>,

    /// Checkpoint: a folder in diffusers layout, or "demo" for the small model inside the program [default:
    /// what $ATELIER_MODEL names, else demo].
    #[arg(long, value_name = "PATH", help_heading = "Model")]
    pub model: Option<PathBuf>,
    /// Where to compute.
    #[arg(long, value_name = "DEVICE", default_value = "auto", help_heading = "Model")]
    pub device: Device,
    /// Precision of the noise and of rounding between operations; auto follows the checkpoint.
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    pub dtype: Option<Dtype>,
    /// Decode in overlapping tiles: less memory, slightly other pixels; auto tiles large pictures [default: auto].
    #[arg(long, value_name = "WHEN", help_heading = "Model")]
    pub vae_tiling: Option<Tiling>,
    /// Keep as little in memory as possible, at the cost of time.
    #[arg(long, help_heading = "Model")]
    pub low_memory: bool,

    /// Width in pixels, rounded down to a multiple of 32; alone it makes a square.
    #[arg(short = 'W', long, value_name = "PIXELS", value_parser = side(), help_heading = "Picture")]
    pub width: Option<u32>,
    /// Height in pixels, rounded down to a multiple of 32; alone it makes a square.
    #[arg(short = 'H', long, value_name = "PIXELS", value_parser = side(), help_heading = "Picture")]
    pub height: Option<u32>,
    /// Width and height at once, such as 1024x768.
    #[arg(long, value_name = "WxH", value_parser = size, conflicts_with_all = ["width", "height"], help_heading = "Picture")]
    pub size: Option<(u32, u32)>,
    /// Denoising steps [default: the model's].
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000),
        help_heading = "Picture"
    )]
    pub steps: Option<usize>,
    /// Noise levels to step through, falling from at most 1; the final 0 goes without saying.
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', conflicts_with = "steps", help_heading = "Picture")]
    pub sigmas: Option<Vec<f64>>,
    /// How strongly to follow the prompt against the negative prompt; 1 is off [default: 1].
    #[arg(long, value_name = "SCALE", value_parser = scale, help_heading = "Picture")]
    pub cfg_scale: Option<f32>,
    /// Number that fixes the noise: the same seed paints the same picture; -1 or "random" draws one [default: random].
    #[arg(short, long, value_name = "SEED", help_heading = "Picture")]
    pub seed: Option<Seed>,
    /// How many pictures; each takes the next seed.
    #[arg(
        short = 'b',
        long,
        value_name = "N",
        default_value = "1",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        help_heading = "Picture"
    )]
    pub count: u16,

    /// Reference picture; up to 10, in the order in which the prompt speaks of them.
    #[arg(short, long = "image", value_name = "PATH", help_heading = "References")]
    pub images: Vec<PathBuf>,
    /// Side of the square whose area a reference is resized to [default: the painted picture's area].
    #[arg(long, value_name = "SIDE", value_parser = side(), help_heading = "References")]
    pub ref_resolution: Option<u32>,
    /// Repeat a PNG picture painted by atelier; flags that are given win over what it recorded.
    #[arg(long, value_name = "PNG", help_heading = "References")]
    pub from_image: Option<PathBuf>,

    /// File to write: .png, .jpg or .webp, or a folder; %d is the number of the picture from 1 (%03d with zeros), %s its
    /// seed, %% a percent sign [default: atelier-%s.png, never over an existing file].
    #[arg(short, long, value_name = "PATH", help_heading = "Output")]
    pub output: Option<String>,
    /// Write what every stage took to this file, as JSON.
    #[arg(long, value_name = "PATH", help_heading = "Output")]
    pub timings: Option<PathBuf>,
    /// Print one JSON object on standard output in place of the paths.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print no progress and no summary.
    #[arg(short, long, conflicts_with = "verbose", help_heading = "Output")]
    pub quiet: bool,
    /// Print the noise levels and every stage as it ends.
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// The best device of this build.
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A Moore Threads GPU.
    Musa,
}

/// Precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// As the checkpoint's weights are stored.
    Auto,
    /// 32 bits.
    F32,
    /// 16 bits with the exponent of 32.
    Bf16,
    /// IEEE 16 bits.
    F16,
}

/// Whether the VAE works in tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tiling {
    /// For large pictures.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// A seed as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    /// Draw one.
    Random,
    /// This one.
    Fixed(u64),
}

impl std::str::FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "random" | "-1" => Ok(Self::Random),
            _ => text
                .parse()
                .map(Self::Fixed)
                .map_err(|_| format!("a whole number from 0 to {} is needed, -1 or \"random\"", u64::MAX)),
        }
    }
}

fn side() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(SIDE)
}

/// `1024x768`.
fn size(text: &str) -> Result<(u32, u32), String> {
    let sides = text.split_once(['x', 'X', '×']).and_then(|(width, height)| {
        let side = |text: &str| text.trim().parse().ok().filter(|side| SIDE.contains(&i64::from(*side)));
        Some((side(width)?, side(height)?))
    });
    sides.ok_or_else(|| {
        format!("WIDTHxHEIGHT is needed, such as 1024x768, each from {} to {}", SIDE.start(), SIDE.end())
    })
}

fn scale(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|scale: &f32| (0.0..=100.0).contains(scale))
        .ok_or_else(|| "a number from 0 to 100 is needed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes() {
        for text in ["1024x768", "1024X768", "1024×768", " 1024 x 768"] {
            assert_eq!(size(text), Ok((1024, 768)), "{text}");
        }
        for text in ["1024", "x", "1024x", "31x64", "16385x64", "64x64x64", "-64x64"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn seeds() {
        assert_eq!("18446744073709551615".parse(), Ok(Seed::Fixed(u64::MAX)));
        assert_eq!("-1".parse(), Ok(Seed::Random));
        for text in ["", "-2", "1.5", "18446744073709551616", "abc"] {
            assert!(text.parse::<Seed>().is_err(), "{text}");
        }
    }
}
