//! Pixels → file bytes: PNG with its texts, JPEG, WebP; and the texts back out of a PNG.

use std::io::Cursor;
use std::path::Path;

use image::codecs::{jpeg::JpegEncoder, webp::WebPEncoder};
use image::{DynamicImage, RgbImage, RgbaImage};

use crate::{Error, Result};

/// JPEG quality: little loss, files about a fifth of the PNG.
const JPEG_QUALITY: u8 = 95;
/// Bytes that reading a PNG's texts may take: a hostile file cannot unpack to more.
const TEXT_LIMIT: usize = 16 << 20;

/// Kind of picture file that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// Lossless, keeps alpha, carries texts.
    Png,
    /// Lossy (quality 95), no alpha.
    Jpeg,
    /// Lossless, keeps alpha.
    WebP,
}

impl FileType {
    /// The type that a file name's extension stands for, in any case.
    ///
    /// # Errors
    /// [`Error::Input`] for another extension or none.
    pub fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        match extension.as_str() {
            "png" => Ok(Self::Png),
            "jpg" | "jpeg" => Ok(Self::Jpeg),
            "webp" => Ok(Self::WebP),
            "" => Err(Error::input(format!("{}: no extension: end the name in .png, .jpg or .webp", path.display()))),
            other => Err(Error::input(format!(
                "{}: pictures are written as .png, .jpg or .webp, not .{other}",
                path.display()
            ))),
        }
    }
}

/// A text in a PNG file.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// Its keyword, 1 to 79 Latin-1 characters.
    pub keyword: &'a str,
    /// The text; anything beyond ASCII is stored as UTF-8 (`iTXt`), ASCII as `tEXt`, which every reader knows.
    pub text: &'a str,
}

/// A picture file in memory.
#[derive(Debug)]
pub struct Encoded {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Transparency was lost: it has been laid on white because the type has no alpha.
    pub flattened: bool,
}

/// Encodes `image` (straight alpha, 8 bits, sRGB). Without `keep_alpha` the alpha channel is left out as meaningless.
/// Only PNG carries `texts`.
///
/// # Errors
/// [`Error::Input`] when the type cannot hold a picture of this size (WebP: 16383 a side).
pub fn encode(image: &RgbaImage, keep_alpha: bool, file_type: FileType, texts: &[Text<'_>]) -> Result<Encoded> {
    let mut bytes = Vec::new();
    let encoded = match file_type {
        FileType::Png => encode_png(image, keep_alpha, texts, &mut bytes).map_err(|error| error.to_string()),
        FileType::WebP => {
            let pixels = if keep_alpha { DynamicImage::from(image.clone()) } else { DynamicImage::from(opaque(image)) };
            pixels.write_with_encoder(WebPEncoder::new_lossless(&mut bytes)).map_err(|error| error.to_string())
        }
        FileType::Jpeg => return encode_jpeg(image, keep_alpha, JPEG_QUALITY),
    };
    encoded.map_err(|problem| unstorable(image, file_type, &problem))?;
    Ok(Encoded { bytes, flattened: false })
}

/// Encodes `image` as a JPEG of a quality from 1 to 100; transparency is laid on white.
///
/// # Errors
/// [`Error::Input`] when a JPEG cannot hold a picture of this size (65535 a side).
pub fn encode_jpeg(image: &RgbaImage, has_alpha: bool, quality: u8) -> Result<Encoded> {
    let flattened = has_alpha && image.pixels().any(|pixel| pixel.0[3] != 255);
    let pixels = if flattened { on_white(image) } else { opaque(image) };
    let mut bytes = Vec::new();
    let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
    pixels.write_with_encoder(encoder).map_err(|error| unstorable(image, FileType::Jpeg, &error.to_string()))?;
    Ok(Encoded { bytes, flattened })
}

fn unstorable(image: &RgbaImage, file_type: FileType, problem: &str) -> Error {
    let (width, height) = image.dimensions();
    Error::input(format!("a {width}x{height} picture cannot be stored as {file_type:?}: {problem}"))
}

fn encode_png(
    image: &RgbaImage,
    keep_alpha: bool,
    texts: &[Text<'_>],
    out: &mut Vec<u8>,
) -> std::result::Result<(), png::EncodingError> {
    let mut encoder = png::Encoder::new(out, image.width(), image.height());
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(if keep_alpha { png::ColorType::Rgba } else { png::ColorType::Rgb });
    encoder.set_source_srgb(png::SrgbRenderingIntent::Perceptual);
    for &Text { keyword, text } in texts {
        if text.is_ascii() {
            encoder.add_text_chunk(keyword.into(), text.into())?;
        } else {
            encoder.add_itxt_chunk(keyword.into(), text.into())?;
        }
    }
    let mut writer = encoder.write_header()?;
    if keep_alpha {
        writer.write_image_data(image.as_raw())?;
    } else {
        writer.write_image_data(opaque(image).as_raw())?;
    }
    writer.finish()
}

/// The colours alone.
fn opaque(image: &RgbaImage) -> RgbImage {
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [r, g, b, _] = image.get_pixel(x, y).0;
        image::Rgb([r, g, b])
    })
}

