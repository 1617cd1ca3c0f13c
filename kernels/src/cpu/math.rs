//! Elementary functions on vectors.

#![expect(clippy::inline_always, reason = "must be part of the function that has the vector instructions")]

use std::f32::consts::LOG2_E;

use super::simd::Simd;

/// `c[0] x^(n-1) + ... + c[n-1]`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[0]);
    for c in &c[1..] {
        sum = s.mul_add(sum, x, s.splat(*c));
    }
    sum
}

/// `(n, e^r - 1)` where `x = n ln 2 + r` and `|r| <= ln 2 / 2`: the reduction and the polynomial of Cephes' `expf`.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    let n = s.round(s.mul(x, s.splat(LOG2_E)));
    // ln 2 in two parts; the product with the first one is exact
    let r = s.mul_add(n, s.splat(-0.693_359_4), x);
    let r = s.mul_add(n, s.splat(2.121_944_4e-4), r);
    let c = [1.987_569_2e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5];
    (n, s.mul_add(s.mul(polynomial(s, r, c), r), r, r))
}

/// `e^x` within 2 ulp; 0 below -104 (or from -87.3 on), infinite above 88.8 (or from 88.3 on).
#[inline(always)]
pub(super) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // the vector minimum and maximum of a NaN are their second operand: a NaN must come out as one
    let (n, e) = reduce(s, s.max(s.splat(-104.0), s.min(s.splat(89.0), x)));
    s.scale(s.add(e, s.splat(1.0)), n)
}

/// `x / (1 + e^-x)`.
#[inline(always)]
pub(super) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    swish(s, x, x)
}

/// `x / (1 + e^-y)`.
#[inline(always)]
pub(super) fn swish<S: Simd>(s: S, x: S::V, y: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.splat(0.0), y))))
}

/// `x Phi(x)`, as `max(x, 0) - |x| Phi(-|x|)`. `Phi(-x) e^(x^2 / 2)` is a polynomial in `1 / (1 + 0.3 x)`, fitted over
/// `0 <= x <= 14` with an error of 1.5e-8. Within 8 ulp above -1; below, the error counts against the result at -1.
#[inline(always)]
pub(super) fn gelu<S: Simd>(s: S, x: S::V) -> S::V {
    let zero = s.splat(0.0);
    let size = s.max(x, s.sub(zero, x));
    // past 14 the tail is 0
    let near = s.min(size, s.splat(14.0));
    let u = s.div(s.splat(1.0), s.mul_add(near, s.splat(0.3), s.splat(1.0)));
    let c = [
        0.036_832_71,
        -0.161_941_15,
        0.214_385_53,
        -0.060_990_806,
        0.132_423_53,
        0.098_715_8,
        0.120_962_56,
        0.119_611_3,
        5.387_547e-7,
    ];
    let tail = s.mul(polynomial(s, u, c), exp(s, s.mul(s.mul(near, near), s.splat(-0.5))));
    // a NaN comes second, as in `exp`
    s.sub(s.max(zero, x), s.mul(near, tail))
}

/// The tanh approximation of GELU, `0.5 x (1 + tanh(y)) = x / (1 + e^(-2 y))`.
#[inline(always)]
pub(super) fn gelu_tanh<S: Simd>(s: S, x: S::V) -> S::V {
    // y = sqrt(2 / pi) (x + 0.044715 x^3)
    let factor = 2.0 * 0.797_884_6;
    let odd = s.mul_add(s.mul(x, x), s.splat(0.044_715 * factor), s.splat(factor));
    swish(s, x, s.mul(x, odd))
}

/// Hyperbolic tangent as `m / (m + 2)` with `m = e^(2 |x|) - 1`, which keeps the digits of a small `x`.
#[inline(always)]
pub(super) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let size = s.max(x, s.sub(s.splat(0.0), x));
    // 1 from there on; a NaN comes second, as above
    let (n, e) = reduce(s, s.mul(s.min(s.splat(10.0), size), s.splat(2.0)));
    let power = s.scale(s.splat(1.0), n);
    let m = s.mul_add(e, power, s.sub(power, s.splat(1.0)));
    s.copy_sign(s.div(m, s.add(m, s.splat(2.0))), x)
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Instructions, Simd, WIDEST, Work};

    #[derive(Clone, Copy)]
    enum Function {
        Exp,
        Gelu,
        Tanh,
    }

    #[derive(Clone, Copy)]
    struct One(Function, f32);

    impl Work for One {
        type Output = f32;
        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> f32 {
            let mut out = [0.0; WIDEST];
            let x = s.splat(self.1);
            let y = match self.0 {
                Function::Exp => super::exp(s, x),
                Function::Gelu => super::gelu(s, x),
                Function::Tanh => super::tanh(s, x),
            };
            s.store(y, &mut out);
            out[0]
        }
    }

    /// The function with every kind of vectors.
    fn every_kind(function: Function, x: f32) -> impl Iterator<Item = f32> {
        Instructions::available().map(move |kind| kind.run(One(function, x)))
    }

    /// The largest error in units of the last place of the result.
    fn ulps(function: Function, range: std::ops::Range<f32>, exact: impl Fn(f64) -> f64) -> f64 {
        let step = (range.end - range.start) / 20_011.0;
        let mut worst = 0.0_f64;
        for i in 0..20_011 {
            let x = range.start + i as f32 * step;
            let expected = exact(f64::from(x));
            let size = expected.abs() as f32;
            let ulp = f64::from(f32::from_bits(size.to_bits() + 1) - size);
            for found in every_kind(function, x) {
                worst = worst.max((f64::from(found) - expected).abs() / ulp);
            }
        }
        worst
    }

    #[test]
    fn exp_is_within_two_ulp() {
        for range in [-87.0..88.0, -20.0..0.0, -1.0..1.0, -1e-3..1e-3] {
            let worst = ulps(Function::Exp, range.clone(), f64::exp);
            assert!(worst <= 2.0, "{worst} ulp in {range:?}");
        }
    }

    #[test]
    fn exp_has_its_limits() {
        for x in [f32::NEG_INFINITY, -1e30, -150.0] {
            assert!(every_kind(Function::Exp, x).all(|y| y == 0.0));
        }
        for x in [90.0, 1e30, f32::INFINITY] {
            assert!(every_kind(Function::Exp, x).all(|y| y == f32::INFINITY));
        }
    }

    #[test]
    fn tanh_is_within_four_ulp() {
        for range in [-12.0..12.0, -1.0..1.0, -1e-3..1e-3] {
            let worst = ulps(Function::Tanh, range.clone(), f64::tanh);
            assert!(worst <= 4.0, "{worst} ulp in {range:?}");
        }
    }

    #[test]
    fn nan_is_not_hidden() {
        for function in [Function::Exp, Function::Gelu, Function::Tanh] {
            assert!(every_kind(function, f32::NAN).all(f32::is_nan));
        }
    }

    #[test]
    fn gelu_keeps_the_digits_of_small_values() {
        let exact = |x: f64| 0.5 * x * candle_core::cpu::erf::erfc_f64(-x / std::f64::consts::SQRT_2);
        for range in [0.0..14.0, -1.0..0.0, -1e-3..1e-3] {
            let worst = ulps(Function::Gelu, range.clone(), exact);
            assert!(worst <= 8.0, "{worst} ulp in {range:?}");
        }
    }
}
