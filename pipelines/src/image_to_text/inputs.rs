//! Token ids, visual tokens → decoder inputs.

use std::ops::Range;

use atelier_kernels::Backend;

use super::positions::{ImageSlots, Position, positions};
use super::vision::Features;
use super::{Config, Decoder};
use crate::{Error, Result};

/// What the decoder reads: a sequence, or a part of one.
#[derive(Debug)]
pub struct Inputs<B: Backend> {
    /// Embeddings with the visual tokens in place, `[n, hidden]`.
    pub embeddings: B::Tensor,
    /// A position for every token.
    pub positions: Vec<Position>,
    /// The position of the token after the last.
    pub next: u32,
    /// The rows that are visual tokens, ascending.
    pub image_rows: Vec<u32>,
    /// What is added to those rows after each of the first layers, `[image_rows.len(), hidden]`.
    pub deepstack: Vec<B::Tensor>,
}

impl<B: Backend> Inputs<B> {
    /// Looks up a whole sequence. The image tokens in `ids` are the pictures' visual tokens, in order.
    ///
    /// # Errors
    /// [`Error::Input`] when the image tokens are not those of the pictures, or an id is outside the vocabulary.
    pub fn new(
        backend: &B,
        decoder: &Decoder<B>,
        config: &Config,
        ids: &[u32],
        pictures: &[&Features<B>],
    ) -> Result<Self> {
        if let Some(id) = ids.iter().find(|id| **id as usize >= config.text.vocabulary) {
            return Err(Error::input(format!(
                "token id {id} is outside the text encoder's vocabulary of {}: tokenizer and text encoder are of \
                 different models",
                config.text.vocabulary
            )));
        }
        let images = place(ids, config.image_token_id, pictures)?;
        let (positions, next) = positions(ids.len(), &images);
        let pictures: Vec<_> = images.into_iter().zip(pictures.iter().copied()).collect();
        Self::part(backend, decoder, ids, &positions, 0..ids.len(), next, &pictures)
    }

    /// Looks up the tokens `range` of a sequence whose `positions` are known; `next` is the position after them. Of the
    /// pictures those must be there of which tokens lie in the range.
    ///
    /// # Errors
    /// When an id is outside the vocabulary.
    pub fn part(
        backend: &B,
        decoder: &Decoder<B>,
        ids: &[u32],
        positions: &[Position],
        range: Range<usize>,
        next: u32,
        pictures: &[(ImageSlots, &Features<B>)],
    ) -> Result<Self> {
        let mut embeddings = decoder.embed(backend, &ids[range.clone()])?;
        let (mut image_rows, mut tokens, mut deepstack) = (Vec::new(), Vec::new(), Vec::<Vec<B::Tensor>>::new());
        for (slots, features) in pictures {
            let all = slots.start..slots.start + slots.grid.tokens();
            let (start, end) = (all.start.max(range.start), all.end.min(range.end));
            if start >= end {
                continue;
            }
            let rows = |x: &B::Tensor| match (start..end) == all {
                true => Ok(x.clone()),
                false => backend.rows(x, start - all.start, end - start),
            };
            image_rows.extend((start - range.start) as u32..(end - range.start) as u32);
            tokens.push(rows(&features.tokens)?);
            deepstack.resize(features.deepstack.len(), Vec::new());
            for (layer, features) in deepstack.iter_mut().zip(&features.deepstack) {
                layer.push(rows(features)?);
            }
        }
        let join = |parts: &[B::Tensor]| match parts {
            [one] => Ok(one.clone()),
            parts => backend.concat(&parts.iter().collect::<Vec<_>>()),
        };
        if !tokens.is_empty() {
            embeddings = backend.replace_rows(&embeddings, &image_rows, &join(&tokens)?)?;
        }
        let deepstack = deepstack.iter().map(|layer| Ok(join(layer)?)).collect::<Result<_>>()?;
        Ok(Self { embeddings, positions: positions[range].to_vec(), next, image_rows, deepstack })
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// `length` tokens from `start` on, for a prefill in chunks.
    ///
    /// # Errors
    /// When the range leaves the sequence.
    pub fn slice(&self, backend: &B, start: usize, length: usize) -> Result<Self> {
        let embeddings = backend.rows(&self.embeddings, start, length)?;
        let positions = self.positions[start..start + length].to_vec();
        let first = self.image_rows.partition_point(|row| (*row as usize) < start);
        let after = self.image_rows.partition_point(|row| (*row as usize) < start + length);
        let image_rows: Vec<u32> = self.image_rows[first..after].iter().map(|row| row - start as u32).collect();
        let deepstack = match after - first {
            0 => Vec::new(),
            count => self.deepstack.iter().map(|x| Ok(backend.rows(x, first, count)?)).collect::<Result<_>>()?,
        };
        let next = self.positions.get(start + length).map_or(self.next, |position| position[0]);
        Ok(Self { embeddings, positions, next, image_rows, deepstack })
    }
}

/// Finds the pictures' places: each picture's image tokens stand together.
fn place<B: Backend>(ids: &[u32], image_token: u32, pictures: &[&Features<B>]) -> Result<Vec<ImageSlots>> {
    let found = ids.iter().filter(|id| **id == image_token).count();
    let expected: usize = pictures.iter().map(|picture| picture.grid.tokens()).sum();
    let mismatch = || {
        Error::input(format!(
            "the tokens hold {found} image tokens; the {} pictures have {expected} visual tokens",
            pictures.len()
        ))
    };
    if found != expected {
        return Err(mismatch());
    }
    let mut at = 0;
    pictures
        .iter()
        .map(|picture| {
            let start = at + ids[at..].iter().position(|id| *id == image_token).ok_or_else(mismatch)?;
            at = start + picture.grid.tokens();
            let together = ids.get(start..at).is_some_and(|slots| slots.iter().all(|id| *id == image_token));
            if together { Ok(ImageSlots { start, grid: picture.grid }) } else { Err(mismatch()) }
        })
        .collect()
}
