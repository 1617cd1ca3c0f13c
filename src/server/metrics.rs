//! What happened → numbers in Prometheus' text form.

use std::time::Duration;

use atelier_pipelines::image_to_text::Answer;
use atelier_pipelines::progress::{Stage, Timing};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    method: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Model {
    model: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageName {
    stage: String,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    request_seconds: Histogram,
    waiting: Family<Model, Gauge>,
    running: Family<Model, Gauge>,
    stages: Family<StageName, Histogram>,
    pictures: Counter,
    ttft: Histogram,
    prompt_tokens: Counter,
    answer_tokens: Counter,
    decode_rate: Histogram,
    memory: Gauge,
}

/// From a millisecond to half an hour.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 21))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("atelier");
        let requests = Family::<Answered, Counter>::default();
        registry.register("http_requests", "Requests that were answered", requests.clone());
        let request_seconds = seconds();
        registry.register_with_unit(
            "http_request",
            "Time from a request's head to its answer's head",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let (waiting, running) = (Family::<Model, Gauge>::default(), Family::<Model, Gauge>::default());
        registry.register("queue_depth", "Requests that wait for a model", waiting.clone());
        registry.register("requests_running", "Requests that a model works on", running.clone());
        let stages = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "stage",
            "Time of each stage; denoise is one step, vision encode one picture",
            Unit::Seconds,
            stages.clone(),
        );
        let pictures = Counter::default();
        registry.register("pictures_painted", "Finished pictures", pictures.clone());
        let ttft = seconds();
        registry.register_with_unit("ttft", "Time to the first token of an answer", Unit::Seconds, ttft.clone());
        let (prompt_tokens, answer_tokens) = (Counter::default(), Counter::default());
        registry.register("prompt_tokens", "Tokens of prompts", prompt_tokens.clone());
        registry.register("answer_tokens", "Tokens of answers", answer_tokens.clone());
        let decode_rate = Histogram::new(exponential_buckets(0.25, 2.0, 16));
        registry.register("decode_tokens_per_second", "Tokens a second after the first", decode_rate.clone());
        let memory = Gauge::default();
        registry.register_with_unit("memory_resident", "Memory of the process", Unit::Bytes, memory.clone());
        Self {
            registry,
            requests,
            request_seconds,
            waiting,
            running,
            stages,
            pictures,
            ttft,
            prompt_tokens,
            answer_tokens,
            decode_rate,
            memory,
        }
    }
}

impl Metrics {
    /// A request was answered. `route` is the pattern, so that strange paths make no new series.
    pub fn answered(&self, route: &str, method: &str, status: u16, time: Duration) {
        let labels = Answered { route: route.into(), method: method.into(), status };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.observe(time.as_secs_f64());
    }

    /// How full a model's queue is.
    pub fn queue(&self, model: &str, waiting: usize, running: usize) {
        let labels = Model { model: model.into() };
        self.waiting.get_or_create(&labels).set(waiting as i64);
        self.running.get_or_create(&labels).set(running as i64);
    }

    /// A stage ended.
    pub fn stage(&self, timing: &Timing) {
        self.stages.get_or_create(&StageName { stage: timing.stage.to_string() }).observe(timing.seconds);
        if timing.stage == Stage::VaeDecode {
            self.pictures.inc();
        }
    }

    /// An answer is complete.
    pub fn answer(&self, answer: &Answer) {
        self.ttft.observe(answer.timings.ttft_seconds);
        self.prompt_tokens.inc_by(answer.usage.prompt_tokens as u64);
        self.answer_tokens.inc_by(answer.usage.completion_tokens as u64);
        if let Some(rate) = answer.timings.decode_rate() {
            self.decode_rate.observe(rate);
        }
    }

    /// All of it.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(bytes) = resident() {
            self.memory.set(bytes);
        }
        let mut text = String::new();
        // writing to a string cannot fail
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Bytes of the process in memory, where the system tells (Linux).
fn resident() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use atelier_pipelines::progress::Size;

    use super::*;

    #[test]
    fn the_text_has_every_series() {
        let metrics = Metrics::default();
        metrics.answered("/v1/models", "GET", 200, Duration::from_millis(3));
        metrics.queue("painter", 2, 1);
        let size = Size::new(1, "pixels");
        metrics.stage(&Timing { stage: Stage::VaeDecode, picture: None, index: None, seconds: 0.5, size });
        let text = metrics.text();
        for line in [
            "atelier_http_requests_total{route=\"/v1/models\",method=\"GET\",status=\"200\"} 1",
            "atelier_queue_depth{model=\"painter\"} 2",
            "atelier_stage_seconds_count{stage=\"vae decode\"} 1",
            "atelier_pictures_painted_total 1",
            "# EOF",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
