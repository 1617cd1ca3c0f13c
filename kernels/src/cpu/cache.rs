//! Keys and values that an attention layer has seen.

use candle_core::Tensor;

use super::tensor;
use crate::{Error, Result};

/// Keys and values of one attention layer, `[capacity, width]` each.
#[derive(Debug)]
pub struct Cache {
    keys: Vec<f32>,
    values: Vec<f32>,
    capacity: usize,
    width: usize,
}

impl Cache {
    pub(super) fn new(capacity: usize, width: usize) -> Result<Self> {
        let size = capacity
            .checked_mul(width)
            .ok_or_else(|| Error::shape("cache", format!("{capacity} tokens of {width} channels are too many")))?;
        Ok(Self { keys: vec![0.0; size], values: vec![0.0; size], capacity, width })
    }

    /// Channels of one token.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn write(&mut self, at: usize, k: &Tensor, v: &Tensor) -> Result<()> {
        let (n, width) = tensor::dims2(k, "cache_write")?;
        if width != self.width {
            return Err(Error::shape(
                "cache_write",
                format!("keys have shape {:?}, the cache holds rows of {}", k.dims(), self.width),
            ));
        }
        tensor::expect_shape(v, k.dims(), "cache_write", "the value tensor")?;
        if at.checked_add(n).is_none_or(|end| end > self.capacity) {
            return Err(Error::shape(
                "cache_write",
                format!("{n} tokens at {at} do not fit into {} places", self.capacity),
            ));
        }
        let range = at * width..(at + n) * width;
        self.keys[range.clone()].copy_from_slice(&tensor::view(k)?);
        self.values[range].copy_from_slice(&tensor::view(v)?);
        Ok(())
    }

    /// Takes over the first `length` tokens of another cache.
    pub(super) fn copy(&mut self, from: &Self, length: usize) -> Result<()> {
        if from.width != self.width || length > from.capacity || length > self.capacity {
            return Err(Error::shape(
                "cache_copy",
                format!(
                    "{length} tokens from {} places of {} channels to {} of {}",
                    from.capacity, from.width, self.capacity, self.width
                ),
            ));
        }
        let size = length * self.width;
        self.keys[..size].copy_from_slice(&from.keys[..size]);
        self.values[..size].copy_from_slice(&from.values[..size]);
        Ok(())
    }

    /// Keys and values of the first `length` tokens.
    pub(super) fn first(&self, length: usize) -> Result<(&[f32], &[f32])> {
        if length > self.capacity {
            return Err(Error::shape(
                "attention_cached",
                format!("{length} tokens of a cache with {} places", self.capacity),
            ));
        }
        let size = length * self.width;
        Ok((&self.keys[..size], &self.values[..size]))
    }
}
