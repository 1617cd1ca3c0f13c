//! Two runs side by side.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::{Dimension, Spread};

/// Figures that were published for the M1000.
const PUBLISHED: &str = include_str!("published.json");

/// Rows of a published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Where they come from.
    pub source: String,
    /// The rows.
    pub rows: Vec<PublishedRow>,
}

/// A row of a published table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// The painter.
    pub model: String,
    /// Width and height.
    pub resolution: String,
    /// Denoising steps.
    pub steps: usize,
    /// Number of the picture.
    pub image: usize,
    /// Seconds to paint it.
    pub gen_seconds: f64,
    /// Seconds to judge it.
    pub judge_seconds: f64,
    /// Points in the five dimensions.
    pub dimensions: [Option<f64>; 5],
    /// Points.
    pub total: f64,
}

impl Published {
    /// The five rows that SGLang-MUSA 0.5.18 publishes for Qwen-Image-2.1-Turbo on the M1000.
    #[must_use]
    pub fn m1000() -> Self {
        serde_json::from_str(PUBLISHED).unwrap_or(Self { source: String::new(), rows: Vec::new() })
    }

    /// Its figures, as [`side_by_side`] takes them.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let points = |of: &dyn Fn(&PublishedRow) -> Option<f64>| self.rows.iter().filter_map(of).collect();
        let mut figures = Figures { name: format!("published: {}", self.source), ..Figures::default() };
        for dimension in Dimension::ALL {
            figures.columns.push((dimension.name().into(), points(&|row| row.dimensions[dimension as usize])));
        }
        figures.columns.push(("Total".into(), points(&|row| Some(row.total))));
        figures.columns.push(("Gen(s)".into(), points(&|row| Some(row.gen_seconds))));
        figures.columns.push(("Judge(s)".into(), points(&|row| Some(row.judge_seconds))));
        figures
    }
}

/// The values of each column of a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    name: String,
    columns: Vec<(String, Vec<f64>)>,
}

impl Report {
    /// Its figures, as [`side_by_side`] takes them.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let points = |of: &dyn Fn(&super::Finished) -> Option<f64>| self.pictures.iter().filter_map(of).collect();
        let manifest = &self.manifest;
        let name = format!("{} on {}, judged by {}", manifest.model, manifest.device, manifest.judge);
        let mut figures = Figures { name, ..Figures::default() };
        for dimension in Dimension::ALL {
            let column = points(&|picture| picture.scores.dimension(dimension).points());
            figures.columns.push((dimension.name().into(), column));
        }
        figures.columns.push(("Total".into(), points(&|picture| picture.scores.total())));
        figures.columns.push(("Gen(s)".into(), points(&|picture| Some(picture.painted.seconds))));
        figures.columns.push(("Judge(s)".into(), points(&|picture| Some(picture.judge_seconds))));
        figures
    }
}

/// Means, standard deviations and 95 % intervals of two runs, and the difference of the means, in Markdown.
#[must_use]
pub fn side_by_side(a: &Figures, b: &Figures) -> String {
    let mut text = format!("A: {}\nB: {}\n\n| | A | B | A - B |\n|---|---|---|---|\n", a.name, b.name);
    for ((name, left), (_, right)) in a.columns.iter().zip(&b.columns) {
        let [left, right] = [left, right].map(|values| Spread::of(values, super::report::SEED));
        let difference =
            left.zip(right).map_or("N/A".into(), |(left, right)| format!("{:+.2}", left.mean - right.mean));
        text += &format!("| {name} | {} | {} | {difference} |\n", cell(left), cell(right));
    }
    text
}

/// `58.53 ± 2.10 (56.10 to 59.80, n 5)`.
fn cell(spread: Option<Spread>) -> String {
    let Some(Spread { count, mean, deviation, interval }) = spread else { return "N/A".into() };
    let mut text = format!("{mean:.2}");
    if let Some(deviation) = deviation {
        text += &format!(" ± {deviation:.2}");
    }
    match interval {
        Some((low, high)) => text + &format!(" ({low:.2} to {high:.2}, n {count})"),
        None => text + &format!(" (n {count})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row's total is the mean of its dimensions, up to the rounding of both.
    #[test]
    fn the_published_rows_are_consistent() {
        let published = Published::m1000();
        assert_eq!(published.rows.len(), 5);
        for row in &published.rows {
            let points: Vec<f64> = row.dimensions.iter().flatten().copied().collect();
            let mean = points.iter().sum::<f64>() / points.len() as f64;
            assert!((mean - row.total).abs() < 0.0101, "{row:?}");
        }
    }

    #[test]
    fn a_run_against_itself() {
        let figures = Published::m1000().figures();
        let text = side_by_side(&figures, &figures);
        assert!(text.contains("| Total | 54.68 ± "), "{text}");
        assert!(text.contains("| Creative Generation | N/A | N/A | N/A |"), "{text}");
        assert!(text.contains("| +0.00 |"), "{text}");
    }
}
