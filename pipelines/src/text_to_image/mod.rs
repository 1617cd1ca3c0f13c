//! Prompt (and reference pictures) → picture, with Qwen-Image 2.1.
//!
//! ```text
//! prompt ── tokens ── text encoder ── states ─┐
//! references ── vision encoder ───────┘       ├─ transformer x steps ── latents ── VAE ── picture
//! references ── VAE ── latents ───────────────┤
//! seed ── noise ──────────────────────────────┘
//! ```
//!
//! [`TextToImage::generate`] is that drawing in code. Parts of the checkpoint are loaded, used and dropped in stage order.
//!
//! ```no_run
//! use std::path::PathBuf;
//!
//! use atelier_pipelines::checkpoint::Files;
//! use atelier_pipelines::progress::Progress;
//! use atelier_pipelines::text_to_image::{Dtype, Request, TextToImage};
//!
//! let painter = TextToImage::open_cpu(Files::Folder(PathBuf::from("Qwen-Image-2.1-Turbo")), Dtype::Auto)?;
//! let mut request = Request::new("a lighthouse at dusk, oil on canvas");
//! request.size = Some((1024, 768));
//! request.seeds = vec![7];
//! painter.generate(&request, &Progress::default(), &mut |_, picture| {
//!     println!("{} x {}, seed {}", picture.image.width(), picture.image.height(), picture.seed);
//!     Ok(())
//! })?;
//! # Ok::<(), atelier_pipelines::Error>(())
//! ```

// what is asked for
mod request;
// request → size, schedule, memory
pub mod memory;
mod plan;
// prompt → tokens
pub mod prompt;
// reference picture → pixels for the encoder and the VAE
pub mod reference;
// tokens → text states
pub mod text_encoder;
// seed → noise
pub mod noise;
// steps → sigmas
pub mod schedule;
// text and picture tokens → positions and mask
pub mod rope;
// latents, time, states → velocity
pub mod transformer;
// noise → latents
mod denoise;
// latents ↔ pixels
pub mod vae;
// decoded values → picture
mod pixels;
// picture → file bytes
pub mod picture;

use atelier_kernels::cpu::{Cpu, Products};
use atelier_kernels::{Backend, Format};

use crate::checkpoint::{Files, ModelIndex, Part};
use crate::image_to_text::{Features, Grid, ImageProcessor};
use crate::progress::{Place, Progress, Size, Stage};
use crate::{Error, Result};
use noise::NoiseType;
use prompt::Prompter;
use reference::ReferenceImage;
use rope::Layout;
use schedule::SchedulerConfig;
use text_encoder::{Conditioning, TextEncoder};
use transformer::{Transformer, TransformerConfig};
use vae::{Half, Tiling, Vae, VaeConfig};

pub use memory::Memory;
pub use request::{Dtype, MAX_REFERENCES, Picture, Plan, Request, VaeTiling};

/// Pixels on a side of one latent cell.
const CELL: u32 = 16;

/// The painter: a checkpoint on a device.
#[derive(Debug)]
pub struct TextToImage<B: Backend> {
    backend: B,
    files: Files,
    index: ModelIndex,
    scheduler: SchedulerConfig,
    transformer: TransformerConfig,
    vae: VaeConfig,
    prompter: Prompter,
    noise: NoiseType,
    weights: Memory,
}

/// What the transformer is told: of the prompt, and of the negative prompt when guidance is on.
#[derive(Debug)]
struct Condition<B: Backend> {
    positive: Conditioning<B>,
    negative: Option<Conditioning<B>>,
}

impl TextToImage<Cpu> {
    /// Opens a checkpoint on the CPU, with the arithmetic that `dtype` names.
    ///
    /// # Errors
    /// Those of [`TextToImage::open`].
    pub fn open_cpu(files: Files, dtype: Dtype) -> Result<Self> {
        let stored = Part::open(&files, "transformer")?.format();
        let (products, noise) = match (dtype, stored) {
            (Dtype::Bf16, _) | (Dtype::Auto, Some(Format::Bf16)) => (Products::Bf16, NoiseType::Bf16),
            (Dtype::F16, _) => (Products::F32, NoiseType::F16),
            (Dtype::F32 | Dtype::Auto, _) => (Products::F32, NoiseType::F32),
        };
        Self::open(Cpu::new(products), files, noise)
    }
}

