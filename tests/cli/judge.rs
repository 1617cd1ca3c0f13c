//! `atelier judge` from outside, with a server that judges.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use atelier_judge::Dimension;
use serde_json::{Value, json};

use crate::harness::{Folder, tiny};
use crate::server::{Act, Asked, Server};

/// A full sheet with scores that depend on everything that was asked, after some thinking.
pub(crate) fn sheet(asked: &Asked) -> Act {
    let parts = &asked.body["messages"][1]["content"];
    let (before, after) = (parts[0]["text"].as_str().unwrap(), parts[2]["text"].as_str().unwrap());
    let dimension = Dimension::ALL.into_iter().find(|d| after.contains(&format!("# What to judge\n{d}\n"))).unwrap();
    let mut hash = DefaultHasher::new();
    (before, dimension, parts[1]["image_url"]["url"].as_str()).hash(&mut hash);
    let mut number = hash.finish();
    let mut categories = serde_json::Map::new();
    for category in dimension.categories() {
        let facets = category.facets().map(|facet| {
            number = number.rotate_left(7).wrapping_mul(31);
            let score = [json!(0), json!(1), json!(2), json!("N/A")][(number % 4) as usize].clone();
            (facet.name().to_owned(), json!({ "score": score }))
        });
        categories.insert(category.name().to_owned(), facets.collect::<serde_json::Map<_, _>>().into());
    }
    let text = format!("I look.\n</think>\n\n{}", Value::from(categories));
    let body = json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).to_string();
    Act::Late(Duration::from_millis(10), body)
}

/// A judge that answers everything.
pub(crate) fn judge() -> Server {
    Server::with(|_, asked| match asked.line.as_str() {
        "GET /v1/models HTTP/1.1" => Act::ok(r#"{"data": [{"id": "test-judge"}]}"#),
        _ => sheet(asked),
    })
}

fn folder() -> Folder {
    let folder = Folder::new();
    for (name, file) in [("a.png", "reference_one.png"), ("b.png", "reference_two.png")] {
        folder.write(name, fs::read(tiny().with_file_name(file)).unwrap());
    }
    folder
}

#[test]
fn one_picture() {
    let (folder, server) = (folder(), judge());
    let run = folder.atelier(&["judge", "a.png", "-p", "a red apple", "--judge-url", &server.url]).ok();
    for name in ["Quality ", "Real-world Fidelity ", "  Text Rendering ", "Physical Logic ", "Total "] {
        assert!(run.stdout.contains(name), "{name:?} is not in {}", run.stdout);
    }
    assert_eq!(server.asked().iter().filter(|asked| asked.line.starts_with("POST")).count(), 5);

    let dims = "Quality / Detail / Noise; Alignment";
    let arguments = ["judge", "a.png", "-p", "a red apple", "--judge-url", &server.url, "--dims", dims, "--json", "-q"];
    let run = folder.atelier(&arguments).ok();
    let object = run.json();
    assert_eq!(
        (run.stderr.as_str(), &object["judge"], &object["rubric"]),
        ("", &"test-judge".into(), &"atelier".into())
    );
    let answers: Vec<_> = object["answers"].as_array().unwrap().iter().map(|answer| &answer["dimension"]).collect();
    assert_eq!(answers, ["Quality", "Alignment"]);
    assert_eq!(object["scores"]["dimensions"]["Aesthetics"], "N/A");
    assert!(object["scores"]["total"].as_f64().is_some_and(|total| (0.0..=100.0).contains(&total)), "{object}");
}

/// A model that has learned nothing judges nothing: every dimension is missing, and none is a score.
#[test]
fn a_local_judge() {
    let folder = folder().with_looker();
    let arguments =
        ["judge", "a.png", "-p", "x", "--judge-model", "looker", "--judge-max-tokens", "4", "--dims", "Quality"];
    let run = folder.atelier(&[&arguments[..], &["--json"]].concat()).ok();
    let object = run.json();
    assert_eq!((&object["judge"], &object["scores"]["total"]), (&"looker".into(), &Value::Null));
    assert_eq!(object["scores"]["dimensions"]["Quality"], "missing");
    assert!(object["scores"]["missing"]["Quality"].as_str().unwrap().contains("cut at the limit"), "{object}");
    assert_eq!(object["answers"][0]["tokens"], 4);
}

#[test]
fn many_rows_and_what_was_judged_before() {
    let (folder, server) = (folder(), judge());
    folder.write("rows.csv", "ID,prompt,image_path,dims_en\n1,one,a.png,Quality\n2,\"two, three\",b.png,\n3,four,a.png,Aesthetics; Quality\n");
    let arguments = ["judge", "--input", "rows.csv", "-o", "out.jsonl", "--judge-url", &server.url];
    let run = folder.atelier(&arguments).ok();
    assert!(run.stdout.contains("Quality ") && run.stdout.contains("95 % interval"), "{}", run.stdout);
    let whole = String::from_utf8(folder.read("out.jsonl")).unwrap();
    let lines: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<_> = lines.iter().map(|line| line["answers"].as_array().unwrap().len()).collect();
    let mut sorted = counts.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 5]);
    let two = lines.iter().find(|line| line["row"] == 1).unwrap();
    assert_eq!(two["input"], json!({"ID": "2", "prompt": "two, three", "image_path": "b.png", "dims_en": ""}));

    // a torn last line is judged again, and nothing else
    let asked = server.asked().len();
    let last = counts.last().unwrap();
    folder.write("out.jsonl", &whole[..whole.len() - 5]);
    let again = folder.atelier(&arguments).ok();
    assert_eq!(again.stdout, run.stdout);
    assert!(again.stderr.contains("2 of 3 rows were judged before"), "{}", again.stderr);
    assert_eq!(server.asked().len() - asked, last + 1, "the model's name, and the row");
    let other = judge();
    let run = folder.atelier(&[
        "judge",
        "--input",
        "rows.csv",
        "-o",
        "out.jsonl",
        "--judge-url",
        &other.url,
        "--judge-model",
        "b",
    ]);
    run.fails(1, "out.jsonl: line 1 was judged by test-judge, not by b");
}

