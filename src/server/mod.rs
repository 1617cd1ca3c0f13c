//! HTTP: an API in OpenAI's shape, and a page for people.
//!
//! ```text
//! connection ─ frame (id, log, origin, key, body) ─ route ─ queue ─ worker thread that owns a model
//!                                                     └──── answer, whole or streamed ────┘
//! ```

// flags, variables, file → how to serve
pub mod settings;
// what goes wrong → status and body
pub mod error;
// what is counted
pub mod metrics;
// a model's thread and its queue
pub mod worker;
// the model that paints
pub mod painter;
// the model that looks
pub mod looker;
// pictures from the network
pub mod remote;
// what every route can reach
pub mod state;
// what happens to every request before and after its route
mod frame;
// body → typed fields
pub mod body;
// one file per route
pub mod routes;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, Any, CorsLayer};

use error::ApiError;
use state::App;

/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 1024;
/// A client that sends no whole head in this time is dropped.
const HEAD_TIME: Duration = Duration::from_secs(15);

/// Routes and what surrounds them.
pub fn router(app: Arc<App>) -> Router {
    let api = Router::new()
        .route("/v1/models", get(routes::models::list))
        .route("/v1/models/{id}", get(routes::models::one))
        .route("/v1/chat/completions", post(routes::chat::completions))
        .route("/v1/images/generations", post(routes::images::generations))
        .route("/v1/images/edits", post(routes::edits::edits))
        .route("/metrics", get(routes::models::metrics))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), frame::key));
    let open = Router::new()
        .route("/", get(routes::page::page))
        .route("/openapi.json", get(routes::page::openapi))
        .route("/health", get(routes::models::health));
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(app.settings.cors_origins.iter().cloned()))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(Any);
    open.merge(api)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), frame::body))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), frame::origin))
        .layer(cors)
        .layer(CatchPanicLayer::custom(|_| ApiError::panicked().into_response()))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), frame::record))
        .with_state(app)
}

async fn no_route(request: Request) -> ApiError {
    ApiError::no_route(request.method().as_str(), request.uri().path())
}

async fn no_method(request: Request) -> Response {
    ApiError::no_method(request.method().as_str(), request.uri().path()).into_response()
}

/// Serves until `stop` yields, then finishes what has begun unless `stop` yields again.
///
/// # Errors
/// When it was stopped the second time.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stop: impl AsyncFnMut()) -> Result<()> {
    let service = TowerToHyperService::new(router(Arc::clone(&app)));
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await, place)
        };
        let (stream, place) = tokio::select! {
            (accepted, place) = accepted => match accepted {
                Ok((stream, _)) => (stream, place),
                // out of files, most likely: others will be closed
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = stop() => break,
        };
        let mut builder = Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service.clone()));
        tokio::spawn(async move {
            // what breaks here is the client's connection
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    tracing::info!("finishing what has begun; a second signal stops at once");
    app.draining.store(true, Ordering::Relaxed);
    app.close();
    tokio::select! {
        () = graceful.shutdown() => Ok(()),
        () = stop() => Err(atelier_pipelines::Error::Cancelled.into()),
    }
}

/// Binds, says where on standard output, and serves until a signal.
///
/// # Errors
/// When a model cannot be opened or the address cannot be had.
pub fn run(settings: settings::Settings) -> Result<()> {
    frame::start_log(settings.log_format);
    let address = settings.address;
    let app = Arc::new(App::open(settings)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the server")?;
    let result = runtime.block_on(async {
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
        let address = listener.local_addr()?;
        tracing::info!(models = ?app.model_ids(), "listening on http://{address}");
        // for scripts: the port may have been chosen by the system
        writeln!(io::stdout(), "http://{address}")?;
        let mut signals = Signals::new()?;
        serve(listener, app, async || signals.next().await).await
    });
    // a painting that nobody waits for must not hold the program
    runtime.shutdown_background();
    result
}

/// SIGTERM and SIGINT.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        #[cfg(unix)]
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        Ok(Self {
            #[cfg(unix)]
            terminate,
        })
    }

    async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
