//! `atelier bench`: prompts → pictures, scores, times, reports.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use atelier_judge::bench::{self, Event, Figures, Manifest, Published, Report, Run, State};
use atelier_pipelines::progress::Cancel;

use crate::cli::BenchMerge;
use crate::display::duration;
use crate::failure::say;
use crate::interrupt;
use crate::recipe::VERSION;
use crate::report::judge as tables;
use crate::settings::{BenchImage, PainterSettings};

/// The name under which the published rows are compared with.
const PUBLISHED: &str = "m1000";

/// Paints, judges, reports.
///
/// # Errors
/// When the painter, the judge or the folder cannot be used, or Ctrl-C was pressed: what is finished stays, and the same
/// command goes on from there.
pub fn image(settings: &BenchImage) -> Result<()> {
    let cancel = Cancel::default();
    interrupt::cancel_on_ctrl_c(cancel.clone(), settings.quiet)?;
    let note = |text: &str| {
        if !settings.quiet {
            say(text);
        }
    };
    settings.judge.rubric.notes().iter().for_each(|text| note(&format!("note: {text}")));
    let other = settings.compare.as_deref().map(figures).transpose()?;
    let painter = settings.painter.open(&cancel)?;
    let judge = settings.judge.open(&cancel)?;
    let rubric = &settings.judge.rubric;
    let manifest = Manifest {
        version: VERSION.into(),
        model: painter.name(),
        model_fingerprint: settings.painter.fingerprint()?,
        device: painter.device(),
        judge: judge.name(),
        rubric: rubric.name().into(),
        rubric_fingerprint: rubric.fingerprint().into(),
        size: settings.size,
        steps: settings.steps,
        seed: settings.seed,
        prompts: settings.file.clone(),
        prompts_fingerprint: settings.fingerprint.clone(),
        num_prompts: settings.prompts.len(),
        shard: settings.shard,
    };
    let (part, parts) = settings.shard;
    let mine = settings.prompts.iter().filter(|prompt| prompt.index % parts == part - 1).cloned();
    let mut run = Run::open(&settings.output, manifest.clone(), mine.collect())?;
    if let PainterSettings::Server { url, .. } = &settings.painter {
        note(&format!("{} pictures to paint at {url}", run.to_paint()));
    } else {
        note(&format!("{} pictures to paint on {}", run.to_paint(), painter.device()));
    }
    let (start, left) = (Instant::now(), run.to_paint());
    let mut done = 0;
    run.paint(&*painter, &(), &cancel, &mut |event| {
        if let Event::Painted(line, number, all) = event {
            done += 1;
            let rest = remaining(start, done, left);
            note(&format!("painted {number}/{all}  {}  {:.2} s  {rest}", line.prompt.id, line.seconds));
        }
    })?;
    // its weights make room for the judge's
    drop(painter);
    let (start, left) = (Instant::now(), run.to_ask());
    let mut done = 0;
    run.judge(&*judge, rubric, &cancel, &mut |event| match event {
        Event::Answered(line, number, all) => {
            done += 1;
            if let Some(refused) = &line.asked.refused {
                note(&format!("note: the judge refused {}: {refused}", line.asked.dimension));
            }
            let (asked, rest) = (&line.asked, remaining(start, done, left));
            note(&format!("judged {number}/{all}  {}  {:.2} s  {rest}", asked.dimension, asked.seconds));
        }
        Event::Finished(picture) => note(&bench::cells(&manifest, picture).join("  ")),
        Event::Painted(..) => {}
    })?;
    let report = Report::of(manifest.clone(), run.finish()?);
    report.write(&settings.output, other.as_ref())?;
    table(&report, other.as_ref())
}

/// Puts shards together and reports.
///
/// # Errors
/// When the folders are not all parts of one finished run, or the new folder cannot be written.
pub fn merge(typed: &BenchMerge) -> Result<()> {
    let report = Report::new(&bench::merge(&typed.folders, &typed.output)?);
    report.write(&typed.output, None)?;
    table(&report, None)
}

/// Another run's figures.
fn figures(name: &Path) -> Result<Figures> {
    if name == Path::new(PUBLISHED) && !name.is_dir() {
        return Ok(Published::m1000().figures());
    }
    Ok(Report::new(&State::read(name)?).figures())
}

/// `3 min 20 s left`.
fn remaining(start: Instant, done: usize, all: usize) -> String {
    let each = start.elapsed().as_secs_f64() / done.max(1) as f64;
    format!("{} left", duration(each * all.saturating_sub(done) as f64))
}

/// The table of all pictures, then means and spread.
fn table(report: &Report, other: Option<&Figures>) -> Result<()> {
    let mut rows = vec![bench::columns().into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(report.pictures.iter().map(|picture| bench::cells(&report.manifest, picture)));
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text += &format!("\n{}\n", tables::benchmark(&report.benchmark));
    if let Some(other) = other {
        text += &format!("\n{}", bench::side_by_side(&report.figures(), other));
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
