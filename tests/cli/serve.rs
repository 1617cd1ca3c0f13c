//! `atelier serve` from outside: what clients and scripts meet.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Folder, tiny};

/// A running server; it is killed when the test ends.
struct Server {
    child: Child,
    address: String,
    agent: ureq::Agent,
    folder: Folder,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A status and a body.
type Reply = (u16, Value);

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let folder = Folder::new().with_looker();
        let painter = tiny().display().to_string();
        let fixed = ["serve", "--port", "0", "--image-model", &painter, "--vision-model", "looker"];
        let mut command = folder.command(&[&fixed[..], arguments].concat());
        command.env("ATELIER_TEST_KEY", "sesame");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(Duration::from_secs(60))).build().into();
        Self { child, address, agent, folder }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, path: &str) -> Reply {
        let mut response = self.agent.get(self.url(path)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_json().unwrap())
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        let (status, text) = self.post_text(path, body);
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    fn post_text(&self, path: &str, body: &Value) -> (u16, String) {
        let mut response = self.agent.post(self.url(path)).send_json(body).unwrap();
        let status = response.status().as_u16();
        (status, response.body_mut().with_config().limit(1 << 26).read_to_string().unwrap())
    }

    /// The events of a stream: their names and data.
    fn events(&self, path: &str, body: &Value) -> Vec<(String, String)> {
        let (status, text) = self.post_text(path, body);
        assert_eq!(status, 200, "{text}");
        let field = |event: &str, name: &str| -> String {
            event.lines().filter_map(|line| line.strip_prefix(name)).map(str::trim_start).collect()
        };
        let blocks = text.split("\n\n").filter(|block| !block.trim().is_empty());
        blocks.map(|block| (field(block, "event:"), field(block, "data:"))).collect()
    }

    fn running(&self) -> u64 {
        let queues = self.get("/health").1["queues"].clone();
        queues.as_object().unwrap().values().map(|queue| queue["running"].as_u64().unwrap()).sum()
    }

    /// Waits for the server to end, and gives its exit code.
    fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let killed = std::process::Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(killed.unwrap().success());
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn question() -> Value {
    let picture = STANDARD.encode(std::fs::read(tiny().with_file_name("reference_one.png")).unwrap());
    json!([{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{picture}") } },
        { "type": "text", "text": "what is it?" },
    ] }])
}

#[test]
fn pictures_are_those_of_the_command_line() {
    let server = Server::start(&[]);
    let (status, reply) = server.post(
        "/v1/images/generations",
        &json!({ "prompt": "a cat", "model": "gpt-image-1", "size": "64x32", "seed": 7, "n": 2, "steps": 2, "user": "me" }),
    );
    assert_eq!(status, 200, "{reply}");
    let pixels = |bytes: &[u8]| image::load_from_memory(bytes).unwrap().into_rgba8();
    let painted = |index: usize| pixels(&STANDARD.decode(reply["data"][index]["b64_json"].as_str().unwrap()).unwrap());
    let model = tiny().display().to_string();
    let typed = ["generate", "a cat", "--model", &model, "--size", "64x32", "--steps", "2"];
    server.folder.atelier(&[&typed[..], &["-s", "7", "-b", "2", "-o", "%s.png"]].concat()).ok();
    assert_eq!(painted(0), pixels(&server.folder.read("7.png")));
    assert_eq!(painted(1), pixels(&server.folder.read("8.png")));
    assert_eq!((&reply["size"], &reply["data"][1]["seed"]), (&json!("64x32"), &json!(8)));
    let usage = &reply["usage"];
    assert_eq!(usage["output_tokens"], 2 * 4 * 2);
    assert_eq!(usage["total_tokens"].as_u64(), Some(usage["input_tokens"].as_u64().unwrap() + 16));
}

