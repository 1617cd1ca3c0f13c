//! The thread that owns the painter.

use std::sync::Arc;

use atelier_kernels::cpu::Cpu;
use atelier_pipelines::Error;
use atelier_pipelines::progress::{Cancel, Event, Observer, Progress, Timing};
use atelier_pipelines::text_to_image::{Dtype, Picture, Plan, Request, TextToImage};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::ApiError;
use super::metrics::Metrics;
use super::settings::Model;
use super::worker::{Job, Worker};

/// The painter as the routes see it.
#[derive(Debug, Clone)]
pub struct Painter {
    /// The name clients know it by.
    pub id: String,
    /// Whether it can look at reference pictures.
    pub references: bool,
    model: Arc<TextToImage<Cpu>>,
    worker: Worker<Paint>,
}

/// A request to paint.
#[derive(Debug)]
struct Paint {
    request: Request,
    cancel: Cancel,
    events: UnboundedSender<PaintEvent>,
}

/// What comes back, in the order in which it happens.
#[derive(Debug)]
pub enum PaintEvent {
    /// The stage with this name began, one of `count`.
    Started(String, usize, usize),
    /// A picture, finished or on the way.
    Picture(usize, Picture),
    /// It is over: the time of every stage, or why not.
    Done(Result<Vec<Timing>, ApiError>),
}

/// A request under way. Dropping it stops the work.
#[derive(Debug)]
pub struct Painting {
    /// What it comes to.
    pub plan: Plan,
    /// What happens.
    pub events: UnboundedReceiver<PaintEvent>,
    cancel: Cancel,
}

impl Drop for Painting {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Job for Paint {
    fn abandoned(&self) -> bool {
        self.cancel.is_cancelled()
    }

    fn fail(&self, error: ApiError) {
        // a receiver that is gone wants no answer
        let _ = self.events.send(PaintEvent::Done(Err(error)));
    }
}

impl Painter {
    /// Opens the checkpoint and starts the thread.
    ///
    /// # Errors
    /// When the checkpoint is damaged, or the system refuses a thread.
    pub fn start(model: &Model, max_queue: usize, metrics: Arc<Metrics>) -> anyhow::Result<Self> {
        let references = matches!(model.files, atelier_pipelines::checkpoint::Files::Folder(_));
        let painter = Arc::new(TextToImage::open_cpu(model.files.clone(), Dtype::Auto)?);
        let thread = Arc::clone(&painter);
        let worker = Worker::spawn("painter", max_queue, move |job| paint(&thread, job, &metrics))?;
        Ok(Self { id: model.id.clone(), references, model: painter, worker })
    }

    /// Puts a request in the queue.
    ///
    /// # Errors
    /// 400 when it cannot be served, 429 when the queue is full, 503 when the server is going down.
    pub fn paint(&self, request: Request, most_pixels: u64) -> Result<Painting, ApiError> {
        let plan = self.model.plan(&request)?;
        let pixels = u64::from(plan.width) * u64::from(plan.height);
        if pixels > most_pixels {
            let Plan { width, height, .. } = plan;
            return Err(ApiError::field(
                "size",
                format!("{width}x{height} is more than this server paints: {most_pixels} pixels at most."),
            ));
        }
        let (cancel, (sender, events)) = (Cancel::default(), unbounded_channel());
        self.worker.submit(Paint { request, cancel: cancel.clone(), events: sender })?;
        Ok(Painting { plan, events, cancel })
    }

    /// The queue.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        (self.worker.waiting(), self.worker.running())
    }

    /// Takes no more requests.
    pub fn close(&self) {
        self.worker.close();
    }
}

/// Passes on what happens.
struct Watch<'a> {
    events: &'a UnboundedSender<PaintEvent>,
    metrics: &'a Metrics,
}

impl Observer for Watch<'_> {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Started { stage, index, count } => {
                let _ = self.events.send(PaintEvent::Started(stage.to_string(), index, count));
            }
            Event::Finished(timing) => self.metrics.stage(timing),
            _ => {}
        }
    }
}

fn paint(painter: &TextToImage<Cpu>, job: &Paint, metrics: &Metrics) {
    let watch = Watch { events: &job.events, metrics };
    let progress = Progress::new(&watch, job.cancel.clone());
    let result = painter.generate(&job.request, &progress, &mut |number, picture| {
        job.events.send(PaintEvent::Picture(number, picture)).map_err(|_| Error::Cancelled)
    });
    let _ = job.events.send(PaintEvent::Done(result.map(|()| progress.timings()).map_err(ApiError::from)));
}
