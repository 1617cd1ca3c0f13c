//! `atelier bench image` from outside: a run, its reports, interruptions, shards.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Folder, tiny};
use crate::judge::judge;
use crate::server::{Act, Server};

const PROMPTS: &str = "\
{\"ID\": \"p-1\", \"prompt_en\": \"a red apple\", \"prompt_zh\": \"一个红苹果\", \"dims_en\": \"Quality / Detail / Noise; Alignment\"}
{\"ID\": \"p-2\", \"prompt_en\": \"two cats <b>\", \"dims_en\": \"Quality; Aesthetics / Composition\"}
{\"ID\": \"p-3\", \"prompt_en\": \"a fox\", \"dims_en\": \"Creative Generation\"}
{\"ID\": \"p-4\", \"prompt_en\": \"a robot\", \"dims_en\": \"\"}
";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("prompts.jsonl", PROMPTS);
    folder
}

fn arguments(server: &Server, output: &str, more: &[&str]) -> Vec<String> {
    let model = tiny().display().to_string();
    let all = [
        "bench",
        "image",
        "--prompts",
        "prompts.jsonl",
        "--model",
        &model,
        "--size",
        "64x32",
        "--steps",
        "2",
        "-s",
        "7",
    ];
    let rest = ["--judge-url", &server.url, "--judge-model", "test-judge", "-o", output];
    all.iter().chain(&rest).chain(more).map(|&text| text.to_owned()).collect()
}

fn bench(folder: &Folder, server: &Server, output: &str, more: &[&str]) -> crate::harness::Run {
    let arguments = arguments(server, output, more);
    folder.atelier(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Everything in a value but times.
fn timeless(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !key.ends_with("seconds") && key != "stages");
            map.values_mut().for_each(timeless);
        }
        Value::Array(values) => values.iter_mut().for_each(timeless),
        _ => {}
    }
}

fn results(folder: &Folder, output: &str) -> Vec<Value> {
    let text = String::from_utf8(folder.read(&format!("{output}/results.jsonl"))).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter_mut().for_each(timeless);
    lines
}

fn report(folder: &Folder, output: &str) -> Value {
    let mut report = serde_json::from_slice(&folder.read(&format!("{output}/report.json"))).unwrap();
    timeless(&mut report);
    report
}

#[test]
fn a_run_and_its_reports() {
    let (folder, server) = (folder(), judge());
    let run = bench(&folder, &server, "run", &["--compare", "m1000"]).ok();
    let header = run.stdout.lines().next().unwrap();
    for column in [
        "Model",
        "Resolution",
        "Steps",
        "Batch",
        "Image",
        "Gen(s)",
        "Judge(s)",
        "Quality",
        "Aesthetics",
        "Alignment",
        "Real-world Fidelity",
        "Creative Generation",
        "Total",
        "Missing",
    ] {
        assert!(header.contains(column), "{header}");
    }
    assert!(run.stderr.contains(" left"), "{}", run.stderr);
    assert_eq!(server.asked().len(), 2 + 2 + 1 + 5);
    let lines = results(&folder, "run");
    let summary: Vec<_> =
        lines.iter().map(|l| (l["prompt"]["id"].clone(), l["seed"].clone(), l["size"].clone())).collect();
    let expected: Vec<_> =
        (0..4).map(|i| (format!("p-{}", i + 1).into(), (7 + i).into(), serde_json::json!([64, 32]))).collect();
    assert_eq!(summary, expected);
    assert_eq!(lines[0]["scores"]["dimensions"]["Aesthetics"], "N/A");

    // the picture is what `generate` paints with the same seed
    folder.paint(&["a fox", "-s", "9", "--steps", "2", "-o", "same.png"]).ok();
    let pixels = |name: &str| image::load_from_memory(&folder.read(name)).unwrap().into_rgba8();
    assert_eq!(pixels("run/pictures/0003.png"), pixels("same.png"));

    let text = |name: &str| String::from_utf8(folder.read(&format!("run/{name}"))).unwrap();
    let csv = text("report.csv");
    assert_eq!(csv.lines().count(), 5);
    let markdown = text("report.md");
    for part in [
        "| tiny | 64x32 | 2 | 1 | p-1 |",
        "## Scores",
        "## Time",
        "| denoise |",
        "## Side by side",
        "SGLang-MUSA 0.5.18",
    ] {
        assert!(markdown.contains(part), "{part} is not in {markdown}");
    }
    let html = text("report.html");
    assert_eq!(html.matches("data:image/jpeg;base64,").count(), 4);
    assert!(html.contains("two cats &lt;b&gt;") && !html.contains("<b>") && html.contains("<svg"), "{html}");
    assert!(!html.contains("http://") && !html.contains("https://"), "the page needs nothing else");
    let report = report(&folder, "run");
    assert_eq!(report["benchmark"]["pictures"], 4);
    let mean = |key: &str| -> f64 { lines.iter().filter_map(|l| l["scores"]["dimensions"][key].as_f64()).sum::<f64>() };
    let quality = &report["benchmark"]["dimensions"]["Quality"];
    assert!((quality["mean"].as_f64().unwrap() * quality["count"].as_f64().unwrap() - mean("Quality")).abs() < 1e-9);

    // started again it does nothing and says the same
    let again = bench(&folder, &server, "run", &[]).ok();
    assert_eq!(server.asked().len(), 10);
    assert!(run.stdout.starts_with(&again.stdout), "{}", again.stdout);
}

#[test]
fn killed_at_any_moment_it_goes_on_and_ends_the_same() {
    let (folder, server) = (folder(), judge());
    bench(&folder, &server, "whole", &["--judge-concurrency", "1"]).ok();
    let asked = server.asked().len();
    let mut kills = 0;
    for pause in [20, 60, 90, 120, 160, 200, 250, 300] {
        let mut command = folder.command(&arguments(&server, "torn", &["--judge-concurrency", "1"]));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(pause));
        kills += usize::from(child.try_wait().unwrap().is_none());
        // SIGKILL
        child.kill().unwrap();
        child.wait().unwrap();
        // and a line that was being written
        for journal in ["torn/painted.jsonl", "torn/answers.jsonl", "torn/results.jsonl"] {
            if let Ok(mut bytes) = fs::read(folder.join(journal)) {
                bytes.extend(b"{\"half\": ");
                fs::write(folder.join(journal), bytes).unwrap();
            }
        }
    }
    assert!(kills > 0, "every run ended before it was killed");
    bench(&folder, &server, "torn", &["--judge-concurrency", "1"]).ok();
    assert_eq!(results(&folder, "torn"), results(&folder, "whole"));
    assert_eq!(report(&folder, "torn"), report(&folder, "whole"));
    for number in 1..=4 {
        let picture = |output: &str| folder.read(&format!("{output}/pictures/{number:04}.png"));
        assert_eq!(picture("torn"), picture("whole"));
    }
    // a question may be asked again only when its answer was on the way
    assert!(server.asked().len() <= 2 * asked + kills, "{} {asked} {kills}", server.asked().len());
}