impl<B: Backend> TextToImage<B> {
    /// Opens a checkpoint in the diffusers folder layout: configurations, tokenizer and tensor headers are read and
    /// checked; no weight is.
    ///
    /// # Errors
    /// When a file is missing, damaged, or of a kind that is not implemented.
    pub fn open(backend: B, files: Files, noise: NoiseType) -> Result<Self> {
        let index = ModelIndex::open(&files)?;
        let scheduler = SchedulerConfig::read(&files)?;
        let prompter = Prompter::load(&files)?;
        let (text, image, vae) =
            (Part::open(&files, "text_encoder")?, Part::open(&files, "transformer")?, Part::open(&files, "vae")?);
        let weights =
            Memory { text_encoder: text.bytes(), transformer: image.bytes(), vae: vae.bytes(), ..Memory::default() };
        let transformer = TransformerConfig::read(&image)?;
        let vae = VaeConfig::read(&vae)?;
        if transformer.in_channels != vae.z_dim {
            return Err(Error::checkpoint(
                files.path("transformer/config.json"),
                format!(
                    "in_channels is {}, but the VAE of this checkpoint has {} latent channels (z_dim): the two parts \
                     do not belong together",
                    transformer.in_channels, vae.z_dim
                ),
            ));
        }
        if vae.scale() != CELL as usize {
            return Err(Error::checkpoint(
                files.path("vae/config.json"),
                format!("scale_factor_spatial is {}; the pipeline is implemented for {CELL}", vae.scale()),
            ));
        }
        Ok(Self { backend, files, index, scheduler, transformer, vae, prompter, noise, weights })
    }

    /// What computes, for people.
    #[must_use]
    pub fn device(&self) -> String {
        self.backend.describe()
    }

    /// Paints one picture for each seed of the request and hands each to `done` as soon as it is finished, and the
    /// previews that the request asks for before it.
    ///
    /// # Errors
    /// When the request cannot be served, the checkpoint is damaged, values stop being finite, `done` fails, or the run
    /// is cancelled.
    pub fn generate(
        &self,
        request: &Request,
        progress: &Progress<'_>,
        done: &mut dyn FnMut(usize, Picture) -> Result<()>,
    ) -> Result<()> {
        let plan = self.plan(request)?;
        let references = self.references(request, &plan)?;
        let condition = self.encode_prompts(request, &references, progress)?;
        let reference_latents = self.encode_references(&references, &plan, progress)?;
        let layout = |c: &Conditioning<B>| {
            let grids: Vec<_> = references.iter().map(latent_grid).collect();
            Layout::new(&c.image_slots, &grids, plan.latent_grid())
        };
        let transformer = progress.stage(Stage::Load("transformer"), bytes(self.weights.transformer), || {
            Transformer::load(&self.backend, &Part::open(&self.files, "transformer")?)
        })?;
        let mut velocity = denoise::Velocity::new(&transformer, request.cfg_scale);
        for conditioning in std::iter::once(&condition.positive).chain(&condition.negative) {
            let layout = layout(conditioning)?;
            progress.stage(Stage::Prefix, Size::new(layout.prefix_tokens(), "tokens"), || {
                velocity.add(&conditioning.states, &reference_latents, &layout, progress.cancel())
            })?;
        }
        drop((condition, reference_latents));
        let vae = progress.stage(Stage::Load("vae"), bytes(self.weights.vae), || {
            Vae::load(&self.backend, &self.files, Half::Decoder)
        })?;
        for (number, &seed) in request.seeds.iter().enumerate() {
            let noise = self.noise(seed, number, &plan, progress)?;
            let decode =
                |latents: &B::Tensor, preview| self.decode(&vae, latents, (seed, number, preview), &plan, progress);
            let mut look = |steps, latents: &B::Tensor| done(number, decode(latents, Some(steps))?);
            let latents = denoise::denoise(
                &self.backend,
                &mut velocity,
                noise,
                &plan,
                number,
                progress,
                request.previews,
                &mut look,
            )?;
            done(number, decode(&latents, None)?)?;
        }
        Ok(())
    }

    /// Prompt and references → states; the text encoder is in memory only here.
    fn encode_prompts(
        &self,
        request: &Request,
        references: &[ReferenceImage],
        progress: &Progress<'_>,
    ) -> Result<Condition<B>> {
        let grids: Vec<Grid> = references.iter().map(|reference| reference.patches.grid).collect();
        let mut tokens = Vec::new();
        for prompt in prompts(request) {
            let size = Size::new(prompt.len(), "bytes");
            tokens.push(progress.stage(Stage::Tokenize, size, || self.prompter.tokens(prompt, &grids))?);
        }
        let encoder = progress.stage(Stage::Load("text encoder"), bytes(self.weights.text_encoder), || {
            TextEncoder::load(&self.backend, &self.files, !references.is_empty())
        })?;
        let mut features: Vec<Features<B>> = Vec::new();
        for (index, reference) in references.iter().enumerate() {
            let place = Place { picture: None, index: Some(index), count: references.len() };
            let size = Size::new(reference.patches.grid.patches(), "patches");
            features.push(progress.stage_at(Stage::VisionEncode, place, size, || {
                let features = encoder.vision(&reference.patches, progress.cancel())?;
                self.backend.synchronize()?;
                Ok(features)
            })?);
        }
        let mut states = Vec::new();
        for tokens in &tokens {
            states.push(progress.stage(Stage::TextEncode, Size::new(tokens.ids.len(), "tokens"), || {
                let states = encoder.encode(tokens, &features, progress.cancel())?;
                self.backend.synchronize()?;
                Ok(states)
            })?);
        }
        let mut states = states.into_iter();
        let positive = states.next().ok_or_else(|| Error::input("no prompt"))?;
        Ok(Condition { positive, negative: states.next() })
    }

