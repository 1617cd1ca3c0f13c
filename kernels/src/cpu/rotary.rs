//! Rotary position embedding.

use super::{parallel, tensor};
use crate::{Error, Result, Rotary};
use candle_core::Tensor;

pub(super) fn rotary(x: &Tensor, heads: usize, cos: &Tensor, sin: &Tensor, pairs: Rotary) -> Result<Tensor> {
    let (n, width) = tensor::dims2(x, "rotary")?;
    let (_, half) = tensor::dims2(cos, "rotary")?;
    if heads == 0 || width == 0 || !width.is_multiple_of(heads) || 2 * half > width / heads {
        return Err(Error::shape(
            "rotary",
            format!("cannot turn {half} pairs of channels in each of {heads} heads of {:?}", x.dims()),
        ));
    }
    tensor::expect_shape(cos, &[n, half], "rotary", "cos")?;
    tensor::expect_shape(sin, &[n, half], "rotary", "sin")?;
    let (cos, sin) = (tensor::view(cos)?, tensor::view(sin)?);
    let (cos, sin) = (&*cos, &*sin);
    let dim = width / heads;
    let mut out = parallel::copied(&tensor::view(x)?);
    if half > 0 {
        parallel::pieces(&mut out, width, |i, row| {
            let (cos, sin) = (&cos[i * half..][..half], &sin[i * half..][..half]);
            for head in row.chunks_exact_mut(dim) {
                match pairs {
                    Rotary::Halves => {
                        let (first, second) = head[..2 * half].split_at_mut(half);
                        for (((a, b), cos), sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
                            (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                        }
                    }
                    Rotary::Pairs => {
                        for ((pair, cos), sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                            (pair[0], pair[1]) = (pair[0] * cos - pair[1] * sin, pair[1] * cos + pair[0] * sin);
                        }
                    }
                }
            }
        });
    }
    tensor::from_vec(out, x.dims())
}
