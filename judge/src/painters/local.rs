//! A painter on this machine.

use atelier_kernels::Backend;
use atelier_pipelines::progress::{Cancel, Observer, Progress, Stage};
use atelier_pipelines::text_to_image::{Request, TextToImage};

use super::{Job, Painted, Painter};
use crate::Result;

/// Qwen-Image 2.1 through `text_to_image`.
#[derive(Debug)]
pub struct LocalPainter<B: Backend> {
    name: String,
    painter: TextToImage<B>,
}

impl<B: Backend> LocalPainter<B> {
    /// An opened model; `name` is for reports.
    pub fn new(painter: TextToImage<B>, name: impl Into<String>) -> Self {
        Self { name: name.into(), painter }
    }
}

impl<B: Backend> Painter for LocalPainter<B> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn device(&self) -> String {
        self.painter.device()
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn paint(&self, job: &Job, observer: &dyn Observer, cancel: &Cancel) -> Result<Painted> {
        let mut request = Request::new(job.prompt.clone());
        request.size = job.size;
        request.steps = job.steps;
        request.seeds = vec![job.seed];
        let steps = self.painter.plan(&request)?.steps;
        let progress = Progress::new(observer, cancel.clone());
        let mut painted = None;
        self.painter.generate(&request, &progress, &mut |_, picture| {
            painted = Some(picture);
            Ok(())
        })?;
        let picture = painted.ok_or_else(|| atelier_pipelines::Error::input("the painter ended without a picture"))?;
        let mut stages: Vec<(String, f64)> = Vec::new();
        let mut seconds = 0.0;
        for timing in progress.timings() {
            if !matches!(timing.stage, Stage::Load(_)) {
                seconds += timing.seconds;
            }
            let name = timing.stage.to_string();
            match stages.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += timing.seconds,
                None => stages.push((name, timing.seconds)),
            }
        }
        Ok(Painted { picture: picture.image, has_alpha: picture.has_alpha, steps: Some(steps), seconds, stages })
    }
}
