//! Results → a page that needs nothing else: pictures, scores, times.

use std::fs;
use std::path::Path;

use atelier_pipelines::image_to_text::Picture;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;

use super::{Finished, Report, cells, columns};
use crate::{Dimension, Error, Outcome, Reading, Result};

/// Longest side of a picture on the page.
const SIDE: u32 = 512;
const QUALITY: u8 = 85;
const COLOURS: [&str; 8] = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f"];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#222;\
    background:#fff}table{border-collapse:collapse;margin:1rem 0;font-size:.85rem}td,th{border:1px solid #ccc;\
    padding:.25rem .5rem;text-align:right}td:first-child,th:first-child{text-align:left}.scroll{overflow-x:auto}\
    article{display:flex;flex-wrap:wrap;gap:1rem;border-top:1px solid #ccc;padding:1rem 0}article>div{flex:1 1 24rem}\
    img{max-width:320px;height:auto;background:#eee}h3{margin:0}.missing{color:#b00}dt{font-weight:600;float:left;\
    clear:left;width:13rem}dd{margin:0 0 0 13.5rem}svg{max-width:100%}pre{white-space:pre-wrap}";

/// The whole page; pictures are read from `folder`.
pub(super) fn page(report: &Report, folder: &Path, comparison: Option<&str>) -> Result<String> {
    let manifest = &report.manifest;
    let title = escape(&manifest.model);
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>Painted \
         on {}, judged by {} with the rubric \u{201c}{}\u{201d}. {} of {} prompts, seed {}, atelier {}.</p>\n",
        escape(&manifest.device),
        escape(&manifest.judge),
        escape(&manifest.rubric),
        report.pictures.len(),
        manifest.num_prompts,
        manifest.seed,
        escape(&manifest.version)
    );
    text += "<h2>Scores</h2>\n<table><tr><th></th><th>mean</th><th>std</th><th>95 % interval</th><th>pictures</th><th>missing</th></tr>\n";
    for dimension in Dimension::ALL {
        let missing = report.benchmark.missing.get(&dimension).copied().unwrap_or(0);
        text += &spread(dimension.name(), report.benchmark.dimensions.get(&dimension), missing);
    }
    text += &spread("Total", report.benchmark.total.as_ref(), report.benchmark.missing.values().sum());
    text += "</table>\n<h2>Time of each stage</h2>\n";
    text += &chart(&report.stages());
    text += "<h2>Pictures</h2>\n<div class=\"scroll\"><table><tr>";
    text += &columns().iter().map(|name| format!("<th>{}</th>", escape(name))).collect::<String>();
    text += "</tr>\n";
    for picture in &report.pictures {
        let row = cells(manifest, picture);
        text +=
            &format!("<tr>{}</tr>\n", row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect::<String>());
    }
    text += "</table></div>\n";
    for picture in &report.pictures {
        text += &article(picture, folder)?;
    }
    if let Some(comparison) = comparison {
        text += &format!("<h2>Side by side</h2>\n<pre>{}</pre>\n", escape(comparison));
    }
    Ok(text + "</body></html>\n")
}

fn spread(name: &str, spread: Option<&crate::Spread>, missing: usize) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    let interval =
        spread.and_then(|s| s.interval).map_or(String::new(), |(low, high)| format!("{low:.2} to {high:.2}"));
    format!(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{interval}</td><td>{}</td><td>{missing}</td></tr>\n",
        escape(name),
        spread.map_or("N/A".into(), |spread| format!("{:.2}", spread.mean)),
        number(spread.and_then(|spread| spread.deviation)),
        spread.map_or(0, |spread| spread.count)
    )
}

/// One picture with its prompt, scores and times.
fn article(picture: &Finished, folder: &Path) -> Result<String> {
    let painted = &picture.painted;
    let mut text = format!(
        "<article><img alt=\"{}\" src=\"{}\"><div><h3>{}</h3><p>{}</p><dl>\n",
        escape(&painted.prompt.prompt),
        thumbnail(&folder.join(&painted.file))?,
        escape(&painted.prompt.id),
        escape(&painted.prompt.prompt)
    );
    for (&dimension, reading) in picture.scores.readings() {
        let points = match picture.scores.dimension(dimension) {
            Outcome::Points(points) => format!("{points:.2}"),
            Outcome::Missing => "missing".into(),
            Outcome::NotAsked | Outcome::NotApplicable => "N/A".into(),
        };
        text += &format!("<dt>{dimension} {points}</dt><dd>");
        match reading {
            Reading::Missing(problem) => text += &format!("<span class=\"missing\">{}</span>", escape(problem)),
            Reading::Sheet(sheet) => {
                let facets = sheet.scores.iter().map(|(facet, score)| format!("{} {score}", escape(facet.name())));
                text += &facets.collect::<Vec<_>>().join(", ");
            }
        }
        text += "</dd>\n";
    }
    let total = picture.scores.total().map_or_else(|| "N/A".into(), |total| format!("{total:.2}"));
    text += &format!(
        "<dt>Total {total}</dt><dd>painted in {:.2} s, judged in {:.2} s</dd></dl>\n",
        painted.seconds, picture.judge_seconds
    );
    Ok(text + &chart(&painted.stages) + "</div></article>\n")
}

/// One bar for all stages, and its legend.
fn chart(stages: &[(String, f64)]) -> String {
    let all: f64 = stages.iter().map(|(_, seconds)| seconds).sum();
    if all <= 0.0 {
        return String::new();
    }
    let height = 28 + 18 * stages.len();
    let mut text =
        format!("<svg width=\"600\" height=\"{height}\" viewBox=\"0 0 600 {height}\" role=\"img\" font-size=\"12\">");
    let mut x = 0.0;
    for (number, (name, seconds)) in stages.iter().enumerate() {
        let (width, colour) = (600.0 * seconds / all, COLOURS[number % COLOURS.len()]);
        let y = 30 + 18 * number;
        text += &format!(
            "<rect x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"20\" fill=\"{colour}\"/><rect x=\"0\" y=\"{y}\" width=\"12\" \
             height=\"12\" fill=\"{colour}\"/><text x=\"18\" y=\"{}\">{} {seconds:.2} s ({:.1} %)</text>",
            y + 11,
            escape(name),
            100.0 * seconds / all
        );
        x += width;
    }
    text + "</svg>\n"
}

/// A small JPEG as a `data:` URI.
fn thumbnail(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|source| Error::io(path, source))?;
    let picture = Picture::decode(&bytes).map_err(|error| Error::file(path, error.to_string()))?;
    let (width, height) = picture.pixels().dimensions();
    let shrink = f64::from(SIDE) / f64::from(width.max(height));
    let picture = if shrink < 1.0 {
        let side = |side: u32| (f64::from(side) * shrink).round() as u32;
        picture.resized(side(width), side(height))
    } else {
        picture
    };
    let mut jpeg = Vec::new();
    picture
        .pixels()
        .write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, QUALITY))
        .map_err(|error| Error::file(path, error.to_string()))?;
    Ok(format!("data:image/jpeg;base64,{}", STANDARD.encode(jpeg)))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
