//! TIFF bytes → pixels of the first page, as Pillow shows them.
//!
//! The tiff crate unpacks the samples; what they mean is decided here. It would refuse palettes and some other meanings
//! ("photometric interpretations"), so it is shown a copy of the file that calls every sample grey.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, RgbImage, RgbaImage};
use tiff::decoder::{ChunkType, Decoder, DecodingResult, Limits};
use tiff::tags::Tag;

use super::jpeg::ycc_to_rgb;
use super::{MEMORY_LIMIT, check_size, cmyk_to_rgb, cut_short, damaged};
use crate::{Error, Result};

/// `Compression`.
const UNCOMPRESSED: u16 = 1;
const OLD_JPEG: u16 = 6;
const JPEG: u16 = 7;
/// `SampleFormat`.
const UNSIGNED: u16 = 1;
const UNDEFINED: u16 = 4;
/// `ExtraSamples`.
const ASSOCIATED: u16 = 1;
const STRAIGHT: u16 = 2;

/// What samples mean: the values of `PhotometricInterpretation` that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    WhiteIsZero,
    BlackIsZero,
    Rgb,
    Palette,
    Cmyk,
    YCbCr,
}

impl Meaning {
    fn of(photometric: u16) -> Result<Self> {
        Ok(match photometric {
            0 => Self::WhiteIsZero,
            1 => Self::BlackIsZero,
            2 => Self::Rgb,
            3 => Self::Palette,
            5 => Self::Cmyk,
            6 => Self::YCbCr,
            8..=10 => return Err(Error::input("TIFF pictures in CIE Lab colours are not read: save it as RGB")),
            other => {
                return Err(Error::input(format!("TIFF pictures of photometric interpretation {other} are not read")));
            }
        })
    }

    fn channels(self) -> usize {
        match self {
            Self::WhiteIsZero | Self::BlackIsZero | Self::Palette => 1,
            Self::Rgb | Self::YCbCr => 3,
            Self::Cmyk => 4,
        }
    }
}

/// Transparency, as `ExtraSamples` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alpha {
    None,
    Straight,
    /// Colours are multiplied by it.
    Associated,
}

/// Reads the first page, and tells whether there are more.
///
/// # Errors
/// [`Error::Input`] when the file is damaged, cut short, too large, or of a kind that is not read.
pub(super) fn read(bytes: &[u8]) -> Result<(DynamicImage, Orientation, bool)> {
    let mut bytes = bytes.to_vec();
    let meaning = Meaning::of(call_grey(&mut bytes)?)?;
    let header = Header::read(&mut open(&bytes)?, meaning)?;
    if header.lowest_bit_first {
        turn_bits(&mut bytes)?;
    }
    whole_tiles(&mut bytes)?;
    let values = values(&mut open(&bytes)?, &header)?;
    let pixels = colours(&values, &header);
    let picture = match header.alpha {
        Alpha::None => RgbImage::from_raw(header.width, header.height, pixels).map(DynamicImage::from),
        _ => RgbaImage::from_raw(header.width, header.height, pixels).map(DynamicImage::from),
    };
    Ok((picture.ok_or_else(cut_short)?, header.orientation, header.more))
}

type Reader<'a> = Decoder<Cursor<&'a [u8]>>;

fn open(bytes: &[u8]) -> Result<Reader<'_>> {
    let mut limits = Limits::default();
    limits.decoding_buffer_size = MEMORY_LIMIT as usize;
    Ok(Decoder::new(Cursor::new(bytes)).map_err(damaged)?.with_limits(limits))
}

/// What the first page is.
struct Header {
    width: u32,
    height: u32,
    meaning: Meaning,
    /// Samples of a pixel, and bits of a sample.
    samples: usize,
    bits: u16,
    alpha: Alpha,
    palette: Vec<[u8; 3]>,
    orientation: Orientation,
    lowest_bit_first: bool,
    more: bool,
}

