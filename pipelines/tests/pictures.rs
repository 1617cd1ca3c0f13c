//! Whole pictures against the reference: every scenario of `tests/fixtures`, pixel by pixel.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::progress::{Cancel, Progress, Stage};
use atelier_pipelines::text_to_image::{Dtype, Picture, Request, TextToImage, VaeTiling};
use safetensors::SafeTensors;
use serde_json::Value;

/// Share of 8-bit values that must lie within one level of the reference's.
const WITHIN_ONE_LEVEL: f64 = 0.999;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}

/// The tiny checkpoint with a variant's files over it.
fn checkpoint(variant: Option<&str>) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    let variant = variant.map(|name| fixtures().join("variants").join(name));
    for source in std::iter::once(fixtures().join("tiny")).chain(variant) {
        for entry in fs::read_dir(source).unwrap() {
            let entry = entry.unwrap();
            let target = folder.path().join(entry.file_name());
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), target).unwrap();
                continue;
            }
            fs::remove_dir_all(&target).ok();
            fs::create_dir(&target).unwrap();
            for file in fs::read_dir(entry.path()).unwrap() {
                let file = file.unwrap();
                fs::copy(file.path(), target.join(file.file_name())).unwrap();
            }
        }
    }
    let files = Files::folder(folder.path());
    (folder, files)
}

struct Scenario {
    variant: Option<String>,
    request: Request,
    /// Pictures one after another, RGBA.
    expected: Vec<u8>,
}

fn scenario(name: &str) -> Scenario {
    let bytes = fs::read(fixtures().join(format!("values/{name}.safetensors"))).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let arguments: Value = serde_json::from_str(&header.metadata().as_ref().unwrap()["scenario"]).unwrap();
    let text = |key: &str| arguments[key].as_str().map(str::to_owned);
    let number = |key: &str| arguments[key].as_u64();
    let mut request = Request::new(text("prompt").unwrap());
    request.negative_prompt = text("negative_prompt");
    request.size = Some((number("width").unwrap() as u32, number("height").unwrap() as u32));
    request.steps = number("steps").map(|steps| steps as usize);
    request.sigmas = arguments["sigmas"].as_array().map(|all| all.iter().map(|s| s.as_f64().unwrap()).collect());
    request.cfg_scale = arguments["cfg_scale"].as_f64().unwrap_or(1.0) as f32;
    let seed = number("seed").unwrap();
    request.seeds = (0..number("count").unwrap_or(1)).map(|i| seed + i).collect();
    request.references = arguments["references"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| image::open(fixtures().join(file.as_str().unwrap())).unwrap().to_rgba8())
        .collect();
    request.reference_side = number("ref_resolution").map(|side| side as u32);
    request.tiling = if arguments["tiling"] == true { VaeTiling::On } else { VaeTiling::Off };
    let expected = SafeTensors::deserialize(&bytes).unwrap().tensor("picture").unwrap().data().to_vec();
    Scenario { variant: text("variant"), request, expected }
}

fn paint(files: Files, request: &Request, progress: &Progress<'_>) -> Vec<Vec<u8>> {
    let painter = TextToImage::open_cpu(files, Dtype::F32).unwrap();
    let mut pictures = Vec::new();
    painter
        .generate(request, progress, &mut |number, picture| {
            assert_eq!(number, pictures.len());
            assert_eq!(picture.seed, request.seeds[number]);
            pictures.push(picture.image.into_raw());
            Ok(())
        })
        .unwrap();
    pictures
}

fn check(name: &str) {
    let Scenario { variant, request, expected } = scenario(name);
    let (_folder, files) = checkpoint(variant.as_deref());
    let found = paint(files, &request, &Progress::default()).concat();
    assert_eq!(found.len(), expected.len(), "{name}: size of the pictures");
    let differences: Vec<u8> = found.iter().zip(&expected).map(|(f, e)| f.abs_diff(*e)).collect();
    let within = differences.iter().filter(|d| **d <= 1).count() as f64 / differences.len() as f64;
    println!(
        "{name}: {:.4} % within one level, largest difference {}",
        100.0 * within,
        differences.iter().max().unwrap()
    );
    assert!(within >= WITHIN_ONE_LEVEL, "{name}: only {:.3} % of values within one level", 100.0 * within);
}

