//! What a run will hold in memory, estimated before it starts.

use std::fmt;

use super::transformer::TransformerConfig;

/// Estimate of a run's memory, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Weights of the text encoder, mapped from its files.
    pub text_encoder: u64,
    /// Weights of the transformer, mapped.
    pub transformer: u64,
    /// Weights of the VAE, mapped.
    pub vae: u64,
    /// The largest sum of activations that any stage holds at once.
    pub activations: u64,
    /// Memory that is free now, when the system says so.
    pub available: Option<u64>,
}

impl Memory {
    /// The largest part: parts are loaded, used and dropped one after the other.
    #[must_use]
    pub fn largest_part(&self) -> u64 {
        self.text_encoder.max(self.transformer).max(self.vae)
    }

    /// Whether the largest part fits beside the activations; if not, its pages are read from disk again and again.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.available.is_none_or(|free| self.largest_part().saturating_add(self.activations) <= free)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "text encoder {}, transformer {}, VAE {} (mapped, one at a time), activations up to {}",
            Bytes(self.text_encoder),
            Bytes(self.transformer),
            Bytes(self.vae),
            Bytes(self.activations)
        )?;
        if let Some(free) = self.available {
            write!(f, "; free {}", Bytes(free))?;
        }
        Ok(())
    }
}

/// A number of bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["B", "KiB", "MiB"] {
            if value < 1000.0 {
                return write!(f, "{value:.0} {unit}");
            }
            value /= 1024.0;
        }
        write!(f, "{value:.1} GiB")
    }
}

/// Memory that could be used without swapping, where the system tells (`MemAvailable` on Linux).
#[must_use]
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

impl TransformerConfig {
    /// Bytes of keys and values that a prefix of `tokens` keeps for all steps.
    #[must_use]
    pub fn prefix_memory(&self, tokens: usize) -> u64 {
        let layers = if self.causal_condition { 2 * self.num_layers } else { 1 };
        values(tokens).saturating_mul((layers * self.width()) as u64)
    }

    /// Bytes that a step over `tokens` tokens needs at its peak, weights aside: input, its norm, queries, keys and values
    /// (and their copies behind the prefix), the attended values; the feed-forward layer runs in slices and needs less.
    #[must_use]
    pub fn step_memory(&self, tokens: usize) -> u64 {
        values(tokens).saturating_mul((8 * self.width() + 4 * self.in_channels) as u64)
    }
}

fn values(count: usize) -> u64 {
    (count * size_of::<f32>()) as u64
}
