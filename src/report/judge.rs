//! Scores → tables for people.

use atelier_judge::{Benchmark, Dimension, Outcome, PictureScores, Reading, Spread};

/// `58.53`, `missing` or `N/A`.
#[must_use]
pub fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Points(points) => format!("{points:.2}"),
        Outcome::Missing => "missing".into(),
        Outcome::NotAsked | Outcome::NotApplicable => "N/A".into(),
    }
}

/// Points of a picture, or "N/A".
#[must_use]
pub fn points(points: Option<f64>) -> String {
    points.map_or_else(|| "N/A".into(), |points| format!("{points:.2}"))
}

/// Every dimension, category and facet of a picture.
#[must_use]
pub fn picture(scores: &PictureScores) -> String {
    let mut text = String::new();
    for (&dimension, reading) in scores.readings() {
        text += &format!("{:<28}{:>8}", dimension.name(), outcome(scores.dimension(dimension)));
        if let Reading::Missing(problem) = reading {
            text += &format!("   {problem}");
        }
        text.push('\n');
        for category in dimension.categories() {
            let given =
                category.facets().filter_map(|facet| Some(format!("{} {}", facet.name(), scores.facet(facet)?)));
            let given: Vec<_> = given.collect();
            if !given.is_empty() {
                let points = points(scores.category(category));
                text += &format!("  {:<26}{points:>8}   {}\n", category.name(), given.join(", "));
            }
        }
    }
    text + &format!("{:<28}{:>8}", "Total", points(scores.total()))
}

/// Mean and spread of a benchmark, a line for each dimension.
#[must_use]
pub fn benchmark(benchmark: &Benchmark) -> String {
    let mut text =
        format!("{:<22}{:>8}{:>9}   {:<17}{:>9}{:>9}\n", "", "mean", "std", "95 % interval", "pictures", "missing");
    let line = |name: &str, spread: Option<&Spread>, missing: usize| {
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
        let interval =
            spread.and_then(|s| s.interval).map_or("-".into(), |(low, high)| format!("{low:.2} to {high:.2}"));
        format!(
            "{name:<22}{:>8}{:>9}   {interval:<17}{:>9}{missing:>9}\n",
            spread.map_or("N/A".into(), |spread| format!("{:.2}", spread.mean)),
            number(spread.and_then(|spread| spread.deviation)),
            spread.map_or(0, |spread| spread.count),
        )
    };
    for dimension in Dimension::ALL {
        let missing = benchmark.missing.get(&dimension).copied().unwrap_or(0);
        text += &line(dimension.name(), benchmark.dimensions.get(&dimension), missing);
    }
    let missing = benchmark.missing.values().sum();
    text + line("Total", benchmark.total.as_ref(), missing).trim_end()
}