#[test]
fn a_judge_that_fails_leaves_what_is_done() {
    let folder = folder();
    let dying =
        Server::with(|number, asked| if number < 3 { crate::judge::sheet(asked) } else { Act::status(500, "dead") });
    let more = ["--judge-retries", "0", "--judge-concurrency", "1"];
    bench(&folder, &dying, "run", &more).fails(1, "answered 500");
    let server = judge();
    bench(&folder, &server, "run", &[]).ok();
    assert_eq!(server.asked().len(), 10 - 3);
    bench(&folder, &server, "whole", &[]).ok();
    assert_eq!(results(&folder, "run"), results(&folder, "whole"));
}

#[test]
fn garbage_is_missing_and_no_score() {
    let folder = folder();
    let body = serde_json::json!({"choices": [{"message": {"content": "Lovely!"}}]}).to_string();
    let server = Server::with(move |_, _| Act::ok(body.clone()));
    let run = bench(&folder, &server, "run", &["--num-prompts", "1"]).ok();
    let row = run.stdout.lines().nth(1).unwrap();
    assert!(row.ends_with("N/A    Quality; Alignment"), "{row}");
    let line = &results(&folder, "run")[0];
    assert_eq!(line["scores"]["total"], Value::Null);
    assert_eq!(line["scores"]["missing"]["Quality"], "there is no JSON object in the answer");
}

