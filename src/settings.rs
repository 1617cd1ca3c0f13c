//! What was typed means: checked, completed, files and folders found.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::text_to_image::{self, MAX_REFERENCES, VaeTiling};

use crate::cli::{self, Device, Seed};
use crate::failure::Usage;
use crate::recipe::{Recipe, VERSION};
use crate::references::Reference;
use crate::{demo, output};

mod bench;
pub(crate) mod describe;
mod judge;

pub use bench::{BenchImage, PainterSettings, bench_image};
pub use describe::{Describe, describe};
pub use judge::{Judge, JudgeSettings, Work, judge};

/// The name of the model inside the program.
pub const DEMO: &str = "demo";
/// The variable that names the model when no flag does.
pub(crate) const MODEL_VARIABLE: &str = "ATELIER_MODEL";
/// Longest text, in bytes: far beyond what the models can take.
pub const TEXT_LIMIT: u64 = 1 << 20;

/// How much is said on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Errors, and a seed that was drawn.
    Quiet,
    /// Progress and a summary.
    Normal,
    /// Noise levels and every stage as well.
    Verbose,
}

/// What `atelier generate` will do.
#[derive(Debug)]
pub struct Generate {
    /// What to paint; its seed is the first.
    pub recipe: Recipe,
    /// One for each picture.
    pub seeds: Vec<u64>,
    /// Whether the seed was drawn, so that the person does not know it.
    pub drawn: bool,
    /// The checkpoint.
    pub files: Files,
    /// Keep memory small.
    pub low_memory: bool,
    /// One for each picture.
    pub targets: Vec<output::Target>,
    /// Where the timings go.
    pub timings: Option<PathBuf>,
    /// Whether standard output gets one JSON object.
    pub json: bool,
    /// How much is said.
    pub verbosity: Verbosity,
    /// Things the person should know.
    pub notices: Vec<String>,
}

/// Flags → meaning.
///
/// # Errors
/// [`Usage`] when the flags make no sense; others when a file or folder they name is not as it should be.
pub fn generate(typed: Box<cli::Generate>) -> Result<Generate> {
    let typed = *typed;
    device(typed.device)?;
    let mut notices = Vec::new();
    let recipe = recipe(&typed, &mut notices)?;
    let (seeds, drawn) = seeds(&typed, recipe.seed)?;
    let files = files(&recipe.model, "diffusers layout", demo::PAINTER)?;
    if !recipe.references.is_empty() && matches!(files, Files::Embedded(_)) {
        bail!("the demo model was not trained to look at reference pictures: give a checkpoint with --model");
    }
    let targets = output::targets(typed.output.as_deref(), &seeds)?;
    if let Some(path) = &typed.timings {
        output::check(path)?;
    }
    let verbosity = verbosity(typed.quiet, typed.verbose);
    let cli::Generate { low_memory, timings, json, .. } = typed;
    Ok(Generate { recipe, seeds, drawn, files, low_memory, targets, timings, json, verbosity, notices })
}

/// The old picture's recipe, or an empty one, with what was typed laid over it.
fn recipe(typed: &cli::Generate, notices: &mut Vec<String>) -> Result<Recipe> {
    let prompt = match (&typed.prompt, &typed.prompt_flag) {
        (Some(text), _) => Some(text.clone()),
        (None, Some(flag)) => Some(text_of(flag, "prompt")?),
        (None, None) => None,
    };
    let model = typed.model.clone();
    let mut recipe = if let Some(path) = &typed.from_image {
        let mut recipe = Recipe::read(path)?;
        if recipe.version != VERSION {
            let old = &recipe.version;
            notices.push(format!("painted by atelier {old}, this is {VERSION}: the picture may differ"));
        }
        put(&mut recipe.prompt, prompt);
        put(&mut recipe.model, model);
        recipe
    } else {
        let missing = || Usage("what to paint? Give a prompt, or --from-image".into());
        Recipe::new(prompt.ok_or_else(missing)?, model.unwrap_or_else(|| usual_model(MODEL_VARIABLE)))
    };
    for text in std::iter::once(&recipe.prompt).chain(&typed.negative_prompt) {
        if text.contains('\0') {
            bail!(Usage("the prompt holds a zero byte: it must be text".into()));
        }
    }
    put(&mut recipe.negative_prompt, typed.negative_prompt.clone().map(Some));
    if let Some(size) = size(typed, recipe.size) {
        // tiling was chosen for the old size
        recipe.vae_tiling = VaeTiling::Auto;
        recipe.size = Some(size);
    }
    if typed.steps.is_some() || typed.sigmas.is_some() {
        (recipe.steps, recipe.sigmas) = (typed.steps, typed.sigmas.as_deref().map(sigmas).transpose()?);
    }
    put(&mut recipe.cfg_scale, typed.cfg_scale);
    put(&mut recipe.dtype, typed.dtype.map(dtype));
    put(&mut recipe.vae_tiling, typed.vae_tiling.map(tiling));
    put(&mut recipe.ref_resolution, typed.ref_resolution.map(Some));
    if !typed.images.is_empty() {
        recipe.references = typed.images.iter().cloned().map(Reference::new).collect();
    }
    if recipe.references.len() > MAX_REFERENCES {
        bail!(Usage(format!("{} reference pictures, at most {MAX_REFERENCES} are possible", recipe.references.len())));
    }
    Ok(recipe)
}

