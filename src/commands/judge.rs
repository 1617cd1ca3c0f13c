//! `atelier judge`: picture and prompt → scores.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use atelier_judge::journal::Journal;
use atelier_judge::judges::{Task, ask_all};
use atelier_judge::rows::{self, Row};
use atelier_judge::{Applicable, Asked, Benchmark, Error, Judge as Referee, PictureScores, View};
use atelier_pipelines::image_to_text::Picture;
use atelier_pipelines::progress::Cancel;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failure::say;
use crate::pictures::Source;
use crate::report::judge as tables;
use crate::settings::{Judge, Work};
use crate::{interrupt, pictures};

/// Columns that may hold the prompt, the picture's path and what applies.
const PROMPT: [&str; 5] = ["prompt", "prompt_en", "prompt_zh", "prompt_cn", "text"];
const IMAGE: [&str; 3] = ["image_path", "image", "path"];
const DIMS: [&str; 2] = ["dims_en", "dims"];

/// Seed of the bootstrap.
const SEED: u64 = 0;

/// Judges, and prints the scores.
///
/// # Errors
/// When the judge, a picture or the rows cannot be used, or Ctrl-C was pressed.
pub fn run(settings: &Judge) -> Result<()> {
    let cancel = Cancel::default();
    interrupt::cancel_on_ctrl_c(cancel.clone(), settings.quiet)?;
    if !settings.quiet {
        settings.judge.rubric.notes().iter().for_each(|note| say(&format!("note: {note}")));
    }
    match &settings.work {
        Work::One { picture, prompt, applicable } => one(settings, picture, prompt, applicable, &cancel),
        Work::Many { input, output } => many(settings, input, output, &cancel),
    }
}

fn one(settings: &Judge, source: &Source, prompt: &str, applicable: &Applicable, cancel: &Cancel) -> Result<()> {
    let picture = source.read()?;
    let judge = settings.judge.open(cancel)?;
    let rubric = &settings.judge.rubric;
    let task = |dimension| Task { picture: 0, question: rubric.question(prompt, dimension) };
    let tasks: Vec<_> = applicable.dimensions().into_iter().map(task).collect();
    let mut answers = Vec::new();
    ask_all(&*judge, &tasks, &|_| Ok(View::new(&picture)), cancel, &mut |task, asked| {
        if !settings.quiet {
            say(&format!("{}: {:.1} s", task.question.dimension, asked.seconds));
        }
        answers.push(asked);
        Ok(())
    })?;
    answers.sort_by_key(Asked::dimension);
    let scores = scores(&answers);
    let text = if settings.json {
        let line = json!({
            "judge": judge.name(), "rubric": rubric.name(), "rubric_fingerprint": rubric.fingerprint(),
            "prompt": prompt, "image": source.name(), "scores": scores, "answers": answers,
        });
        line.to_string()
    } else {
        tables::picture(&scores)
    };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

/// What can be read of the answers about a picture.
#[must_use]
pub fn scores(answers: &[Asked]) -> PictureScores {
    let readings = answers.iter().filter_map(|asked| {
        let dimension = asked.dimension()?;
        Some((dimension, asked.reading(dimension)))
    });
    PictureScores::new(readings.collect::<BTreeMap<_, _>>())
}

/// A judged row.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Which row, from 0.
    row: usize,
    judge: String,
    rubric: String,
    rubric_fingerprint: String,
    /// The row as it was.
    input: Row,
    scores: Value,
    answers: Vec<Asked>,
}

/// A row to be judged.
struct Case {
    input: Row,
    prompt: String,
    picture: PathBuf,
    applicable: Applicable,
}

