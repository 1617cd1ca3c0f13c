//! The joint sequence of text and images: order, masks and three-axis rotary positions.
//!
//! The sequence is text with each condition image's latent tokens in the place of its vision slots, and the target
//! image's tokens at the end. Text advances one position on all three axes (frame, height, width). An image block holds
//! the frame axis at the position reached and spreads its rows and columns on a grid centred on zero; after it the
//! position is further by the larger side.

use std::ops::Range;

use crate::{Error, Result};

/// Latent tokens that one image slot of the text encoder stands for: a 2x2 group.
const TOKENS_PER_SLOT: usize = 4;
/// Frame positions of the model's rotary table: `0 .. 8192`.
const POSITIONS: usize = 8192;
/// Rows or columns of the table before zero: a grid may reach this far up or left of its centre.
const BEFORE_CENTRE: usize = 1024;

/// A piece of the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Run {
    /// Text: these rows of the encoder's states.
    Text(Range<usize>),
    /// The condition image of this index.
    Image(usize),
}

/// The joint sequence of one prompt: text runs and image blocks in order, the target image last.
#[derive(Debug, Clone)]
pub struct Layout {
    states: usize,
    runs: Vec<Run>,
    references: Vec<(usize, usize)>,
    target: (usize, usize),
    /// Frame, height and width position of each token.
    positions: Vec<[i32; 3]>,
    /// How many keys each token sees: text up to itself, an image token up to the end of its block.
    visible: Vec<u32>,
}

impl Layout {
    /// Lays out a sequence. `image_slots` tells for each of the text encoder's states whether it is an image slot (one slot
    /// stands for 2x2 latent tokens); `references` are the latent grids (height, width) of the condition images in order,
    /// `target` is the grid of the picture to paint.
    ///
    /// # Errors
    /// [`Error::Input`] when there is no text, slots and grids disagree, a grid is no multiple of four tokens or too large,
    /// or the prompt is longer than the rotary table.
    pub fn new(image_slots: &[bool], references: &[(usize, usize)], target: (usize, usize)) -> Result<Self> {
        if !image_slots.contains(&false) {
            return Err(Error::input("the prompt has no text tokens: the transformer needs at least one"));
        }
        for (height, width) in references.iter().chain([&target]) {
            check_grid(*height, *width)?;
        }
        let mut layout = Self {
            states: image_slots.len(),
            runs: Vec::new(),
            references: references.to_vec(),
            target,
            positions: Vec::new(),
            visible: Vec::new(),
        };
        let mut position = 0;
        let mut at = 0;
        let mut images = references.iter().enumerate();
        while at < image_slots.len() {
            let start = at;
            if image_slots[at] {
                // Blocks end by the images' sizes, not by the runs of slots: neighbours stay apart.
                let Some((image, &(height, width))) = images.next() else {
                    return Err(slots_disagree(image_slots, references));
                };
                at += height * width / TOKENS_PER_SLOT;
                if at > image_slots.len() || image_slots[start..at].contains(&false) {
                    return Err(slots_disagree(image_slots, references));
                }
                layout.runs.push(Run::Image(image));
                position = layout.push_image(position, height, width)?;
            } else {
                at += image_slots[at..].iter().take_while(|slot| !**slot).count();
                layout.runs.push(Run::Text(start..at));
                position = layout.push_text(position, at - start)?;
            }
        }
        if images.next().is_some() {
            return Err(slots_disagree(image_slots, references));
        }
        layout.push_image(position, target.0, target.1)?;
        Ok(layout)
    }

    /// Tokens before the target: text and condition images.
    #[must_use]
    pub fn prefix_tokens(&self) -> usize {
        self.tokens() - self.target_tokens()
    }

    /// Tokens of the target image.
    #[must_use]
    pub fn target_tokens(&self) -> usize {
        self.target.0 * self.target.1
    }

