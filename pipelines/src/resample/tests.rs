//! Against Pillow and torchvision: every byte equal (`tests/fixtures/pictures.py`).

use std::path::Path;

use safetensors::SafeTensors;

use super::*;

struct Fixture {
    bytes: Vec<u8>,
}

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pictures.safetensors");
        Self { bytes: std::fs::read(path).unwrap() }
    }

    /// Bytes and size (width, height).
    fn picture(&self, name: &str) -> (Vec<u8>, (usize, usize)) {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let view = file.tensor(name).unwrap();
        (view.data().to_vec(), (view.shape()[1], view.shape()[0]))
    }
}

fn rgba((bytes, (width, height)): (Vec<u8>, (usize, usize))) -> RgbaImage {
    RgbaImage::from_raw(width as u32, height as u32, bytes).unwrap()
}

/// The pictures of the fixture.
const COUNT: usize = 8;

fn first_three(rgba: &RgbaImage) -> Vec<u8> {
    rgba.as_raw().as_chunks::<4>().0.iter().flat_map(|&[r, g, b, _]| [r, g, b]).collect()
}

#[test]
fn bicubic_is_pillows_and_torchvisions() {
    let fixture = Fixture::open();
    let mut differ = 0;
    for i in 0..COUNT {
        let picture = rgba(fixture.picture(&format!("{i}.rgba")));
        let size = (picture.width() as usize, picture.height() as usize);
        let mut results = Vec::new();
        for (name, precision) in [("pillow", Precision::Pillow), ("torch", Precision::Torch)] {
            let (expected, target) = fixture.picture(&format!("{i}.rgb.{name}"));
            let found = resize::<3>(&first_three(&picture), size, target, Filter::Bicubic, precision);
            assert!(found == expected, "picture {i} as {name} resizes it");
            results.push(found);
        }
        differ += usize::from(results[0] != results[1]);
    }
    assert!(differ > 0, "the two precisions give the same pictures: the fixture shows nothing");
}

#[test]
fn lanczos_of_rgba_is_pillows() {
    let fixture = Fixture::open();
    for i in 0..COUNT {
        let expected = rgba(fixture.picture(&format!("{i}.rgba.lanczos")));
        let picture = rgba(fixture.picture(&format!("{i}.rgba")));
        let found = resize_rgba(&picture, expected.width(), expected.height(), Filter::Lanczos);
        assert!(found == expected, "picture {i}");
    }
}

#[test]
fn the_same_size_is_a_copy() {
    // The way through premultiplied alpha would turn the colour of a transparent pixel black.
    let picture = RgbaImage::from_raw(1, 1, vec![9, 8, 7, 0]).unwrap();
    assert_eq!(resize_rgba(&picture, 1, 1, Filter::Lanczos), picture);
}

#[test]
fn white_shows_through_as_in_pillow() {
    let fixture = Fixture::open();
    for i in 0..COUNT {
        let picture = rgba(fixture.picture(&format!("{i}.rgba")));
        assert_eq!(on_white(&picture), fixture.picture(&format!("{i}.on_white")).0, "picture {i}");
    }
}
