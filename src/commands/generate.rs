//! `atelier generate`: prompt → picture files.

use std::io::{self, Write as _};
use std::time::Instant;

use anyhow::Result;
use atelier_pipelines::progress::{Cancel, Progress, Size, Stage};
use atelier_pipelines::text_to_image::picture::{FileType, encode};
use atelier_pipelines::text_to_image::{Picture, Plan, TextToImage};
use atelier_pipelines::{Error, Result as PipelineResult};

use crate::display::Display;
use crate::failure::say;
use crate::output::{self, Target};
use crate::recipe::{Recipe, VERSION};
use crate::report::{Outcome, RunReport, Written, summary};
use crate::settings::{Generate, Verbosity};
use crate::{interrupt, references::Reference};

/// Paints and writes the pictures.
///
/// # Errors
/// When the checkpoint, a reference or the request is bad, a file cannot be written, or Ctrl-C was pressed.
pub fn run(mut settings: Generate) -> Result<()> {
    let cancel = Cancel::default();
    let quiet = settings.verbosity == Verbosity::Quiet;
    interrupt::cancel_on_ctrl_c(cancel.clone(), quiet)?;
    if quiet && settings.drawn {
        say(&format!("seed {}", settings.seeds[0]));
    }
    let start = Instant::now();
    let mut request = settings.recipe.request(&settings.seeds, settings.low_memory);
    request.references = settings.recipe.references.iter_mut().map(Reference::read).collect::<Result<_>>()?;
    let painter = TextToImage::open_cpu(settings.files.clone(), settings.recipe.dtype)?;
    let plan = painter.plan(&request)?;
    let recipe = settings.recipe.settled(&plan);
    let mut notices = settings.notices.clone();
    notices.extend(plan.notices.iter().cloned());

    let display = Display::new(settings.verbosity, settings.seeds.len());
    announce(&display, &settings, &plan, &notices, &painter.device());
    let progress = Progress::new(&display, cancel);
    let mut written = Vec::new();
    painter.generate(&request, &progress, &mut |index, picture| {
        let target = &settings.targets[index];
        if write(&recipe, &plan, &picture, target, &progress)? {
            notices.push(format!("{}: JPEG has no transparency: laid on white", target.path.display()));
            progress.notice(&notices[notices.len() - 1]);
        }
        let (width, height) = picture.image.dimensions();
        written.push(Written { path: target.path.clone(), seed: picture.seed, width, height });
        Ok(())
    })?;
    let (seconds, timings) = (start.elapsed().as_secs_f64(), progress.timings());
    display.finish();
    display.line(&summary(&timings, seconds));

    let device = painter.device();
    if let Some(path) = &settings.timings {
        let report = RunReport::new(&plan, &device, written.len(), seconds, &timings);
        let text = serde_json::to_string_pretty(&report)? + "\n";
        output::write(path, text.as_bytes(), true).map_err(|source| Error::io(path, source))?;
    }
    if settings.json {
        let outcome = Outcome {
            version: VERSION,
            model: &plan.model,
            device: &device,
            pictures: &written,
            steps: plan.steps,
            sigmas: &plan.sigmas,
            seconds,
            timings: crate::report::totals(&timings),
            notices: &notices,
        };
        writeln!(io::stdout(), "{}", serde_json::to_string(&outcome)?)?;
    } else {
        for picture in &written {
            writeln!(io::stdout(), "{}", picture.path.display())?;
        }
    }
    Ok(())
}

/// Says what is about to be done and what it will need.
fn announce(display: &Display, settings: &Generate, plan: &Plan, notices: &[String], device: &str) {
    let seeds = match settings.seeds.as_slice() {
        [seed] => format!("seed {seed}"),
        [first, .., last] => format!("seeds {first} to {last}"),
        [] => String::new(),
    };
    let Plan { model, width, height, steps, memory, .. } = plan;
    let guided = if plan.guided { ", guided (two passes a step)" } else { "" };
    display.line(&format!("{model}: {width}x{height}, {steps} steps{guided}, {seeds}, on {device}"));
    display.line(&format!("memory: {memory}"));
    let sigmas: Vec<String> = plan.sigmas.iter().map(ToString::to_string).collect();
    display.detail(&format!("sigmas: {}", sigmas.join(", ")));
    for notice in notices {
        display.line(&format!("note: {notice}"));
    }
}

/// Picture → file. Tells whether transparency was lost.
fn write(
    recipe: &Recipe,
    plan: &Plan,
    picture: &Picture,
    target: &Target,
    progress: &Progress<'_>,
) -> PipelineResult<bool> {
    let texts = recipe.texts(plan, picture.seed).map_err(|error| Error::input(error.to_string()))?;
    let chunks = if target.file_type == FileType::Png { texts.as_chunks().to_vec() } else { Vec::new() };
    let pixels = picture.image.width() as usize * picture.image.height() as usize;
    progress.stage(Stage::Write, Size::new(pixels, "pixels"), || {
        let file = encode(&picture.image, picture.has_alpha, target.file_type, &chunks)?;
        target.write(&file.bytes).map_err(|source| Error::io(&target.path, source))?;
        Ok(file.flattened)
    })
}
