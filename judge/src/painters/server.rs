//! A painter behind an OpenAI-compatible images endpoint.

use std::time::Instant;

use atelier_pipelines::image_to_text::picture::decode_rgba;
use atelier_pipelines::progress::{Cancel, Observer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::RgbaImage;
use serde_json::{Value, json};

use super::{Job, Painted, Painter};
use crate::http::Server;
use crate::judges::first_model;
use crate::{Error, Result};

/// A model that a server runs.
#[derive(Debug)]
pub struct ServerPainter {
    server: Server,
    model: String,
    concurrency: usize,
}

impl ServerPainter {
    /// The model of that name, or the first that the server lists.
    ///
    /// # Errors
    /// When the server has to be asked for its models and does not name one.
    pub fn connect(server: Server, model: Option<String>, concurrency: usize, cancel: &Cancel) -> Result<Self> {
        let model = match model {
            Some(model) => model,
            None => first_model(&server, cancel)?,
        };
        Ok(Self { server, model, concurrency: concurrency.max(1) })
    }
}

impl Painter for ServerPainter {
    fn name(&self) -> String {
        self.model.clone()
    }

    fn device(&self) -> String {
        self.server.base().to_owned()
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }

    fn paint(&self, job: &Job, _: &dyn Observer, cancel: &Cancel) -> Result<Painted> {
        let mut body = json!({
            "model": self.model,
            "prompt": job.prompt,
            "n": 1,
            "seed": job.seed,
            "response_format": "b64_json",
        });
        if let Some((width, height)) = job.size {
            body["size"] = format!("{width}x{height}").into();
        }
        if let Some(steps) = job.steps {
            body["num_inference_steps"] = steps.into();
        }
        let start = Instant::now();
        let picture = self.server.post("/images/generations", &body, cancel, read)?;
        let seconds = start.elapsed().as_secs_f64();
        if let Some(size) = job.size.filter(|size| *size != picture.dimensions()) {
            let (width, height) = picture.dimensions();
            let problem = format!("painted {width}x{height} where {}x{} was asked for", size.0, size.1);
            return Err(Error::Server { url: self.server.base().into(), problem });
        }
        let has_alpha = picture.pixels().any(|pixel| pixel.0[3] != 255);
        Ok(Painted { picture, has_alpha, steps: job.steps, seconds, stages: vec![("request".into(), seconds)] })
    }
}

fn read(answer: &Value) -> std::result::Result<RgbaImage, String> {
    let text =
        answer.pointer("/data/0/b64_json").and_then(Value::as_str).ok_or("holds no picture (data[0].b64_json)")?;
    let text = text.split_once("base64,").map_or(text, |(_, text)| text);
    let bytes = STANDARD.decode(text.trim()).map_err(|error| format!("holds no base64 ({error})"))?;
    decode_rgba(&bytes).map_err(|error| format!("holds no picture ({error})"))
}