impl Header {
    fn read(decoder: &mut Reader<'_>, meaning: Meaning) -> Result<Self> {
        let (width, height) = decoder.dimensions().map_err(damaged)?;
        check_size((width, height))?;
        let mut list = |tag| decoder.find_tag_unsigned_vec::<u16>(tag).map_err(damaged);
        let mut first = |tag, default: u16| -> Result<u16> {
            Ok(list(tag)?.and_then(|list| list.first().copied()).unwrap_or(default))
        };
        let samples = usize::from(first(Tag::SamplesPerPixel, 1)?);
        let bits = first(Tag::BitsPerSample, 1)?;
        let format = first(Tag::SampleFormat, UNSIGNED)?;
        let compression = first(Tag::Compression, UNCOMPRESSED)?;
        let orientation = Orientation::from_exif(first(Tag::Orientation, 1)?.min(255) as u8);
        let lowest_bit_first = first(Tag::FillOrder, 1)? == 2;
        if compression == OLD_JPEG {
            return Err(Error::input("TIFF pictures in old-style JPEG compression are not read"));
        }
        if !matches!(bits, 1 | 2 | 4 | 8 | 16) || !matches!(format, UNSIGNED | UNDEFINED) {
            return Err(Error::input(format!(
                "TIFF pictures with {bits}-bit samples of format {format} are not read: save it with 8 or 16 bits, unsigned"
            )));
        }
        if !(meaning.channels()..=8).contains(&samples) || (samples > 1 && bits < 8) {
            let problem = format!("a TIFF picture of {samples} samples of {bits} bits ({meaning:?}) is not read");
            return Err(Error::input(problem));
        }
        if meaning == Meaning::YCbCr && compression != JPEG && list(Tag::ChromaSubsampling)?.as_deref() != Some(&[1, 1])
        {
            return Err(Error::input("TIFF pictures with subsampled colours are read with JPEG compression only"));
        }
        let extra = list(Tag::ExtraSamples)?.unwrap_or_else(|| vec![STRAIGHT]);
        let alpha = match (samples - meaning.channels(), extra.first()) {
            (0, _) | (_, Some(0) | None) => Alpha::None,
            (_, Some(&ASSOCIATED)) => Alpha::Associated,
            _ => Alpha::Straight,
        };
        let palette = if meaning == Meaning::Palette { palette(list(Tag::ColorMap)?, bits)? } else { Vec::new() };
        let orientation = orientation.unwrap_or(Orientation::NoTransforms);
        let more = decoder.more_images();
        Ok(Self { width, height, meaning, samples, bits, alpha, palette, orientation, lowest_bit_first, more })
    }
}

/// Changes the first page's `PhotometricInterpretation` to `BlackIsZero` and returns what it was.
fn call_grey(bytes: &mut [u8]) -> Result<u16> {
    let place = Place::of(bytes, Tag::PhotometricInterpretation).filter(|place| place.length == 2);
    let place =
        place.ok_or_else(|| Error::input("the TIFF file does not say what its samples mean, or is cut short"))?;
    let photometric = place.get(bytes) as u16;
    place.put(bytes, 1);
    Ok(photometric)
}

/// Enlarges a picture whose planes are in tiles so that no tile sticks out: the tiff crate takes every plane's tiles but
/// the first's for whole ones anyway, and panics.
fn whole_tiles(bytes: &mut [u8]) -> Result<()> {
    const PLANES: u16 = 2;
    let mut decoder = open(bytes)?;
    let planes = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration).map_err(damaged)? == Some(PLANES);
    if !planes || decoder.get_chunk_type() != ChunkType::Tile {
        return Ok(());
    }
    let tile = decoder.chunk_dimensions();
    for (tag, side) in [(Tag::ImageWidth, tile.0), (Tag::ImageLength, tile.1)] {
        let place = Place::of(bytes, tag).ok_or_else(cut_short)?;
        let whole = place.get(bytes).next_multiple_of(u64::from(side.max(1)));
        if place.length == 2 && whole > u64::from(u16::MAX) {
            return Err(Error::input("a TIFF picture with planes in tiles is too large to be read"));
        }
        place.put(bytes, whole);
    }
    Ok(())
}

/// Where the value of a tag of the first page stands: a SHORT or a LONG.
struct Place {
    at: usize,
    length: usize,
    little: bool,
}

impl Place {
    fn of(bytes: &[u8], tag: Tag) -> Option<Self> {
        let little = bytes.starts_with(b"II");
        let number = |at: usize, length: usize| -> Option<usize> {
            at.checked_add(length).filter(|&end| end <= bytes.len())?;
            usize::try_from(Self { at, length, little }.get(bytes)).ok()
        };
        let big = number(2, 2)? == 43;
        let (pointer, count, entry, value) = if big { (8, 8, 20, 12) } else { (4, 2, 12, 8) };
        let directory = number(pointer, pointer)?;
        let entries = number(directory, count)?.min(4096);
        let mut places = (0..entries).map(|index| directory + count + index * entry);
        let at = places.find(|&at| number(at, 2) == Some(usize::from(tag.to_u16())))?;
        let length = match number(at + 2, 2)? {
            3 => 2,
            4 => 4,
            _ => return None,
        };
        number(at + value, length)?;
        Some(Self { at: at + value, length, little })
    }

    fn get(&self, bytes: &[u8]) -> u64 {
        let digits = bytes[self.at..self.at + self.length].iter();
        let join = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        if self.little { digits.rev().fold(0, join) } else { digits.fold(0, join) }
    }

    fn put(&self, bytes: &mut [u8], value: u64) {
        let slot = &mut bytes[self.at..self.at + self.length];
        if self.little {
            slot.copy_from_slice(&value.to_le_bytes()[..self.length]);
        } else {
            slot.copy_from_slice(&value.to_be_bytes()[8 - self.length..]);
        }
    }
}

