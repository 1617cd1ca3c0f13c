//! Tokens and reference pictures → text states.

use atelier_kernels::Backend;

use super::prompt::Tokens;
use crate::checkpoint::{Files, Part};
use crate::image_to_text::{Config, Decoder, Family, Features, Inputs, Patches, VisionTower};
use crate::progress::Cancel;
use crate::{Error, Result};

/// Qwen3-VL as the painter's text encoder.
#[derive(Debug)]
pub struct TextEncoder<B: Backend> {
    backend: B,
    config: Config,
    decoder: Decoder<B>,
    vision: Option<VisionTower<B>>,
}

/// What the transformer paints from.
#[derive(Debug)]
pub struct Conditioning<B: Backend> {
    /// The last layer's output before the final norm, without the system message: `[tokens, hidden]`.
    pub states: B::Tensor,
    /// Which of these tokens stand for a reference picture; one for each 2 x 2 of its latents.
    pub image_slots: Vec<bool>,
}

impl<B: Backend> TextEncoder<B> {
    /// Opens `text_encoder/`. The vision tower is loaded only when there are pictures to look at.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the config asks for something that is not implemented, or a tensor is missing, of another
    /// shape, or not part of the model.
    pub fn load(backend: &B, files: &Files, with_vision: bool) -> Result<Self> {
        let part = Part::open(files, "text_encoder")?;
        let config = Config::read(&part)?;
        if config.family != Family::Qwen3Vl {
            let problem = format!(
                "`model_type` is {}; a painter's text encoder is of type {}",
                config.family.name(),
                Family::Qwen3Vl.name()
            );
            return Err(Error::checkpoint(part.config_path(), problem));
        }
        let weights = part.weights();
        let decoder = Decoder::load(backend, &weights.scope("model.language_model"), &config.text)?;
        let tower = weights.scope("model.visual");
        let vision = if with_vision { Some(VisionTower::load(backend, &tower, &config.vision)?) } else { None };
        if vision.is_none() {
            tower.ignore("");
        }
        // The painter reads the states before the final norm, and no word is sampled.
        weights.ignore("model.language_model.norm");
        weights.ignore("lm_head");
        weights.finish()?;
        Ok(Self { backend: backend.clone(), config, decoder, vision })
    }

    /// Channels of a state.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.config.text.hidden
    }

    /// The model's configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The language model.
    #[must_use]
    pub fn decoder(&self) -> &Decoder<B> {
        &self.decoder
    }

    /// The vision tower, where it was loaded.
    #[must_use]
    pub fn vision_tower(&self) -> Option<&VisionTower<B>> {
        self.vision.as_ref()
    }

    /// Looks at one reference picture.
    ///
    /// # Errors
    /// [`Error::Input`] when the encoder was loaded without its vision tower; [`Error::Cancelled`] between blocks.
    pub fn vision(&self, picture: &Patches, cancel: &Cancel) -> Result<Features<B>> {
        let tower = self.vision.as_ref().ok_or_else(|| {
            Error::input("the text encoder was loaded without its vision tower and cannot look at a reference picture")
        })?;
        tower.forward(&self.backend, picture, cancel)
    }

    /// Reads a prompt with the reference pictures that it was tokenized for.
    ///
    /// # Errors
    /// [`Error::Input`] when the tokens do not belong to these pictures or to this text encoder; [`Error::Cancelled`]
    /// between layers.
    pub fn encode(&self, tokens: &Tokens, images: &[Features<B>], cancel: &Cancel) -> Result<Conditioning<B>> {
        let pictures: Vec<_> = images.iter().collect();
        let inputs = Inputs::new(&self.backend, &self.decoder, &self.config, &tokens.ids, &pictures)?;
        let states = self.decoder.forward(&self.backend, &inputs, None, cancel)?;
        let (dropped, count) = (tokens.dropped, tokens.ids.len());
        let rest =
            count.checked_sub(dropped).ok_or_else(|| Error::input(format!("{dropped} tokens to drop of {count}")))?;
        Ok(Conditioning {
            states: self.backend.rows(&states, dropped, rest)?,
            image_slots: tokens.ids[dropped..].iter().map(|id| *id == self.config.image_token_id).collect(),
        })
    }
}
