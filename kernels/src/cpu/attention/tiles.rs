//! Attention of many queries, bound by arithmetic.
//!
//! Keys and values of a head are packed into panels [`PANEL`] wide. A task then takes a block of queries of one head over
//! the keys, a tile of scores at a time, with the softmax carried along (Milakov and Gimelshein 2018, "Online normalizer
//! calculation for softmax"): the running maximum of a query only ever grows, and what was summed before it grew is
//! shrunk to match.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use rayon::prelude::*;

use super::Problem;
use crate::cpu::math;
use crate::cpu::simd::{Simd, Work, dispatch};

/// Width of a packed panel: keys, or channels of values.
const PANEL: usize = 32;
/// Most keys of a tile of scores.
const TILE: usize = 128;
/// Queries of a task.
const BLOCK: usize = 96;
/// Bytes of packed keys and values held at a time, unless one head takes more.
const PACKED: usize = 64 << 20;

/// Fills `out` `[n, heads * dim]`.
pub(super) fn attend(problem: &Problem<'_>, out: &mut [f32]) {
    let Problem { heads, kv_heads, dim, keys, .. } = *problem;
    let n = out.len() / (heads * dim);
    let blocks = n.div_ceil(BLOCK);
    let mut tasks: Vec<Task<'_>> = (0..heads * blocks)
        .map(|i| Task { head: i / blocks, first: i % blocks * BLOCK, out: Vec::with_capacity(BLOCK) })
        .collect();
    for (i, out) in out.chunks_exact_mut(dim).enumerate() {
        tasks[i % heads * blocks + i / heads / BLOCK].out.push(out);
    }
    let (k_size, v_size) = (keys.next_multiple_of(PANEL) * dim, dim.next_multiple_of(PANEL) * keys);
    let at_once = (PACKED / (4 * (k_size + v_size))).clamp(1, kv_heads);
    let (mut packed_k, mut packed_v) = (vec![0.0; k_size * at_once], vec![0.0; v_size * at_once]);
    for (i, tasks) in tasks.chunks_mut(at_once * heads / kv_heads * blocks).enumerate() {
        let kv_head = i * at_once;
        pack_keys(problem, kv_head, &mut packed_k);
        pack_values(problem, kv_head, &mut packed_v);
        // one by one: blocks at the end of a causal sequence take the longest
        tasks.par_iter_mut().with_max_len(1).for_each(|task| {
            let at = task.head * kv_heads / heads - kv_head;
            let (k, v) = (&packed_k[at * k_size..][..k_size], &packed_v[at * v_size..][..v_size]);
            dispatch(Block { problem, task, k, v });
        });
    }
}

/// Keys of the heads from `first` on as `[heads, keys / PANEL, dim, PANEL]`; past the last key stand zeros.
fn pack_keys(problem: &Problem<'_>, first: usize, packed: &mut [f32]) {
    let Problem { k, kv_heads, dim, keys, .. } = *problem;
    let panels = keys.div_ceil(PANEL);
    packed.par_chunks_exact_mut(dim * PANEL).enumerate().for_each(|(i, packed)| {
        let (head, key) = (first + i / panels, i % panels * PANEL);
        for lane in 0..PANEL {
            let row =
                (head < kv_heads && key + lane < keys).then(|| &k[((key + lane) * kv_heads + head) * dim..][..dim]);
            for (c, packed) in packed.chunks_exact_mut(PANEL).enumerate() {
                packed[lane] = row.map_or(0.0, |row| row[c]);
            }
        }
    });
}

/// Values of the heads from `first` on as `[heads, dim / PANEL, keys, PANEL]`; past the last channel stand zeros.
fn pack_values(problem: &Problem<'_>, first: usize, packed: &mut [f32]) {
    let Problem { v, kv_heads, dim, keys, .. } = *problem;
    let panels = dim.div_ceil(PANEL);
    packed.par_chunks_exact_mut(keys * PANEL).enumerate().for_each(|(i, packed)| {
        let (head, channel) = (first + i / panels, i % panels * PANEL);
        let width = PANEL.min(dim - channel);
        if head < kv_heads {
            for (row, packed) in packed.chunks_exact_mut(PANEL).enumerate() {
                packed[..width].copy_from_slice(&v[(row * kv_heads + head) * dim + channel..][..width]);
            }
        }
    });
}

/// A block of queries of one head, and where their results go: one slice of `dim` values per query.
struct Task<'a> {
    head: usize,
    first: usize,
    out: Vec<&'a mut [f32]>,
}

struct Block<'a, 'b> {
    problem: &'a Problem<'a>,
    task: &'a mut Task<'b>,
    k: &'a [f32],
    v: &'a [f32],
}

impl Work for Block<'_, '_> {
    type Output = ();

    /// The accumulators of a micro-tile fill the registers: 12 x 2 of 32, or 3 x 4 of 16.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match S::WIDTH {
            16 => self.rows::<S, 12, 2>(s),
            _ => self.rows::<S, 3, 4>(s),
        }
    }
}

/// What a group of `R` queries has seen so far.
struct State<const R: usize> {
    /// Keys that each query sees.
    counts: [usize; R],
    largest: [f32; R],
    sums: [f32; R],
}

