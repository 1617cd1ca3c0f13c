//! Between candle tensors and slices.

use std::ops::Deref;

use candle_core::{Device, Storage, Tensor};

use crate::{Error, Result};

/// The values of a contiguous `f32` tensor, readable as a slice while this lives.
pub(super) struct View<Guard> {
    storage: Guard,
    start: usize,
    length: usize,
}

impl<Guard: Deref<Target = Storage>> Deref for View<Guard> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(values) => {
                let values = values.as_slice::<f32>().expect("checked in view()");
                &values[self.start..self.start + self.length]
            }
            _ => unreachable!("checked in view()"),
        }
    }
}

/// Opens a tensor for reading.
pub(super) fn view(x: &Tensor) -> Result<View<impl Deref<Target = Storage> + '_>> {
    let (storage, layout) = x.storage_and_layout();
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(Error::shape("view", format!("tensor of shape {:?} is not contiguous", x.dims())));
    };
    match &*storage {
        Storage::Cpu(values) => {
            values.as_slice::<f32>()?;
        }
        _ => return Err(Error::Device("tensor is not on the CPU".into())),
    }
    Ok(View { storage, start, length: end - start })
}

/// A tensor that owns `values`.
pub(super) fn from_vec(values: Vec<f32>, shape: &[usize]) -> Result<Tensor> {
    if values.len() != shape.iter().product::<usize>() {
        return Err(Error::shape("upload", format!("{} values for shape {shape:?}", values.len())));
    }
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

/// The two sizes of a `[n, c]` tensor.
pub(super) fn dims2(x: &Tensor, operation: &'static str) -> Result<(usize, usize)> {
    match *x.dims() {
        [n, c] => Ok((n, c)),
        ref other => Err(Error::shape(operation, format!("needs two axes, got {other:?}"))),
    }
}

/// The three sizes of a `[c, h, w]` tensor.
pub(super) fn dims3(x: &Tensor, operation: &'static str) -> Result<(usize, usize, usize)> {
    match *x.dims() {
        [c, h, w] => Ok((c, h, w)),
        ref other => Err(Error::shape(operation, format!("needs three axes, got {other:?}"))),
    }
}

/// The size of the last axis, which must be there and not empty.
pub(super) fn channels(x: &Tensor, operation: &'static str) -> Result<usize> {
    match x.dims().last() {
        Some(&c) if c > 0 => Ok(c),
        _ => Err(Error::shape(operation, format!("needs a last axis with channels, got {:?}", x.dims()))),
    }
}

/// Fails unless `x` has exactly this shape.
pub(super) fn expect_shape(x: &Tensor, shape: &[usize], operation: &'static str, name: &str) -> Result<()> {
    if x.dims() == shape {
        return Ok(());
    }
    Err(Error::shape(operation, format!("{name} has shape {:?}, needs {shape:?}", x.dims())))
}