#[test]
fn what_is_wrong_is_said() {
    let folder = folder();
    let closed = "http://127.0.0.1:9";
    folder.write(
        "rows.jsonl",
        "{\"prompt\": \"a\", \"image\": \"a.png\"}\n{\"prompt\": \"b\", \"image\": \"none.png\"}\n",
    );
    folder.write("rubric.md", "# System\nhello\n");
    for (arguments, code, expected) in [
        (&["a.png", "-p", "x"][..], 2, "who judges?"),
        (&["a.png"], 2, "--prompt"),
        (&["a.png", "-p", "x", "--judge-url", "nonsense"], 1, "nonsense: is no address of a server"),
        (&["a.png", "-p", "x", "--judge-url", closed, "--judge-retries", "0"], 1, "is the server running?"),
        (&["a.png", "-p", "x", "--judge-model", "none"], 1, "none: there is no such folder"),
        (&["a.png", "-p", "x", "--judge-url", closed, "--dims", "Beauty"], 2, "\"Beauty\" is not known"),
        (&["none.png", "-p", "x", "--judge-url", closed], 1, "none.png: the picture cannot be read"),
        (
            &["--input", "rows.jsonl", "-o", "o.jsonl", "--judge-url", closed],
            1,
            "rows.jsonl: row 2: none.png: there is no such",
        ),
        (&["--input", "rows.jsonl", "--judge-url", closed], 2, "--output"),
        (&["a.png", "-p", "x", "--judge-url", closed, "--rubric", "rubric.md"], 1, "rubric.md: there is no part"),
        (&["a.png", "-p", "x", "--judge-url", closed, "--rubric", "."], 1, "checklists.py"),
    ] {
        folder.atelier(&[&["judge"], arguments].concat()).fails(code, expected);
    }
    assert_eq!(folder.names(), ["a.png", "b.png", "rows.jsonl", "rubric.md"]);
}

#[test]
fn the_key_comes_from_the_environment_and_is_never_printed() {
    let server = Server::with(|_, _| Act::status(401, "wrong key"));
    let folder = folder();
    let mut command = folder.command(&["judge", "a.png", "-p", "x", "--judge-url", &server.url, "--judge-model", "m"]);
    let output = command.env("ATELIER_JUDGE_API_KEY", "sk-secret").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("is the key right") && !text.contains("sk-secret"), "{text}");
    assert!(server.asked()[0].headers.contains("Bearer sk-secret"));
}
