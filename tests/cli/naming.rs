//! Names what the demo model painted: the nearest of all its concepts, as `assets/train/concepts.py` describes the measure.

use image::RgbaImage;

use super::harness::{Folder, golden};

/// Cells a side of a thumbnail.
const SIDE: usize = 16;
const VALUES: usize = SIDE * SIDE * 3;

/// The object's square in 16 x 16 cells of mean colour over white, RGB.
fn thumbnail(picture: &RgbaImage) -> Vec<f32> {
    let (width, height) = (i64::from(picture.width()), i64::from(picture.height()));
    let over_white = |x: i64, y: i64| -> [f32; 3] {
        if x < 0 || y < 0 || x >= width || y >= height {
            return [255.0; 3];
        }
        let [r, g, b, a] = picture.get_pixel(x as u32, y as u32).0.map(f32::from);
        [r, g, b].map(|value| 255.0 + (value - 255.0) * a / 255.0)
    };
    let mut bounds = [i64::MAX, i64::MAX, 0, 0];
    for y in 3..height - 3 {
        for x in 3..width - 3 {
            if over_white(x, y).iter().any(|value| 255.0 - value > 25.5) {
                bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x + 1), bounds[3].max(y + 1)];
            }
        }
    }
    let [left, top, right, bottom] = bounds.map(|value| value as f64);
    let (centre_x, centre_y, side) =
        (f64::midpoint(left, right), f64::midpoint(top, bottom), (right - left).max(bottom - top));
    let cell = side / SIDE as f64;
    let mut values = Vec::with_capacity(VALUES);
    for row in 0..SIDE {
        for column in 0..SIDE {
            let x0 = centre_x - side / 2.0 + column as f64 * cell;
            let y0 = centre_y - side / 2.0 + row as f64 * cell;
            let mut sum = [0.0; 3];
            for y in y0.floor() as i64..(y0 + cell).ceil() as i64 {
                for x in x0.floor() as i64..(x0 + cell).ceil() as i64 {
                    let share = |at: i64, from: f64| (from + cell).min(at as f64 + 1.0) - from.max(at as f64);
                    let weight = share(x, x0) * share(y, y0) / (cell * cell);
                    for (sum, value) in sum.iter_mut().zip(over_white(x, y)) {
                        *sum += weight * f64::from(value);
                    }
                }
            }
            values.extend(sum.map(|value| value as f32));
        }
    }
    values
}

/// The name of the concept nearest to a picture.
fn name(picture: &RgbaImage) -> String {
    let names: Vec<String> = serde_json::from_slice(&std::fs::read(golden().join("concepts.json")).unwrap()).unwrap();
    let thumbnails = std::fs::read(golden().join("concepts.bin")).unwrap();
    assert_eq!(thumbnails.len(), names.len() * VALUES);
    let found = thumbnail(picture);
    let distance = |known: &[u8], mirrored: bool| -> f32 {
        let pixel = |index: usize| {
            let (row, column) = (index / SIDE, index % SIDE);
            if mirrored { row * SIDE + SIDE - 1 - column } else { index }
        };
        let cells = (0..SIDE * SIDE).flat_map(|i| (0..3).map(move |c| (i, c)));
        cells.map(|(i, c)| (found[3 * i + c] - f32::from(known[3 * pixel(i) + c])).powi(2)).sum()
    };
    let nearest = thumbnails
        .chunks_exact(VALUES)
        .map(|known| distance(known, false).min(distance(known, true)))
        .enumerate()
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap();
    names[nearest.0].clone()
}

#[test]
fn painted_objects_are_named_among_all_concepts() {
    for (prompt, expected) in [
        ("a red apple", "red apple"),
        ("draw me a panda", "panda"),
        ("a photo of a hamburger", "hamburger"),
        ("a castle", "castle"),
        ("a butterfly", "butterfly"),
        ("画一个机器人", "robot"),
        ("could you paint a birthday cake?", "birthday cake"),
        ("a strawberry", "strawberry"),
    ] {
        let folder = Folder::new();
        folder.atelier(&["generate", prompt, "-s", "1", "-o", "picture.png"]).ok();
        let picture = image::open(folder.join("picture.png")).unwrap().into_rgba8();
        assert_eq!(name(&picture), expected, "{prompt}");
    }
}
