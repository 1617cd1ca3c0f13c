//! Inputs, cache → hidden states.

use atelier_kernels::{Backend, Visible};

use super::attention::Attention;
use super::cache::{Cache, Kept, State};
use super::config::{self, TextConfig};
use super::delta_net::DeltaNet;
use super::experts::Network;
use super::inputs::Inputs;
use super::layers::RmsNorm;
use super::positions::{Position, interleave};
use super::rotary::{self, Angles};
use crate::checkpoint::Weights;
use crate::progress::Cancel;
use crate::{Error, Result};

/// The language model up to the last layer; the final norm and the output layer are not part of it.
#[derive(Debug)]
pub struct Decoder<B: Backend> {
    embeddings: B::Matrix,
    layers: Vec<Layer<B>>,
    /// Axis and frequency of every pair of a head's channels.
    axes: Vec<(usize, f32)>,
    /// What a recurrent layer keeps before the first token.
    empty: Option<State<B>>,
}

#[derive(Debug)]
struct Layer<B: Backend> {
    input_norm: RmsNorm<B>,
    mixer: Mixer<B>,
    mlp_norm: RmsNorm<B>,
    network: Network<B>,
}

/// What mixes the tokens in a layer.
#[derive(Debug)]
enum Mixer<B: Backend> {
    Attention(Attention<B>),
    DeltaNet(DeltaNet<B>),
}

impl<B: Backend> Decoder<B> {
    /// Takes the embeddings and layers; `weights` is the language model's scope (`model.language_model`).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a tensor is missing or of another shape.
    pub fn load(backend: &B, weights: &Weights, config: &TextConfig) -> Result<Self> {
        let table = weights.matrix("embed_tokens.weight", config.vocabulary, config.hidden)?;
        let layer = |(index, &mixer)| Layer::load(backend, &weights.scope(format!("layers.{index}")), config, mixer);
        Ok(Self {
            embeddings: backend.load(&table)?,
            layers: config.mixers.iter().enumerate().map(layer).collect::<Result<_>>()?,
            axes: interleave(&rotary::frequencies(config.rope_theta, config.rotary_dim), config.mrope_section),
            empty: config.delta_net.map(|sizes| DeltaNet::empty(backend, sizes)).transpose()?,
        })
    }

    /// An empty cache with room for `capacity` tokens.
    ///
    /// # Errors
    /// When the device lacks memory.
    pub fn cache(&self, backend: &B, capacity: usize) -> Result<Cache<B>> {
        let layer = |layer: &Layer<B>| match &layer.mixer {
            Mixer::Attention(attention) => {
                let width = attention.kv_width();
                Ok(Kept::Keys(backend.cache(capacity, width)?, width))
            }
            Mixer::DeltaNet(_) => Ok(Kept::State(self.empty_state()?.clone())),
        };
        Ok(Cache::new(self.layers.iter().map(layer).collect::<Result<_>>()?, capacity))
    }

    /// The embedding table, `[vocabulary, hidden]`.
    pub(super) fn embeddings(&self) -> &B::Matrix {
        &self.embeddings
    }

    /// Rows of the embedding table, `[ids.len(), hidden]`.
    ///
    /// # Errors
    /// When an id is outside the vocabulary.
    pub fn embed(&self, backend: &B, ids: &[u32]) -> Result<B::Tensor> {
        Ok(backend.embed(&self.embeddings, ids)?)
    }

    /// The output of the last layer, before the final norm, `[n, hidden]`. With a cache the tokens follow those in it and
    /// are added to it; without one the sequence is read at once and nothing is kept.
    ///
    /// # Errors
    /// [`Error::Input`] when the cache is too small; [`Error::Cancelled`] between layers (the cache then still holds what
    /// it held before).
    pub fn forward(
        &self,
        backend: &B,
        inputs: &Inputs<B>,
        cache: Option<&mut Cache<B>>,
        cancel: &Cancel,
    ) -> Result<B::Tensor> {
        self.forward_observed(backend, inputs, cache, cancel, |_, _| Ok(()))
    }