/// What was typed wins.
fn put<T>(slot: &mut T, typed: Option<T>) {
    if let Some(value) = typed {
        *slot = value;
    }
}

/// The text that a flag stands for: `@file`, `-` or the words themselves. Line ends at the end are no part of it.
fn text_of(flag: &str, what: &str) -> Result<String> {
    let (name, reader): (&str, Box<dyn std::io::Read>) = match (flag, flag.strip_prefix('@')) {
        ("-", _) => ("standard input", Box::new(std::io::stdin())),
        (_, Some(path)) => {
            (path, Box::new(std::fs::File::open(path).with_context(|| format!("the {what} file {path}"))?))
        }
        _ => return Ok(flag.into()),
    };
    let mut bytes = Vec::new();
    reader.take(TEXT_LIMIT + 1).read_to_end(&mut bytes).with_context(|| format!("the {what} from {name}"))?;
    if bytes.len() as u64 > TEXT_LIMIT {
        bail!("the {what} from {name} is longer than {} KiB", TEXT_LIMIT >> 10);
    }
    let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("the {what} from {name} is not UTF-8 text"))?;
    Ok(text.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']).into())
}

fn verbosity(quiet: bool, verbose: bool) -> Verbosity {
    match (quiet, verbose) {
        (true, _) => Verbosity::Quiet,
        (_, true) => Verbosity::Verbose,
        _ => Verbosity::Normal,
    }
}

/// Width and height as typed; one alone takes the other from the old picture or makes a square.
fn size(typed: &cli::Generate, old: Option<(u32, u32)>) -> Option<(u32, u32)> {
    match (typed.size, typed.width, typed.height) {
        (Some(size), ..) => Some(size),
        (None, Some(width), Some(height)) => Some((width, height)),
        (None, Some(width), None) => Some((width, old.map_or(width, |old| old.1))),
        (None, None, Some(height)) => Some((old.map_or(height, |old| old.0), height)),
        (None, None, None) => None,
    }
}

/// Noise levels as typed, without the final 0.
fn sigmas(typed: &[f64]) -> Result<Vec<f64>> {
    let levels = match typed {
        [levels @ .., last] if *last == 0.0 => levels,
        all => all,
    };
    let falling = levels.windows(2).all(|pair| pair[0] > pair[1]);
    if levels.is_empty() || !falling || !levels.iter().all(|level| *level > 0.0 && *level <= 1.0) {
        bail!(Usage(format!(
            "--sigmas {}: noise levels fall from at most 1 towards 0, such as 1,0.9,0.6",
            typed.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        )));
    }
    Ok(levels.to_vec())
}

/// One seed for each picture, and whether the first was drawn.
fn seeds(typed: &cli::Generate, recorded: u64) -> Result<(Vec<u64>, bool)> {
    let (first, drawn) = match (typed.seed, &typed.from_image) {
        (Some(Seed::Fixed(seed)), _) => (seed, false),
        (None, Some(_)) => (recorded, false),
        (Some(Seed::Random) | None, _) => (draw_seed()?, true),
    };
    let count = u64::from(typed.count);
    if first.checked_add(count - 1).is_none() {
        bail!(Usage(format!("--seed {first} leaves no room for {count} pictures: seeds end at {}", u64::MAX)));
    }
    Ok(((0..count).map(|index| first + index).collect(), drawn))
}

/// 32 bits are enough and easy to type again.
fn draw_seed() -> Result<u64> {
    Ok(u64::from(getrandom::u32().map_err(|error| anyhow::anyhow!("no seed could be drawn: {error}"))?))
}