/// The picture laid on a white sheet, rounded to nearest.
#[must_use]
pub fn on_white(image: &RgbaImage) -> RgbImage {
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [r, g, b, alpha] = image.get_pixel(x, y).0.map(u32::from);
        let blend = |value: u32| ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8;
        image::Rgb([blend(r), blend(g), blend(b)])
    })
}

/// The text that a PNG file carries under `keyword`, if any. Pixels are not read.
///
/// # Errors
/// [`Error::Input`] when the bytes are no PNG file or its texts are damaged.
pub fn read_text(png: &[u8], keyword: &str) -> Result<Option<String>> {
    let damaged = |problem: String| Error::input(format!("not a readable PNG picture: {problem}"));
    let decoder = png::Decoder::new_with_limits(Cursor::new(png), png::Limits { bytes: TEXT_LIMIT });
    let reader = decoder.read_info().map_err(|error| damaged(error.to_string()))?;
    let info = reader.info();
    if let Some(chunk) = info.utf8_text.iter().find(|chunk| chunk.keyword == keyword) {
        return chunk.get_text().map(Some).map_err(|error| damaged(error.to_string()));
    }
    Ok(info.uncompressed_latin1_text.iter().find(|chunk| chunk.keyword == keyword).map(|chunk| chunk.text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every alpha from 0 to 255 over changing colours.
    fn gradient() -> RgbaImage {
        RgbaImage::from_fn(16, 16, |x, y| image::Rgba([(x * 16) as u8, (y * 16) as u8, 77, (y * 16 + x) as u8]))
    }

    #[test]
    fn lossless_types_keep_every_pixel() {
        let picture = gradient();
        for file_type in [FileType::Png, FileType::WebP] {
            let file = encode(&picture, true, file_type, &[]).unwrap();
            assert!(!file.flattened);
            assert_eq!(image::load_from_memory(&file.bytes).unwrap(), DynamicImage::from(picture.clone()));
            let file = encode(&picture, false, file_type, &[]).unwrap();
            assert_eq!(image::load_from_memory(&file.bytes).unwrap(), DynamicImage::from(opaque(&picture)));
        }
    }

    #[test]
    fn jpeg_is_laid_on_white() {
        let clear = RgbaImage::from_pixel(16, 16, image::Rgba([0, 0, 0, 0]));
        let file = encode(&clear, true, FileType::Jpeg, &[]).unwrap();
        assert!(file.flattened);
        let back = image::load_from_memory(&file.bytes).unwrap().into_rgb8();
        assert!(back.pixels().all(|pixel| pixel.0 == [255; 3]));
        let solid = RgbaImage::from_pixel(16, 16, image::Rgba([200, 40, 90, 255]));
        let file = encode(&solid, true, FileType::Jpeg, &[]).unwrap();
        assert!(!file.flattened);
        for pixel in image::load_from_memory(&file.bytes).unwrap().into_rgb8().pixels() {
            assert!(pixel.0.iter().zip([200u8, 40, 90]).all(|(&found, sent)| found.abs_diff(sent) <= 3), "{pixel:?}");
        }
    }

    #[test]
    fn blending_rounds_to_nearest() {
        for alpha in 0..=255u8 {
            for value in [0u8, 1, 100, 254, 255] {
                let image = RgbaImage::from_pixel(1, 1, image::Rgba([value, value, value, alpha]));
                let share = f64::from(alpha) / 255.0;
                let expected = (f64::from(value) * share + 255.0 * (1.0 - share)).round() as u8;
                assert_eq!(on_white(&image).get_pixel(0, 0).0[0], expected, "{value} at {alpha}");
            }
        }
    }

    #[test]
    fn texts_come_back() {
        let texts = [
            Text { keyword: "parameters", text: "a red apple\nSteps: 8" },
            Text { keyword: "atelier", text: "{\"prompt\":\"一只红苹果 🍎 é\"}" },
        ];
        let file = encode(&gradient(), true, FileType::Png, &texts).unwrap();
        for Text { keyword, text } in texts {
            assert_eq!(read_text(&file.bytes, keyword).unwrap().as_deref(), Some(text));
        }
        assert_eq!(read_text(&file.bytes, "other").unwrap(), None);
        let plain = encode(&gradient(), true, FileType::Png, &[]).unwrap();
        assert_eq!(read_text(&plain.bytes, "atelier").unwrap(), None);
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = encode(&gradient(), true, FileType::Png, &[Text { keyword: "atelier", text: "é" }]).unwrap();
        for bytes in [&b""[..], b"GIF89a", &file.bytes[..20], &file.bytes[..40]] {
            let error = read_text(bytes, "atelier").unwrap_err().to_string();
            assert!(error.starts_with("not a readable PNG picture: "), "{error}");
        }
    }

    #[test]
    fn extensions() {
        for (name, expected) in [
            ("a.png", FileType::Png),
            ("a.b.JPG", FileType::Jpeg),
            ("a.jpeg", FileType::Jpeg),
            ("ä.WebP", FileType::WebP),
        ] {
            assert_eq!(FileType::of(Path::new(name)).unwrap(), expected);
        }
        assert!(FileType::of(Path::new("folder.png/a")).unwrap_err().to_string().contains("no extension"));
        assert!(FileType::of(Path::new("a.gif")).unwrap_err().to_string().contains("not .gif"));
    }
}
