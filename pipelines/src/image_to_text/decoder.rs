//! Inputs, cache → hidden states.

use atelier_kernels::{Backend, Visible};

use super::attention::Attention;
use super::config::TextConfig;
use super::inputs::Inputs;
use super::layers::{RmsNorm, SwiGlu};
use super::positions::{Position, interleave};
use super::rotary::{self, Angles};
use crate::checkpoint::Weights;
use crate::progress::Cancel;
use crate::{Error, Result};

/// The language model of Qwen3-VL up to the last layer; the final norm and the output layer are not part of it.
#[derive(Debug)]
pub struct Decoder<B: Backend> {
    embeddings: B::Matrix,
    layers: Vec<Layer<B>>,
    /// Axis and frequency of every pair of a head's channels.
    axes: Vec<(usize, f32)>,
}

/// Keys and values of the tokens read so far, for every layer.
#[derive(Debug)]
pub struct Cache<B: Backend> {
    layers: Vec<B::Cache>,
    /// Channels of a key of one token, for every layer; a value has as many.
    widths: Vec<usize>,
    capacity: usize,
    length: usize,
}

/// What a cache cannot get back by forgetting tokens: the states of recurrent layers after so many tokens. Qwen3-VL has
/// none.
#[derive(Debug, Clone)]
pub struct Checkpoint<B: Backend> {
    length: usize,
    backend: std::marker::PhantomData<B>,
}

impl<B: Backend> Checkpoint<B> {
    /// Number of tokens read when it was taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Bytes of the states.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        0
    }

    /// Whether it was taken before the first token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl<B: Backend> Cache<B> {
    /// Number of tokens in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no token has been read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of tokens there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes of keys and values as f32, used or not.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.capacity * 2 * self.widths.iter().sum::<usize>() * size_of::<f32>()) as u64
    }

    /// Whether going back needs a [`Checkpoint`].
    #[must_use]
    pub fn recurrent(&self) -> bool {
        false
    }

    /// The recurrent states as they are now.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint<B> {
        Checkpoint { length: self.length, backend: std::marker::PhantomData }
    }

    /// A cache with room for `capacity` tokens that holds the first `length` of this one: to give a conversation more room,
    /// or two of them the same beginning. With recurrent layers a shorter `length` takes the checkpoint of just that length.
    ///
    /// # Errors
    /// As [`rewind`](Self::rewind), and when the device lacks memory.
    pub fn copy(
        &self,
        backend: &B,
        length: usize,
        checkpoint: Option<&Checkpoint<B>>,
        capacity: usize,
    ) -> Result<Self> {
        let layer = |(from, width): (&B::Cache, &usize)| {
            let mut to = backend.cache(capacity, *width)?;
            backend.cache_copy(from, &mut to, length.min(self.length))?;
            Ok(to)
        };
        let layers = self.layers.iter().zip(&self.widths).map(layer).collect::<Result<_>>()?;
        let mut copy = Self { layers, widths: self.widths.clone(), capacity, length: self.length };
        copy.rewind(length, checkpoint)?;
        Ok(copy)
    }

    /// Forgets all but the first `length` tokens. With recurrent layers that takes the checkpoint of just that length.
    ///
    /// # Errors
    /// [`Error::Input`] when the cache holds fewer tokens, or the checkpoint is missing or of another length.
    pub fn rewind(&mut self, length: usize, checkpoint: Option<&Checkpoint<B>>) -> Result<()> {
        if length > self.length {
            return Err(Error::input(format!("going back to {length} tokens in a cache of {}", self.length)));
        }
        if let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.length != length) {
            let found = checkpoint.length;
            return Err(Error::input(format!("going back to {length} tokens with a checkpoint of {found}")));
        }
        self.length = length;
        Ok(())
    }
}

#[derive(Debug)]
struct Layer<B: Backend> {
    input_norm: RmsNorm<B>,
    attention: Attention<B>,
    mlp_norm: RmsNorm<B>,
    mlp: SwiGlu<B>,
}

impl<B: Backend> Decoder<B> {
    /// Takes the embeddings and layers; `weights` is the language model's scope (`model.language_model`).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a tensor is missing or of another shape.
    pub fn load(backend: &B, weights: &Weights, config: &TextConfig) -> Result<Self> {
        let table = weights.matrix("embed_tokens.weight", config.vocabulary, config.hidden)?;
        let layer = |index| Layer::load(backend, &weights.scope(format!("layers.{index}")), config);
        Ok(Self {
            embeddings: backend.load(&table)?,
            layers: (0..config.layers).map(layer).collect::<Result<_>>()?,
            axes: interleave(&rotary::frequencies(config.rope_theta, config.head_dim), config.mrope_section),
        })
    }

    /// An empty cache with room for `capacity` tokens.
    ///
    /// # Errors
    /// When the device lacks memory.
    pub fn cache(&self, backend: &B, capacity: usize) -> Result<Cache<B>> {
        let widths: Vec<usize> = self.layers.iter().map(|layer| layer.attention.kv_width()).collect();
        let layers = widths.iter().map(|width| Ok(backend.cache(capacity, *width)?)).collect::<Result<_>>()?;
        Ok(Cache { layers, widths, capacity, length: 0 })
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
        let before = cache.as_ref().map_or(0, |cache| cache.length);
        let after = before + inputs.len();
        if let Some(cache) = cache.as_ref().filter(|cache| cache.capacity < after) {
            return Err(Error::input(format!("{after} tokens for a cache of {}", cache.capacity)));
        }
        let angles = self.angles(backend, &inputs.positions)?;
        let visible: Vec<u32> = (before as u32 + 1..=after as u32).collect();
        let mut x = inputs.embeddings.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            cancel.check()?;
            observe(index, &x)?;
            let at = cache.as_mut().map(|cache| (&mut cache.layers[index], before));
            x = layer.forward(backend, &x, &angles, Visible::First(&visible), at)?;
            if let Some(features) = inputs.deepstack.get(index) {
                x = backend.add_rows(&x, &inputs.image_rows, features)?;
            }
        }
        observe(self.layers.len(), &x)?;
        if let Some(cache) = cache {
            cache.length = after;
        }
        Ok(x)
    }

    fn angles(&self, backend: &B, positions: &[Position]) -> Result<Angles<B>> {
        Angles::new(backend, positions, &self.axes)
    }
}

impl<B: Backend> Layer<B> {
    fn load(backend: &B, weights: &Weights, config: &TextConfig) -> Result<Self> {
        let TextConfig { hidden, intermediate, heads, kv_heads, head_dim, eps, .. } = *config;
        let norm = |name| RmsNorm::load(backend, &weights.scope(name), hidden, eps);
        let sizes = [heads, kv_heads, head_dim];
        Ok(Self {
            input_norm: norm("input_layernorm")?,
            attention: Attention::load_decoder(backend, &weights.scope("self_attn"), hidden, sizes, eps)?,
            mlp_norm: norm("post_attention_layernorm")?,
            mlp: SwiGlu::load(backend, &weights.scope("mlp"), hidden, intermediate)?,
        })
    }

    fn forward(
        &self,
        backend: &B,
        x: &B::Tensor,
        angles: &Angles<B>,
        visible: Visible<'_>,
        cache: Option<super::attention::At<'_, B>>,
    ) -> Result<B::Tensor> {
        let normed = self.input_norm.forward(backend, x)?;
        let x = backend.add(x, &self.attention.forward(backend, &normed, angles, visible, cache)?)?;
        let normed = self.mlp_norm.forward(backend, &x)?;
        Ok(backend.add(&x, &self.mlp.forward(backend, &normed)?)?)
    }
}
