//! Picture files of many kinds, whole and damaged, against Pillow (`tests/fixtures/picture_files.py`).

#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;

use atelier_pipelines::image_to_text::Picture;
use safetensors::SafeTensors;
use serde::de::DeserializeOwned;

/// Largest difference of a value, for files whose pixels depend on how a decoder rounds: the inverse transform and the
/// enlarging of colours in JPEG differ by a level of luminance or colour difference, which colours multiply by up to 1.8.
const LOSSY: u8 = 3;

struct Fixture(Vec<u8>);

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/picture_files.safetensors");
        Self(std::fs::read(path).unwrap())
    }

    fn metadata<T: DeserializeOwned>(&self, key: &str) -> T {
        let (_, header) = SafeTensors::read_metadata(&self.0).unwrap();
        serde_json::from_str(&header.metadata().as_ref().unwrap()[key]).unwrap()
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).unwrap()
    }
}

#[test]
fn whole_files_have_pillows_pixels() {
    let fixture = Fixture::open();
    let lossy: Vec<String> = fixture.metadata("lossy");
    let notes: BTreeMap<String, String> = fixture.metadata("notes");
    let tensors = fixture.tensors();
    let names: Vec<_> = tensors.names().into_iter().filter_map(|name| name.strip_suffix(".pixels")).collect();
    assert!(names.len() > 60);
    for name in names {
        let expected = tensors.tensor(&format!("{name}.pixels")).unwrap();
        let file = tensors.tensor(name).unwrap();
        let picture = Picture::decode(file.data()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (width, height) = picture.pixels().dimensions();
        assert_eq!([height as usize, width as usize, 3], expected.shape(), "{name}");
        let differences = picture.pixels().as_raw().iter().zip(expected.data()).map(|(a, b)| a.abs_diff(*b));
        let largest = differences.max().unwrap();
        let tolerance = if lossy.iter().any(|lossy| lossy == name) { LOSSY } else { 0 };
        println!("{name}: largest difference {largest} of {tolerance}");
        assert!(largest <= tolerance, "{name}: a value differs by {largest}");
        match (notes.get(name), picture.notes()) {
            (None, []) => {}
            (Some(words), [note]) if note.contains(words) => {}
            (expected, found) => panic!("{name}: {found:?} in place of {expected:?}"),
        }
    }
}

#[test]
fn damaged_files_are_refused() {
    let fixture = Fixture::open();
    let refused: BTreeMap<String, String> = fixture.metadata("refused");
    assert!(refused.len() >= 30);
    for (name, words) in refused {
        let tensors = fixture.tensors();
        let file = tensors.tensor(&name).unwrap();
        let error = Picture::decode(file.data()).expect_err(&name).to_string();
        println!("{name}: {error}");
        assert!(error.contains(&words), "{name}: {words:?} is not in: {error}");
    }
}

/// Every file cut at many places, and with many single bytes changed: never a panic. Most cuts are refused.
#[test]
fn cuts_and_changes_are_survived() {
    let fixture = Fixture::open();
    let tensors = fixture.tensors();
    let mut read = 0;
    for name in tensors.names() {
        let file = tensors.tensor(name).unwrap();
        if file.shape().len() > 1 {
            continue;
        }
        let file = file.data();
        for cut in (0..file.len()).step_by(file.len() / 16 + 1) {
            read += usize::from(Picture::decode(&file[..cut]).is_ok());
        }
        for at in (0..file.len()).step_by(file.len() / 48 + 1) {
            let mut changed = file.to_vec();
            changed[at] ^= 0xff;
            let _ = Picture::decode(&changed);
        }
    }
    assert!(read < 40, "{read} cut files were read");
}