    /// Tokens in all.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.positions.len()
    }

    /// Rows that the encoder's states must have.
    pub(super) fn states(&self) -> usize {
        self.states
    }

    /// Tokens of each condition image.
    pub(super) fn reference_tokens(&self) -> Vec<usize> {
        self.references.iter().map(|(height, width)| height * width).collect()
    }

    /// The prefix piece by piece.
    pub(super) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How many keys each token sees.
    pub(super) fn visible(&self) -> &[u32] {
        &self.visible
    }

    /// Cosines and sines, `[tokens, sum(axes) / 2]` row-major each, of the `tokens`: for channel pair `i` of an axis with
    /// `n` channels, `position * 10000 ^ (-2 i / n)`, in the order frame, height, width.
    pub(super) fn angles(&self, tokens: Range<usize>, axes: [usize; 3]) -> (Vec<f32>, Vec<f32>) {
        let frequencies = axes.map(frequencies);
        let angles = self.positions[tokens].iter().flat_map(|position| {
            position.iter().zip(&frequencies).flat_map(|(&p, axis)| axis.iter().map(move |f| p as f32 * f))
        });
        angles.map(|angle| (angle.cos(), angle.sin())).unzip()
    }

    fn push_text(&mut self, position: usize, tokens: usize) -> Result<usize> {
        let end = position + tokens;
        if end > POSITIONS {
            return Err(too_long(end));
        }
        for p in position..end {
            self.positions.push([p as i32; 3]);
            self.visible.push(self.positions.len() as u32);
        }
        Ok(end)
    }

    fn push_image(&mut self, position: usize, height: usize, width: usize) -> Result<usize> {
        if position >= POSITIONS {
            return Err(too_long(position + 1));
        }
        let centred = |at: usize, side: usize| at as i32 - (side - side / 2) as i32;
        for row in 0..height {
            for column in 0..width {
                self.positions.push([position as i32, centred(row, height), centred(column, width)]);
            }
        }
        self.visible.resize(self.positions.len(), self.positions.len() as u32);
        Ok(position + height.max(width))
    }
}

/// `10000 ^ (-2 i / channels)`, each step rounded to `f32` as the reference rounds it.
fn frequencies(channels: usize) -> Vec<f32> {
    (0..channels / 2)
        .map(|i| {
            let exponent = (2 * i) as f32 / channels as f32;
            1.0 / 10000f64.powf(f64::from(exponent)) as f32
        })
        .collect()
}

fn check_grid(height: usize, width: usize) -> Result<()> {
    if height == 0 || width == 0 || !(height * width).is_multiple_of(TOKENS_PER_SLOT) {
        return Err(Error::input(format!(
            "an image of {height}x{width} latent tokens cannot be laid out: tokens must be a positive multiple of {TOKENS_PER_SLOT}"
        )));
    }
    let largest = 2 * BEFORE_CENTRE;
    if height > largest || width > largest {
        return Err(Error::input(format!(
            "an image of {height}x{width} latent tokens is too large: the rotary table reaches {largest} a side"
        )));
    }
    Ok(())
}

/// Refuses a prompt whose tokens alone leave no position for the picture.
pub(super) fn check_length(tokens: usize) -> Result<()> {
    if tokens >= POSITIONS { Err(too_long(tokens + 1)) } else { Ok(()) }
}

fn too_long(needed: usize) -> Error {
    Error::input(format!(
        "prompt too long: it needs {needed} positions (text tokens and the larger side of each condition image), the \
         model's rotary table has {POSITIONS}; shorten the prompt or use fewer or smaller images"
    ))
}

fn slots_disagree(image_slots: &[bool], references: &[(usize, usize)]) -> Error {
    let slots = image_slots.iter().filter(|slot| **slot).count();
    Error::input(format!(
        "the text encoder's {slots} image slots do not fit the condition images' latent grids {references:?}: each image \
         needs one run of height x width / {TOKENS_PER_SLOT} slots"
    ))
}
