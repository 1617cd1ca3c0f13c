//! Requests to an OpenAI-compatible server: JSON in, JSON out, tried again when that can help.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use atelier_pipelines::progress::Cancel;
use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use crate::{Error, Result};

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest pause between two tries that is our own idea.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause that a server may ask for.
const LONGEST_WISH: Duration = Duration::from_secs(600);
/// How often a pause looks whether it has been cancelled.
const TICK: Duration = Duration::from_millis(50);
/// Largest answer that is read, in bytes.
const ANSWER_LIMIT: u64 = 256 << 20;
/// Characters of a server's own words that are quoted.
const QUOTE: usize = 300;

/// How a server is asked.
#[derive(Clone)]
pub struct Options {
    /// Sent as a bearer token, never printed.
    pub key: Option<String>,
    /// Longest wait for a whole answer.
    pub timeout: Duration,
    /// How often a failed request is tried again.
    pub retries: u32,
    /// Pause before the second try; it doubles with each further one, up to a minute, and varies by a half.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { key: None, timeout: Duration::from_secs(600), retries: 5, pause: Duration::from_secs(1) }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, timeout, retries, pause } = self;
        let key = key.as_ref().map(|_| "***");
        write!(f, "Options {{ key: {key:?}, timeout: {timeout:?}, retries: {retries}, pause: {pause:?} }}")
    }
}

/// A server that speaks OpenAI's protocol.
#[derive(Debug)]
pub struct Server {
    base: String,
    agent: Agent,
    options: Options,
}

/// Why one try failed.
struct Failure {
    problem: String,
    next: Next,
}

/// What to do about a failure.
enum Next {
    /// Try again, after at least as long as the server wishes.
    Again(Duration),
    /// The server does not want this request.
    Refused,
    /// Nothing helps.
    Stop,
}

