//! Operations that look at one element (or one element of each operand) at a time.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use candle_core::Tensor;

use super::parallel::{self, CHUNK};
use super::simd::{Simd, WIDEST, Work, dispatch};
use super::{math, tensor};
use crate::{Activation, Error, Result};

/// A function of one element of each of `N` operands.
trait Function<const N: usize>: Copy + Sync {
    fn at<S: Simd>(self, s: S, x: [S::V; N]) -> S::V;
}

#[derive(Clone, Copy)]
struct AddScaled(f32);

impl Function<2> for AddScaled {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [x, y]: [S::V; 2]) -> S::V {
        s.mul_add(s.splat(self.0), y, x)
    }
}

#[derive(Clone, Copy)]
struct Affine(f32, f32);

impl Function<1> for Affine {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [x]: [S::V; 1]) -> S::V {
        s.mul_add(s.splat(self.0), x, s.splat(self.1))
    }
}

#[derive(Clone, Copy)]
struct GatedAdd;

impl Function<3> for GatedAdd {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [x, gate, y]: [S::V; 3]) -> S::V {
        s.mul_add(gate, y, x)
    }
}

impl Function<1> for Activation {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [x]: [S::V; 1]) -> S::V {
        match self {
            Self::Silu => math::silu(s, x),
            Self::Gelu => math::gelu(s, x),
            Self::GeluTanh => math::gelu_tanh(s, x),
            Self::Tanh => math::tanh(s, x),
        }
    }
}

#[derive(Clone, Copy)]
struct SwiGlu;

impl Function<2> for SwiGlu {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [gate, up]: [S::V; 2]) -> S::V {
        s.mul(math::silu(s, gate), up)
    }
}

#[derive(Clone, Copy)]
struct SigmoidGate;

impl Function<2> for SigmoidGate {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, [gate, x]: [S::V; 2]) -> S::V {
        math::swish(s, x, gate)
    }
}

/// Fills `out` with a function of operands of the same length.
struct Map<'a, F, const N: usize> {
    function: F,
    operands: [&'a [f32]; N],
    out: &'a mut [f32],
}

impl<F: Function<N>, const N: usize> Work for Map<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let length = self.out.len();
        let operands = self.operands.map(|x| &x[..length]);
        let whole = length - length % S::WIDTH;
        for i in (0..whole).step_by(S::WIDTH) {
            s.store(self.function.at(s, operands.map(|x| s.load(&x[i..]))), &mut self.out[i..]);
        }
        if whole < length {
            let rest = operands.map(|x| {
                let mut rest = [0.0; WIDEST];
                rest[..length - whole].copy_from_slice(&x[whole..]);
                s.load(&rest)
            });
            let mut last = [0.0; WIDEST];
            s.store(self.function.at(s, rest), &mut last);
            self.out[whole..].copy_from_slice(&last[..length - whole]);
        }
    }
}

pub(super) fn add_scaled(x: &Tensor, factor: f32, y: &Tensor) -> Result<Tensor> {
    zip("add_scaled", AddScaled(factor), x, y)
}

pub(super) fn affine(x: &Tensor, factor: f32, offset: f32) -> Result<Tensor> {
    map(Affine(factor, offset), x)
}

pub(super) fn activate(x: &Tensor, function: Activation) -> Result<Tensor> {
    map(function, x)
}

pub(super) fn swiglu(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    zip("swiglu", SwiGlu, gate, up)
}

pub(super) fn sigmoid_gate(gate: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (n, c) = tensor::dims2(x, "sigmoid_gate")?;
    if gate.dims() != [n, 1] || c == 1 {
        return zip("sigmoid_gate", SigmoidGate, gate, x);
    }
    let (gate, values) = (tensor::view(gate)?, tensor::view(x)?);
    let (gate, values) = (&*gate, &*values);
    let mut out = vec![0.0; values.len()];
    parallel::pieces(&mut out, c, |i, out| {
        let share = 1.0 / (1.0 + (-gate[i]).exp());
        dispatch(Map { function: Affine(share, 0.0), operands: [&values[i * c..]], out });
    });
    tensor::from_vec(out, &[n, c])
}

pub(super) fn gated_add(x: &Tensor, gate: &Tensor, y: &Tensor) -> Result<Tensor> {
    let (_, c) = tensor::dims2(x, "gated_add")?;
    tensor::expect_shape(gate, &[c], "gated_add", "the gate")?;
    tensor::expect_shape(y, x.dims(), "gated_add", "the addend")?;
    let (values, gate, addend) = (tensor::view(x)?, tensor::view(gate)?, tensor::view(y)?);
    let (values, gate, addend) = (&*values, &*gate, &*addend);
    let mut out = vec![0.0; values.len()];
    parallel::pieces(&mut out, c, |i, out| {
        dispatch(Map { function: GatedAdd, operands: [&values[i * c..], gate, &addend[i * c..]], out });
    });
    tensor::from_vec(out, x.dims())
}

fn map(function: impl Function<1>, x: &Tensor) -> Result<Tensor> {
    let values = tensor::view(x)?;
    let values = &*values;
    let mut out = vec![0.0; values.len()];
    parallel::pieces(&mut out, CHUNK, |i, out| dispatch(Map { function, operands: [&values[i * CHUNK..]], out }));
    tensor::from_vec(out, x.dims())
}

fn zip(operation: &'static str, function: impl Function<2>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dims() != y.dims() {
        return Err(Error::shape(operation, format!("shapes {:?} and {:?} differ", x.dims(), y.dims())));
    }
    let (left, right) = (tensor::view(x)?, tensor::view(y)?);
    let (left, right) = (&*left, &*right);
    let mut out = vec![0.0; left.len()];
    parallel::pieces(&mut out, CHUNK, |i, out| {
        dispatch(Map { function, operands: [&left[i * CHUNK..], &right[i * CHUNK..]], out });
    });
    tensor::from_vec(out, x.dims())
}
