//! The demo model inside the program: its pictures are the reference's (`tests/golden`, made by `assets/train/golden.py`).

use serde_json::Value;

use super::harness::{Folder, golden};

/// Share of 8-bit values within one level of the reference's picture. Processors sum in different orders, and a trained
/// model carries a rounding along for eight steps, so a few values may be further off.
const WITHIN_ONE_LEVEL: f64 = 0.995;

#[test]
fn paints_what_the_reference_paints() {
    let rows: Value = serde_json::from_slice(&std::fs::read(golden().join("golden.json")).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let [file, prompt] = ["file", "prompt"].map(|key| row[key].as_str().unwrap());
        let seed = row["seed"].to_string();
        let folder = Folder::new();
        folder.atelier(&["generate", prompt, "-s", &seed, "-o", "picture.png"]).ok();
        let found = image::open(folder.join("picture.png")).unwrap();
        let expected = image::open(golden().join(file)).unwrap();
        assert_eq!(found.color(), image::ColorType::Rgba8, "{prompt}: alpha is kept");
        let (found, expected) = (found.into_rgba8(), expected.into_rgba8());
        assert_eq!(found.dimensions(), expected.dimensions(), "{prompt}");
        let same = found.as_raw().iter().zip(expected.as_raw()).filter(|(f, e)| f.abs_diff(**e) <= 1).count();
        let share = same as f64 / expected.as_raw().len() as f64;
        assert!(share >= WITHIN_ONE_LEVEL, "{prompt}: only {:.2} % of values within one level", 100.0 * share);
    }
}

#[test]
fn the_same_seed_is_the_same_bytes_and_another_is_not() {
    let folder = Folder::new();
    for (name, seed) in [("a.png", "5"), ("b.png", "5"), ("c.png", "6")] {
        folder.atelier(&["generate", "a castle", "-s", seed, "-o", name]).ok();
    }
    assert_eq!(folder.read("a.png"), folder.read("b.png"));
    let pixels = |name| image::open(folder.join(name)).unwrap().into_rgba8();
    assert_ne!(pixels("a.png"), pixels("c.png"));
}

#[test]
fn a_transparent_background_is_transparent_and_a_named_one_has_its_colour() {
    let folder = Folder::new();
    folder.atelier(&["generate", "a sunflower on a transparent background", "-s", "1", "-o", "clear.png"]).ok();
    folder.atelier(&["generate", "a robot on a black background", "-s", "1", "-o", "black.png"]).ok();
    let corner = |name| *image::open(folder.join(name)).unwrap().into_rgba8().get_pixel(6, 6);
    assert!(corner("clear.png")[3] < 8, "{:?}", corner("clear.png"));
    let [r, g, b, a] = corner("black.png").0;
    assert!(r < 40 && g < 40 && b < 40 && a > 247, "{:?}", corner("black.png"));
}

#[test]
fn reference_pictures_are_refused() {
    let folder = Folder::new();
    let picture = golden().join("robot-black.png").display().to_string();
    folder
        .atelier(&["generate", "a robot", "-i", &picture, "-o", "a.png"])
        .fails(1, "not trained to look at reference");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn the_looker_describes_what_was_painted() {
    let folder = Folder::new();
    for (file, expected) in [
        ("apple-and-pizza.png", "A red apple to the left of a pizza on a white background, in 3D style.\n"),
        ("fox-flat.png", "A fox on a white background, in flat style.\n"),
        ("robot-black.png", "A robot on a black background, in 3D style.\n"),
        ("strawberries.png", "Three strawberries on a white background, in 3D style.\n"),
    ] {
        let picture = golden().join(file).display().to_string();
        assert_eq!(folder.atelier(&["describe", &picture]).ok().stdout, expected);
    }
    let picture = golden().join("fox-zh.png").display().to_string();
    assert_eq!(folder.atelier(&["describe", &picture, "-p", "这是什么？"]).ok().stdout, "这是一只狐狸。\n");
    let answer = folder.atelier(&["describe", &picture, "-p", "What colour is the background?"]).ok().stdout;
    assert!(answer.contains("blue"), "{answer}");
}
