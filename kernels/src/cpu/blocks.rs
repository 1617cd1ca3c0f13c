//! Stored blocks to `f32`, for every [`Format`].
//!
//! The block layouts and the order of their arithmetic are those of GGML (`ggml-quants.c`), so that a decoded weight
//! equals what every other reader of the format gets, bit for bit.

#![expect(clippy::inline_always, reason = "compiled for the instructions of each kernel that decodes")]

use crate::{Format, Matrix};

/// Decodes a whole number of blocks.
///
/// # Panics
/// When `bytes` and `out` do not hold the same number of whole blocks.
#[inline(always)]
pub fn decode(format: Format, bytes: &[u8], out: &mut [f32]) {
    assert!(
        out.len().is_multiple_of(format.block()) && bytes.len() == out.len() / format.block() * format.block_bytes()
    );
    match format {
        Format::F32 => each(bytes, out, f32::from_le_bytes),
        Format::F16 => each(bytes, out, |b| f16_to_f32(u16::from_le_bytes(b))),
        Format::Bf16 => each(bytes, out, |b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
        Format::Q8_0 => blocks::<34, 32>(bytes, out, q8_0),
        Format::Q4K => blocks::<144, 256>(bytes, out, q4_k),
        Format::Q6K => blocks::<210, 256>(bytes, out, q6_k),
    }
}

/// Decodes `out.len()` weights of one row from `column` on; both are multiples of the format's block.
///
/// # Panics
/// When the range leaves the matrix or splits a block.
#[inline(always)]
pub fn decode_row(matrix: &Matrix, row: usize, column: usize, out: &mut [f32]) {
    decode(matrix.format(), row_bytes(matrix, row, column, out.len()), out);
}

/// The stored bytes of `length` weights of one row.
#[inline(always)]
pub(super) fn row_bytes(matrix: &Matrix, row: usize, column: usize, length: usize) -> &[u8] {
    let format = matrix.format();
    let (block, bytes) = (format.block(), format.block_bytes());
    assert!(column.is_multiple_of(block) && length.is_multiple_of(block) && column + length <= matrix.columns());
    let start = row * matrix.row_bytes() + column / block * bytes;
    &matrix.data()[start..start + length / block * bytes]
}

#[inline(always)]
fn each<const N: usize>(bytes: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *value = convert(*bytes);
    }
}

#[inline(always)]
fn blocks<const BYTES: usize, const WEIGHTS: usize>(
    bytes: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; WEIGHTS]),
) {
    for (block, values) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<WEIGHTS>().0) {
        decode(block, values);
    }
}

/// Scale (f16), then 32 signed bytes.
#[inline(always)]
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half(block, 0);
    for (value, quant) in out.iter_mut().zip(&block[2..]) {
        *value = f32::from(quant.cast_signed()) * scale;
    }
}

/// Scale and minimum (f16 each), 12 bytes of 6-bit sub-scales and sub-minima, then 4 runs of 32 bytes whose low halves
/// are one sub-block of 32 weights and whose high halves are the next.
#[inline(always)]
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (scale, minimum) = (half(block, 0), half(block, 2));
    let scales = q4_k_scales(block);
    for (j, values) in out.as_chunks_mut::<64>().0.iter_mut().enumerate() {
        let quants = &block[16 + 32 * j..][..32];
        let (low, high) = values.split_at_mut(32);
        let at = j / 2 * 8 + j % 2 * 2;
        let (s, m) = (scale * f32::from(scales[at]), minimum * f32::from(scales[at + 4]));
        for (value, quant) in low.iter_mut().zip(quants) {
            *value = s * f32::from(quant & 15) - m;
        }
        let (s, m) = (scale * f32::from(scales[at + 1]), minimum * f32::from(scales[at + 5]));
        for (value, quant) in high.iter_mut().zip(quants) {
            *value = s * f32::from(quant >> 4) - m;
        }
    }
}