#[test]
fn shards_merge_to_the_whole() {
    let (folder, server) = (folder(), judge());
    bench(&folder, &server, "whole", &[]).ok();
    for part in ["1/3", "2/3"] {
        bench(&folder, &server, &format!("part-{}", &part[..1]), &["--shard", part]).ok();
    }
    let merge = ["bench", "merge", "part-1", "part-2", "part-3", "-o", "all"];
    folder.atelier(&merge).fails(1, "part-3");
    folder.atelier(&["bench", "merge", "part-1", "part-2", "-o", "all"]).fails(1, "only 3 of 4 prompts are finished");
    bench(&folder, &server, "part-3", &["--shard", "3/3"]).ok();
    folder.atelier(&["bench", "merge", "part-1", "part-1", "part-3", "-o", "all"]).fails(1, "p-1 is in another part");
    folder.atelier(&merge).ok();
    assert_eq!(results(&folder, "all"), results(&folder, "whole"));
    assert_eq!(report(&folder, "all"), report(&folder, "whole"));
    folder.atelier(&merge).fails(1, "all: is not empty");
    let run = bench(&folder, &server, "whole", &["--compare", "all"]).ok();
    assert!(run.stdout.contains("| Total |") && run.stdout.contains("| +0.00 |"), "{}", run.stdout);
}

#[test]
fn other_settings_and_changed_pictures_are_refused() {
    let (folder, server) = (folder(), judge());
    bench(&folder, &server, "run", &["--num-prompts", "1"]).ok();
    bench(&folder, &server, "run", &["--num-prompts", "2"]).fails(1, "num_prompts was 1, now it is 2");
    folder.write("run/pictures/0001.png", "other");
    bench(&folder, &server, "run", &["--num-prompts", "1"]).fails(1, "0001.png: is not the picture that was painted");
    bench(&folder, &server, "new", &["--num-prompts", "5"]).fails(1, "there are 4 prompts");
    folder.write("prompts.jsonl", "{\"ID\": 1}\n");
    bench(&folder, &server, "new", &[]).fails(1, "prompts.jsonl: row 1: there is no prompt");
    assert!(!folder.join("new").exists());
}

/// Painter and judge behind servers, several pictures at once; the other language of the prompts.
#[test]
fn everything_behind_servers() {
    use base64::Engine as _;
    let (folder, server) = (folder(), judge());
    let png = fs::read(tiny().with_file_name("reference_one.png")).unwrap();
    let picture = base64::engine::general_purpose::STANDARD.encode(png);
    let body = serde_json::json!({"data": [{"b64_json": picture}]}).to_string();
    let painter = Server::with(move |_, asked| match asked.line.as_str() {
        "GET /v1/models HTTP/1.1" => Act::ok(r#"{"data": [{"id": "far-painter"}]}"#),
        _ => Act::Late(Duration::from_millis(100), body.clone()),
    });
    let run = folder.atelier(&[
        "bench",
        "image",
        "--prompts",
        "prompts.jsonl",
        "--language",
        "zh",
        "--num-prompts",
        "1",
        "--painter-url",
        &painter.url,
        "--judge-url",
        &server.url,
        "-o",
        "run",
    ]);
    run.ok();
    assert_eq!(painter.asked().last().unwrap().body["prompt"], "一个红苹果");
    let line = &results(&folder, "run")[0];
    assert_eq!((&line["size"], &line["steps"]), (&serde_json::json!([75, 50]), &Value::Null));
}