    /// References → normalised latents, `[h * w, z]` each; the VAE's encoder is in memory only here.
    fn encode_references(
        &self,
        references: &[ReferenceImage],
        plan: &Plan,
        progress: &Progress<'_>,
    ) -> Result<Vec<B::Tensor>> {
        if references.is_empty() {
            return Ok(Vec::new());
        }
        let vae = progress.stage(Stage::Load("vae"), bytes(self.weights.vae), || {
            Vae::load(&self.backend, &self.files, Half::Encoder)
        })?;
        let encode = |(index, reference): (usize, &ReferenceImage)| {
            let place = Place { picture: None, index: Some(index), count: references.len() };
            let ReferenceImage { width, height, pixels, .. } = reference;
            progress.stage_at(Stage::VaeEncode, place, Size::new(width * height, "pixels"), || {
                let pixels = self.backend.upload(pixels, &[4, *height, *width])?;
                let latents = vae.encode(&pixels, tiling(plan.tiling), progress.cancel())?;
                self.backend.synchronize()?;
                Ok(latents)
            })
        };
        references.iter().enumerate().map(encode).collect()
    }

    /// Seed → noise, `[h * w, z]`: drawn channel by channel, as torch draws `(1, 1, z, h, w)`.
    fn noise(&self, seed: u64, number: usize, plan: &Plan, progress: &Progress<'_>) -> Result<B::Tensor> {
        let (h, w) = plan.latent_grid();
        let channels = self.transformer.in_channels;
        let place = Place { picture: Some(number), ..Place::default() };
        progress.stage_at(Stage::Noise, place, Size::new(channels * h * w, "values"), || {
            let values = noise::torch_randn(seed, channels * h * w, plan.noise);
            Ok(self.backend.transpose(&self.backend.upload(&values, &[channels, h * w])?)?)
        })
    }

    /// Latents → picture: its seed, number, and the steps taken when it is not finished.
    fn decode(
        &self,
        vae: &Vae<B>,
        latents: &B::Tensor,
        (seed, number, preview): (u64, usize, Option<usize>),
        plan: &Plan,
        progress: &Progress<'_>,
    ) -> Result<Picture> {
        let stage = if preview.is_some() { Stage::Preview } else { Stage::VaeDecode };
        let place = Place { picture: Some(number), ..Place::default() };
        let size = Size::new(plan.width as usize * plan.height as usize, "pixels");
        progress.stage_at(stage, place, size, || {
            let values =
                vae.decode(latents, plan.latent_grid(), tiling(plan.tiling), progress.cancel(), &mut |tile, tiles| {
                    progress.advanced(stage, tile, tiles);
                })?;
            let picture = pixels::picture(&self.backend.download(&values)?, plan.width, plan.height, seed)?;
            Ok(Picture { preview, ..picture })
        })
    }

    fn references(&self, request: &Request, plan: &Plan) -> Result<Vec<ReferenceImage>> {
        if request.references.is_empty() {
            return Ok(Vec::new());
        }
        let processor = ImageProcessor::load(&self.files, self.index.processor)?;
        let area = Self::reference_area(request, plan.width, plan.height);
        request.references.iter().map(|picture| ReferenceImage::prepare(picture, area, &processor)).collect()
    }
}

impl Plan {
    /// Rows and columns of latent cells.
    fn latent_grid(&self) -> (usize, usize) {
        ((self.height / CELL) as usize, (self.width / CELL) as usize)
    }
}

/// The prompt and, when guidance is on, the negative one.
fn prompts(request: &Request) -> impl Iterator<Item = &str> {
    std::iter::once(request.prompt.as_str()).chain(request.guidance())
}

/// Rows and columns of a reference's latents.
fn latent_grid(reference: &ReferenceImage) -> (usize, usize) {
    (reference.height / CELL as usize, reference.width / CELL as usize)
}

fn tiling(on: bool) -> Tiling {
    if on { Tiling::On } else { Tiling::Off }
}

fn bytes(count: u64) -> Size {
    Size { count, unit: "bytes" }
}
