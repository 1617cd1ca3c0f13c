//! What every route can reach.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use super::error::ApiError;
use super::looker::Looker;
use super::metrics::Metrics;
use super::painter::Painter;
use super::settings::Settings;

/// The server's models, limits and numbers.
#[derive(Debug)]
pub struct App {
    /// How to serve.
    pub settings: Settings,
    /// The model that paints.
    pub painter: Painter,
    /// The model that looks, where there is one.
    pub looker: Option<Looker>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Unix time of the start.
    pub started: u64,
    /// Whether the server is going down.
    pub draining: AtomicBool,
}

impl App {
    /// Opens the models.
    ///
    /// # Errors
    /// When a checkpoint is damaged.
    pub fn open(settings: Settings) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let painter = Painter::start(&settings.image_model, settings.max_queue, Arc::clone(&metrics))?;
        let looker = settings.vision_model.as_ref();
        let looker = looker.map(|model| Looker::start(model, &settings, Arc::clone(&metrics))).transpose()?;
        Ok(Self { settings, painter, looker, metrics, started: now(), draining: AtomicBool::new(false) })
    }

    /// Names of the models, the painter first.
    pub fn model_ids(&self) -> Vec<&str> {
        std::iter::once(self.painter.id.as_str()).chain(self.looker.iter().map(|looker| looker.id.as_str())).collect()
    }

    /// Requests that wait and that run, for every model.
    #[must_use]
    pub fn loads(&self) -> Vec<(&str, (usize, usize))> {
        let looker = self.looker.iter().map(|looker| (looker.id.as_str(), looker.load()));
        std::iter::once((self.painter.id.as_str(), self.painter.load())).chain(looker).collect()
    }

    /// Takes no more requests.
    pub fn close(&self) {
        self.painter.close();
        if let Some(looker) = &self.looker {
            looker.close();
        }
    }

    /// Checks the model a request names: a name of OpenAI's means the model of the route, so that a client need only
    /// change its address.
    ///
    /// # Errors
    /// 404 for any other name.
    pub fn check_model(&self, name: Option<&str>, own: &str) -> Result<(), ApiError> {
        const OPENAI: &[&str] = &["gpt-", "chatgpt-", "dall-e", "o1", "o3", "o4"];
        match name {
            None => Ok(()),
            Some(name) if name == own || OPENAI.iter().any(|prefix| name.starts_with(prefix)) => Ok(()),
            Some(name) => Err(ApiError::no_model(name, &[own])),
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
