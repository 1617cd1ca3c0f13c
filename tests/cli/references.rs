//! Reference pictures: damaged ones are refused, odd ones are read.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat};

use crate::harness::{Folder, copy_folder, tiny};

fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

#[test]
fn damaged_references_are_refused() {
    let folder = Folder::new();
    let good = encoded(image::RgbaImage::new(64, 64), ImageFormat::Png);
    let jpeg = encoded(image::RgbImage::new(64, 64), ImageFormat::Jpeg);
    std::fs::create_dir(folder.join("folder")).unwrap();
    folder
        .write("empty.png", b"")
        .write("text.png", b"this is no picture")
        .write("cut.png", &good[..good.len() / 2])
        .write("cut.jpg", &jpeg[..30])
        .write("header.png", &good[..16])
        .write("narrow.png", encoded(image::RgbImage::new(1, 300), ImageFormat::Png))
        .write("bomb.bmp", bitmap_header(60_000, 60_000))
        .write("svg.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>");
    for (name, expected) in [
        ("missing.png", "missing.png: the reference picture cannot be read: No such file"),
        ("folder", "folder: the reference picture cannot be read"),
        ("empty.png", "the file is empty"),
        ("text.png", "no picture format was recognised"),
        ("svg.svg", "no picture format was recognised"),
        ("cut.png", "cut.png: the reference picture cannot be used"),
        ("cut.jpg", "cut.jpg: the reference picture cannot be used"),
        ("header.png", "header.png: the reference picture cannot be used"),
        ("narrow.png", "1x300 is narrower than 1:200"),
        ("bomb.bmp", "60000x60000 is more than 100 megapixels"),
    ] {
        folder.paint(&["a", "-i", name, "-o", "a.png"]).fails(1, expected);
    }
    assert!(!folder.join("a.png").exists());
}

/// The header of a 24-bit BMP that claims this size.
fn bitmap_header(width: i32, height: i32) -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for value in [54, 0, 54, 40, width, height, 0x0018_0001, 0, 0, 0, 0, 0, 0] {
        bytes.extend(value.to_le_bytes());
    }
    bytes
}

#[test]
fn the_same_pixels_in_another_format_paint_the_same_picture() {
    let folder = Folder::new();
    let picture = image::open(tiny().with_file_name("reference_one.png")).unwrap().into_rgba8();
    let deep = DynamicImage::from(picture.clone()).into_rgba16();
    folder
        .write("a.png", encoded(picture.clone(), ImageFormat::Png))
        .write("deep.png", encoded(deep, ImageFormat::Png))
        .write("a.webp", encoded(picture, ImageFormat::WebP));
    let paint = |reference: &str| {
        folder.paint(&["a", "-i", reference, "-s", "1", "-W", "64", "-H", "64", "-o", "out.webp", "-q"]).ok();
        folder.read("out.webp")
    };
    let expected = paint("a.png");
    for name in ["deep.png", "a.webp"] {
        assert_eq!(paint(name), expected, "{name}");
    }
}

#[test]
fn the_size_follows_the_last_reference() {
    let folder = Folder::new();
    // twice as wide as high
    folder.write("wide.png", encoded(image::RgbaImage::new(128, 64), ImageFormat::Png));
    let model = tiny().display().to_string();
    let arguments = ["generate", "a", "--model", &model, "-i", "wide.png", "--steps", "1", "--json", "-q", "-W", "128"];
    let picture = &folder.atelier(&arguments).ok().json()["pictures"][0];
    assert_eq!((&picture["width"], &picture["height"]), (&128.into(), &128.into()), "one side alone makes a square");
}

/// A processor may ask for pictures of any size: that is refused before a picture of that size is made.
#[test]
fn an_absurd_range_of_pixels_is_refused_before_memory_is_spent() {
    let folder = Folder::new();
    let config = "model/processor/processor_config.json";
    copy_folder(&tiny(), &folder.join("model"));
    let mut values: serde_json::Value = serde_json::from_slice(&folder.read(config)).unwrap();
    values["image_processor"]["size"] = serde_json::json!({"shortest_edge": 1_u64 << 40, "longest_edge": 1_u64 << 44});
    folder.write(config, values.to_string()).write("a.png", encoded(image::RgbaImage::new(64, 64), ImageFormat::Png));
    let arguments =
        ["generate", "a", "--model", "model", "--size", "64x64", "--steps", "1", "-i", "a.png", "-o", "b.png"];
    folder.atelier(&arguments).fails(1, "does not fit the vision encoder");
}
