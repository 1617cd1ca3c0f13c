//! Judges and painters behind servers that misbehave.

#![cfg(test)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atelier_judge::http::{Options, Server};
use atelier_judge::judges::{ServerJudge, Task, ask_all};
use atelier_judge::painters::{Job, ServerPainter};
use atelier_judge::{Dimension, Error, Judge as _, Painter as _, Reading, Rubric, View};
use atelier_pipelines::image_to_text::Picture;
use atelier_pipelines::progress::Cancel;
use base64::Engine as _;
use harness::Act;
use serde_json::json;

const SHEET: &str = r#"{"Detail": {"Noise": {"score": 1}}}"#;

fn options() -> Options {
    Options { key: Some("secret-key".into()), retries: 3, pause: Duration::from_millis(20), ..Options::default() }
}

fn completion(text: &str) -> String {
    json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": {"completion_tokens": 9}})
        .to_string()
}

fn view() -> View {
    View::new(&Picture::new(image::RgbImage::from_pixel(40, 30, image::Rgb([200, 30, 30]))))
}

fn judge(server: &harness::Server, options: Options) -> ServerJudge {
    let server = Server::new(&server.url, options).unwrap();
    ServerJudge::connect(server, Some("q-judger".into()), 4, 4096, &Cancel::default()).unwrap()
}

fn ask(server: &harness::Server, options: Options) -> Result<atelier_judge::judges::Answer, Error> {
    let question = Rubric::default().question("a red apple", Dimension::Quality);
    judge(server, options).answer(&question, &view(), &Cancel::default())
}

#[test]
fn the_request_is_what_the_benchmark_says() {
    let server = harness::Server::start(vec![Act::ok(completion(SHEET))]);
    let answer = ask(&server, options()).unwrap();
    assert_eq!((answer.text.as_str(), answer.cut, answer.tokens), (SHEET, false, Some(9)));
    let asked = server.asked().remove(0);
    assert_eq!(asked.line, "POST /v1/chat/completions HTTP/1.1");
    assert!(asked.headers.to_lowercase().contains("authorization: bearer secret-key\r\n"), "{}", asked.headers);
    let body = asked.body;
    for (key, expected) in [
        ("model", json!("q-judger")),
        ("temperature", json!(0)),
        ("top_k", json!(1)),
        ("repetition_penalty", json!(1.05)),
        ("seed", json!(42)),
        ("max_tokens", json!(4096)),
        ("chat_template_kwargs", json!({"enable_thinking": true})),
    ] {
        assert_eq!(body[key], expected, "{key}");
    }
    let question = Rubric::default().question("a red apple", Dimension::Quality);
    assert_eq!(body["messages"][0], json!({"role": "system", "content": question.system}));
    let parts = &body["messages"][1]["content"];
    assert_eq!((&parts[0]["text"], &parts[2]["text"]), (&json!(question.before), &json!(question.after)));
    let uri = parts[1]["image_url"]["url"].as_str().unwrap();
    let png = base64::engine::general_purpose::STANDARD.decode(uri.strip_prefix("data:image/png;base64,").unwrap());
    let picture = image::load_from_memory(&png.unwrap()).unwrap().into_rgb8();
    assert_eq!((picture.dimensions(), picture.get_pixel(7, 7).0), ((40, 30), [200, 30, 30]));
}

#[test]
fn large_pictures_are_made_square() {
    for (size, expected) in [((1024, 1024), (1024, 1024)), ((1025, 64), (1024, 1024)), ((1000, 700), (1000, 700))] {
        let view = View::new(&Picture::new(image::RgbImage::new(size.0, size.1)));
        assert_eq!(view.picture().pixels().dimensions(), expected, "{size:?}");
    }
}