macro_rules! scenarios {
    ($($name:ident),*) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

scenarios!(
    small,
    plain,
    empty,
    turbo,
    sigmas,
    cfg,
    cfg_empty,
    references,
    references_cfg,
    batch,
    dynamic_shift,
    tiled,
    sharded_bf16
);

#[test]
fn a_batch_is_its_single_pictures() {
    let mut request = scenario("plain").request;
    request.seeds = vec![3, 4];
    let (_folder, files) = checkpoint(None);
    let batch = paint(files.clone(), &request, &Progress::default());
    for (seed, expected) in [3, 4].into_iter().zip(batch) {
        request.seeds = vec![seed];
        assert_eq!(paint(files.clone(), &request, &Progress::default()), [expected]);
    }
}

#[test]
fn every_stage_is_timed() {
    let Scenario { request, .. } = scenario("references_cfg");
    let (_folder, files) = checkpoint(None);
    let progress = Progress::default();
    paint(files, &request, &progress);
    let timings = progress.timings();
    let count = |stage: Stage| timings.iter().filter(|t| t.stage == stage).count();
    assert_eq!(count(Stage::Tokenize), 2);
    assert_eq!(count(Stage::VisionEncode), 2);
    assert_eq!(count(Stage::TextEncode), 2);
    assert_eq!(count(Stage::VaeEncode), 2);
    assert_eq!(count(Stage::Prefix), 2);
    assert_eq!(count(Stage::Denoise), 2);
    assert_eq!(count(Stage::VaeDecode), 1);
    assert!(timings.iter().all(|t| t.seconds >= 0.0 && t.size.count > 0));
}

#[test]
fn a_cancelled_run_stops() {
    let Scenario { request, .. } = scenario("plain");
    let (_folder, files) = checkpoint(None);
    let cancel = Cancel::default();
    cancel.cancel();
    let painter = TextToImage::open_cpu(files, Dtype::F32).unwrap();
    let result = painter.generate(&request, &Progress::new(&(), cancel), &mut |_, _| panic!("no picture"));
    assert!(matches!(result, Err(atelier_pipelines::Error::Cancelled)));
}

#[test]
fn sample_sigmas_win_over_steps_and_say_so() {
    let (_folder, files) = checkpoint(Some("turbo"));
    let painter = TextToImage::open_cpu(files, Dtype::F32).unwrap();
    let mut request = Request::new("a cat");
    request.size = Some((64, 64));
    request.steps = Some(8);
    assert!(painter.plan(&request).unwrap().notices.is_empty());
    request.steps = Some(3);
    let plan = painter.plan(&request).unwrap();
    assert_eq!(plan.steps, 8);
    assert!(plan.notices.iter().any(|notice| notice.contains("8 steps") && notice.contains("instead of 3")));
}

#[test]
fn requests_that_no_model_could_serve() {
    let (_folder, files) = checkpoint(None);
    let painter = TextToImage::open_cpu(files, Dtype::F32).unwrap();
    let refuse = |change: &dyn Fn(&mut Request), words: &str| {
        let mut request = Request::new("a cat");
        request.size = Some((64, 64));
        change(&mut request);
        let error = painter.plan(&request).unwrap_err().to_string();
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    };
    refuse(&|r| r.seeds.clear(), "seed");
    refuse(&|r| r.size = Some((16, 64)), "16x64");
    refuse(&|r| r.size = Some((64, 1 << 20)), "1048576");
    refuse(&|r| r.cfg_scale = f32::NAN, "cfg scale");
    refuse(&|r| r.references = vec![image::RgbaImage::new(8, 8); 11], "11 reference pictures");
    refuse(&|r| r.references = vec![image::RgbaImage::new(0, 8)], "no pixels");
    refuse(&|r| r.reference_side = Some(1), "reference side");
    refuse(&|r| r.steps = Some(0), "step");
    refuse(&|r| r.prompt = "cat ".repeat(20_000), "prompt too long");
    refuse(&|r| r.sigmas = Some(vec![0.5, 0.7]), "sigma");
}

#[test]
fn previews_come_on_the_way_and_change_nothing() {
    let Scenario { variant, mut request, .. } = scenario("plain");
    let (_folder, files) = checkpoint(variant.as_deref());
    let finished = paint(files.clone(), &request, &Progress::default());
    request.previews = 2;
    let painter = TextToImage::open_cpu(files, Dtype::F32).unwrap();
    let steps = painter.plan(&request).unwrap().steps;
    let (mut looks, mut pictures) = (Vec::new(), Vec::new());
    let mut done = |number, picture: Picture| {
        match picture.preview {
            Some(taken) => looks.push((number, taken, picture.image.dimensions())),
            None => pictures.push(picture.image.into_raw()),
        }
        Ok(())
    };
    painter.generate(&request, &Progress::default(), &mut done).unwrap();
    let (width, height) = request.size.unwrap();
    let expected = |number| [1, 2].map(|look: usize| (number, (look * steps).div_ceil(3), (width, height)));
    assert_eq!(looks, (0..request.seeds.len()).flat_map(expected).collect::<Vec<_>>());
    assert_eq!(pictures, finished);
}
