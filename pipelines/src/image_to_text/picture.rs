//! File bytes → upright pixels, within limits.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer, ImageDecoder as _, ImageFormat, ImageReader, RgbImage, RgbaImage};

use crate::resample::{self, Filter, Precision};
use crate::{Error, Result};

mod frames;
mod jpeg;
mod tiff;

/// Largest picture file that is worth reading, in bytes.
pub const FILE_LIMIT: u64 = 512 << 20;
/// Largest picture that is decoded, in pixels: known from the header, before memory is spent.
const PIXEL_LIMIT: u64 = 100_000_000;
/// Memory that decoding may take: 16-bit RGBA of the largest picture.
const MEMORY_LIMIT: u64 = 8 * PIXEL_LIMIT;
/// Largest ratio of the sides, as the reference processor has it.
const ASPECT_LIMIT: u32 = 200;
/// Bytes that one byte of deflated data stands for at most.
const DEFLATE_RATIO: u64 = 1032;

/// A picture as the models look at it: upright RGB pixels, transparency laid on white.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pixels: RgbImage,
    notes: Vec<String>,
}

impl Picture {
    /// A picture of these pixels.
    #[must_use]
    pub fn new(pixels: RgbImage) -> Self {
        Self { pixels, notes: Vec::new() }
    }

    /// Reads a picture file: PNG, JPEG, WebP, GIF, BMP or TIFF.
    ///
    /// # Errors
    /// [`Error::Input`] when the bytes are no picture of a known format, are damaged, or the picture is too large or
    /// too narrow.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Decoded { pixels, notes } = Decoded::read(bytes)?;
        let pixels = match pixels {
            DynamicImage::ImageRgb8(pixels) => pixels,
            other if !other.color().has_alpha() => other.into_rgb8(),
            other => {
                let pixels = other.into_rgba8();
                RgbImage::from_raw(pixels.width(), pixels.height(), resample::on_white(&pixels))
                    .ok_or_else(|| Error::input("the picture over white has another size than itself"))?
            }
        };
        Ok(Self { pixels, notes })
    }

    /// The pixels.
    #[must_use]
    pub fn pixels(&self) -> &RgbImage {
        &self.pixels
    }

    /// The picture at another size, its aspect not kept, resized as Pillow's Lanczos filter does it. A side of 0 is
    /// taken for 1.
    #[must_use]
    pub fn resized(&self, width: u32, height: u32) -> Self {
        let (from, to) = (self.pixels.dimensions(), (width.max(1), height.max(1)));
        if from == to || from.0 == 0 || from.1 == 0 {
            return self.clone();
        }
        let [from, target] = [from, to].map(|(width, height)| (width as usize, height as usize));
        let bytes = resample::resize::<3>(self.pixels.as_raw(), from, target, Filter::Lanczos, Precision::Pillow);
        let pixels = RgbImage::from_raw(to.0, to.1, bytes).unwrap_or_default();
        Self { pixels, notes: self.notes.clone() }
    }

    /// What a person should know about the reading: that only the first frame was taken, for example.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

/// File bytes → upright pixels with straight alpha, for those who need the transparency.
///
/// # Errors
/// As [`Picture::decode`].
pub fn decode_rgba(bytes: &[u8]) -> Result<RgbaImage> {
    Ok(Decoded::read(bytes)?.pixels.into_rgba8())
}

/// What a file holds.
struct Decoded {
    pixels: DynamicImage,
    notes: Vec<String>,
}

impl Decoded {
    fn read(bytes: &[u8]) -> Result<Self> {
        let format = Format::of(bytes)?;
        let read = || match format {
            Format::Jpeg => jpeg::read(bytes).map(|(pixels, orientation)| (pixels, orientation, false)),
            Format::Tiff => tiff::read(bytes),
            Format::Other(format) => others(bytes, format),
        };
        // The decoders are others' work: should one panic, the file is refused and the program goes on.
        let (mut pixels, orientation, more) =
            std::panic::catch_unwind(read).unwrap_or_else(|_| Err(damaged("its decoder gave up")))?;
        pixels.apply_orientation(orientation);
        let notes = match (more, format) {
            (false, _) => Vec::new(),
            (true, Format::Tiff) => vec!["only the first page of the file was taken".into()],
            (true, _) => vec!["only the first frame of the animation was taken".into()],
        };
        Ok(Self { pixels, notes })
    }
}

/// Who reads a file.
#[derive(Debug, Clone, Copy)]
enum Format {
    Jpeg,
    Tiff,
    Other(ImageFormat),
}

impl Format {
    /// By the first bytes.
    fn of(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(Error::input("the file is empty"));
        }
        // BigTIFF is TIFF too
        if [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|start| bytes.starts_with(*start)) {
            return Ok(Self::Tiff);
        }
        match image::guess_format(bytes) {
            Ok(ImageFormat::Jpeg) => Ok(Self::Jpeg),
            Ok(format @ (ImageFormat::Png | ImageFormat::WebP | ImageFormat::Gif | ImageFormat::Bmp)) => {
                Ok(Self::Other(format))
            }
            _ => Err(Error::input("no picture format was recognised: PNG, JPEG, WebP, GIF, BMP and TIFF are read")),
        }
    }
}

