//! Patches → visual tokens.

use atelier_kernels::{Activation, Backend, Visible};

use super::attention::Attention;
use super::config::VisionConfig;
use super::layers::{LayerNorm, Linear, Mlp};
use super::patches::{Grid, Patches};
use super::rotary::{self, Angles};
use crate::checkpoint::Weights;
use crate::progress::Cancel;
use crate::{Error, Result};

/// Epsilon of every layer norm; not in the config.
const EPS: f32 = 1e-6;

/// The vision tower of Qwen3-VL: a transformer over the patches of one picture whose output is merged, square by square, to
/// visual tokens.
#[derive(Debug)]
pub struct VisionTower<B: Backend> {
    config: VisionConfig,
    patch_embed: Linear<B>,
    /// `[side * side, hidden]`, on the host: every picture has its own mixture of it.
    position_table: Vec<f32>,
    frequencies: Vec<f32>,
    blocks: Vec<Block<B>>,
    merger: Merger<B>,
    deepstack: Vec<Merger<B>>,
}

/// One picture's visual tokens.
#[derive(Debug)]
pub struct Features<B: Backend> {
    /// Where the tokens stand.
    pub grid: Grid,
    /// What takes the place of the image tokens' embeddings, `[grid.tokens(), out_hidden]`.
    pub tokens: B::Tensor,
    /// What is added to the image tokens after the first decoder layers, one tensor of the same shape for each.
    pub deepstack: Vec<B::Tensor>,
}

#[derive(Debug)]
struct Block<B: Backend> {
    norm1: LayerNorm<B>,
    attention: Attention<B>,
    norm2: LayerNorm<B>,
    mlp: Mlp<B>,
}

/// Joins the patches of a square to one visual token.
#[derive(Debug)]
struct Merger<B: Backend> {
    norm: LayerNorm<B>,
    /// The deepstack mergers normalise the joined channels, the last one each patch by itself.
    norm_joined: bool,
    joined: usize,
    mlp: Mlp<B>,
}

impl<B: Backend> VisionTower<B> {
    /// Takes the tower's tensors; `weights` is its scope (`model.visual`).
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when a tensor is missing or of another shape.
    pub fn load(backend: &B, weights: &Weights, config: &VisionConfig) -> Result<Self> {
        let VisionConfig { hidden, channels, temporal_patch, patch, position_side, .. } = *config;
        let proj = weights.scope("patch_embed.proj");
        let kernel = proj.kernel3d("weight", hidden, channels, temporal_patch, patch)?;
        let scope = |name: &str, index: usize| weights.scope(format!("{name}.{index}"));
        Ok(Self {
            patch_embed: Linear::new(backend, &kernel, Some(&proj.vector("bias", hidden)?))?,
            position_table: weights.array("pos_embed.weight", &[position_side * position_side, hidden])?,
            frequencies: rotary::frequencies(config.rope_theta, hidden / config.heads / 2),
            blocks: (0..config.depth)
                .map(|index| Block::load(backend, &scope("blocks", index), config))
                .collect::<Result<_>>()?,
            merger: Merger::load(backend, &weights.scope("merger"), config, false)?,
            deepstack: (0..config.deepstack.len())
                .map(|index| Merger::load(backend, &scope("deepstack_merger_list", index), config, true))
                .collect::<Result<_>>()?,
            config: config.clone(),
        })
    }

    /// Looks at one picture.
    ///
    /// # Errors
    /// [`Error::Input`] when the patches are not cut as this tower expects; [`Error::Cancelled`] between blocks.
    pub fn forward(&self, backend: &B, picture: &Patches, cancel: &Cancel) -> Result<Features<B>> {
        self.forward_observed(backend, picture, cancel, |_, _| Ok(()))
    }

    /// As [`forward`](Self::forward); `observe` gets the number of blocks done and what they made of the patches, from 0
    /// (patch and position embeddings) on: for tests of every stage.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and the observer's.
    pub fn forward_observed(
        &self,
        backend: &B,
        picture: &Patches,
        cancel: &Cancel,
        mut observe: impl FnMut(usize, &B::Tensor) -> Result<()>,
    ) -> Result<Features<B>> {
        let mut deepstack = Vec::with_capacity(self.deepstack.len());
        let mut x = self.embed(backend, picture)?;
        let angles = self.angles(backend, picture.grid)?;
        for (index, block) in self.blocks.iter().enumerate() {
            cancel.check()?;
            observe(index, &x)?;
            x = block.forward(backend, &x, &angles)?;
            if let Ok(at) = self.config.deepstack.binary_search(&index) {
                deepstack.push(self.deepstack[at].forward(backend, &x)?);
            }
        }
        observe(self.blocks.len(), &x)?;
        Ok(Features { grid: picture.grid, tokens: self.merger.forward(backend, &x)?, deepstack })
    }