impl Server {
    /// The server at `url`: `http://host:port` stands for `http://host:port/v1`.
    ///
    /// # Errors
    /// When `url` is no HTTP address.
    pub fn new(url: &str, options: Options) -> Result<Self> {
        let base = url.trim().trim_end_matches('/');
        let rest = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
        let Some(rest) =
            rest.filter(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(['?', '#', ' ']))
        else {
            let problem = "is no address of a server: http://HOST:PORT or https://HOST/v1 is expected".to_owned();
            return Err(Error::Server { url: url.into(), problem });
        };
        let base = if rest.contains('/') { base.to_owned() } else { format!("{base}/v1") };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(options.timeout))
            .user_agent(concat!("atelier/", env!("CARGO_PKG_VERSION")));
        // a proxy cannot reach what is on this machine
        if ["localhost", "127.", "[::1]"].iter().any(|local| rest.starts_with(local)) {
            config = config.proxy(None);
        }
        Ok(Self { base, agent: config.build().into(), options })
    }

    /// The address, without a path.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks for `path` and makes of the answer what `read` does; what it cannot read is tried again like any failure.
    ///
    /// # Errors
    /// [`Error::Refused`] for what the server does not want, [`Error::Server`] when it fails for good, and cancellation
    /// (which a request that is on its way does not notice).
    pub fn get<T>(
        &self,
        path: &str,
        cancel: &Cancel,
        read: impl Fn(&Value) -> std::result::Result<T, String>,
    ) -> Result<T> {
        self.again_and_again(path, cancel, || self.once(path, None, &read))
    }

    /// Sends `body` to `path`, as [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn post<T>(
        &self,
        path: &str,
        body: &Value,
        cancel: &Cancel,
        read: impl Fn(&Value) -> std::result::Result<T, String>,
    ) -> Result<T> {
        let body = body.to_string();
        self.again_and_again(path, cancel, || self.once(path, Some(body.as_bytes()), &read))
    }

    fn again_and_again<T>(
        &self,
        path: &str,
        cancel: &Cancel,
        once: impl Fn() -> std::result::Result<T, Failure>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            cancel.check()?;
            let Failure { mut problem, next } = match once() {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            tries += 1;
            let url = format!("{}{path}", self.base);
            match next {
                Next::Again(wish) if tries <= self.options.retries => {
                    let pause = self.pause(tries).max(wish.min(LONGEST_WISH));
                    let end = Instant::now() + pause;
                    while Instant::now() < end {
                        cancel.check()?;
                        sleep(TICK.min(end.saturating_duration_since(Instant::now())));
                    }
                }
                Next::Refused => return Err(Error::Refused { url, problem }),
                Next::Again(_) | Next::Stop => {
                    if tries > 1 {
                        problem += &format!(" (after {tries} tries)");
                    }
                    return Err(Error::Server { url, problem });
                }
            }
        }
    }

    /// Half to all of `pause * 2^(tries - 1)`, so that many clients do not come back at once.
    fn pause(&self, tries: u32) -> Duration {
        let whole = self.options.pause.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST_PAUSE);
        // a hasher's keys are random
        let random = RandomState::new().hash_one(tries) as f64 / u64::MAX as f64;
        whole.mul_f64(0.5 + random / 2.0)
    }

    fn once<T>(
        &self,
        path: &str,
        body: Option<&[u8]>,
        read: impl Fn(&Value) -> std::result::Result<T, String>,
    ) -> std::result::Result<T, Failure> {
        let url = format!("{}{path}", self.base);
        let key = self.options.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut response = match body {
            None => {
                let request = self.agent.get(&url);
                match key {
                    Some(key) => request.header("authorization", key),
                    None => request,
                }
                .call()
            }
            Some(body) => {
                let request = self.agent.post(&url).content_type("application/json");
                match key {
                    Some(key) => request.header("authorization", key),
                    None => request,
                }
                .send(body)
            }
        }
        .map_err(|error| transport(&error))?;
        let (status, wish) = (response.status(), retry_after(&response).unwrap_or_default());
        let bytes =
            response.body_mut().with_config().limit(ANSWER_LIMIT).read_to_vec().map_err(|error| transport(&error))?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.is_success() {
            let next = match status.as_u16() {
                408 | 425 | 429 | 500 | 502..=504 | 520..=529 => Next::Again(wish),
                400 | 413 | 422 => Next::Refused,
                _ => Next::Stop,
            };
            let hint = match status.as_u16() {
                401 | 403 => ": is the key right that stands in the environment?",
                404 => ": does the server have this model and this address?",
                _ => "",
            };
            let problem = format!("answered {status}{hint} {}", quote(&words(&text)));
            return Err(Failure { problem: problem.trim_end().into(), next });
        }
        let value = serde_json::from_str(&text).map_err(|error| format!("is no JSON ({error})"));
        value.and_then(|value: Value| read(&value)).map_err(|problem| Failure {
            problem: format!("the answer {problem}: {}", quote(&text)),
            next: Next::Again(Duration::ZERO),
        })
    }
}

/// Most failures on the way pass.
fn transport(error: &ureq::Error) -> Failure {
    let again = !matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::BodyExceedsLimit(_));
    let problem = match error {
        ureq::Error::Timeout(what) => format!("no answer in time ({what})"),
        ureq::Error::ConnectionFailed => "no connection: is the server running?".into(),
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "the connection was refused: is the server running?".into()
        }
        other => format!("the connection failed: {other}"),
    };
    Failure { problem, next: if again { Next::Again(Duration::ZERO) } else { Next::Stop } }
}

/// Seconds or a date.
fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let text = response.headers().get("retry-after")?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok(),
    }
}

/// What a server says of its error, where it is written as most do.
fn words(text: &str) -> String {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let message = json.as_ref().and_then(|json| {
        let error = json.get("error").unwrap_or(json);
        ["message", "detail"].iter().find_map(|key| error.get(key)?.as_str()).or_else(|| error.as_str())
    });
    message.unwrap_or(text).to_owned()
}

/// The beginning, on one line.
fn quote(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= QUOTE { line } else { line.chars().take(QUOTE).chain("...".chars()).collect() }
}
