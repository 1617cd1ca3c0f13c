//! `atelier describe` from outside: answers, sources of pictures, refusals, interruption.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use base64::Engine as _;
use serde_json::Value;

use crate::harness::{Folder, tiny};

/// A folder with the looker and a picture, `a.png`.
fn folder() -> Folder {
    let folder = Folder::new().with_looker();
    folder.write("a.png", std::fs::read(tiny().with_file_name("reference_one.png")).unwrap());
    folder
}

#[test]
fn the_answer_is_the_same_from_every_source_and_in_json() {
    let folder = folder();
    let picture = folder.read("a.png");
    let arguments = ["-p", "what is it?", "--max-tokens", "8"];
    let run = folder.look(&[&["a.png"], &arguments[..]].concat(), b"").ok();
    assert!(run.stdout.len() > 2 && run.stdout.ends_with('\n'), "{}", run.stdout);
    assert_eq!(folder.look(&[&["-"], &arguments[..]].concat(), &picture).ok().stdout, run.stdout);
    let uri = format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(&picture));
    assert_eq!(folder.look(&[&[&*uri], &arguments[..]].concat(), b"").ok().stdout, run.stdout);
    let percent = "data:,".to_owned() + &picture.iter().map(|byte| format!("%{byte:02X}")).collect::<String>();
    assert_eq!(folder.look(&[&[&*percent], &arguments[..]].concat(), b"").ok().stdout, run.stdout);
    folder.write("question.txt", "what is it?\r\n");
    for question in ["@question.txt", "-"] {
        let run_again = folder.look(&["a.png", "-p", question, "--max-tokens", "8"], b"what is it?\n").ok();
        assert_eq!(run_again.stdout, run.stdout);
    }
    let other = folder.look(&["a.png", "-p", "how many?", "--max-tokens", "8"], b"").ok();
    assert_ne!(other.stdout, run.stdout, "the question matters");

    let object = folder.look(&[&["a.png", "--json"], &arguments[..]].concat(), b"").ok().json();
    assert_eq!(object["answer"].as_str().unwrap().trim_end_matches('\n'), run.stdout.trim_end_matches('\n'));
    assert_eq!((&object["question"], &object["finish"]), (&"what is it?".into(), &"length".into()));
    assert_eq!(object["usage"]["completion_tokens"], 8);
    let seen = &object["pictures"][0];
    assert_eq!((&seen["name"], &seen["width"], &seen["height"]), (&"a.png".into(), &75.into(), &50.into()));
    assert_eq!(object["usage"]["image_tokens"], seen["tokens"]);
    for figure in ["vision_ms", "vision_frames_per_second", "ttft_ms", "prefill_tokens_per_second", "tpot_ms"] {
        assert!(object["timings"][figure].as_f64().unwrap() > 0.0, "{figure}: {object}");
    }
}

#[test]
fn several_pictures_or_none() {
    let folder = folder();
    folder.write("b.png", std::fs::read(tiny().with_file_name("reference_two.png")).unwrap());
    let tokens = |arguments: &[&str]| {
        let object = folder.look(&[arguments, &["--json", "--max-tokens", "2"]].concat(), b"").ok().json();
        let pictures = object["pictures"].as_array().unwrap().len();
        let number = |key: &str| object["usage"][key].as_u64().unwrap();
        (pictures, number("image_tokens"), number("prompt_tokens"), object["question"].as_str().unwrap().to_owned())
    };
    let (none, one, two) = (tokens(&["-p", "why?"]), tokens(&["a.png"]), tokens(&["a.png", "b.png"]));
    assert_eq!((none.0, none.1, one.0, two.0), (0, 0, 1, 2));
    assert!(one.1 > 0 && two.1 > one.1, "{one:?} {two:?}");
    assert_eq!((&*one.3, &*two.3), ("Describe this picture.", "Describe these pictures."));
    let system = tokens(&["-p", "why?", "--system", "Answer briefly."]);
    assert!(system.2 > none.2, "the system text is read");
}