    /// Patch and position embeddings, `[patches, hidden]`.
    fn embed(&self, backend: &B, picture: &Patches) -> Result<B::Tensor> {
        let VisionConfig { hidden, channels, temporal_patch, patch, merge, .. } = self.config;
        let (count, width) = (picture.grid.patches(), channels * temporal_patch * patch * patch);
        if picture.grid.merge != merge || picture.values.len() != count * width || count == 0 {
            return Err(Error::input(format!(
                "{} values for {:?} patches; the vision tower takes {width} for a patch and merges {merge}x{merge}",
                picture.values.len(),
                picture.grid
            )));
        }
        let patches = backend.upload(&picture.values, &[count, width])?;
        let positions = backend.upload(&self.positions(picture.grid), &[count, hidden])?;
        Ok(backend.add(&self.patch_embed.forward(backend, &patches)?, &positions)?)
    }

    /// The learned table stretched over the picture: bilinear, the corners on the corners.
    fn positions(&self, grid: Grid) -> Vec<f32> {
        let (hidden, side) = (self.config.hidden, self.config.position_side);
        let (rows, columns) = (axis(grid.height, side), axis(grid.width, side));
        let mut positions = vec![0.0; grid.patches() * hidden];
        for ((row, column), out) in grid.order().zip(positions.chunks_mut(hidden)) {
            for (y, row_weight) in rows[row] {
                for (x, column_weight) in columns[column] {
                    let entry = &self.position_table[(y * side + x) * hidden..][..hidden];
                    let weight = row_weight * column_weight;
                    out.iter_mut().zip(entry).for_each(|(out, value)| *out += weight * value);
                }
            }
        }
        positions
    }

    /// The first half of a head's pairs turns with the patch's row, the other with its column.
    fn angles(&self, backend: &B, grid: Grid) -> Result<Angles<B>> {
        let axes: Vec<_> =
            [0, 1].into_iter().flat_map(|axis| self.frequencies.iter().map(move |&f| (axis, f))).collect();
        let positions: Vec<_> = grid.order().map(|(row, column)| [row as u32, column as u32]).collect();
        Angles::new(backend, &positions, &axes)
    }
}

/// For every position of an axis of `size` patches, the two entries of an axis of `side` that it lies between, and their
/// weights, in `f32` as the reference computes them.
fn axis(size: usize, side: usize) -> Vec<[(usize, f32); 2]> {
    (0..size)
        .map(|index| {
            let source = index as f32 * (side - 1) as f32 / (size - 1).max(1) as f32;
            let floor = source.floor();
            let first = (floor as usize).min(side - 1);
            [(first, 1.0 - (source - floor)), ((first + 1).min(side - 1), source - floor)]
        })
        .collect()
}

impl<B: Backend> Block<B> {
    fn load(backend: &B, weights: &Weights, config: &VisionConfig) -> Result<Self> {
        let VisionConfig { hidden, heads, intermediate, .. } = *config;
        let mlp = weights.scope("mlp");
        Ok(Self {
            norm1: LayerNorm::load(backend, &weights.scope("norm1"), hidden, EPS)?,
            attention: Attention::load_vision(backend, &weights.scope("attn"), hidden, heads)?,
            norm2: LayerNorm::load(backend, &weights.scope("norm2"), hidden, EPS)?,
            mlp: Mlp::load(backend, &mlp, [hidden, intermediate, hidden], Activation::GeluTanh)?,
        })
    }

    fn forward(&self, backend: &B, x: &B::Tensor, angles: &Angles<B>) -> Result<B::Tensor> {
        let normed = self.norm1.forward(backend, x)?;
        let x = backend.add(x, &self.attention.forward(backend, &normed, angles, Visible::All, None)?)?;
        let normed = self.norm2.forward(backend, &x)?;
        Ok(backend.add(&x, &self.mlp.forward(backend, &normed)?)?)
    }
}

impl<B: Backend> Merger<B> {
    fn load(backend: &B, weights: &Weights, config: &VisionConfig, norm_joined: bool) -> Result<Self> {
        let joined = config.hidden * config.merge * config.merge;
        let normed = if norm_joined { joined } else { config.hidden };
        Ok(Self {
            norm: LayerNorm::load(backend, &weights.scope("norm"), normed, EPS)?,
            norm_joined,
            joined,
            mlp: Mlp::load(backend, weights, [joined, joined, config.out_hidden], Activation::Gelu)?,
        })
    }

    /// `[patches, hidden]` to `[patches / merge^2, out_hidden]`: the patches of a square lie next to each other.
    fn forward(&self, backend: &B, x: &B::Tensor) -> Result<B::Tensor> {
        let shape = backend.shape(x);
        let join = |x: &B::Tensor| backend.reshape(x, &[shape[0] * shape[1] / self.joined, self.joined]);
        let normed = if self.norm_joined {
            self.norm.forward(backend, &join(x)?)?
        } else {
            join(&self.norm.forward(backend, x)?)?
        };
        self.mlp.forward(backend, &normed)
    }
}
