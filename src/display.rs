//! Events → a bar on a terminal, plain lines elsewhere, nothing when quiet.

use std::io::IsTerminal as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use atelier_pipelines::progress::{Event, Observer, Stage, Timing};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::say;
use crate::settings::Verbosity;

/// Without a terminal, a long series tells how far it is this often.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often the bar moves when nothing happens.
const TICK: Duration = Duration::from_millis(120);

const WAITING: &str = "{prefix:14} {spinner} {elapsed}";
const COUNTING: &str = "{prefix:14} [{bar:30}] {pos}/{len}  {msg}";

/// Shows how a run goes, on standard error.
#[derive(Debug)]
pub struct Display {
    verbosity: Verbosity,
    /// On a terminal.
    bar: Option<ProgressBar>,
    pictures: usize,
    /// Whether a stage that ended makes a line where there is no bar.
    stages: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Denoising steps that are done, their seconds, and how many one picture takes.
    steps: usize,
    seconds: f64,
    series: usize,
    /// When the last plain line was printed.
    line: Instant,
}

impl Display {
    /// A display for a run of so many pictures.
    #[must_use]
    pub fn new(verbosity: Verbosity, pictures: usize) -> Self {
        let terminal = verbosity != Verbosity::Quiet && std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr_with_hz(10));
            // before the first stage nothing is counted
            if let Ok(style) = ProgressStyle::with_template(WAITING) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        let state = State { steps: 0, seconds: 0.0, series: 1, line: Instant::now() };
        Self { verbosity, bar, pictures, stages: true, state: Mutex::new(state) }
    }

    /// A display for an answer: stages make lines with `-v` only, and the bar makes way for the text.
    #[must_use]
    pub fn of_answer(verbosity: Verbosity) -> Self {
        let mut display = Self::new(verbosity, 1);
        display.stages = false;
        display
    }

    /// A line that stays, unless quiet.
    pub fn line(&self, text: &str) {
        if self.verbosity == Verbosity::Quiet {
            return;
        }
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    /// A line that only `-v` shows.
    pub fn detail(&self, text: &str) {
        if self.verbosity == Verbosity::Verbose {
            self.line(text);
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn started(&self, stage: Stage, index: usize, count: usize) {
        if stage == Stage::Denoise {
            self.state().series = count;
        }
        let Some(bar) = &self.bar else { return };
        let counting = count > 1;
        if counting {
            bar.set_length(count as u64);
            bar.set_position(index as u64);
        }
        if !(counting && index > 0) {
            bar.reset_elapsed();
            bar.set_message("");
        }
        style(bar, stage, counting);
    }

    fn advanced(&self, stage: Stage, done: usize, of: usize) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(of as u64);
                bar.set_position(done as u64);
                style(bar, stage, true);
            }
            None if done < of && self.due() => self.line(&format!("{stage} {done}/{of}")),
            None => {}
        }
    }

    fn finished(&self, timing: &Timing) {
        match timing.stage {
            Stage::Denoise => self.stepped(timing),
            // it would stand in the middle of the answer
            Stage::Decode => {}
            _ if self.stages && self.bar.is_none() || self.verbosity == Verbosity::Verbose => {
                self.line(&describe(timing));
            }
            _ => {}
        }
    }

    /// A denoising step is done.
    fn stepped(&self, timing: &Timing) {
        let (pace, last) = {
            let mut state = self.state();
            state.steps += 1;
            state.seconds += timing.seconds;
            let left = (self.pictures * state.series).saturating_sub(state.steps);
            let each = state.seconds / state.steps as f64;
            let pace = format!("{}/step  {} left", precise(each), duration(each * left as f64));
            (pace, state.steps.is_multiple_of(state.series))
        };
        let number = timing.index.unwrap_or(0) + 1;
        match &self.bar {
            Some(bar) => {
                bar.set_position(number as u64);
                let picture = timing.picture.filter(|_| self.pictures > 1);
                bar.set_message(picture.map_or_else(
                    || pace.clone(),
                    |picture| format!("{pace}  picture {}/{}", picture + 1, self.pictures),
                ));
                self.detail(&describe(timing));
            }
            None if self.verbosity == Verbosity::Verbose || number == 1 || last || self.due() => {
                let series = self.state().series;
                self.line(&format!("step {number}/{series}  {pace}"));
            }
            None => {}
        }
    }

    /// Whether it is time for another plain line; counts it as printed.
    fn due(&self) -> bool {
        let mut state = self.state();
        let due = state.line.elapsed() >= INTERVAL;
        if due {
            state.line = Instant::now();
        }
        due
    }
}

/// An error that ends the run is printed on a clean line.
impl Drop for Display {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Observer for Display {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Started { stage, index, count } => self.started(stage, index, count),
            Event::Advanced { stage, done, of } => self.advanced(stage, done, of),
            Event::Finished(timing) => self.finished(timing),
            Event::Notice(text) => self.line(&format!("note: {text}")),
            _ => {}
        }
    }
}

fn style(bar: &ProgressBar, stage: Stage, counting: bool) {
    let template = if counting { COUNTING } else { WAITING };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(stage.to_string());
}

/// `denoise 3  0.41 s  256 tokens`.
fn describe(timing: &Timing) -> String {
    let Timing { stage, index, seconds, size, .. } = timing;
    let index = index.map_or_else(String::new, |index| format!(" {}", index + 1));
    format!("{stage}{index}  {}  {} {}", precise(*seconds), size.count, size.unit)
}

/// A short time with three digits.
#[must_use]
pub fn precise(seconds: f64) -> String {
    match seconds {
        ..0.1 => format!("{:.1} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.1} s"),
    }
}

/// A long time in units people think in.
#[must_use]
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times() {
        for (seconds, expected) in
            [(0.0004, "0.4 ms"), (0.0996, "99.6 ms"), (0.1, "0.10 s"), (9.99, "9.99 s"), (131.94, "131.9 s")]
        {
            assert_eq!(precise(seconds), expected);
        }
    }

    #[test]
    fn durations() {
        for (seconds, expected) in
            [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200.0, "3 min 20 s"), (7_260.0, "2 h 1 min")]
        {
            assert_eq!(duration(seconds), expected);
        }
    }
}
