//! What the decoder has read.

use atelier_kernels::Backend;

use crate::{Error, Result};

/// What the layers keep of the tokens read so far: keys and values of attention, states of recurrent layers.
#[derive(Debug)]
pub struct Cache<B: Backend> {
    layers: Vec<Kept<B>>,
    capacity: usize,
    length: usize,
}

/// What one layer keeps.
#[derive(Debug)]
pub(super) enum Kept<B: Backend> {
    /// Keys and values, and their channels.
    Keys(B::Cache, usize),
    /// Everything so far in one state.
    State(State<B>),
}

/// What a delta-net layer keeps: a value like any other, replaced as a whole.
#[derive(Debug, Clone)]
pub(super) struct State<B: Backend> {
    /// The last inputs of the convolution, `[taps - 1, channels]`.
    pub(super) history: B::Tensor,
    /// The state of the delta rule, `[value_heads, key_dim, value_dim]`.
    pub(super) memory: B::Tensor,
    /// Bytes of both as f32.
    pub(super) bytes: u64,
}

/// What a cache cannot get back by forgetting tokens: the states of recurrent layers after so many tokens.
#[derive(Debug, Clone)]
pub struct Checkpoint<B: Backend> {
    length: usize,
    states: Vec<State<B>>,
    bytes: u64,
}

impl<B: Backend> Checkpoint<B> {
    /// Number of tokens read when it was taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it was taken before the first token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of the states as f32.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<B: Backend> Cache<B> {
    pub(super) fn new(layers: Vec<Kept<B>>, capacity: usize) -> Self {
        Self { layers, capacity, length: 0 }
    }

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

    /// Bytes of keys, values and states as f32, used or not.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let layer = |kept: &Kept<B>| match kept {
            Kept::Keys(_, width) => (2 * self.capacity * width * size_of::<f32>()) as u64,
            Kept::State(state) => state.bytes,
        };
        self.layers.iter().map(layer).sum()
    }

    /// Whether going back needs a [`Checkpoint`].
    #[must_use]
    pub fn recurrent(&self) -> bool {
        self.layers.iter().any(|kept| matches!(kept, Kept::State(_)))
    }

    /// The recurrent states as they are now; they are shared, not copied.
    #[must_use]
    pub fn checkpoint(&self) -> Checkpoint<B> {
        let states: Vec<State<B>> = self.states().cloned().collect();
        let bytes = states.iter().map(|state| state.bytes).sum();
        Checkpoint { length: self.length, states, bytes }
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
        let layer = |kept: &Kept<B>| match kept {
            Kept::Keys(from, width) => {
                let mut to = backend.cache(capacity, *width)?;
                backend.cache_copy(from, &mut to, length.min(self.length))?;
                Ok(Kept::Keys(to, *width))
            }
            Kept::State(state) => Ok(Kept::State(state.clone())),
        };
        let layers = self.layers.iter().map(layer).collect::<Result<_>>()?;
        let mut copy = Self { layers, capacity, length: self.length };
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
        if self.recurrent() && length != self.length {
            let checkpoint = checkpoint.ok_or_else(|| {
                Error::input(format!("going back to {length} tokens of a recurrent model takes a checkpoint"))
            })?;
            if checkpoint.states.len() != self.states().count() {
                return Err(Error::input("the checkpoint is of another model"));
            }
            self.put(checkpoint.states.iter().cloned());
        }
        self.length = length;
        Ok(())
    }

    /// What layer `index` keeps.
    pub(super) fn layer(&mut self, index: usize) -> &mut Kept<B> {
        &mut self.layers[index]
    }

    /// Takes over what the recurrent layers made of the tokens up to `length`.
    pub(super) fn advance(&mut self, states: Vec<State<B>>, length: usize) {
        self.put(states.into_iter());
        self.length = length;
    }

    fn states(&self) -> impl Iterator<Item = &State<B>> {
        self.layers.iter().filter_map(|kept| match kept {
            Kept::State(state) => Some(state),
            Kept::Keys(..) => None,
        })
    }

    fn put(&mut self, states: impl Iterator<Item = State<B>>) {
        let places = self.layers.iter_mut().filter_map(|kept| match kept {
            Kept::State(state) => Some(state),
            Kept::Keys(..) => None,
        });
        for (place, state) in places.zip(states) {
            *place = state;
        }
    }
}