#[test]
fn draws_follow_the_seed_and_stop_strings_end() {
    let folder = folder();
    let ask =
        |arguments: &[&str]| folder.look(&[&["a.png", "--max-tokens", "24"], arguments].concat(), b"").ok().stdout;
    let warm = ["--temperature", "1.5", "--top-p", "0.95", "--top-k", "50", "--min-p", "0.01", "-s"];
    let drawn = |seed: &str| ask(&[&warm[..], &[seed]].concat());
    assert_eq!(drawn("5"), drawn("5"));
    assert_ne!(drawn("5"), drawn("6"));
    let random = folder.look(&["a.png", "--max-tokens", "24", "-q", "--temperature", "1.5", "-s", "random"], b"").ok();
    let seed = random.stderr.trim().strip_prefix("seed ").unwrap();
    assert_eq!(ask(&["--temperature", "1.5", "-s", seed]), random.stdout);
    let greedy = ask(&["--temperature", "0"]);
    assert_eq!(ask(&["--temperature", "0", "--prefill-chunk", "3"]), greedy);
    assert_ne!(ask(&["--temperature", "0", "--repetition-penalty", "30", "--presence-penalty", "2"]), greedy);
    // the first character that is new after the first three
    let (at, stop) = greedy.char_indices().skip(3).find(|(at, c)| !greedy[..*at].contains(*c) && *c != '\n').unwrap();
    let stopped = ask(&["--temperature", "0", "--stop", "no such text", "--stop", &stop.to_string()]);
    assert_eq!(stopped.trim_end_matches('\n'), greedy[..at].trim_end_matches('\n'));
}

#[test]
fn thoughts_go_to_standard_error_unless_hidden() {
    let folder = folder();
    let template = tiny().with_file_name("chat").join("thinking.jinja");
    folder.write("looker/chat_template.jinja", std::fs::read(template).unwrap());
    let ask = |arguments: &[&str]| folder.look(&[&["a.png", "--max-tokens", "6"], arguments].concat(), b"").ok();
    let (on, hidden, off) = (ask(&["--think", "on"]), ask(&["--think", "hide"]), ask(&["--think", "off"]));
    assert!(on.stderr.contains("thinking: ") && on.stdout.is_empty(), "{on:?}");
    assert!(!hidden.stderr.contains("thinking") && hidden.stdout.is_empty(), "{hidden:?}");
    assert!(!off.stderr.contains("thinking") && off.stdout.len() > 1, "{off:?}");
    assert!(ask(&["--think", "on", "--json"]).json()["thinking"].is_string());
    assert_eq!(ask(&["--think", "hide", "--json"]).json()["thinking"], Value::Null);
}

#[test]
fn timings_and_notes_go_to_standard_error() {
    let folder = folder();
    let mut gif = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut gif);
    for grey in [0, 200] {
        encoder.encode_frame(image::Frame::new(image::RgbaImage::from_pixel(40, 30, image::Rgba([grey; 4])))).unwrap();
    }
    drop(encoder);
    folder.write("b.gif", gif);
    let note = "b.gif: only the first frame of the animation was taken";
    for flag in ["-v", "--timings"] {
        let stderr = folder.look(&["b.gif", "--max-tokens", "3", flag], b"").ok().stderr;
        for expected in [note, "picture 1", "frames/s", "TTFT", "prefill", "tokens/s, TPOT", "--max-tokens"] {
            assert!(stderr.contains(expected), "{expected} is not in: {stderr}");
        }
    }
    let run = folder.look(&["b.gif", "--max-tokens", "3", "--json"], b"").ok();
    assert_eq!(run.json()["notices"][0], note);
    assert!(!run.stderr.contains("TTFT"), "{}", run.stderr);
    assert_eq!(folder.look(&["b.gif", "--max-tokens", "3", "-q"], b"").ok().stderr, "");
}

