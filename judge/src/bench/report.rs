//! Results → Markdown, CSV, JSON.

use std::path::Path;

use serde_json::json;

use super::compare::Figures;
use super::{Finished, Manifest, Published, State, html, side_by_side, write};
use crate::{Benchmark, Dimension, Outcome, Result, Spread};

/// Seed of the bootstrap.
pub(super) const SEED: u64 = 0;

/// What a run came to.
#[derive(Debug)]
pub struct Report {
    /// What was asked for.
    pub manifest: Manifest,
    /// The finished pictures, in order.
    pub pictures: Vec<Finished>,
    /// Mean and spread of their points.
    pub benchmark: Benchmark,
}

/// The columns of the table, as they are published for devices.
#[must_use]
pub fn columns() -> Vec<&'static str> {
    let mut columns = vec!["Model", "Resolution", "Steps", "Batch", "Image", "Gen(s)", "Judge(s)"];
    columns.extend(Dimension::ALL.map(Dimension::name));
    columns.extend(["Total", "Missing"]);
    columns
}

/// The row of one picture.
#[must_use]
pub fn cells(manifest: &Manifest, picture: &Finished) -> Vec<String> {
    let points = |outcome: Outcome| outcome.points().map_or_else(|| "N/A".into(), |points| format!("{points:.2}"));
    let painted = &picture.painted;
    let mut cells = vec![
        manifest.model.clone(),
        format!("{}x{}", painted.size.0, painted.size.1),
        painted.steps.map_or_else(|| "-".into(), |steps| steps.to_string()),
        "1".into(),
        painted.prompt.id.clone(),
        format!("{:.2}", painted.seconds),
        format!("{:.2}", picture.judge_seconds),
    ];
    cells.extend(Dimension::ALL.map(|dimension| points(picture.scores.dimension(dimension))));
    cells.push(picture.scores.total().map_or_else(|| "N/A".into(), |total| format!("{total:.2}")));
    let missing: Vec<_> = picture.scores.missing().into_iter().map(Dimension::name).collect();
    cells.push(if missing.is_empty() { "-".into() } else { missing.join("; ") });
    cells
}

impl Report {
    /// Of what is finished in a folder.
    #[must_use]
    pub fn new(state: &State) -> Self {
        Self::of(state.manifest.clone(), state.finished())
    }

    /// Of finished pictures.
    #[must_use]
    pub fn of(manifest: Manifest, pictures: Vec<Finished>) -> Self {
        let scores: Vec<_> = pictures.iter().map(|picture| picture.scores.clone()).collect();
        Self { manifest, benchmark: Benchmark::new(&scores, SEED), pictures }
    }

    /// Writes `report.md`, `.csv`, `.json` and `.html` into the run's folder; `other` is shown beside it.
    ///
    /// # Errors
    /// When a picture cannot be read or a file cannot be written.
    pub fn write(&self, folder: &Path, other: Option<&Figures>) -> Result<()> {
        let comparison = other.map(|other| side_by_side(&self.figures(), other));
        write(&folder.join("report.md"), self.markdown(comparison.as_deref()).as_bytes())?;
        write(&folder.join("report.csv"), self.csv().as_bytes())?;
        write(&folder.join("report.json"), self.json().as_bytes())?;
        write(&folder.join("report.html"), html::page(self, folder, comparison.as_deref())?.as_bytes())
    }

    /// Seconds of each stage over all pictures, in the order in which they first ran.
    #[must_use]
    pub fn stages(&self) -> Vec<(String, f64)> {
        let mut sums: Vec<(String, f64)> = Vec::new();
        for (name, seconds) in self.pictures.iter().flat_map(|picture| &picture.painted.stages) {
            match sums.iter_mut().find(|(other, _)| other == name) {
                Some((_, sum)) => *sum += seconds,
                None => sums.push((name.clone(), *seconds)),
            }
        }
        sums
    }