impl Block<'_, '_> {
    /// `R` queries by `N` vectors (one panel) to a micro-tile.
    #[inline(always)]
    fn rows<S: Simd, const R: usize, const N: usize>(self, s: S) {
        let Problem { q, heads, dim, keys, scale, .. } = *self.problem;
        let Task { head, first, out } = self.task;
        let n = out.len();
        let groups = n.div_ceil(R);
        let panels = dim.div_ceil(PANEL);
        // queries as [groups, dim, R]; past the last one stand zeros
        let mut queries = vec![[0.0; R]; groups * dim];
        let mut states = Vec::with_capacity(groups);
        for (group, queries) in queries.chunks_exact_mut(dim).enumerate() {
            let mut state = State { counts: [1; R], largest: [f32::NEG_INFINITY; R], sums: [0.0; R] };
            for r in 0..R.min(n - group * R) {
                let query = *first + group * R + r;
                state.counts[r] = self.problem.count(query);
                for (packed, q) in queries.iter_mut().zip(&q[(query * heads + *head) * dim..]) {
                    packed[r] = q * scale;
                }
            }
            states.push(state);
        }
        let seen = states.iter().flat_map(|state| state.counts).max().unwrap_or(0);
        // mixed values as [groups, panels, R, PANEL]
        let mut mixed = vec![[[0.0; PANEL]; R]; groups * panels];
        let mut scores = [[0.0; TILE]; R];
        // keys and values of a tile stay in the second-level cache
        let tile = if dim > 256 { PANEL } else { TILE };
        for start in (0..seen).step_by(tile) {
            let end = keys.min(start + tile);
            let tile_keys = &self.k[start * dim..(end - start).next_multiple_of(PANEL) * dim + start * dim];
            for ((queries, mixed), state) in
                queries.chunks_exact(dim).zip(mixed.chunks_exact_mut(panels)).zip(&mut states)
            {
                if state.counts.iter().all(|&count| count <= start) {
                    continue;
                }
                for (i, panel) in tile_keys.chunks_exact(dim * PANEL).enumerate() {
                    let panel = panel.as_chunks::<PANEL>().0;
                    let sums = multiply::<S, R, N>(s, [[s.splat(0.0); N]; R], panel, |c| queries[c]);
                    for (scores, sums) in scores.iter_mut().zip(sums) {
                        store(s, sums, &mut scores[i * PANEL..]);
                    }
                }
                let shrink = softmax(s, &mut scores, state, start, end);
                let scores = &scores;
                for (i, mixed) in mixed.iter_mut().enumerate() {
                    let panel = &self.v[(i * keys + start) * PANEL..(i * keys + end) * PANEL];
                    let mut sums = [[s.splat(0.0); N]; R];
                    for r in 0..R {
                        for j in 0..N {
                            sums[r][j] = s.mul(s.splat(shrink[r]), s.load(&mixed[r][j * S::WIDTH..]));
                        }
                    }
                    let sums = multiply::<S, R, N>(s, sums, panel.as_chunks::<PANEL>().0, |key| {
                        std::array::from_fn(|r| scores[r][key % TILE])
                    });
                    for (mixed, sums) in mixed.iter_mut().zip(sums) {
                        store(s, sums, mixed);
                    }
                }
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            let (group, r) = (i / R, i % R);
            let factor = 1.0 / states[group].sums[r];
            for (out, mixed) in out.chunks_mut(PANEL).zip(&mixed[group * panels..]) {
                for (out, mixed) in out.iter_mut().zip(&mixed[r]) {
                    *out = mixed * factor;
                }
            }
        }
    }
}

/// `sums + a b`, `a` `[R, depth]` by column, `b` `[depth, PANEL]`.
#[inline(always)]
fn multiply<S: Simd, const R: usize, const N: usize>(
    s: S,
    mut sums: [[S::V; N]; R],
    b: &[[f32; PANEL]],
    a: impl Fn(usize) -> [f32; R],
) -> [[S::V; N]; R] {
    for (i, b) in b.iter().enumerate() {
        let a = a(i);
        let b: [S::V; N] = std::array::from_fn(|j| s.load(&b[j * S::WIDTH..]));
        for r in 0..R {
            let a = s.splat(a[r]);
            for j in 0..N {
                sums[r][j] = s.mul_add(a, b[j], sums[r][j]);
            }
        }
    }
    sums
}

#[inline(always)]
fn store<S: Simd, const N: usize>(s: S, sums: [S::V; N], out: &mut [f32]) {
    for (j, sum) in sums.into_iter().enumerate() {
        s.store(sum, &mut out[j * S::WIDTH..]);
    }
}

/// Turns scores of the keys `start .. end` into weights and says by how much earlier sums shrink.
#[inline(always)]
fn softmax<S: Simd, const R: usize>(
    s: S,
    scores: &mut [[f32; TILE]; R],
    state: &mut State<R>,
    start: usize,
    end: usize,
) -> [f32; R] {
    let length = end - start;
    let mut shrink = [1.0; R];
    for r in 0..R {
        let scores = &mut scores[r][..length.next_multiple_of(PANEL)];
        let seen = state.counts[r].saturating_sub(start).min(length);
        scores[seen..].fill(f32::NEG_INFINITY);
        let mut largest = s.splat(state.largest[r]);
        for scores in scores.chunks_exact(S::WIDTH) {
            largest = s.max(largest, s.load(scores));
        }
        let largest = s.largest(largest);
        shrink[r] = (state.largest[r] - largest).exp();
        let mut sum = s.splat(0.0);
        for scores in scores.chunks_exact_mut(S::WIDTH) {
            let weights = math::exp(s, s.sub(s.load(scores), s.splat(largest)));
            sum = s.add(sum, weights);
            s.store(weights, scores);
        }
        state.largest[r] = largest;
        state.sums[r] = state.sums[r] * shrink[r] + s.sum(sum);
    }
    shrink
}
