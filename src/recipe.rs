//! What a picture was made of: recorded in its PNG file, read back by `--from-image`.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::text_to_image::picture::{Text, read_text};
use atelier_pipelines::text_to_image::{Dtype, Plan, Request, VaeTiling};
use serde::{Deserialize, Serialize};

use crate::references::Reference;

/// Keyword of the PNG text that holds a [`Recipe`] as JSON.
const KEYWORD: &str = "atelier";
/// Keyword of the PNG text for people and other programs, in the layout of the A1111 web UI.
const PARAMETERS: &str = "parameters";
/// Largest picture file whose recipe is read.
const FILE_LIMIT: u64 = 1 << 30;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What was asked for; in a picture file, with the size and seed that it came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Version of the program.
    pub version: String,
    /// Path of the checkpoint as it was typed, or `demo`.
    pub model: PathBuf,
    /// The prompt.
    pub prompt: String,
    /// The negative prompt.
    pub negative_prompt: Option<String>,
    /// Width and height in pixels; none leaves them to the model and the references.
    pub size: Option<(u32, u32)>,
    /// Steps; none leaves them to the model.
    pub steps: Option<usize>,
    /// Noise levels, before the scheduler's shift; none leaves them to the model.
    pub sigmas: Option<Vec<f64>>,
    /// Noise levels that were stepped through, after the shift: for information.
    #[serde(default)]
    pub schedule: Vec<f32>,
    /// Guidance scale.
    pub cfg_scale: f32,
    /// Seed of the noise.
    pub seed: u64,
    /// Arithmetic.
    pub dtype: Dtype,
    /// Tiling of the VAE.
    pub vae_tiling: VaeTiling,
    /// Reference pictures, in order.
    pub references: Vec<Reference>,
    /// Side of the square whose area references are resized to; none is the picture's own area.
    pub ref_resolution: Option<u32>,
}

impl Recipe {
    /// Everything left to the model.
    #[must_use]
    pub fn new(prompt: String, model: PathBuf) -> Self {
        let Request { negative_prompt, size, steps, sigmas, cfg_scale, reference_side, tiling, .. } = Request::new("");
        Self {
            version: VERSION.into(),
            model,
            prompt,
            negative_prompt,
            size,
            steps,
            sigmas,
            schedule: Vec::new(),
            cfg_scale,
            seed: 0,
            dtype: Dtype::Auto,
            vae_tiling: tiling,
            references: Vec::new(),
            ref_resolution: reference_side,
        }
    }

    /// The recipe of a picture file.
    ///
    /// # Errors
    /// When the file is no PNG, carries no recipe, or one of another version's kind.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("{name}"))?;
        let mut bytes = Vec::new();
        // the length that a device or a pipe reports says nothing
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).with_context(|| format!("{name}"))?;
        if bytes.len() as u64 > FILE_LIMIT {
            bail!("{name}: larger than {} MiB, no picture of ours", FILE_LIMIT >> 20);
        }
        let text = read_text(&bytes, KEYWORD).with_context(|| format!("{name}"))?;
        let Some(text) = text else {
            bail!("{name}: the picture carries no atelier recipe: only unchanged PNG files painted by atelier do");
        };
        serde_json::from_str(&text)
            .with_context(|| format!("{name}: its atelier recipe is damaged or of another version"))
    }

    /// The recipe as a request to the painter, without the reference pictures.
    #[must_use]
    pub fn request(&self, seeds: &[u64], low_memory: bool) -> Request {
        Request {
            negative_prompt: self.negative_prompt.clone(),
            size: self.size,
            steps: self.steps,
            sigmas: self.sigmas.clone(),
            cfg_scale: self.cfg_scale,
            seeds: seeds.to_vec(),
            reference_side: self.ref_resolution,
            tiling: self.vae_tiling,
            low_memory,
            previews: 0,
            ..Request::new(&self.prompt)
        }
    }

    /// The recipe with what the plan made of the things that were left open.
    #[must_use]
    pub fn settled(&self, plan: &Plan) -> Self {
        Self {
            version: VERSION.into(),
            size: Some((plan.width, plan.height)),
            schedule: plan.sigmas.clone(),
            vae_tiling: if plan.tiling { VaeTiling::On } else { VaeTiling::Off },
            ..self.clone()
        }
    }

    /// The texts of a PNG file for one picture of a settled recipe.
    ///
    /// # Errors
    /// Never in practice: a recipe has a JSON form.
    pub fn texts(&self, plan: &Plan, seed: u64) -> Result<Texts> {
        let json = serde_json::to_string(&Self { seed, ..self.clone() })?;
        Ok(Texts { parameters: self.parameters(plan, seed), json })
    }

    /// Prompt, negative prompt and a line of settings.
    fn parameters(&self, plan: &Plan, seed: u64) -> String {
        let mut text = self.prompt.clone();
        if let Some(negative) = &self.negative_prompt {
            text += &format!("\nNegative prompt: {negative}");
        }
        let sigmas: Vec<String> = plan.sigmas.iter().map(ToString::to_string).collect();
        text + &format!(
            "\nSteps: {}, Sampler: Euler (flow match), CFG scale: {}, Seed: {seed}, Size: {}x{}, Model: {}, Sigmas: {}, \
             Version: atelier {VERSION}",
            plan.steps,
            self.cfg_scale,
            plan.width,
            plan.height,
            quoted(&plan.model),
            quoted(&sigmas.join(", ")),
        )
    }
}

/// A value that holds separators goes in quotes, as in the A1111 web UI.
fn quoted(value: &str) -> String {
    if value.contains([',', ':', '\n', '"']) { serde_json::json!(value).to_string() } else { value.into() }
}

/// The texts of one picture file.
#[derive(Debug)]
pub struct Texts {
    parameters: String,
    json: String,
}

impl Texts {
    /// As the picture writer takes them.
    #[must_use]
    pub fn as_chunks(&self) -> [Text<'_>; 2] {
        [Text { keyword: PARAMETERS, text: &self.parameters }, Text { keyword: KEYWORD, text: &self.json }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_everything() {
        let recipe = Recipe {
            negative_prompt: Some("模糊".into()),
            size: Some((256, 320)),
            sigmas: Some(vec![1.0, 0.1, 1.0 / 3.0]),
            schedule: vec![1.0, 0.954_18, 0.0],
            cfg_scale: 1.1,
            seed: u64::MAX,
            dtype: Dtype::Bf16,
            vae_tiling: VaeTiling::Off,
            references: vec![Reference { path: "a b.png".into(), sha256: "00".into() }],
            ref_resolution: Some(512),
            ..Recipe::new("一只 🍎\n\"q\"".into(), "demo".into())
        };
        let text = serde_json::to_string(&recipe).unwrap();
        assert_eq!(serde_json::from_str::<Recipe>(&text).unwrap(), recipe);
        let more = text.replacen('{', "{\"surprise\":1,", 1);
        assert!(serde_json::from_str::<Recipe>(&more).is_err());
    }

    #[test]
    fn values_with_separators_are_quoted() {
        assert_eq!(quoted("Qwen-Image-2.1"), "Qwen-Image-2.1");
        assert_eq!(quoted("1, 0.5, 0"), "\"1, 0.5, 0\"");
        assert_eq!(quoted("a\"b"), "\"a\\\"b\"");
    }
}