/// The sub-scales and sub-minima of a `Q4_K` block: four scales, four minima, the other four scales and minima. The first four
/// of each have their 6 bits together; of the last four the upper two bits stand above those of the first four. Eight
/// bytes are cut up at a time.
#[inline(always)]
pub(super) fn q4_k_scales(block: &[u8]) -> [u8; 16] {
    let mut first = [0; 8];
    first.copy_from_slice(&block[4..12]);
    let first = u64::from_le_bytes(first);
    let rest = u32::from_le_bytes([block[12], block[13], block[14], block[15]]);
    let low = u64::from(rest & 0x0f0f_0f0f) | u64::from(rest >> 4 & 0x0f0f_0f0f) << 32;
    let last = low | (first >> 6 & 0x0303_0303_0303_0303) << 4;
    (u128::from(first & 0x3f3f_3f3f_3f3f_3f3f) | u128::from(last) << 64).to_le_bytes()
}

/// 128 bytes with the low 4 bits, 64 bytes with the high 2 bits, 16 signed sub-scales, then the scale (f16).
#[inline(always)]
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = half(block, 208);
    for (n, values) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let quants = q6_k_quants(block, n);
        for (run, values) in values.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let scale = scale * f32::from(block[192 + 8 * n + run].cast_signed());
            for (value, quant) in values.iter_mut().zip(&quants[16 * run..]) {
                *value = scale * f32::from(quant.cast_signed());
            }
        }
    }
}

/// Half `n` of a `Q6_K` block before scaling, as signed bytes: 4 runs of 32 weights. Two runs share their low bytes, all four
/// their high ones; the quants are offset by 32.
#[inline(always)]
pub(super) fn q6_k_quants(block: &[u8], n: usize) -> [u8; 128] {
    let (low, high) = (&block[64 * n..][..64], &block[128 + 32 * n..][..32]);
    let mut quants = [0; 128];
    for (run, quants) in quants.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = &low[run % 2 * 32..][..32];
        for ((quant, low), high) in quants.iter_mut().zip(low).zip(high) {
            *quant = (low >> (run / 2 * 4) & 15 | (high >> (2 * run) & 3) << 4).wrapping_sub(32);
        }
    }
    quants
}

/// IEEE half precision, without branches so that a loop over it is vectorised.
#[inline(always)]
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let bits = u32::from(bits);
    // Exponent and fraction in their `f32` places are the number times 2^-112, subnormal or not.
    let size = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((127 + 112) << 23);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(size.to_bits() | special | (bits & 0x8000) << 16)
}

#[inline(always)]
fn half(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use candle_core::quantized::{GgmlDType, QTensor};
    use candle_core::{Device, Tensor};

    use super::*;

    /// What candle quantises, candle and we decode alike, bit for bit.
    #[test]
    fn quantised_blocks_decode_as_in_candle() {
        let formats = [
            (Format::F32, GgmlDType::F32),
            (Format::F16, GgmlDType::F16),
            (Format::Bf16, GgmlDType::BF16),
            (Format::Q8_0, GgmlDType::Q8_0),
            (Format::Q4K, GgmlDType::Q4K),
            (Format::Q6K, GgmlDType::Q6K),
        ];
        let values = Tensor::randn(0f32, 0.7, (5, 512), &Device::Cpu).unwrap();
        for (format, dtype) in formats {
            let stored = QTensor::quantize(&values, dtype).unwrap();
            let expected: Vec<Vec<f32>> = stored.dequantize(&Device::Cpu).unwrap().to_vec2().unwrap();
            let data: Cow<'_, [u8]> = stored.data().unwrap();
            let matrix = Matrix::new(format, 5, 512, data.into_owned().into()).unwrap();
            for (row, expected) in expected.iter().enumerate() {
                let mut whole = vec![0.0; 512];
                decode_row(&matrix, row, 0, &mut whole);
                assert_eq!(&whole, expected, "{}", format.name());
                let mut part = vec![0.0; 256];
                decode_row(&matrix, row, 256, &mut part);
                assert_eq!(part, expected[256..], "{}", format.name());
            }
        }
    }

    #[test]
    fn every_half_precision_number() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{bits:#x}");
        }
    }

    /// Every bit pattern of a block is a valid one: none may panic.
    #[test]
    fn any_bytes_decode() {
        for format in [Format::F16, Format::Bf16, Format::Q8_0, Format::Q4K, Format::Q6K] {
            for byte in 0..=255 {
                let mut out = vec![0.0; format.block()];
                decode(format, &vec![byte; format.block_bytes()], &mut out);
            }
        }
    }
}