    fn markdown(&self, comparison: Option<&str>) -> String {
        let Manifest { model, device, judge, rubric, rubric_fingerprint, prompts, num_prompts, seed, version, .. } =
            &self.manifest;
        let row = |cells: &[String]| format!("| {} |\n", cells.iter().map(|c| cell(c)).collect::<Vec<_>>().join(" | "));
        let header: Vec<String> = columns().into_iter().map(str::to_owned).collect();
        let mut text = format!(
            "# {model}\n\nPainted on {device}, judged by {judge} with the rubric \"{rubric}\" ({rubric_fingerprint}); {} of \
             {num_prompts} prompts of {prompts}, seed {seed}; atelier {version}.\n\n{}|{}\n",
            self.pictures.len(),
            row(&header),
            "---|".repeat(header.len())
        );
        for picture in &self.pictures {
            text += &row(&cells(&self.manifest, picture));
        }
        text += "\n## Scores\n\n| | mean | standard deviation | 95 % interval | pictures | missing |\n|---|---|---|---|---|---|\n";
        for dimension in Dimension::ALL {
            let missing = self.benchmark.missing.get(&dimension).copied().unwrap_or(0);
            text += &spread(dimension.name(), self.benchmark.dimensions.get(&dimension), &missing.to_string());
        }
        text += &spread("**Total**", self.benchmark.total.as_ref(), "");
        text += "\n## Categories and facets\n\n| | mean | standard deviation | 95 % interval | pictures | |\n|---|---|---|---|---|---|\n";
        for (category, points) in &self.benchmark.categories {
            text += &spread(&format!("**{category}**"), Some(points), "");
            for facet in category.facets() {
                if let Some(points) = self.benchmark.facets.get(&facet) {
                    text += &spread(facet.name(), Some(points), "");
                }
            }
        }
        text += "\n## Time\n\n| stage | seconds | share |\n|---|---|---|\n";
        let stages = self.stages();
        let all: f64 = stages.iter().map(|(_, seconds)| seconds).sum();
        for (name, seconds) in &stages {
            text += &format!("| {name} | {seconds:.2} | {:.1} % |\n", 100.0 * seconds / all.max(f64::MIN_POSITIVE));
        }
        let judged: f64 = self.pictures.iter().map(|picture| picture.judge_seconds).sum();
        text += &format!("| judge (all answers) | {judged:.2} | |\n");
        if let Some(comparison) = comparison {
            text += &format!("\n## Side by side\n\n{comparison}");
        }
        let repairs = self.benchmark.repairs;
        text += &format!(
            "\nAnswers put right: {} facets moved, {} renamed, {} unknown scores counted as N/A. A missing dimension has no \
             score and is left out of the total.\n",
            repairs.moved, repairs.renamed, repairs.unknown_scores
        );
        text
    }

    fn csv(&self) -> String {
        let field = |text: &str| {
            if text.contains(['"', ',', '\n', '\r']) {
                format!("\"{}\"", text.replace('"', "\"\""))
            } else {
                text.to_owned()
            }
        };
        let line = |cells: &[String]| cells.iter().map(|cell| field(cell)).collect::<Vec<_>>().join(",") + "\n";
        let header: Vec<String> = columns().into_iter().map(str::to_owned).collect();
        line(&header) + &self.pictures.iter().map(|picture| line(&cells(&self.manifest, picture))).collect::<String>()
    }

    fn json(&self) -> String {
        let pictures: Vec<_> = self.pictures.iter().map(Finished::line).collect();
        let seconds = |of: fn(&Finished) -> f64| Spread::of(&self.pictures.iter().map(of).collect::<Vec<_>>(), SEED);
        let report = json!({
            "manifest": self.manifest,
            "benchmark": self.benchmark,
            "gen_seconds": seconds(|picture| picture.painted.seconds),
            "judge_seconds": seconds(|picture| picture.judge_seconds),
            "pictures": pictures,
            "published": Published::m1000(),
        });
        serde_json::to_string_pretty(&report).unwrap_or_default() + "\n"
    }
}

/// Text that stays within its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

fn spread(name: &str, spread: Option<&Spread>, last: &str) -> String {
    let Some(Spread { count, mean, deviation, interval }) = spread else {
        return format!("| {name} | N/A | | | 0 | {last} |\n");
    };
    let deviation = deviation.map_or_else(String::new, |deviation| format!("{deviation:.2}"));
    let interval = interval.map_or_else(String::new, |(low, high)| format!("{low:.2} to {high:.2}"));
    format!("| {name} | {mean:.2} | {deviation} | {interval} | {count} | {last} |\n")
}
