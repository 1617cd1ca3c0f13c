//! The whole model: pictures and tokens → logits.

use std::ops::Range;

use atelier_kernels::Backend;

use super::layers::RmsNorm;
use super::positions::{ImageSlots, Position};
use super::{Cache, Config, Decoder, Features, Inputs, Patches, VisionTower};
use crate::Result;
use crate::checkpoint::{Files, Part};
use crate::progress::Cancel;

/// A vision-language model on a device.
#[derive(Debug)]
pub struct Model<B: Backend> {
    backend: B,
    config: Config,
    vision: VisionTower<B>,
    decoder: Decoder<B>,
    norm: RmsNorm<B>,
    /// The output layer; none when it is the embedding table.
    head: Option<B::Matrix>,
}

impl<B: Backend> Model<B> {
    /// Opens a checkpoint in the Hub's layout: `config.json` and the weights at the root of the folder.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::Error::Checkpoint) when the config asks for something that is not implemented, or a
    /// tensor is missing, of another shape, or not part of the model.
    pub fn open(backend: &B, files: &Files) -> Result<Self> {
        let part = Part::open(files, "")?;
        let config = Config::read(&part)?;
        let weights = part.weights();
        let language = weights.scope("model.language_model");
        let decoder = Decoder::load(backend, &language, &config.text)?;
        let norm = RmsNorm::load(
            backend,
            &language.scope("norm"),
            config.text.hidden,
            config.text.eps,
            config.text.norm_offset(),
        )?;
        let vision = VisionTower::load(backend, &weights.scope("model.visual"), &config.vision)?;
        let head = if config.tied_embeddings {
            // some files store the table twice
            weights.ignore("lm_head");
            None
        } else {
            let matrix = weights.matrix("lm_head.weight", config.text.vocabulary, config.text.hidden)?;
            Some(backend.load(&matrix)?)
        };
        // layers that guess further tokens ahead: not needed for one at a time
        weights.ignore("mtp");
        weights.finish()?;
        Ok(Self { backend: backend.clone(), config, vision, decoder, norm, head })
    }

    /// The device.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The model's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Pictures → visual tokens.
    #[must_use]
    pub fn vision(&self) -> &VisionTower<B> {
        &self.vision
    }

    /// Tokens → hidden states.
    #[must_use]
    pub fn decoder(&self) -> &Decoder<B> {
        &self.decoder
    }

    /// One picture → its visual tokens.
    ///
    /// # Errors
    /// When the patches are not those of the model, or [`Error::Cancelled`](crate::Error::Cancelled) between blocks.
    pub fn see(&self, patches: &Patches, cancel: &Cancel) -> Result<Features<B>> {
        self.vision.forward(&self.backend, patches, cancel)
    }

    /// A whole sequence with its pictures → what the decoder reads.
    ///
    /// # Errors
    /// As [`Inputs::new`].
    pub fn inputs(&self, ids: &[u32], pictures: &[&Features<B>]) -> Result<Inputs<B>> {
        Inputs::new(&self.backend, &self.decoder, &self.config, ids, pictures)
    }

    /// A part of a sequence → what the decoder reads.
    ///
    /// # Errors
    /// As [`Inputs::part`].
    pub fn part(
        &self,
        ids: &[u32],
        positions: &[Position],
        range: Range<usize>,
        next: u32,
        pictures: &[(ImageSlots, &Features<B>)],
    ) -> Result<Inputs<B>> {
        Inputs::part(&self.backend, &self.decoder, ids, positions, range, next, pictures)
    }

    /// Rows of the embedding table, `[ids.len(), hidden]`.
    ///
    /// # Errors
    /// When an id is outside the vocabulary.
    pub fn embed(&self, ids: &[u32]) -> Result<B::Tensor> {
        self.decoder.embed(&self.backend, ids)
    }

    /// An empty cache for sequences of up to `capacity` tokens.
    ///
    /// # Errors
    /// When the device lacks memory.
    pub fn cache(&self, capacity: usize) -> Result<Cache<B>> {
        self.decoder.cache(&self.backend, capacity)
    }

    /// The output of the last layer, before the final norm: `[n, hidden]`. The tokens follow those in the cache and are
    /// added to it.
    ///
    /// # Errors
    /// As [`Decoder::forward`].
    pub fn read(&self, inputs: &Inputs<B>, cache: Option<&mut Cache<B>>, cancel: &Cancel) -> Result<B::Tensor> {
        self.decoder.forward(&self.backend, inputs, cache, cancel)
    }

    /// Hidden states `[n, hidden]` → logits `[n, vocabulary]`: final norm and output layer.
    ///
    /// # Errors
    /// When the states are of another width.
    pub fn logits(&self, states: &B::Tensor) -> Result<B::Tensor> {
        let normed = self.norm.forward(&self.backend, states)?;
        let head = self.head.as_ref().unwrap_or_else(|| self.decoder.embeddings());
        Ok(self.backend.linear(&normed, head, None)?)
    }
}
