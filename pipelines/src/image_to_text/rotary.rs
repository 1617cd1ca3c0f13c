//! Positions → angles of the rotary embedding.

use atelier_kernels::Backend;

use crate::Result;

/// Cosines and sines of every token's angles, `[tokens, pairs]` each.
#[derive(Debug)]
pub(super) struct Angles<B: Backend> {
    pub(super) cos: B::Tensor,
    pub(super) sin: B::Tensor,
}

/// `theta ^ (-2 i / channels)` for every pair of `channels`, rounded to `f32` where the reference rounds.
pub(super) fn frequencies(theta: f64, channels: usize) -> Vec<f32> {
    let base = f64::from(theta as f32);
    let exponent = |i: usize| (i as f32) / (channels as f32);
    (0..channels).step_by(2).map(|i| 1.0 / base.powf(f64::from(exponent(i))) as f32).collect()
}

impl<B: Backend> Angles<B> {
    /// The angles of tokens on several axes. Pair `i` turns with frequency `axes[i].1` and the token's position on axis
    /// `axes[i].0`.
    pub(super) fn new<const N: usize>(backend: &B, positions: &[[u32; N]], axes: &[(usize, f32)]) -> Result<Self> {
        let shape = [positions.len(), axes.len()];
        let angles = positions.iter().flat_map(|at| axes.iter().map(|&(axis, freq)| at[axis] as f32 * freq));
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles
            .map(|angle| {
                let (sin, cos) = f64::from(angle).sin_cos();
                (cos as f32, sin as f32)
            })
            .unzip();
        Ok(Self { cos: backend.upload(&cos, &shape)?, sin: backend.upload(&sin, &shape)? })
    }
}
