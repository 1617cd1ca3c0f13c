//! JPEG bytes → pixels, as Pillow shows them.
//!
//! jpeg-decoder decodes and upsamples; colours are told apart and converted here, as libjpeg and Pillow do it.

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, RgbImage};
use jpeg_decoder::{ColorTransform, Decoder};

use super::{check_size, cmyk_to_rgb, cut_short, damaged, orientation};
use crate::{Error, Result};

/// Pixels that a byte can stand for at most: one bit for each block of 8 x 8.
const PIXELS_PER_BYTE: u64 = 8 * 64;

/// Reads a JPEG file.
///
/// # Errors
/// [`Error::Input`] when the file is damaged, cut short, too large, or not of 8 bits and 1, 3 or 4 components.
pub(super) fn read(bytes: &[u8]) -> Result<(DynamicImage, Orientation)> {
    let header = Header::read(bytes)?;
    let Header { width, height, components, .. } = header;
    check_size((width, height))?;
    if header.precision != 8 {
        return Err(Error::input(format!("a JPEG file of {} bits is not read: save it with 8 bits", header.precision)));
    }
    if u64::from(width) * u64::from(height) > bytes.len() as u64 * PIXELS_PER_BYTE || !header.complete {
        return Err(cut_short());
    }
    let mut decoder = Decoder::new(bytes);
    match components {
        3 => decoder.set_color_transform(ColorTransform::RGB),
        // Every value inverted: ink is stored as light, in Pillow's eyes always.
        4 => decoder.set_color_transform(ColorTransform::CMYK),
        _ => {}
    }
    let mut values = decoder.decode().map_err(damaged)?;
    let orientation = orientation(decoder.exif_data(), decoder.xmp_data());
    if components == 1 {
        let pixels = GrayImage::from_raw(width, height, values);
        return Ok((pixels.map(DynamicImage::from).ok_or_else(cut_short)?, orientation));
    }
    if components == 3 && header.luminance {
        ycc_to_rgb(&mut values);
    }
    if components == 4 {
        let ink = |&[c, m, y, k]: &[u8; 4]| {
            let mut colours = [c, m, y];
            if header.luminance {
                colours = colours.map(|value| 255 - value);
                ycc_to_rgb(&mut colours);
            }
            cmyk_to_rgb([colours[0], colours[1], colours[2], k])
        };
        values = values.as_chunks::<4>().0.iter().flat_map(ink).collect();
    }
    Ok((RgbImage::from_raw(width, height, values).map(DynamicImage::from).ok_or_else(cut_short)?, orientation))
}

/// What the segments say.
struct Header {
    width: u32,
    height: u32,
    precision: u8,
    components: usize,
    /// The first three components are luminance and colour differences.
    luminance: bool,
    /// The first picture's data has an end. Decoders make up what is missing.
    complete: bool,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        const END: u8 = 0xd9;
        const SCAN: u8 = 0xda;
        let mut frame: Option<&[u8]> = None;
        let (mut jfif, mut adobe) = (false, None);
        let (mut scanning, mut complete) = (false, false);
        // The position of the byte after 0xff.
        let mut at = next(bytes, 0);
        while let Some(&marker) = bytes.get(at) {
            match marker {
                END if scanning => {
                    complete = true;
                    break;
                }
                // padding, a data byte of 0xff, restarts, and markers without a length
                0xff => at += 1,
                0 | 1 | 0xd0..=0xd9 => at = next(bytes, at + 1),
                _ => {
                    let length = bytes.get(at + 1..).and_then(|rest| rest.first_chunk());
                    let Some(length) = length.map(|&length| usize::from(u16::from_be_bytes(length))) else { break };
                    let segment = bytes.get(at + 3..at + 1 + length).unwrap_or_default();
                    match marker {
                        // start of frame; the others are tables
                        0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => frame = frame.or(Some(segment)),
                        0xe0 => jfif |= segment.starts_with(b"JFIF\0"),
                        0xee if segment.starts_with(b"Adobe") => adobe = segment.get(11).copied().or(adobe),
                        SCAN => scanning = true,
                        _ => {}
                    }
                    at = next(bytes, at + 1 + length);
                }
            }
        }
        let Some(&[precision, high, low, left, right, count, ref parts @ ..]) = frame else {
            return Err(Error::input("the JPEG file has no frame header"));
        };
        let components = usize::from(count);
        let ids: Vec<u8> = parts.iter().step_by(3).take(components).copied().collect();
        if !matches!(components, 1 | 3 | 4) || ids.len() != components {
            return Err(Error::input(format!("a JPEG file of {components} components is not read")));
        }
        let luminance = match (components, jfif, adobe) {
            (3, true, _) => true,
            (3, false, Some(transform)) | (4, _, Some(transform)) => transform != 0,
            (3, false, None) => ids != *b"RGB",
            _ => false,
        };
        let (height, width) =
            (u32::from(u16::from_be_bytes([high, low])), u32::from(u16::from_be_bytes([left, right])));
        Ok(Self { width, height, precision, components, luminance, complete })
    }
}

/// The position after the next 0xff from `from` on.
fn next(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or(&[]);
    rest.iter().position(|&byte| byte == 0xff).map_or(bytes.len(), |found| from + found + 1)
}

/// Y, Cb, Cr to R, G, B in place, as libjpeg rounds: 16 bits after the point.
pub(super) fn ycc_to_rgb(values: &mut [u8]) {
    const HALF: i32 = 1 << 15;
    for pixel in values.as_chunks_mut::<3>().0 {
        let [y, cb, cr] = pixel.map(i32::from);
        let (cb, cr) = (cb - 128, cr - 128);
        let r = y + ((91_881 * cr + HALF) >> 16);
        let g = y + ((-22_554 * cb - 46_802 * cr + HALF) >> 16);
        let b = y + ((116_130 * cb + HALF) >> 16);
        *pixel = [r, g, b].map(|value| value.clamp(0, 255) as u8);
    }
}