#[test]
fn partial_pictures_come_before_the_finished_one() {
    let server = Server::start(&[]);
    let body =
        json!({ "prompt": "a cat", "size": "32x32", "seed": 1, "steps": 4, "stream": true, "partial_images": 2 });
    let events = server.events("/v1/images/generations", &body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    let partial = "image_generation.partial_image";
    assert_eq!(names, [partial, partial, "image_generation.completed"]);
    let data: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    assert_eq!((&data[1]["partial_image_index"], &data[1]["type"]), (&json!(1), &json!(partial)));
    assert_ne!(data[0]["b64_json"], data[2]["b64_json"]);
    assert!(data[2]["usage"]["total_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn edits_look_at_the_pictures() {
    let server = Server::start(&[]);
    let form = |fields: &[(&str, &[u8])]| {
        let mut body = Vec::new();
        for (name, value) in fields {
            let file = if name.starts_with("image") { "; filename=\"a.png\"" } else { "" };
            write!(body, "--cut\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").unwrap();
            body.extend_from_slice(value);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--cut--\r\n");
        let request = server.agent.post(server.url("/v1/images/edits"));
        let mut response = request.content_type("multipart/form-data; boundary=cut").send(&body[..]).unwrap();
        (response.status().as_u16(), response.body_mut().read_json::<Value>().unwrap())
    };
    let picture = std::fs::read(tiny().with_file_name("reference_one.png")).unwrap();
    let fields: [(&str, &[u8]); 5] =
        [("prompt", b"a cat"), ("image[]", &picture), ("image[]", &picture), ("size", b"32x32"), ("steps", b"2")];
    let (status, reply) = form(&fields);
    assert_eq!(status, 200, "{reply}");
    assert!(reply["usage"]["input_tokens_details"]["image_tokens"].as_u64().unwrap() > 0);
    assert_eq!(form(&[("prompt", b"a cat")]).1["error"]["param"], "image");
    assert_eq!(
        form(&[("prompt", b"a cat".as_slice()), ("image", b"no picture".as_slice())]).1["error"]["param"],
        "image[0]"
    );
    assert_eq!(
        form(&[("prompt", b"a".as_slice()), ("image", &picture), ("mask", &picture)]).1["error"]["param"],
        "mask"
    );
}

#[test]
fn answers_are_those_of_the_command_line_whole_and_streamed() {
    let server = Server::start(&[]);
    let folder = &server.folder;
    folder.write("a.png", std::fs::read(tiny().with_file_name("reference_one.png")).unwrap());
    let said = folder.look(&["a.png", "-p", "what is it?", "--max-tokens", "12", "--json"], b"").ok().json();
    let mut body = json!({ "messages": question(), "max_tokens": 12, "temperature": 0, "n": 2 });
    let (status, reply) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{reply}");
    for index in 0..2 {
        assert_eq!(reply["choices"][index]["message"]["content"], said["answer"]);
        assert_eq!(reply["choices"][index]["finish_reason"], said["finish"]);
    }
    assert_eq!(reply["usage"]["prompt_tokens_details"]["image_tokens"], said["usage"]["image_tokens"]);

    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let events = server.events("/v1/chat/completions", &body);
    assert_eq!(events.last().unwrap().1, "[DONE]");
    let chunks: Vec<Value> =
        events[..events.len() - 1].iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    let heard: String = chunks
        .iter()
        .filter(|chunk| chunk["choices"][0]["index"] == 1)
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(heard, said["answer"]);
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(usage["prompt_tokens"], said["usage"]["prompt_tokens"]);
    // the second time the whole prompt but its last token is known
    assert!(usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn refusals_have_openais_shape() {
    let server = Server::start(&["--max-body", "1"]);
    let error = |reply: Reply| (reply.0, reply.1["error"]["code"].as_str().unwrap_or_default().to_owned());
    assert_eq!(error(server.get("/nothing")), (404, "unknown_url".into()));
    assert_eq!(error(server.post("/v1/models", &json!({}))), (405, "method_not_allowed".into()));
    assert_eq!(error(server.get("/v1/models/nobody")), (404, "model_not_found".into()));
    let generations = |body: Value| error(server.post("/v1/images/generations", &body));
    assert_eq!(generations(json!({ "prompt": "a", "colour": 1 })), (400, "unknown_parameter".into()));
    assert_eq!(generations(json!({})), (400, "missing_required_parameter".into()));
    assert_eq!(generations(json!({ "prompt": "a", "model": "nobody" })), (404, "model_not_found".into()));
    assert_eq!(generations(json!({ "prompt": "a", "size": "8192x8192" })), (400, "invalid_value".into()));
    assert_eq!(generations(json!({ "prompt": "a".repeat(2 << 20) })), (413, "request_too_large".into()));
    let plain = server.agent.post(server.url("/v1/chat/completions")).send("{}").unwrap();
    assert_eq!(plain.status().as_u16(), 415);
    let foreign = server.agent.get(server.url("/v1/models")).header("Origin", "https://example.org").call().unwrap();
    assert_eq!(foreign.status().as_u16(), 403);
    let renamed = server.agent.get(server.url("/v1/models")).header("Host", "example.org").call().unwrap();
    assert_eq!(renamed.status().as_u16(), 403);
}

#[test]
fn a_key_is_wanted_where_one_is_set() {
    let server = Server::start(&["--api-key-env", "ATELIER_TEST_KEY"]);
    assert_eq!(server.get("/v1/models").0, 401);
    assert_eq!(server.get("/health").0, 200);
    for (key, status) in [("Bearer sesame", 200), ("bearer sesame", 200), ("Bearer sesam", 401), ("sesame", 401)] {
        let reply = server.agent.get(server.url("/v1/models")).header("Authorization", key).call().unwrap();
        assert_eq!(reply.status().as_u16(), status, "{key}");
    }
}

#[test]
fn every_route_is_described_and_there() {
    let server = Server::start(&[]);
    let (status, document) = server.get("/openapi.json");
    assert_eq!((status, &document["info"]["version"]), (200, &json!(env!("CARGO_PKG_VERSION"))));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 9);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let url = server.url(&path.replace("{id}", "looker"));
            let status = match method.as_str() {
                "get" => server.agent.get(url).call().unwrap().status(),
                _ => server.agent.post(url).send_json(json!({})).unwrap().status(),
            };
            assert!(matches!(status.as_u16(), 200 | 400 | 415), "{method} {path}: {status}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_full_queue_says_when_to_come_back() {
    let server = Server::start(&["--max-queue", "1"]);
    let long = json!({ "prompt": "a cat", "size": "256x256", "steps": 200, "n": 10 });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| server.post("/v1/images/generations", &long).0);
        wait_until(|| server.running() == 1);
        let second = scope.spawn(|| server.post("/v1/images/generations", &long).0);
        wait_until(|| server.get("/health").1["queues"]["tiny"]["waiting"] == 1);
        let third = server.agent.post(server.url("/v1/images/generations")).send_json(&long).unwrap();
        assert_eq!(third.status().as_u16(), 429);
        let wait: u64 = third.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(wait >= 1);
        // looking does not wait for painting
        assert_eq!(server.post("/v1/chat/completions", &json!({ "messages": question(), "max_tokens": 2 })).0, 200);
        server.signal("-KILL");
        assert!(first.join().is_err() && second.join().is_err(), "a killed server answers nobody");
    });
}

#[test]
fn a_client_that_goes_frees_its_place() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": "a cat", "size": "256x256", "steps": 200, "n": 10 }).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let length = body.len();
    let head = "POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    wait_until(|| server.running() == 1);
    drop(stream);
    wait_until(|| server.running() == 0);
}

#[cfg(unix)]
#[test]
fn sigterm_lets_what_has_begun_be_finished() {
    let server = Server::start(&[]);
    let body = json!({ "prompt": "a cat", "size": "64x64", "steps": 100, "n": 3 }).to_string();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let length = body.len();
    let head = "POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    wait_until(|| server.running() == 1);
    server.signal("-TERM");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("b64_json"), "{}", &reply[..200.min(reply.len())]);
    assert_eq!(server.ended(), Some(0));
}
