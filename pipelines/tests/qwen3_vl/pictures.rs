//! Pictures to patches and reference pictures, against transformers and diffusers (`tests/fixtures/pictures.py`).

use std::fs;

use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::ImageProcessor;
use atelier_pipelines::text_to_image::reference::{ReferenceImage, dimensions};
use image::{RgbImage, RgbaImage};
use serde_json::{Value, json};

use crate::common::{Values, fixture};

/// The settings of a processor with a range of pixels.
fn settings(shortest: u64, longest: u64) -> Value {
    json!({
        "image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
        "size": { "shortest_edge": shortest, "longest_edge": longest }
    })
}

fn load(settings: &Value) -> atelier_pipelines::Result<ImageProcessor> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("preprocessor_config.json"), settings.to_string()).unwrap();
    ImageProcessor::load(&Files::folder(folder.path()), "")
}

fn table(name: &str) -> Vec<Vec<usize>> {
    let tables: Value = serde_json::from_slice(&fs::read(fixture("pictures.json")).unwrap()).unwrap();
    serde_json::from_value(tables[name].clone()).unwrap()
}

#[test]
fn patches_are_the_references_bit_for_bit() {
    let values = Values::open("pictures.safetensors");
    let bytes = fs::read(fixture("pictures.safetensors")).unwrap();
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let processor = &metadata.metadata().as_ref().unwrap()["processor"];
    let processor = load(&serde_json::from_str(processor).unwrap()).unwrap();
    let shape = values.shape("processor.picture");
    let picture = values.integers("processor.picture").iter().map(|&v| v as u8).collect();
    let picture = RgbImage::from_raw(shape[1] as u32, shape[0] as u32, picture).unwrap();
    let patches = processor.patches(&picture).unwrap();
    let grid = [1, patches.grid.height as u32, patches.grid.width as u32];
    assert_eq!(values.integers("processor.grid_thw"), grid);
    assert_eq!(patches.values, values.get("processor.pixel_values"));
}

#[test]
fn sizes_are_those_of_smart_resize() {
    let rows = table("smart_resize");
    assert!(rows.len() > 300);
    for row in rows {
        let [low, high, width, height, expected_width, expected_height] = row.try_into().unwrap();
        let processor = load(&settings(low as u64, high as u64)).unwrap();
        let found = processor.target(width, height).unwrap();
        assert_eq!(found, (expected_width, expected_height), "{width}x{height}, {low} to {high} pixels");
    }
}

#[test]
fn pictures_that_are_no_pictures_are_refused() {
    let processor = load(&settings(1024, 1 << 24)).unwrap();
    assert!(processor.target(0, 10).unwrap_err().to_string().contains("0x10"));
    assert!(processor.target(10, 2001).unwrap_err().to_string().contains("200 times"));
    assert!(processor.target(10, 2000).is_ok());
}

#[test]
fn both_layouts_of_the_settings_are_the_same() {
    let tiny = ImageProcessor::load(&Files::folder(fixture("tiny")), "processor").unwrap();
    let hub = ImageProcessor::load(&Files::folder(fixture("variants/hub-processor")), "processor").unwrap();
    assert_eq!(format!("{tiny:?}"), format!("{hub:?}"));
    // Older files have the range by other names.
    let mut older = settings(7, 8);
    older["min_pixels"] = 1024.into();
    older["max_pixels"] = (1 << 24).into();
    assert_eq!(load(&older).unwrap().pixel_range(), (1024, 1 << 24));
}

#[test]
fn settings_that_are_not_implemented_are_refused() {
    for (key, value, words) in [
        ("image_processor_type", json!("CLIPImageProcessor"), "CLIPImageProcessor"),
        ("do_resize", json!(false), "`do_resize` is false"),
        ("resample", json!(2), "bicubic"),
        ("patch_size", json!(0), "patch_size"),
        ("size", json!({ "shortest_edge": 10, "longest_edge": 5 }), "no range"),
        ("image_std", json!([0.5, 0.0, 0.5]), "image_std"),
        ("image_mean", json!([0.5]), "image_mean"),
        ("rescale_factor", json!(0.0), "rescale_factor"),
        ("sharpen", json!(true), "sharpen"),
        ("size", Value::Null, "size"),
    ] {
        let mut settings = settings(1024, 1 << 24);
        settings[key] = value;
        let error = load(&settings).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("preprocessor_config.json"), "{key}: {error}");
    }
    let error = ImageProcessor::load(&Files::folder(fixture("tiny")), "vae").unwrap_err().to_string();
    assert!(error.contains("processor_config.json"), "{error}");
}

#[test]
fn reference_sizes_are_those_of_calculate_dimensions() {
    let rows = table("calculate_dimensions");
    assert!(rows.len() > 800);
    for row in rows {
        let [area, width, height, expected_width, expected_height] = row.try_into().unwrap();
        match dimensions(area, width, height) {
            Ok(found) => assert_eq!(found, (expected_width, expected_height), "{width}x{height} at {area}"),
            Err(error) => {
                assert_eq!(expected_width * expected_height, 0, "{width}x{height} at {area}: {error}");
                assert!(error.to_string().contains(&format!("{width}x{height}")), "{error}");
            }
        }
    }
}

#[test]
fn references_outside_the_vision_encoders_range_are_refused() {
    let picture = RgbaImage::new(100, 50);
    let processor = load(&settings(65536, 1 << 17)).unwrap();
    for area in [96 * 96, 1024 * 1024] {
        let error = ReferenceImage::prepare(&picture, area, &processor).unwrap_err().to_string();
        assert!(error.contains("65536 to 131072"), "{error}");
    }
    let reference = ReferenceImage::prepare(&picture, 288 * 288, &processor).unwrap();
    assert_eq!((reference.width, reference.height), (416, 192));
    assert_eq!(reference.patches.grid.tokens(), 13 * 6);
    assert_eq!(reference.pixels.len(), 4 * 416 * 192);

    let long = RgbaImage::new(4000, 2);
    let processor = load(&settings(1024, 1 << 24)).unwrap();
    assert!(ReferenceImage::prepare(&long, 96 * 96, &processor).is_err());
}