fn many(settings: &Judge, input: &Path, output: &Path, cancel: &Cancel) -> Result<()> {
    let folder = input.parent().unwrap_or(Path::new(""));
    let read = rows::read(input)?.into_iter().enumerate();
    let cases: Vec<Case> = read
        .map(|(number, row)| case(row, folder).with_context(|| format!("{}: row {}", input.display(), number + 1)))
        .collect::<Result<_>>()?;
    let judge = settings.judge.open(cancel)?;
    let rubric = &settings.judge.rubric;
    let (mut journal, mut lines) = Journal::<Line>::open(output)?;
    check(&lines, &cases, &*judge, rubric.fingerprint()).with_context(|| output.display().to_string())?;
    let done: Vec<usize> = lines.iter().map(|line| line.row).collect();
    let mut tasks = Vec::new();
    for (picture, case) in cases.iter().enumerate().filter(|(row, _)| !done.contains(row)) {
        let task = |dimension| Task { picture, question: rubric.question(&case.prompt, dimension) };
        tasks.extend(case.applicable.dimensions().into_iter().map(task));
    }
    if !settings.quiet && !done.is_empty() {
        say(&format!("{} of {} rows were judged before", done.len(), cases.len()));
    }
    let look = |row: usize| -> atelier_judge::Result<View> {
        let path = &cases[row].picture;
        let bytes = std::fs::File::open(path).map_err(|source| Error::io(path, source))?;
        let bytes = pictures::read_all(bytes).map_err(|error| Error::file(path, format!("{error:#}")))?;
        Ok(View::new(&Picture::decode(&bytes).map_err(|error| Error::file(path, error.to_string()))?))
    };
    let mut open: HashMap<usize, Vec<Asked>> = HashMap::new();
    ask_all(&*judge, &tasks, &look, cancel, &mut |task, asked| {
        let row = task.picture;
        let answers = open.entry(row).or_default();
        answers.push(asked);
        if answers.len() < cases[row].applicable.dimensions().len() {
            return Ok(());
        }
        let mut answers = open.remove(&row).unwrap_or_default();
        answers.sort_by_key(Asked::dimension);
        let scores = scores(&answers);
        let line = Line {
            row,
            judge: judge.name(),
            rubric: rubric.name().to_owned(),
            rubric_fingerprint: rubric.fingerprint().to_owned(),
            input: cases[row].input.clone(),
            scores: serde_json::to_value(&scores).unwrap_or_default(),
            answers,
        };
        journal.append(&line)?;
        lines.push(line);
        if !settings.quiet {
            let total = tables::points(scores.total());
            say(&format!("{}/{}  row {}: {total}", lines.len(), cases.len(), row + 1));
        }
        Ok(())
    })?;
    lines.sort_by_key(|line| line.row);
    let all: Vec<_> = lines.iter().map(|line| scores(&line.answers)).collect();
    let benchmark = Benchmark::new(&all, SEED);
    let text = if settings.json { serde_json::to_string(&benchmark)? } else { tables::benchmark(&benchmark) };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

fn case(input: Row, folder: &Path) -> Result<Case> {
    let column = |names: &[&str], what: &str| {
        rows::text(&input, names)
            .with_context(|| format!("there is no {what}: a column {} is expected", names.join(" or ")))
    };
    let prompt = column(&PROMPT, "prompt")?;
    let path = column(&IMAGE, "picture")?;
    // beside the file of rows, or where the program was started
    let picture = Some(folder.join(&path)).filter(|beside| beside.is_file()).unwrap_or_else(|| path.into());
    if !picture.is_file() {
        bail!("{}: there is no such picture", picture.display());
    }
    let applicable = Applicable::parse(&rows::text(&input, &DIMS).unwrap_or_default());
    if applicable.dimensions().is_empty() {
        bail!("dims_en names no facet of the benchmark: {}", applicable.unknown().join("; "));
    }
    Ok(Case { input, prompt, picture, applicable })
}

/// What was judged before must have been the same rows, by the same judge and rubric.
fn check(lines: &[Line], cases: &[Case], judge: &dyn Referee, fingerprint: &str) -> Result<()> {
    for (number, line) in lines.iter().enumerate() {
        let problem = if line.judge != judge.name() {
            format!("was judged by {}, not by {}", line.judge, judge.name())
        } else if line.rubric_fingerprint != fingerprint {
            format!("was judged by another rubric ({})", line.rubric)
        } else if cases.get(line.row).is_none_or(|case| case.input != line.input) {
            "is not of this input file".to_owned()
        } else {
            continue;
        };
        bail!("line {} {problem}: choose another file with -o", number + 1);
    }
    Ok(())
}
