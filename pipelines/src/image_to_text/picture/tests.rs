use image::{Luma, Rgba, RgbaImage};

use super::*;

fn file(picture: impl Into<DynamicImage>) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.into().write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

#[test]
fn references_keep_their_transparency() {
    let deep = ImageBuffer::<Rgba<u16>, _>::from_pixel(8, 4, Rgba([65535, 0, 257, 32896]));
    assert_eq!(decode_rgba(&file(deep)).unwrap().get_pixel(0, 0).0, [255, 0, 1, 128]);
    let grey = image::GrayImage::from_pixel(8, 4, Luma([77]));
    assert_eq!(decode_rgba(&file(grey)).unwrap().get_pixel(0, 0).0, [77, 77, 77, 255]);
}

#[test]
fn the_models_see_white_behind() {
    let picture = RgbaImage::from_pixel(3, 2, Rgba([0, 100, 200, 51]));
    assert_eq!(Picture::decode(&file(picture)).unwrap().pixels().get_pixel(2, 1).0, [204, 224, 244]);
}

#[test]
fn xmp_tells_the_orientation_where_exif_does_not() {
    for (text, expected) in [
        (&br#"<a tiff:Orientation="6"/>"#[..], Orientation::Rotate90),
        (b"<tiff:Orientation>3</tiff:Orientation>", Orientation::Rotate180),
        (b"<a tiff:Orientation=\"9\"/>", Orientation::NoTransforms),
        (b"tiff:Orientation", Orientation::NoTransforms),
        (b"", Orientation::NoTransforms),
    ] {
        assert_eq!(orientation(None, Some(text)), expected, "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(orientation(Some(b"damaged"), Some(b"tiff:Orientation=\"8\"")), Orientation::Rotate270);
}
