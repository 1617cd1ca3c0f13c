//! A server that does what it is told, once for each connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A status, more header lines, and a body.
    Answer(u16, String, String),
    /// As much later.
    Late(Duration, String),
    /// The connection closes half way through the body.
    Cut(String),
    /// The connection closes without a word.
    Close,
}

type Handler = dyn Fn(usize, &Asked) -> Act + Send + Sync;

/// What was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: serde_json::Value,
    pub(crate) at: Instant,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    /// Most requests that were open at once.
    pub(crate) most: Arc<AtomicUsize>,
}

impl Act {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::Answer(200, String::new(), body.into())
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self::Answer(status, String::new(), body.into())
    }
}

impl Server {
    /// Answers the n-th request with the n-th act, and all later ones with the last.
    pub(crate) fn start(acts: Vec<Act>) -> Self {
        Self::with(move |number, _| acts[number.min(acts.len() - 1)].clone())
    }

    /// Answers requests, which are counted from 0, as `act` says.
    pub(crate) fn with(act: impl Fn(usize, &Asked) -> Act + Send + Sync + 'static) -> Self {
        let act: Arc<Handler> = Arc::new(act);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, most, open) = (Arc::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (log, peak) = (Arc::clone(&asked), Arc::clone(&most));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, peak, open, act) = (Arc::clone(&log), Arc::clone(&peak), Arc::clone(&open), Arc::clone(&act));
                thread::spawn(move || {
                    peak.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // a client that has gone is no failure of the server
                    let _ = serve(stream.unwrap(), &*act, &log);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, asked, most }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, act: &Handler, log: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut headers, mut length) = (String::new(), String::new(), 0);
    reader.read_line(&mut line)?;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        headers += &header;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked { line: line.trim().into(), headers, body, at: Instant::now() };
    let number = {
        let mut log = log.lock().unwrap();
        log.push(asked.clone());
        log.len() - 1
    };
    let (status, more, body, sent) = match act(number, &asked) {
        Act::Answer(status, more, body) => (status, more, body.clone(), body.len()),
        Act::Late(pause, body) => {
            thread::sleep(pause);
            (200, String::new(), body.clone(), body.len())
        }
        Act::Cut(body) => (200, String::new(), body.clone(), body.len() / 2),
        Act::Close => return Ok(()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} Word\r\n{more}connection: close\r\ncontent-length: {length}\r\n\r\n")?;
    stream.write_all(&body.as_bytes()[..sent])
}
