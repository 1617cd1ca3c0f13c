//! Picture resizing, bit for bit as the reference libraries do it.
//!
//! Both work alike: a filter widened by the shrink factor, along rows and along columns, with an 8-bit picture in between
//! and coefficients in fixed point. They differ in how many bits a coefficient has and which pass comes first.

use std::f64::consts::PI;

use image::RgbaImage;
use rayon::prelude::*;

/// The kernel that weighs source pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Keys' cubic with `a = -1/2`: two pixels each way.
    Bicubic,
    /// Windowed sinc: three pixels each way.
    Lanczos,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn weight(self, x: f64) -> f64 {
        match self {
            Self::Bicubic => {
                const A: f64 = -0.5;
                let x = x.abs();
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Self::Lanczos => {
                if (-3.0..3.0).contains(&x) {
                    sinc(x) * sinc(x / 3.0)
                } else {
                    0.0
                }
            }
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// Fixed point of the coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Pillow: 22 bits after the point.
    Pillow,
    /// torchvision on 8-bit pictures: as many bits as let the largest coefficient fit into 16.
    Torch,
}

impl Precision {
    fn bits(self, taps: &[Taps]) -> u32 {
        match self {
            Self::Pillow => 22,
            Self::Torch => {
                let largest = taps.iter().flat_map(|t| &t.weights).fold(0.0, |a: f64, &b| a.max(b));
                (0..22).find(|bits| (0.5 + largest * f64::from(2u32 << bits)).floor() >= 32768.0).unwrap_or(22)
            }
        }
    }
}

/// The source pixels of one output pixel: the first, and a weight for each.
struct Taps {
    start: usize,
    weights: Vec<f64>,
}

/// The taps of every output pixel along an axis of `from` pixels resized to `to`.
fn taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = filter.support() * stretch;
    let tap = |index: usize| {
        let center = (index as f64 + 0.5) * scale;
        let start = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let inverse = 1.0 / stretch;
        let mut weights: Vec<f64> = (start..end).map(|x| filter.weight((x as f64 - center + 0.5) * inverse)).collect();
        let sum: f64 = weights.iter().sum();
        if sum != 0.0 {
            for weight in &mut weights {
                *weight /= sum;
            }
        }
        Taps { start, weights }
    };
    (0..to).map(tap).collect()
}

/// Taps in fixed point.
struct Fixed {
    start: usize,
    weights: Vec<i32>,
}

fn fixed(from: usize, to: usize, filter: Filter, precision: Precision) -> (Vec<Fixed>, u32) {
    let taps = taps(from, to, filter);
    let bits = precision.bits(&taps);
    let one = f64::from(1u32 << bits);
    let round = |w: &f64| if *w < 0.0 { (w * one - 0.5) as i32 } else { (w * one + 0.5) as i32 };
    (taps.iter().map(|t| Fixed { start: t.start, weights: t.weights.iter().map(round).collect() }).collect(), bits)
}

fn to_byte(sum: i32, bits: u32) -> u8 {
    (sum >> bits).clamp(0, 255) as u8
}

/// Which way the first pass goes. torchvision: along rows. Pillow 13 (earlier ones went along rows too): along columns
/// when that shrinks the picture more than twice as much; found by trial on pictures of many sizes.
fn columns_first(size: (usize, usize), target: (usize, usize), precision: Precision) -> bool {
    let shrinks = |before: usize, after: usize| before as i64 - after as i64;
    let (across, down) = (shrinks(size.0, target.0), shrinks(size.1, target.1));
    precision == Precision::Pillow && down > 0 && down > 2 * across
}

/// A picture of `C` interleaved 8-bit channels, `size` and `target` as (width, height), no side zero.
///
/// # Panics
/// When `pixels` are not `width * height * C`, or a side is zero.
#[must_use]
pub(crate) fn resize<const C: usize>(
    pixels: &[u8],
    size: (usize, usize),
    target: (usize, usize),
    filter: Filter,
    precision: Precision,
) -> Vec<u8> {
    assert_eq!(pixels.len(), size.0 * size.1 * C, "pixels of a {} x {} picture", size.0, size.1);
    assert!(size.0 * size.1 * target.0 * target.1 > 0, "a picture has no side of 0");
    let along_rows = |pixels: &[u8]| resize_rows::<C>(pixels, size.0, target.0, filter, precision);
    let along_columns = |pixels: &[u8], width| resize_columns(pixels, width * C, size.1, target.1, filter, precision);
    if columns_first(size, target, precision) {
        along_rows(&along_columns(pixels, size.0))
    } else {
        along_columns(&along_rows(pixels), target.0)
    }
}

/// Rows of `from` pixels to rows of `to` pixels.
fn resize_rows<const C: usize>(pixels: &[u8], from: usize, to: usize, filter: Filter, precision: Precision) -> Vec<u8> {
    if from == to {
        return pixels.to_vec();
    }
    let (taps, bits) = fixed(from, to, filter, precision);
    let mut out = vec![0; pixels.len() / from * to];
    out.par_chunks_mut(to * C).zip(pixels.par_chunks(from * C)).for_each(|(out, row)| {
        for (pixel, tap) in out.as_chunks_mut::<C>().0.iter_mut().zip(&taps) {
            let mut sums = [1 << (bits - 1); C];
            for (source, weight) in row.as_chunks::<C>().0[tap.start..].iter().zip(&tap.weights) {
                for (sum, &value) in sums.iter_mut().zip(source) {
                    *sum += i32::from(value) * weight;
                }
            }
            *pixel = sums.map(|sum| to_byte(sum, bits));
        }
    });
    out
}

/// `from` rows of `row` bytes to `to` rows.
fn resize_columns(pixels: &[u8], row: usize, from: usize, to: usize, filter: Filter, precision: Precision) -> Vec<u8> {
    if from == to {
        return pixels.to_vec();
    }
    let (taps, bits) = fixed(from, to, filter, precision);
    let mut out = vec![0; row * to];
    out.par_chunks_mut(row).zip(&taps).for_each(|(out, tap)| {
        let mut sums = vec![1 << (bits - 1); row];
        for (source, weight) in pixels.chunks(row).skip(tap.start).zip(&tap.weights) {
            for (sum, &value) in sums.iter_mut().zip(source) {
                *sum += i32::from(value) * weight;
            }
        }
        for (out, &sum) in out.iter_mut().zip(&sums) {
            *out = to_byte(sum, bits);
        }
    });
    out
}

/// `a * b / 255`, rounded, as Pillow computes it.
pub(crate) fn divide_255(product: u32) -> u8 {
    let x = product + 128;
    (((x >> 8) + x) >> 8) as u8
}

/// Pillow's `Image.resize` of an RGBA picture: through 8-bit premultiplied alpha; the same size is a plain copy.
///
/// # Panics
/// When a side is zero.
#[must_use]
pub(crate) fn resize_rgba(picture: &RgbaImage, width: u32, height: u32, filter: Filter) -> RgbaImage {
    if picture.dimensions() == (width, height) {
        return picture.clone();
    }
    let mut premultiplied = picture.as_raw().clone();
    for [r, g, b, a] in premultiplied.as_chunks_mut::<4>().0 {
        for c in [r, g, b] {
            *c = divide_255(u32::from(*c) * u32::from(*a));
        }
    }
    let size = (picture.width() as usize, picture.height() as usize);
    let target = (width as usize, height as usize);
    let mut pixels = resize::<4>(&premultiplied, size, target, filter, Precision::Pillow);
    for [r, g, b, a] in pixels.as_chunks_mut::<4>().0 {
        if *a == 0 || *a == 255 {
            continue;
        }
        for c in [r, g, b] {
            *c = (255 * u32::from(*c) / u32::from(*a)).min(255) as u8;
        }
    }
    RgbaImage::from_raw(width, height, pixels).expect("resize gives width * height * 4 bytes")
}

/// The picture over white, interleaved RGB: Pillow's `paste` with the alpha channel as mask.
#[must_use]
pub(crate) fn on_white(picture: &RgbaImage) -> Vec<u8> {
    let (pixels, _) = picture.as_raw().as_chunks::<4>();
    pixels
        .iter()
        .flat_map(|&[r, g, b, a]| {
            let a = u32::from(a);
            [r, g, b].map(|c| divide_255(255 * (255 - a) + u32::from(c) * a))
        })
        .collect()
}

#[cfg(test)]
mod tests;
