//! Logits → token.
//!
//! The order is that of transformers (`GenerationMixin._get_logits_processor`), with the two penalties it lacks where vLLM
//! has them: repetition penalty, frequency penalty, presence penalty; then, unless the choice is greedy, temperature,
//! top-k, top-p, min-p, and a draw from the softmax of what is left. The repetition penalty looks at the prompt and the
//! answer, the other two at the answer alone.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// How the next token is chosen. Every number is within its range: see [`Sampling::check`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sampling {
    /// Divides the logits; 0 takes the likeliest token always (greedy).
    pub temperature: f32,
    /// Only the so many likeliest tokens (and those equal to the last of them); 0 for all.
    pub top_k: usize,
    /// Only the likeliest tokens that together reach this probability, above 0 to 1.
    pub top_p: f32,
    /// Only tokens with at least this share of the likeliest token's probability, 0 to 1.
    pub min_p: f32,
    /// Positive logits of tokens that occurred are divided by it, negative ones multiplied; above 0, 1 for none.
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens that the answer holds, -2 to 2.
    pub presence_penalty: f32,
    /// Taken from the logits of tokens for every time that the answer holds them, -2 to 2.
    pub frequency_penalty: f32,
    /// Seed of the draws: equal requests with equal seeds have equal answers.
    pub seed: u64,
}

/// What a request says about sampling; what it leaves out is the model's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingOverrides {
    /// See [`Sampling::temperature`]; above 0 turns sampling on, 0 off.
    pub temperature: Option<f32>,
    /// See [`Sampling::top_k`].
    pub top_k: Option<usize>,
    /// See [`Sampling::top_p`].
    pub top_p: Option<f32>,
    /// See [`Sampling::min_p`].
    pub min_p: Option<f32>,
    /// See [`Sampling::repetition_penalty`].
    pub repetition_penalty: Option<f32>,
    /// See [`Sampling::presence_penalty`].
    pub presence_penalty: Option<f32>,
    /// See [`Sampling::frequency_penalty`].
    pub frequency_penalty: Option<f32>,
    /// See [`Sampling::seed`].
    pub seed: Option<u64>,
}

impl SamplingOverrides {
    /// The likeliest token always.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: Some(0.0), ..Self::default() }
    }
}

impl Sampling {
    /// The likeliest token always, without penalties.
    pub const GREEDY: Self = Self {
        temperature: 0.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        seed: 0,
    };

    /// These settings with a request's own. A request that asks for top-k, top-p or min-p without a temperature asks for
    /// sampling: where these settings are greedy the temperature is then 1.
    ///
    /// # Errors
    /// [`Error::Input`] when a number is out of range.
    pub fn with(self, request: &SamplingOverrides) -> Result<Self> {
        let narrowed = request.top_k.is_some() || request.top_p.is_some() || request.min_p.is_some();
        let own = if narrowed && self.temperature == 0.0 { 1.0 } else { self.temperature };
        let merged = Self {
            temperature: request.temperature.unwrap_or(own),
            top_k: request.top_k.unwrap_or(self.top_k),
            top_p: request.top_p.unwrap_or(self.top_p),
            min_p: request.min_p.unwrap_or(self.min_p),
            repetition_penalty: request.repetition_penalty.unwrap_or(self.repetition_penalty),
            presence_penalty: request.presence_penalty.unwrap_or(self.presence_penalty),
            frequency_penalty: request.frequency_penalty.unwrap_or(self.frequency_penalty),
            seed: request.seed.unwrap_or(self.seed),
        };
        merged.check().map_err(Error::Input)?;
        Ok(merged)
    }

    /// Says which number is out of its range.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        let ranges = [
            ("temperature", self.temperature, 0.0..=f32::MAX, "0 or more"),
            ("top_p", self.top_p, f32::MIN_POSITIVE..=1.0, "above 0, at most 1"),
            ("min_p", self.min_p, 0.0..=1.0, "0 to 1"),
            ("repetition_penalty", self.repetition_penalty, f32::MIN_POSITIVE..=f32::MAX, "above 0"),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0, "-2 to 2"),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0, "-2 to 2"),
        ];
        match ranges.into_iter().find(|(_, value, range, _)| !range.contains(value)) {
            Some((name, value, _, expected)) => Err(format!("`{name}` is {value}; expected {expected}")),
            None => Ok(()),
        }
    }
}

/// Chooses the tokens of one answer.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    /// Tokens of prompt and answer.
    seen: HashSet<u32>,
    /// How often the answer holds a token.
    counts: HashMap<u32, u32>,
    draws: SplitMix64,
}

impl Sampler {
    /// A sampler for an answer to `prompt`.
    #[must_use]
    pub fn new(sampling: Sampling, prompt: &[u32]) -> Self {
        Self {
            sampling,
            seen: prompt.iter().copied().collect(),
            counts: HashMap::new(),
            draws: SplitMix64(sampling.seed),
        }
    }

