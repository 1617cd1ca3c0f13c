//! Loops over all threads.

use rayon::prelude::*;

/// Values that one task writes at least: fewer do not pay for handing them over.
pub(super) const CHUNK: usize = 16 * 1024;

/// Cuts `out` into pieces of `size` and calls `f` with the number of each and the piece.
pub(super) fn pieces(out: &mut [f32], size: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let size = size.max(1);
    if out.len() <= CHUNK {
        out.chunks_mut(size).enumerate().for_each(|(i, piece)| f(i, piece));
    } else {
        out.par_chunks_mut(size).enumerate().with_min_len(CHUNK / size).for_each(|(i, piece)| f(i, piece));
    }
}

/// Copies a slice.
pub(super) fn copy(x: &[f32], out: &mut [f32]) {
    pieces(out, CHUNK, |i, out| out.copy_from_slice(&x[i * CHUNK..][..out.len()]));
}

/// A copy of a slice.
pub(super) fn copied(x: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    copy(x, &mut out);
    out
}