pub(crate) fn device(device: Device) -> Result<()> {
    let name = match device {
        Device::Auto | Device::Cpu => return Ok(()),
        Device::Cuda => "CUDA",
        Device::Musa => "MUSA",
    };
    bail!(Usage(format!("this build has no {name} backend: use --device cpu")))
}

/// The model when none is typed.
pub(crate) fn usual_model(variable: &str) -> PathBuf {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map_or_else(|| DEMO.into(), PathBuf::from)
}

pub(crate) fn files(model: &Path, layout: &str, demo: &'static [(&str, &[u8])]) -> Result<Files> {
    if model != Path::new(DEMO) {
        if !model.is_dir() {
            bail!("{}: there is no such folder: --model wants a checkpoint in {layout}", model.display());
        }
        return Ok(Files::folder(model));
    }
    if demo.is_empty() {
        bail!("this build holds no demo model: give a checkpoint with --model");
    }
    Ok(Files::Embedded(demo))
}

fn dtype(typed: cli::Dtype) -> text_to_image::Dtype {
    match typed {
        cli::Dtype::Auto => text_to_image::Dtype::Auto,
        cli::Dtype::F32 => text_to_image::Dtype::F32,
        cli::Dtype::Bf16 => text_to_image::Dtype::Bf16,
        cli::Dtype::F16 => text_to_image::Dtype::F16,
    }
}

fn tiling(typed: cli::Tiling) -> VaeTiling {
    match typed {
        cli::Tiling::Auto => VaeTiling::Auto,
        cli::Tiling::On => VaeTiling::On,
        cli::Tiling::Off => VaeTiling::Off,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn typed(arguments: &[&str]) -> cli::Generate {
        let parsed = cli::Cli::try_parse_from(["atelier", "generate"].iter().chain(arguments)).unwrap();
        let cli::Command::Generate(typed) = parsed.command else { panic!("{parsed:?}") };
        *typed
    }

    #[test]
    fn one_side_makes_a_square_or_keeps_the_other() {
        for (arguments, old, expected) in [
            (&["-W", "64"][..], None, Some((64, 64))),
            (&["-H", "96"], None, Some((96, 96))),
            (&["-W", "64", "-H", "96"], Some((1, 2)), Some((64, 96))),
            (&["-W", "64"], Some((32, 128)), Some((64, 128))),
            (&["-H", "64"], Some((32, 128)), Some((32, 64))),
            (&["--size", "64x96"], Some((32, 128)), Some((64, 96))),
            (&[], Some((32, 128)), None),
        ] {
            assert_eq!(size(&typed(arguments), old), expected, "{arguments:?}");
        }
    }

    #[test]
    fn noise_levels() {
        assert_eq!(sigmas(&[1.0, 0.5, 0.0]).unwrap(), [1.0, 0.5]);
        assert_eq!(sigmas(&[0.25]).unwrap(), [0.25]);
        for bad in [&[0.0][..], &[], &[1.5, 0.5], &[0.5, 0.5], &[0.5, 0.9], &[1.0, f64::NAN], &[-0.5], &[f64::INFINITY]]
        {
            assert!(sigmas(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn pictures_take_following_seeds() {
        assert_eq!(seeds(&typed(&["-s", "7", "-b", "3"]), 0).unwrap(), (vec![7, 8, 9], false));
        assert_eq!(seeds(&typed(&["--from-image", "a.png"]), 5).unwrap(), (vec![5], false));
        let (drawn, was_drawn) = seeds(&typed(&["--from-image", "a.png", "-s", "random"]), 5).unwrap();
        assert!(was_drawn && drawn[0] < 1 << 32);
        assert!(seeds(&typed(&["-s", "18446744073709551615", "-b", "2"]), 0).is_err());
    }

    #[test]
    fn what_was_typed_wins_over_the_recipe() {
        let mut notices = Vec::new();
        let fresh =
            recipe(&typed(&["a", "--steps", "3", "-i", "x.png", "--vae-tiling", "on", "-W", "64"]), &mut notices);
        let fresh = fresh.unwrap();
        assert_eq!((fresh.steps, fresh.size, fresh.vae_tiling), (Some(3), Some((64, 64)), VaeTiling::On));
        assert_eq!(fresh.references, [Reference::new("x.png".into())]);
        assert!(recipe(&typed(&[]), &mut notices).unwrap_err().is::<Usage>());
    }
}