/// The colours of a `ColorMap`: all reds, all greens, all blues, of 16 bits.
fn palette(map: Option<Vec<u16>>, bits: u16) -> Result<Vec<[u8; 3]>> {
    let size = 1 << bits.min(8);
    match map {
        Some(map) if bits <= 8 && map.len() == 3 * size => {
            Ok((0..size).map(|index| [0, size, 2 * size].map(|plane| (map[plane + index] >> 8) as u8)).collect())
        }
        map => Err(Error::input(format!(
            "the TIFF palette has {} values for {bits}-bit pixels",
            map.map_or(0, |map| map.len())
        ))),
    }
}

/// Turns the bits of every strip around.
fn turn_bits(bytes: &mut [u8]) -> Result<()> {
    let mut decoder = open(bytes)?;
    let mut list =
        |tag| -> Result<_> { Ok(decoder.find_tag_unsigned_vec::<u64>(tag).map_err(damaged)?.unwrap_or_default()) };
    let (offsets, counts) = (list(Tag::StripOffsets)?, list(Tag::StripByteCounts)?);
    if offsets.is_empty() || counts.iter().fold(0, |sum: u64, &count| sum.saturating_add(count)) > bytes.len() as u64 {
        return Err(Error::input("a TIFF file of this fill order must have strips within the file"));
    }
    for (&offset, &count) in offsets.iter().zip(&counts) {
        let strip = bytes.get_mut(offset as usize..offset.saturating_add(count) as usize);
        let strip = strip.ok_or_else(cut_short)?;
        for byte in strip {
            *byte = byte.reverse_bits();
        }
    }
    Ok(())
}

/// `[height, width, samples]`: 16 bits are cut to the upper 8, fewer than 8 bits are stretched, but for a palette.
fn values(decoder: &mut Reader<'_>, header: &Header) -> Result<Vec<u8>> {
    let &Header { samples, bits, .. } = header;
    let (width, height) = (header.width as usize, header.height as usize);
    let planes = decoder.image_buffer_layout().map_err(damaged)?.planes;
    let (stride, rows) = decoder.dimensions().map_err(damaged)?;
    let (stride, plane) = (stride as usize, stride as usize * rows as usize);
    let mut result = DecodingResult::U8(Vec::new());
    decoder.read_image_to_buffer(&mut result).map_err(damaged)?;
    let mut values = match result {
        DecodingResult::U8(values) => values,
        DecodingResult::U16(values) => values.into_iter().map(|value| (value >> 8) as u8).collect(),
        _ => return Err(Error::input("the TIFF samples are not unsigned numbers of 8 or 16 bits")),
    };
    if bits < 8 {
        let stretch = if header.meaning == Meaning::Palette { 1 } else { (255 / ((1 << bits) - 1)) as u8 };
        let row = (width * usize::from(bits)).div_ceil(8);
        values =
            values.chunks(row).flat_map(|row| unpack(row, bits).take(width)).map(|value| value * stretch).collect();
    }
    if values.len() != plane * samples {
        return Err(cut_short());
    }
    if planes > 1 {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| y * stride + x));
        values =
            pixels.flat_map(|at| (0..samples).map(move |sample| sample * plane + at)).map(|at| values[at]).collect();
    }
    Ok(values)
}

/// Numbers of `bits` bits, the upper first.
fn unpack(row: &[u8], bits: u16) -> impl Iterator<Item = u8> {
    let each = 8 / bits;
    row.iter().flat_map(move |byte| (0..each).map(move |at| byte >> (8 - bits * (at + 1)) & ((1 << bits) - 1) as u8))
}

/// Samples → RGB, or RGBA with alpha.
fn colours(values: &[u8], header: &Header) -> Vec<u8> {
    let &Header { samples, meaning, alpha, .. } = header;
    let mut pixels = Vec::with_capacity(values.len() / samples * 4);
    for sample in values.chunks_exact(samples) {
        let colour = match (meaning, sample) {
            (Meaning::WhiteIsZero, [grey, ..]) => [255 - grey; 3],
            (Meaning::Palette, [index, ..]) => header.palette.get(usize::from(*index)).copied().unwrap_or_default(),
            (Meaning::Cmyk, &[c, m, y, k, ..]) => cmyk_to_rgb([c, m, y, k]),
            (Meaning::YCbCr, &[y, cb, cr, ..]) => {
                let mut colour = [y, cb, cr];
                ycc_to_rgb(&mut colour);
                colour
            }
            (Meaning::Rgb, &[r, g, b, ..]) => [r, g, b],
            (_, sample) => [sample[0]; 3],
        };
        match (alpha, sample.get(meaning.channels())) {
            (Alpha::Straight, Some(&alpha)) => pixels.extend([colour[0], colour[1], colour[2], alpha]),
            (Alpha::Associated, Some(&alpha)) => {
                let divide = |value: u8| match alpha {
                    0 => value,
                    _ => (u32::from(value) * 255 / u32::from(alpha)).min(255) as u8,
                };
                pixels.extend([divide(colour[0]), divide(colour[1]), divide(colour[2]), alpha]);
            }
            _ => pixels.extend(colour),
        }
    }
    pixels
}
