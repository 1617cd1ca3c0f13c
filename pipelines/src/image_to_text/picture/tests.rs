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
        let picture = decode_rgba(&file(rgb.clone(), format)).unwrap();
        assert_eq!((picture.dimensions(), picture.get_pixel(3, 3).0), ((8, 4), [10, 200, 90, 255]), "{format:?}");
    }
    let deep = image::ImageBuffer::<Rgba<u16>, _>::from_pixel(8, 4, Rgba([65535, 0, 257, 32896]));
    assert_eq!(decode_rgba(&file(deep, ImageFormat::Png)).unwrap().get_pixel(0, 0).0, [255, 0, 1, 128]);
    let grey = image::GrayImage::from_pixel(8, 4, Luma([77]));
    assert_eq!(decode_rgba(&file(grey, ImageFormat::Png)).unwrap().get_pixel(0, 0).0, [77, 77, 77, 255]);
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
    let upright = decode_rgba(&bytes).unwrap();
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
        let error = format!("{:#}", decode_rgba(bytes).unwrap_err());
        assert!(error.contains(expected), "{error}");
    }
}

/// The checksum of PNG chunks, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}
