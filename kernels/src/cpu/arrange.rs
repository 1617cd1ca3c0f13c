//! Moving values: reshapes, slices, gathers, folds between channels and pixels.

use candle_core::Tensor;

use super::parallel;
use super::tensor;
use crate::{Error, Result};

/// Side of the squares in which a transpose moves: whole cache lines both ways.
const SIDE: usize = 16;

pub(super) fn reshape(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if x.elem_count() != shape.iter().product::<usize>() {
        return Err(Error::shape("reshape", format!("{:?} does not hold the values of {shape:?}", x.dims())));
    }
    Ok(x.reshape(shape)?)
}

pub(super) fn transpose(x: &Tensor) -> Result<Tensor> {
    let (a, b) = tensor::dims2(x, "transpose")?;
    let values = tensor::view(x)?;
    let values = &*values;
    let mut out = vec![0.0; values.len()];
    parallel::pieces(&mut out, SIDE * a, |block, out| {
        let first = block * SIDE;
        let width = SIDE.min(b - first);
        let mut square = [[0.0; SIDE]; SIDE];
        for (i, rows) in values.chunks(SIDE * b).enumerate() {
            let height = rows.len() / b;
            for (y, row) in rows.chunks_exact(b).enumerate() {
                for (column, value) in square.iter_mut().zip(&row[first..first + width]) {
                    column[y] = *value;
                }
            }
            for (out, column) in out.chunks_exact_mut(a).zip(&square) {
                out[i * SIDE..][..height].copy_from_slice(&column[..height]);
            }
        }
    });
    tensor::from_vec(out, &[b, a])
}

pub(super) fn concat(parts: &[&Tensor]) -> Result<Tensor> {
    let first = parts.first().ok_or_else(|| Error::shape("concat", "needs at least one tensor"))?;
    let Some((_, row)) = first.dims().split_first() else {
        return Err(Error::shape("concat", "needs tensors with at least one axis"));
    };
    let mut count = 0;
    let mut out = vec![0.0; parts.iter().map(|part| part.elem_count()).sum()];
    let mut rest = &mut out[..];
    for part in parts {
        if part.dims().get(1..) != Some(row) {
            return Err(Error::shape(
                "concat",
                format!("rows of {:?} and {:?} are of different shape", first.dims(), part.dims()),
            ));
        }
        count += part.dims()[0];
        let (place, after) = rest.split_at_mut(part.elem_count());
        parallel::copy(&tensor::view(part)?, place);
        rest = after;
    }
    let shape: Vec<usize> = std::iter::once(count).chain(row.iter().copied()).collect();
    tensor::from_vec(out, &shape)
}

pub(super) fn rows(x: &Tensor, start: usize, length: usize) -> Result<Tensor> {
    let count = *x.dims().first().ok_or_else(|| Error::shape("rows", "needs at least one axis"))?;
    if start.checked_add(length).is_none_or(|end| end > count) {
        return Err(Error::shape("rows", format!("{start}..+{length} of {:?}", x.dims())));
    }
    Ok(x.narrow(0, start, length)?)
}

pub(super) fn columns(x: &Tensor, start: usize, length: usize) -> Result<Tensor> {
    let (n, c) = tensor::dims2(x, "columns")?;
    if start.checked_add(length).is_none_or(|end| end > c) {
        return Err(Error::shape("columns", format!("{start}..+{length} of {:?}", x.dims())));
    }
    let values = tensor::view(x)?;
    let values = &*values;
    let mut out = vec![0.0; n * length];
    parallel::pieces(&mut out, length, |i, out| out.copy_from_slice(&values[i * c + start..][..length]));
    tensor::from_vec(out, &[n, length])
}

pub(super) fn replace_rows(x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor> {
    scatter("replace_rows", x, at, values, |row, value| row.copy_from_slice(value))
}

pub(super) fn add_rows(x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor> {
    scatter("add_rows", x, at, values, |row, value| {
        for (row, value) in row.iter_mut().zip(value) {
            *row += value;
        }
    })
}

/// A copy of `x` where `f` has put each row of `values` into its row of `x`, in order.
fn scatter(
    operation: &'static str,
    x: &Tensor,
    at: &[u32],
    values: &Tensor,
    f: impl Fn(&mut [f32], &[f32]),
) -> Result<Tensor> {
    let (n, c) = tensor::dims2(x, operation)?;
    tensor::expect_shape(values, &[at.len(), c], operation, "the tensor of rows")?;
    if let Some(bad) = at.iter().find(|&&at| at as usize >= n) {
        return Err(Error::shape(operation, format!("row {bad} of {:?}", x.dims())));
    }
    let mut out = parallel::copied(&tensor::view(x)?);
    for (&at, value) in at.iter().zip(tensor::view(values)?.chunks_exact(c.max(1))) {
        let start = at as usize * c;
        f(&mut out[start..start + c], value);
    }
    tensor::from_vec(out, x.dims())
}

pub(super) fn average_down(x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor> {
    let (c, h, w) = tensor::dims3(x, "average_down")?;
    let factor = time * space * space;
    if factor == 0 || channels == 0 || !(c * factor).is_multiple_of(channels) || h % space != 0 || w % space != 0 {
        return Err(Error::shape(
            "average_down",
            format!("{:?} to {channels} channels by {time} in time and {space} in space", x.dims()),
        ));
    }
    let group = c * factor / channels;
    let values = tensor::view(x)?;
    let values = &*values;
    let (oh, ow) = (h / space, w / space);
    let mut out = vec![0.0; channels * oh * ow];
    parallel::pieces(&mut out, oh * ow, |channel, out| {
        for unfolded in channel * group..(channel + 1) * group {
            let (dx, dy) = (unfolded % space, unfolded / space % space);
            let (frame, source) = (unfolded / (space * space) % time, unfolded / factor);
            // the frames before the last one are zeros
            if frame + 1 == time {
                for (i, out) in out.chunks_exact_mut(ow).enumerate() {
                    let row = &values[(source * h + i * space + dy) * w..][..w];
                    for (out, x) in out.iter_mut().zip(row[dx..].iter().step_by(space)) {
                        *out += x;
                    }
                }
            }
        }
        for out in out {
            *out /= group as f32;
        }
    });
    tensor::from_vec(out, &[channels, oh, ow])
}

pub(super) fn duplicate_up(x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor> {
    let (c, h, w) = tensor::dims3(x, "duplicate_up")?;
    let unfolded = channels * time * space * space;
    if unfolded == 0 || c == 0 || !unfolded.is_multiple_of(c) {
        return Err(Error::shape(
            "duplicate_up",
            format!("{:?} to {channels} channels by {time} in time and {space} in space", x.dims()),
        ));
    }
    let repeats = unfolded / c;
    let values = tensor::view(x)?;
    let values = &*values;
    let (oh, ow) = (h * space, w * space);
    let mut out = vec![0.0; channels * oh * ow];
    parallel::pieces(&mut out, ow, |row, out| {
        let (channel, i) = (row / oh, row % oh);
        let first = ((channel * time + time - 1) * space + i % space) * space;
        for dx in 0..space {
            let source = (first + dx) / repeats;
            let row = &values[(source * h + i / space) * w..][..w];
            for (out, x) in out[dx..].iter_mut().step_by(space).zip(row) {
                *out = *x;
            }
        }
    });
    tensor::from_vec(out, &[channels, oh, ow])
}
