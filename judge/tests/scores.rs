//! Scores against the published table and against a computation by other means.

#![cfg(test)]

use std::collections::BTreeMap;

use atelier_judge::{Benchmark, Dimension, Outcome, PictureScores, Reading};

/// A picture by the numbers its judge gave, a list for each category in the hierarchy's order. `-` is not applicable, an
/// empty dimension was not asked about, `missing` could not be read.
fn picture(dimensions: [&str; 5]) -> PictureScores {
    let mut readings = BTreeMap::new();
    for (dimension, given) in Dimension::ALL.into_iter().zip(dimensions) {
        if given.is_empty() {
            continue;
        }
        let mut categories = serde_json::Map::new();
        for (category, scores) in dimension.categories().zip(given.split(' ')) {
            let scores = category.facets().zip(scores.chars());
            let facets = scores.map(|(facet, score)| {
                let score = score.to_digit(10).map_or_else(|| "N/A".into(), serde_json::Value::from);
                (facet.name().to_owned(), serde_json::json!({ "score": score }))
            });
            categories.insert(category.name().to_owned(), facets.collect::<serde_json::Map<_, _>>().into());
        }
        let answer = if given == "missing" { String::new() } else { serde_json::Value::from(categories).to_string() };
        readings.insert(dimension, Reading::of(&answer, dimension));
    }
    PictureScores::new(readings)
}

/// The table of five pictures that SGLang-MUSA 0.5.18 publishes for Qwen-Image-2.1-Turbo on the M1000, from facet scores
/// that lead to it (the table itself gives only dimensions).
#[test]
fn the_published_rows() {
    let rows = [
        (["11 111 1", "1 1 1 1 1 1", "1112-1 111 01 111 1", "", ""], "60.00 60.00 55.60 N/A N/A 58.53"),
        (["02 111 1", "1 1 1 1 1 1", "111111 111 01 111 11", "", ""], "56.67 60.00 54.00 N/A N/A 56.89"),
        (["01 101 1", "1 1 1 - 1 1", "1----- 1 11", "11 1 01", ""], "43.33 60.00 60.00 50.00 N/A 53.33"),
        (["01 101 1", "1 1 1 1 1 1", "111111 101 11 111 1", "11 1 110--", ""], "43.33 60.00 56.00 53.33 N/A 53.17"),
        (["01 111 1", "1 1 0 1 1 1", "111120 111 11 111 11", "11 1 001--", ""], "50.00 50.00 59.33 46.67 N/A 51.50"),
    ];
    for (given, expected) in rows {
        let picture = picture(given);
        let number = |points: Option<f64>| points.map_or("N/A".to_owned(), |points| format!("{points:.2}"));
        let mut found: Vec<_> =
            Dimension::ALL.into_iter().map(|dimension| number(picture.dimension(dimension).points())).collect();
        found.push(number(picture.total()));
        assert_eq!(found.join(" "), expected);
        assert_eq!(picture.missing(), []);
    }
}

#[test]
fn categories_weigh_the_same_whatever_their_size() {
    let picture = picture(["00 222 -", "", "", "", ""]);
    assert_eq!(picture.dimension(Dimension::Quality), Outcome::Points(50.0));
    let categories: Vec<_> = Dimension::Quality.categories().map(|category| picture.category(category)).collect();
    assert_eq!(categories, [Some(0.0), Some(100.0), None]);
}

#[test]
fn missing_is_no_score_and_not_the_same_as_not_applicable() {
    let picture = picture(["22 222 2", "missing", "------ --- -- --- --", "", "0"]);
    let found = Dimension::ALL.map(|dimension| picture.dimension(dimension));
    let expected =
        [Outcome::Points(100.0), Outcome::Missing, Outcome::NotApplicable, Outcome::NotAsked, Outcome::Points(0.0)];
    assert_eq!(found, expected);
    assert_eq!(picture.total(), Some(50.0));
    assert_eq!(picture.missing(), [Dimension::Aesthetics]);
    assert_eq!(PictureScores::default().total(), None);
}

#[test]
fn a_benchmark_averages_pictures() {
    let pictures = [
        picture(["22 222 2", "missing", "", "", ""]),
        picture(["11 111 1", "0", "", "", ""]),
        picture(["missing", "2", "", "", ""]),
        picture(["-- --- -", "", "", "", ""]),
    ];
    let benchmark = Benchmark::new(&pictures, 0);
    assert_eq!(benchmark.pictures, 4);
    // the mean of the pictures' totals (100, 30, 100), not of the dimensions' means (80, 50)
    let total = benchmark.total.unwrap();
    assert_eq!((total.count, (total.mean * 100.0).round()), (3, 7667.0));
    let quality = benchmark.dimensions[&Dimension::Quality];
    assert_eq!((quality.count, quality.mean), (2, 80.0));
    assert!((quality.deviation.unwrap() - 800.0_f64.sqrt()).abs() < 1e-9);
    let aesthetics = benchmark.dimensions[&Dimension::Aesthetics];
    assert_eq!((aesthetics.count, aesthetics.mean), (2, 50.0));
    assert_eq!(benchmark.missing, [(Dimension::Quality, 1), (Dimension::Aesthetics, 1)].into());
    let noise = Dimension::Quality.facet("Noise").unwrap();
    assert_eq!((benchmark.facets[&noise].count, benchmark.categories[&noise.category()].mean), (2, 80.0));
    assert!(!benchmark.dimensions.contains_key(&Dimension::Alignment));
}
