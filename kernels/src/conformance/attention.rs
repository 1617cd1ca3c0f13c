//! Cases for attention and its cache.

use super::{Array, Suite, reference};
use crate::{Attention, Backend, Result, Visible};

/// How many keys each query sees.
#[derive(Debug, Clone, Copy)]
enum Mask {
    All,
    /// As [`All`](Self::All), said with counts.
    Full,
    /// The queries are the last ones of the keys.
    Causal,
    /// The same in blocks of so many queries.
    Blocks(usize),
    /// Any count from 1 on.
    Ragged,
}

struct Case {
    queries: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
    mask: Mask,
}

#[rustfmt::skip]
const CASES: [(usize, usize, usize, usize, usize, Mask); 26] = [
    (1, 1, 1, 1, 1, Mask::All),
    (1, 1, 2, 1, 7, Mask::Full),
    (2, 3, 3, 3, 2, Mask::Causal),
    (3, 7, 2, 1, 3, Mask::All),
    (7, 7, 6, 3, 33, Mask::Causal),
    (33, 33, 4, 2, 8, Mask::Causal),
    (33, 65, 3, 1, 65, Mask::Ragged),
    (65, 65, 6, 3, 33, Mask::Blocks(17)),
    (65, 130, 4, 1, 16, Mask::Blocks(33)),
    (7, 65, 3, 3, 64, Mask::Causal),
    (2, 129, 4, 1, 72, Mask::All),
    (65, 300, 2, 2, 80, Mask::Ragged),
    (130, 290, 2, 1, 16, Mask::Causal),
    (257, 257, 1, 1, 7, Mask::Causal),
    (300, 1100, 1, 1, 33, Mask::Blocks(129)),
    (129, 515, 4, 2, 64, Mask::All),
    (65, 700, 2, 1, 128, Mask::Full),
    (33, 40, 1, 1, 1152, Mask::All),
    (7, 600, 1, 1, 1152, Mask::Ragged),
    // one new token, or a few
    (1, 2, 2, 1, 3, Mask::All),
    (1, 65, 7, 7, 33, Mask::Full),
    (1, 513, 8, 2, 128, Mask::All),
    (1, 1030, 3, 1, 65, Mask::All),
    (2, 700, 4, 2, 64, Mask::Causal),
    (3, 333, 2, 2, 7, Mask::Ragged),
    (5, 700, 4, 2, 64, Mask::Causal),
];

pub(super) fn run<B: Backend>(suite: &mut Suite<'_, B>) {
    for (queries, keys, heads, kv_heads, dim, mask) in CASES {
        let case = Case { queries, keys, heads, kv_heads, dim, mask };
        let q = suite.random.spread(&[queries, heads * dim], 2.0);
        compare(suite, &case, "", &q);
    }
    // scores that would overflow, or all vanish, without the largest one taken off; and one key that wins
    for (queries, mask) in [(1, Mask::All), (33, Mask::Causal)] {
        let case = Case { queries, keys: 130, heads: 2, kv_heads: 1, dim: 3, mask };
        let q = suite.random.spread(&[queries, 6], 40.0);
        compare(suite, &case, ", large scores", &q);
    }
}

fn compare<B: Backend>(suite: &mut Suite<'_, B>, case: &Case, note: &str, q: &Array) {
    let Case { queries, keys, heads, kv_heads, dim, mask } = *case;
    let (k, v) = (suite.random.array(&[keys, kv_heads * dim]), suite.random.array(&[keys, kv_heads * dim]));
    // a power of two, so that the product with the scores is exact
    let scale = 0.5_f32.powi((dim as f32).log2() as i32 / 2);
    let counts: Vec<u32> = (0..queries)
        .map(|query| match mask {
            Mask::All | Mask::Full => keys,
            Mask::Causal => keys - queries + query + 1,
            Mask::Blocks(size) => keys - queries + (query / size * size + size).min(queries),
            Mask::Ragged => 1 + suite.random.below(keys),
        })
        .map(|count| count as u32)
        .collect();
    let visible = if matches!(mask, Mask::All) { Visible::All } else { Visible::First(&counts) };
    let shape = Attention { heads, kv_heads, scale, visible };
    let expected = reference::attention(q, &k, &v, heads, kv_heads, scale.into(), &counts);
    let name = format!("{mask:?}, {queries} to {keys}, {heads}/{kv_heads} heads of {dim}{note}");
    let tolerance = suite.tolerance.attention;

    let found = (|| suite.backend.attention(&suite.upload(q)?, &suite.upload(&k)?, &suite.upload(&v)?, shape))();
    suite.compare("attention", name.clone(), tolerance, found, &expected);
    let found = cached(suite, q, &k, &v, shape);
    suite.compare("attention_cached", name.clone(), tolerance, found, &expected);
    let found = copied(suite, q, &k, &v, shape);
    suite.compare("cache_copy", name, tolerance, found, &expected);
}

/// Fills a cache with other values first, then in two steps with the right ones; what lies past them must not matter.
fn cached<B: Backend>(
    suite: &mut Suite<'_, B>,
    q: &Array,
    k: &Array,
    v: &Array,
    shape: Attention<'_>,
) -> Result<B::Tensor> {
    let (keys, width) = (k.shape[0], k.shape[1]);
    let old = suite.random.spread(&[keys + 3, width], 100.0);
    let mut cache = suite.backend.cache(keys + 3, width)?;
    suite.backend.cache_write(&mut cache, 0, &suite.upload(&old)?, &suite.upload(&old)?)?;
    let first = keys / 3;
    for (start, length) in [(first, keys - first), (0, first)] {
        if length > 0 {
            let (k, v) = (suite.upload(&k.rows(start, length))?, suite.upload(&v.rows(start, length))?);
            suite.backend.cache_write(&mut cache, start, &k, &v)?;
        }
    }
    suite.backend.attention_cached(&suite.upload(q)?, &cache, keys, shape)
}

/// Copies the right values, past which there are wrong ones, to a cache of wrong ones that they fill.
fn copied<B: Backend>(
    suite: &mut Suite<'_, B>,
    q: &Array,
    k: &Array,
    v: &Array,
    shape: Attention<'_>,
) -> Result<B::Tensor> {
    let (keys, width) = (k.shape[0], k.shape[1]);
    let old = suite.random.spread(&[keys + 3, width], 100.0);
    let [mut from, mut to] = [suite.backend.cache(keys + 3, width)?, suite.backend.cache(keys, width)?];
    suite.backend.cache_write(&mut from, 0, &suite.upload(&old)?, &suite.upload(&old)?)?;
    let old = suite.upload(&old.rows(3, keys))?;
    suite.backend.cache_write(&mut to, 0, &old, &old)?;
    suite.backend.cache_write(&mut from, 0, &suite.upload(k)?, &suite.upload(v)?)?;
    suite.backend.cache_copy(&from, &mut to, keys)?;
    suite.backend.attention_cached(&suite.upload(q)?, &to, keys, shape)
}
