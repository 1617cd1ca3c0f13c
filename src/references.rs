//! Files → reference pictures: any common format, upright, RGBA, within limits.

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use image::{DynamicImage, ImageDecoder as _, ImageReader, RgbaImage};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Largest file that is read.
const FILE_LIMIT: u64 = 512 << 20;
/// Largest picture that is decoded, in pixels: known from the header, before memory is spent.
const PIXEL_LIMIT: u64 = 100_000_000;
/// Memory that decoding may take: 16-bit RGBA of the largest picture, twice.
const MEMORY_LIMIT: u64 = 16 * PIXEL_LIMIT;
/// Largest ratio of the sides: beyond it nothing is left after resizing.
const ASPECT_LIMIT: u32 = 200;

/// A reference picture's file: where, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The path, as it was typed.
    pub path: PathBuf,
    /// SHA-256 of the file in lower-case hexadecimal; empty until the file has been read.
    pub sha256: String,
}

impl Reference {
    /// A file that has not been read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, sha256: String::new() }
    }

    /// Reads the picture. The first reading notes the file's hash; later ones insist on it.
    ///
    /// # Errors
    /// When the file cannot be read, is no picture, is too large, or has changed.
    pub fn read(&mut self) -> Result<RgbaImage> {
        let name = self.path.display().to_string();
        let bytes = read_file(&self.path).with_context(|| format!("{name}: the reference picture cannot be read"))?;
        let sha256 = hexadecimal(&Sha256::digest(&bytes));
        if !self.sha256.is_empty() && self.sha256 != sha256 {
            bail!(
                "{name}: the reference picture is not the one that was used (SHA-256 {sha256}, then {}): give the right \
                 one with -i",
                self.sha256
            );
        }
        let picture = decode(&bytes).with_context(|| format!("{name}: the reference picture cannot be used"))?;
        self.sha256 = sha256;
        Ok(picture)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        bail!("the file is larger than {} MiB", FILE_LIMIT >> 20);
    }
    Ok(bytes)
}

/// File bytes → pixels with straight alpha, turned upright as EXIF says. Of an animation the first frame is taken.
///
/// # Errors
/// When the bytes are no picture of a known format, are damaged, or the picture is too large or too narrow.
pub fn decode(bytes: &[u8]) -> Result<RgbaImage> {
    if bytes.is_empty() {
        bail!("the file is empty");
    }
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    if reader.format().is_none() {
        bail!("no picture format was recognised: PNG, JPEG, WebP, GIF, BMP and TIFF are read");
    }
    let mut limits = image::Limits::default();
    limits.max_alloc = Some(MEMORY_LIMIT);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        bail!("{width}x{height} is no picture");
    }
    if u64::from(width) * u64::from(height) > PIXEL_LIMIT {
        bail!("{width}x{height} is more than {} megapixels: make it smaller first", PIXEL_LIMIT / 1_000_000);
    }
    if width.max(height) / width.min(height) > ASPECT_LIMIT {
        bail!("{width}x{height} is narrower than 1:{ASPECT_LIMIT}: crop it first");
    }
    let orientation = decoder.orientation()?;
    let mut picture = DynamicImage::from_decoder(decoder)?;
    picture.apply_orientation(orientation);
    Ok(picture.into_rgba8())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use image::codecs::png::PngEncoder;
    use image::{ImageFormat, Luma, Rgb, Rgba};

    use super::*;

    fn file(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn every_kind_becomes_rgba() {
        let rgb = image::RgbImage::from_pixel(8, 4, Rgb([10, 200, 90]));
        for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            let picture = decode(&file(rgb.clone(), format)).unwrap();
            assert_eq!((picture.dimensions(), picture.get_pixel(3, 3).0), ((8, 4), [10, 200, 90, 255]), "{format:?}");
        }
        let deep = image::ImageBuffer::<Rgba<u16>, _>::from_pixel(8, 4, Rgba([65535, 0, 257, 32896]));
        assert_eq!(decode(&file(deep, ImageFormat::Png)).unwrap().get_pixel(0, 0).0, [255, 0, 1, 128]);
        let grey = image::GrayImage::from_pixel(8, 4, Luma([77]));
        assert_eq!(decode(&file(grey, ImageFormat::Png)).unwrap().get_pixel(0, 0).0, [77, 77, 77, 255]);
    }

    #[test]
    fn exif_orientation_is_applied() {
        use image::ImageEncoder as _;
        // TIFF header, one entry: tag 0x0112 (orientation), SHORT, 1 value: 6 (turn right)
        let exif = [
            b"II*\0".as_slice(),
            &8_u32.to_le_bytes(),
            &1_u16.to_le_bytes(),
            &0x112_u16.to_le_bytes(),
            &3_u16.to_le_bytes(),
            &1_u32.to_le_bytes(),
            &6_u32.to_le_bytes(),
            &0_u32.to_le_bytes(),
        ]
        .concat();
        let mut picture = RgbaImage::from_pixel(3, 2, Rgba([0, 0, 0, 255]));
        picture.put_pixel(0, 0, Rgba([255, 0, 0, 255]));
        let mut bytes = Vec::new();
        let mut encoder = PngEncoder::new(&mut bytes);
        encoder.set_exif_metadata(exif).unwrap();
        encoder.write_image(picture.as_raw(), 3, 2, image::ExtendedColorType::Rgba8).unwrap();
        let upright = decode(&bytes).unwrap();
        assert_eq!((upright.dimensions(), upright.get_pixel(1, 0).0), ((2, 3), [255, 0, 0, 255]));
    }

    #[test]
    fn bad_files_are_refused() {
        let good = file(image::RgbImage::new(64, 64), ImageFormat::Png);
        let narrow = file(image::RgbImage::new(1, 202), ImageFormat::Png);
        // a header that claims 50000 x 50000
        let mut bomb = good.clone();
        bomb[16..24].copy_from_slice(&[0, 0, 0xc3, 0x50, 0, 0, 0xc3, 0x50]);
        let sum = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&sum.to_be_bytes());
        for (bytes, expected) in [
            (&b""[..], "empty"),
            (b"a text file", "no picture format was recognised"),
            (&good[..good.len() / 2], ""),
            (&narrow, "narrower than 1:200"),
            (&bomb, "more than 100 megapixels"),
        ] {
            let error = format!("{:#}", decode(bytes).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }

    /// The checksum of PNG chunks, bit by bit.
    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
        })
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, file(image::RgbImage::new(2, 2), ImageFormat::Png)).unwrap();
        let mut reference = Reference::new(path.clone());
        reference.read().unwrap();
        assert_eq!(reference.sha256.len(), 64);
        reference.read().unwrap();
        std::fs::write(&path, file(image::RgbImage::new(4, 4), ImageFormat::Png)).unwrap();
        assert!(reference.read().unwrap_err().to_string().contains("is not the one that was used"));
    }
}