#[test]
fn bad_arguments_are_usage_errors() {
    let folder = folder();
    for (arguments, expected) in [
        (&[][..], "what to look at?"),
        (&["-p", ""], "the question is empty"),
        (&["a.png", "-p", "a", "-p", "b"], "cannot be used multiple times"),
        (&["-", "-p", "-"], "standard input (-) can be one"),
        (&["-", "--chat"], "with --chat standard input is the conversation"),
        (&["--chat", "--json"], "cannot be used with"),
        (&["a.png", "-q", "-v"], "cannot be used with"),
        (&["https://example.org/a.png"], "not fetched from the network"),
        (&["a.png", "--temperature", "-1"], "a number from 0 to 100"),
        (&["a.png", "--temperature", "nan"], "a number from 0 to 100"),
        (&["a.png", "--top-p", "0"], "a number above 0, at most 1"),
        (&["a.png", "--top-p", "1.5"], "a number above 0, at most 1"),
        (&["a.png", "--min-p", "2"], "a number from 0 to 1"),
        (&["a.png", "--presence-penalty", "-3"], "a number from -2 to 2"),
        (&["a.png", "--repetition-penalty", "0"], "a number from 0.01 to 100"),
        (&["a.png", "--top-k", "-1"], "invalid"),
        (&["a.png", "--max-tokens", "0"], "0 is not in 1..=1000000"),
        (&["a.png", "--prefill-chunk", "0"], "0 is not in 1..=1000000"),
        (&["a.png", "--think", "maybe"], "possible values: on, off, hide"),
        (&["a.png", "--device", "cuda"], "no CUDA backend"),
        (&["a.png", "-s", "1.5"], "a whole number from 0"),
    ] {
        let run = folder.look(arguments, b"").fails(2, expected);
        assert!(run.stderr.contains("describe") || run.stderr.contains("--help"), "{}", run.stderr);
    }
}

#[test]
fn what_is_named_must_be_there_and_whole() {
    let folder = folder();
    let good = folder.read("a.png");
    folder
        .write("cut.png", &good[..good.len() / 2])
        .write("text.png", "words")
        .write("empty.png", "")
        .write("long.txt", vec![b'a'; (1 << 20) + 1]);
    for (arguments, expected) in [
        (&["missing.png"][..], "missing.png: the picture cannot be read: No such file"),
        (&["."], ".: the picture cannot be read"),
        (&["a.png", "cut.png"], "cut.png: the picture cannot be used: the picture's data ends too early"),
        (&["text.png"], "text.png: the picture cannot be used: no picture format was recognised"),
        (&["-"], "standard input: the picture cannot be used: the file is empty"),
        (&["data:image/png;base64"], "data URI: the picture cannot be read: a data URI is"),
        (&["data:;base64,*"], "not base64"),
        (&["a.png", "-p", "@missing.txt"], "missing.txt: No such file"),
        (&["a.png", "-p", "@long.txt"], "longer than 1024 KiB"),
    ] {
        folder.look(arguments, b"").fails(1, expected);
    }
    folder.atelier(&["describe", "a.png", "--model", "missing"]).fails(1, "missing: there is no such folder");
    std::fs::remove_file(folder.join("looker/config.json")).unwrap();
    folder.look(&["a.png"], b"").fails(1, "config.json");
}

#[test]
fn the_model_can_stand_in_the_environment() {
    let folder = folder();
    let mut command = folder.command(&["describe", "a.png", "-q", "--max-tokens", "2"]);
    assert!(command.env("ATELIER_VISION_MODEL", "looker").output().unwrap().status.success());
    let output = command.env("ATELIER_VISION_MODEL", "nowhere").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere: there is no such folder"));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = folder();
    let arguments = ["describe", "a.png", "--model", "looker", "--max-tokens", "100000"];
    let mut child = folder.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 4]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_was_said() {
    let folder = folder();
    let arguments = ["describe", "a.png", "--model", "looker", "--max-tokens", "100000"];
    let mut child = folder.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut said = vec![0; 4];
    stdout.read_exact(&mut said).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    stdout.read_to_end(&mut said).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{stderr}");
    assert!(said.ends_with(b"\n"));
    assert!(stderr.contains("the answer is not complete") && stderr.ends_with("interrupted\n"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn in_a_conversation_ctrl_c_stops_the_answer_and_not_the_program() {
    let folder = folder();
    let arguments = ["describe", "a.png", "--chat", "-v", "--model", "looker", "--max-tokens", "100000"];
    let mut command = folder.command(&arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    for question in ["what is it?", "and now?"] {
        writeln!(stdin, "{question}").unwrap();
        // the prompt has been read: the answer is under way
        assert!(stderr.any(|line| line.starts_with("prefill")));
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        assert_eq!(stderr.next().unwrap(), "stopped: the answer is not complete");
    }
    writeln!(stdin, "/quit").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