    /// As [`forward`](Self::forward); `observe` gets the number of layers done and what they made of the inputs, from 0
    /// on: for tests of every stage.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and the observer's.
    pub fn forward_observed(
        &self,
        backend: &B,
        inputs: &Inputs<B>,
        mut cache: Option<&mut Cache<B>>,
        cancel: &Cancel,
        mut observe: impl FnMut(usize, &B::Tensor) -> Result<()>,
    ) -> Result<B::Tensor> {
        let before = cache.as_ref().map_or(0, |cache| cache.len());
        let after = before + inputs.len();
        if let Some(cache) = cache.as_ref().filter(|cache| cache.capacity() < after) {
            return Err(Error::input(format!("{after} tokens for a cache of {}", cache.capacity())));
        }
        let angles = self.angles(backend, &inputs.positions)?;
        let visible: Vec<u32> = (before as u32 + 1..=after as u32).collect();
        let mut x = inputs.embeddings.clone();
        // kept apart until the last layer is done: a state, once replaced, cannot be had back
        let mut states = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            cancel.check()?;
            observe(index, &x)?;
            let normed = layer.input_norm.forward(backend, &x)?;
            let kept = cache.as_mut().map(|cache| cache.layer(index));
            let mixed = match (&layer.mixer, kept) {
                (Mixer::Attention(attention), None) => {
                    attention.forward(backend, &normed, &angles, Visible::First(&visible), None)?
                }
                (Mixer::Attention(attention), Some(Kept::Keys(keys, _))) => {
                    attention.forward(backend, &normed, &angles, Visible::First(&visible), Some((keys, before)))?
                }
                (Mixer::DeltaNet(net), None) => net.forward(backend, &normed, self.empty_state()?)?.0,
                (Mixer::DeltaNet(net), Some(Kept::State(state))) => {
                    let (mixed, state) = net.forward(backend, &normed, state)?;
                    states.push(state);
                    mixed
                }
                (_, Some(_)) => return Err(Error::input("the cache is of another model")),
            };
            x = backend.add(&x, &mixed)?;
            let normed = layer.mlp_norm.forward(backend, &x)?;
            x = backend.add(&x, &layer.network.forward(backend, &normed)?)?;
            if let Some(features) = inputs.deepstack.get(index) {
                x = backend.add_rows(&x, &inputs.image_rows, features)?;
            }
        }
        observe(self.layers.len(), &x)?;
        if let Some(cache) = cache {
            cache.advance(states, after);
        }
        Ok(x)
    }

    fn empty_state(&self) -> Result<&State<B>> {
        self.empty.as_ref().ok_or_else(|| Error::input("a model without recurrent layers has no state"))
    }

    fn angles(&self, backend: &B, positions: &[Position]) -> Result<Angles<B>> {
        Angles::new(backend, positions, &self.axes)
    }
}

impl<B: Backend> Layer<B> {
    fn load(backend: &B, weights: &Weights, config: &TextConfig, mixer: config::Mixer) -> Result<Self> {
        let TextConfig { hidden, eps, .. } = *config;
        let norm = |name| RmsNorm::load(backend, &weights.scope(name), hidden, eps, config.norm_offset());
        let mixer = match (mixer, config.delta_net) {
            (config::Mixer::DeltaNet, Some(sizes)) => {
                Mixer::DeltaNet(DeltaNet::load(backend, &weights.scope("linear_attn"), hidden, sizes, eps)?)
            }
            _ => Mixer::Attention(Attention::load_decoder(backend, &weights.scope("self_attn"), config)?),
        };
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            mixer,
            mlp_norm: norm("post_attention_layernorm")?,
            network: Network::load(backend, &weights.scope("mlp"), hidden, config.feed_forward)?,
        })
    }
}