#[test]
fn failures_that_pass_are_waited_out() {
    let good = completion(SHEET);
    for bad in [
        Act::status(500, "oops"),
        Act::status(503, ""),
        Act::status(429, r#"{"error": {"message": "slow down"}}"#),
        Act::Cut(good.clone()),
        Act::Close,
        Act::ok("<html>a proxy's page</html>"),
        Act::ok(r#"{"choices": []}"#),
        Act::ok("{\"choices\": [{\"mess"),
    ] {
        let server = harness::Server::start(vec![bad.clone(), bad.clone(), Act::ok(good.clone())]);
        assert_eq!(ask(&server, options()).unwrap().text, SHEET, "{bad:?}");
        let times: Vec<_> = server.asked().iter().map(|asked| asked.at).collect();
        assert_eq!(times.len(), 3, "{bad:?}");
        // 20 ms and 40 ms, each by half at least
        assert!(times[1] - times[0] >= Duration::from_millis(10), "{bad:?}");
        assert!(times[2] - times[1] >= Duration::from_millis(20), "{bad:?}");
    }
}

#[test]
fn a_slow_answer_is_given_up_and_asked_for_again() {
    let server =
        harness::Server::start(vec![Act::Late(Duration::from_secs(5), completion(SHEET)), Act::ok(completion(SHEET))]);
    let start = Instant::now();
    let answer = ask(&server, Options { timeout: Duration::from_millis(300), ..options() });
    assert_eq!(answer.unwrap().text, SHEET);
    assert!(start.elapsed() < Duration::from_secs(3));
}

#[test]
fn retry_after_is_honoured() {
    let wait = Act::Answer(429, "Retry-After: 1\r\n".into(), String::new());
    let server = harness::Server::start(vec![wait, Act::ok(completion(SHEET))]);
    ask(&server, options()).unwrap();
    let asked = server.asked();
    assert!(asked[1].at - asked[0].at >= Duration::from_millis(990));
}

#[test]
fn failures_that_stay_are_told_and_hold_no_key() {
    let refused = harness::Server { url: "http://127.0.0.1:9".into(), ..harness::Server::start(vec![Act::Close]) };
    for (server, expected, tries) in [
        (harness::Server::start(vec![Act::status(500, "out of\nmemory")]), "500", 4),
        (harness::Server::start(vec![Act::status(401, "bad key")]), "is the key right", 1),
        (harness::Server::start(vec![Act::status(404, "no model")]), "does the server have this model", 1),
        (harness::Server::start(vec![Act::ok("nonsense")]), "is no JSON", 4),
        (refused, "is the server running", 0),
    ] {
        let error = ask(&server, options()).unwrap_err();
        assert!(matches!(error, Error::Server { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.starts_with(&server.url), "{text}");
        assert!(!text.contains("secret") && !format!("{error:?} {:?}", options()).contains("secret"), "{text}");
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(server.asked().len(), tries, "{text}");
        assert_eq!(text.contains("(after 4 tries)"), tries != 1, "{text}");
    }
}

#[test]
fn a_refused_request_is_not_repeated() {
    for status in [400, 413, 422] {
        let body = r#"{"error": {"message": "the prompt is too long"}}"#;
        let server = harness::Server::start(vec![Act::status(status, body)]);
        let error = ask(&server, options()).unwrap_err();
        assert!(
            matches!(&error, Error::Refused { problem, .. } if problem.contains("the prompt is too long")),
            "{error}"
        );
        assert_eq!(server.asked().len(), 1);
    }
}

#[test]
fn a_server_without_extensions_is_asked_without_them() {
    let refuse = Act::status(400, r#"{"error": {"message": "Unrecognized request argument supplied: top_k"}}"#);
    let server = harness::Server::start(vec![refuse, Act::ok(completion(SHEET))]);
    let judge = judge(&server, options());
    let question = Rubric::default().question("a", Dimension::Quality);
    for _ in 0..2 {
        assert_eq!(judge.answer(&question, &view(), &Cancel::default()).unwrap().text, SHEET);
    }
    let has_top_k: Vec<_> = server.asked().iter().map(|asked| asked.body.get("top_k").is_some()).collect();
    assert_eq!(has_top_k, [true, false, false]);
    assert!(server.asked().iter().all(|asked| asked.body["temperature"] == 0));
}

#[test]
fn the_first_model_of_the_list() {
    let server = harness::Server::start(vec![Act::ok(r#"{"data": [{"id": "one"}, {"id": "two"}]}"#)]);
    let connected = Server::new(&format!("{}/v1/", server.url), options()).unwrap();
    let judge = ServerJudge::connect(connected, None, 1, 1, &Cancel::default()).unwrap();
    assert_eq!(judge.name(), "one");
    assert_eq!(server.asked()[0].line, "GET /v1/models HTTP/1.1");
}

#[test]
fn addresses() {
    for (typed, expected) in [
        ("http://host:30000", Some("http://host:30000/v1")),
        ("https://host/v1/", Some("https://host/v1")),
        ("http://host/api/openai", Some("http://host/api/openai")),
        ("host:30000", None),
        ("http://", None),
        ("ftp://host", None),
        ("http://host/?a=b", None),
        ("", None),
    ] {
        let server = Server::new(typed, options());
        assert_eq!(server.as_ref().ok().map(Server::base), expected, "{typed}");
    }
}

#[test]
fn cancelling_ends_a_pause() {
    let server = harness::Server::start(vec![Act::Answer(503, "Retry-After: 60\r\n".into(), String::new())]);
    let cancel = Cancel::default();
    let stopper = cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        stopper.cancel();
    });
    let start = Instant::now();
    let question = Rubric::default().question("a", Dimension::Quality);
    let error = judge(&server, options()).answer(&question, &view(), &cancel).unwrap_err();
    assert!(matches!(error, Error::Pipeline(atelier_pipelines::Error::Cancelled)), "{error:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

fn tasks(pictures: usize) -> Vec<Task> {
    let rubric = Rubric::default();
    let dimensions = Dimension::ALL;
    let task = |picture, dimension| Task { picture, question: rubric.question("a", dimension) };
    (0..pictures).flat_map(|picture| dimensions.map(|dimension| task(picture, dimension))).collect()
}

#[test]
fn many_questions_at_once() {
    let server = harness::Server::start(vec![Act::Late(Duration::from_millis(60), completion(SHEET))]);
    let mut seen = Vec::new();
    let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let look = |_| {
        looks.fetch_add(1, Ordering::SeqCst);
        Ok(view())
    };
    ask_all(&judge(&server, options()), &tasks(4), &look, &Cancel::default(), &mut |task, asked| {
        let dimension = asked.dimension().unwrap();
        assert_eq!(dimension, task.question.dimension);
        assert_eq!(matches!(asked.reading(dimension), Reading::Sheet(_)), dimension == Dimension::Quality);
        assert!(asked.seconds >= 0.06);
        seen.push((task.picture, dimension));
        Ok(())
    })
    .unwrap();
    seen.sort_unstable();
    let expected: Vec<_> = (0..4).flat_map(|picture| Dimension::ALL.map(|dimension| (picture, dimension))).collect();
    assert_eq!(seen, expected);
    assert_eq!(server.most.load(Ordering::SeqCst), 4);
    assert_eq!(looks.load(Ordering::SeqCst), 4);
}

#[test]
fn a_server_that_dies_keeps_what_it_answered() {
    let mut acts = vec![Act::ok(completion(SHEET)); 7];
    acts.push(Act::status(401, "gone"));
    let server = harness::Server::start(acts);
    let mut kept = 0;
    let error = ask_all(&judge(&server, options()), &tasks(4), &|_| Ok(view()), &Cancel::default(), &mut |_, _| {
        kept += 1;
        Ok(())
    })
    .unwrap_err();
    assert!(error.to_string().contains("401"), "{error}");
    assert_eq!(kept, 7);
}

#[test]
fn a_refusal_is_missing() {
    let server = harness::Server::start(vec![Act::status(400, "not this picture")]);
    ask_all(&judge(&server, options()), &tasks(1)[..1], &|_| Ok(view()), &Cancel::default(), &mut |_, asked| {
        let reading = asked.reading(Dimension::Quality);
        assert!(matches!(&reading, Reading::Missing(problem) if problem.contains("not this picture")), "{reading:?}");
        Ok(())
    })
    .unwrap();
}

fn job() -> Job {
    Job { prompt: "a cat".into(), size: Some((8, 4)), steps: Some(8), seed: 7 }
}

fn png(width: u32, height: u32) -> String {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image::RgbaImage::from_pixel(width, height, image::Rgba([1, 2, 3, 255]))
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    base64::engine::general_purpose::STANDARD.encode(bytes.into_inner())
}

#[test]
fn a_painter_behind_a_server() {
    let picture = |text: &str| Act::ok(json!({"data": [{"b64_json": text}]}).to_string());
    let acts =
        vec![Act::status(502, ""), picture("not base64!"), picture("AAAA"), picture(&png(8, 4)), picture(&png(4, 4))];
    let server = harness::Server::start(acts);
    let connected = Server::new(&server.url, options()).unwrap();
    let painter = ServerPainter::connect(connected, Some("turbo".into()), 2, &Cancel::default()).unwrap();
    let painted = painter.paint(&job(), &(), &Cancel::default()).unwrap();
    assert_eq!((painted.picture.dimensions(), painted.has_alpha, painted.steps), ((8, 4), false, Some(8)));
    let asked = server.asked();
    assert_eq!((asked.len(), asked[3].line.as_str()), (4, "POST /v1/images/generations HTTP/1.1"));
    let expected = json!({"model": "turbo", "prompt": "a cat", "n": 1, "seed": 7, "response_format": "b64_json",
        "size": "8x4", "num_inference_steps": 8});
    assert_eq!(asked[3].body, expected);
    let error = painter.paint(&job(), &(), &Cancel::default()).unwrap_err().to_string();
    assert!(error.contains("painted 4x4 where 8x4 was asked for"), "{error}");
}