/// PNG, WebP, GIF and BMP; whether there are more frames.
fn others(bytes: &[u8], format: ImageFormat) -> Result<(DynamicImage, Orientation, bool)> {
    // WebP has its length before everything else.
    let riff = bytes.get(4..).and_then(|rest| rest.first_chunk()).map(|&length| u32::from_le_bytes(length));
    if format == ImageFormat::WebP && riff.is_none_or(|length| bytes.len() < length as usize + 8) {
        return Err(cut_short());
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(MEMORY_LIMIT);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    check_size((width, height))?;
    let bits = u64::from(width) * u64::from(height) * u64::from(decoder.original_color_type().bits_per_pixel());
    if format == ImageFormat::Png && bits / 8 / DEFLATE_RATIO > bytes.len() as u64 {
        return Err(cut_short());
    }
    let exif = decoder.exif_metadata().map_err(damaged)?;
    let xmp = decoder.xmp_metadata().map_err(damaged)?;
    let orientation = orientation(exif.as_deref(), xmp.as_deref());
    let pixels = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok((eight_bits(pixels), orientation, frames::several(bytes, format)))
}

/// 16-bit values are cut to their upper 8 bits, as Pillow does.
fn eight_bits(pixels: DynamicImage) -> DynamicImage {
    /// The picture's values, cut, as a picture of the same kind.
    macro_rules! cut {
        ($pixels:expr, $kind:path) => {{
            let (width, height) = $pixels.dimensions();
            let values = $pixels.into_raw().into_iter().map(|value| (value >> 8) as u8).collect();
            ImageBuffer::from_raw(width, height, values).map($kind).unwrap_or_default()
        }};
    }
    match pixels {
        DynamicImage::ImageLuma16(pixels) => cut!(pixels, DynamicImage::ImageLuma8),
        DynamicImage::ImageLumaA16(pixels) => cut!(pixels, DynamicImage::ImageLumaA8),
        DynamicImage::ImageRgb16(pixels) => cut!(pixels, DynamicImage::ImageRgb8),
        DynamicImage::ImageRgba16(pixels) => cut!(pixels, DynamicImage::ImageRgba8),
        other => other,
    }
}

/// How a picture lies, by its EXIF or else its XMP data. Damaged data is no reason not to look.
fn orientation(exif: Option<&[u8]>, xmp: Option<&[u8]>) -> Orientation {
    // WebP files have the prefix that belongs to JPEG as well.
    let exif = exif.map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
    let in_exif = exif.and_then(Orientation::from_exif_chunk);
    let in_xmp = || {
        const KEY: &[u8] = b"tiff:Orientation";
        let xmp = xmp?;
        let after = &xmp[xmp.windows(KEY.len()).position(|window| window == KEY)? + KEY.len()..];
        let digit = after.strip_prefix(b"=\"").or_else(|| after.strip_prefix(b">"))?.first()?;
        Orientation::from_exif(digit.wrapping_sub(b'0'))
    };
    in_exif.or_else(in_xmp).unwrap_or(Orientation::NoTransforms)
}

/// Ink to light, as Pillow computes it: `(255 - k)(255 - c) / 255`, rounded.
fn cmyk_to_rgb([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = u32::from(255 - k);
    [c, m, y].map(|ink| light as u8 - resample::divide_255(u32::from(ink) * light))
}

/// A decoder's word on a file.
fn damaged(error: impl std::fmt::Display) -> Error {
    let error = error.to_string();
    let end = [
        "failed to fill whole buffer",
        "unexpected end of file",
        "Unexpected End of File",
        "Unexpected EOF",
        "does not have enough data",
    ];
    if end.iter().any(|words| error.contains(words)) {
        return cut_short();
    }
    if error.contains("support") { Error::input(error) } else { Error::input(format!("the file is damaged: {error}")) }
}

fn cut_short() -> Error {
    Error::input("the picture's data ends too early: the file is cut short")
}

fn check_size((width, height): (u32, u32)) -> Result<()> {
    if width == 0 || height == 0 {
        return Err(Error::input(format!("{width}x{height} is no picture")));
    }
    if u64::from(width) * u64::from(height) > PIXEL_LIMIT {
        let most = PIXEL_LIMIT / 1_000_000;
        return Err(Error::input(format!("{width}x{height} is more than {most} megapixels: make it smaller first")));
    }
    if u64::from(width.max(height)) > u64::from(ASPECT_LIMIT) * u64::from(width.min(height)) {
        return Err(Error::input(format!("{width}x{height} is narrower than 1:{ASPECT_LIMIT}: crop it first")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