    /// Chooses the next token from its logits, `[vocabulary]`, and remembers it.
    ///
    /// # Errors
    /// [`Error::Numbers`] when a logit is no number or none is finite.
    pub fn next(&mut self, mut logits: Vec<f32>) -> Result<u32> {
        if logits.iter().any(|logit| logit.is_nan()) {
            return Err(Error::Numbers("the model's logits are not numbers (NaN)".into()));
        }
        self.penalise(&mut logits);
        let likeliest = argmax(&logits)
            .filter(|&id| logits[id].is_finite())
            .ok_or_else(|| Error::Numbers("the model's logits hold no finite number".into()))?;
        let token = if self.sampling.temperature == 0.0 {
            likeliest as u32
        } else {
            let kept = self.narrow(&logits, logits[likeliest]);
            draw(&kept, self.draws.uniform())
        };
        self.seen.insert(token);
        *self.counts.entry(token).or_default() += 1;
        Ok(token)
    }

    fn penalise(&self, logits: &mut [f32]) {
        let Sampling { repetition_penalty: repetition, presence_penalty, frequency_penalty, .. } = self.sampling;
        if repetition.to_bits() != 1.0_f32.to_bits() {
            for &id in &self.seen {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = if *logit < 0.0 { *logit * repetition } else { *logit / repetition };
                }
            }
        }
        if presence_penalty != 0.0 || frequency_penalty != 0.0 {
            for (&id, &count) in &self.counts {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit -= frequency_penalty * count as f32;
                    *logit -= presence_penalty;
                }
            }
        }
    }

    /// Temperature, top-k, top-p, min-p: the tokens that are left, in the order of their ids, with weights that are
    /// proportional to their probabilities (the likeliest token's is 1). `highest` is the largest logit.
    fn narrow(&self, logits: &[f32], highest: f32) -> Vec<(u32, f64)> {
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        // Probabilities are formed in f64 from the f32 quotients of the reference.
        let highest = f64::from(highest / temperature);
        let weight = |logit: f32| (f64::from(logit / temperature) - highest).exp();
        let mut kept: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| weight(logit))).collect();
        if top_k != 0 && top_k < kept.len() {
            let (_, &mut (_, last), _) = kept.select_nth_unstable_by(top_k - 1, likelier);
            kept.retain(|&(_, weight)| weight >= last);
        }
        if top_p < 1.0 {
            nucleus(&mut kept, f64::from(top_p));
        }
        kept.retain(|&(_, weight)| weight > 0.0 && weight >= f64::from(min_p));
        kept.sort_unstable_by_key(|&(id, _)| id);
        kept
    }
}

/// Keeps the likeliest tokens of which all before reach less than `mass` of the whole.
fn nucleus(kept: &mut Vec<(u32, f64)>, mass: f64) {
    // Sorting a whole vocabulary costs more than all else: the likeliest are sorted first, more only while they miss the
    // mass.
    const FIRST: usize = 256;
    let goal = mass * kept.iter().map(|&(_, weight)| weight).sum::<f64>();
    let mut sorted = 0;
    let mut reached = 0.0;
    while sorted < kept.len() {
        let end = (sorted * 8).max(FIRST).min(kept.len());
        let rest = &mut kept[sorted..];
        if end - sorted < rest.len() {
            rest.select_nth_unstable_by(end - sorted, likelier);
        }
        kept[sorted..end].sort_unstable_by(likelier);
        for at in sorted..end {
            if reached >= goal && at > 0 {
                kept.truncate(at);
                return;
            }
            reached += kept[at].1;
        }
        sorted = end;
    }
}

/// The larger weight first; of equal ones the larger id, as the reference keeps them (it sorts upwards and cuts in front).
fn likelier(a: &(u32, f64), b: &(u32, f64)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(b.0.cmp(&a.0))
}

/// The first of the largest.
fn argmax(logits: &[f32]) -> Option<usize> {
    (0..logits.len()).reduce(|best, at| if logits[at] > logits[best] { at } else { best })
}

/// The token at the share `uniform` (0 to 1) of the weights laid end to end.
fn draw(kept: &[(u32, f64)], uniform: f64) -> u32 {
    let mut left = uniform * kept.iter().map(|&(_, weight)| weight).sum::<f64>();
    for &(id, weight) in kept {
        left -= weight;
        if left < 0.0 {
            return id;
        }
    }
    // Rounding may leave a grain past the end.
    kept.last().map_or(0, |&(id, _)| id)
}

/// Steele, Lea and Flood's `SplitMix64`: the same numbers on every machine.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    /// A number of 53 bits, 0 to below 1.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests;
