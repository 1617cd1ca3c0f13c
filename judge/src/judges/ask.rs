//! Many questions at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use atelier_pipelines::progress::Cancel;

use super::{Asked, Judge, View};
use crate::{Error, Question, Result, parallel};

/// A question about one of many pictures.
#[derive(Debug, Clone)]
pub struct Task {
    /// Which picture: what `look` is called with.
    pub picture: usize,
    /// The question.
    pub question: Question,
}

/// Asks all of `tasks`, as many at a time as the judge takes, and hands each answer to `done` (on the calling thread) as
/// soon as it is there. `look` reads a picture; tasks about one picture should stand together.
///
/// # Errors
/// The first error of the judge, `look` or `done`: no further question is begun. A refused question is no error.
pub fn ask_all(
    judge: &dyn Judge,
    tasks: &[Task],
    look: &(dyn Fn(usize) -> Result<View> + Sync),
    cancel: &Cancel,
    done: &mut dyn FnMut(&Task, Asked) -> Result<()>,
) -> Result<()> {
    let workers = judge.concurrency();
    let views = Views { look, recent: Mutex::default(), keep: workers + 1 };
    let work = |task: &Task| {
        cancel.check()?;
        ask(judge, &task.question, &*views.get(task.picture)?, cancel)
    };
    parallel::each(workers, tasks, &work, done)
}

fn ask(judge: &dyn Judge, question: &Question, view: &View, cancel: &Cancel) -> Result<Asked> {
    let start = Instant::now();
    let (answer, refused, cut, tokens) = match judge.answer(question, view, cancel) {
        Ok(answer) => (Some(answer.text), None, answer.cut, answer.tokens),
        Err(Error::Refused { problem, .. }) => (None, Some(problem), false, None),
        Err(error) => return Err(error),
    };
    let dimension = question.dimension.name().to_owned();
    Ok(Asked { dimension, answer, refused, cut, tokens, seconds: start.elapsed().as_secs_f64() })
}

/// The pictures that are being asked about.
struct Views<'a> {
    look: &'a (dyn Fn(usize) -> Result<View> + Sync),
    recent: Mutex<Vec<(usize, Arc<View>)>>,
    keep: usize,
}

impl Views<'_> {
    fn get(&self, picture: usize) -> Result<Arc<View>> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, view)) = recent.iter().find(|(other, _)| *other == picture) {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new((self.look)(picture)?);
        if recent.len() >= self.keep {
            recent.remove(0);
        }
        recent.push((picture, Arc::clone(&view)));
        Ok(view)
    }
}
