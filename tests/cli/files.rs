//! What is written where, under which name, and what is printed about it.

use std::fs;

use image::ImageFormat;

use crate::harness::Folder;

#[test]
fn standard_output_has_the_paths_and_nothing_else() {
    let folder = Folder::new();
    let run = folder.paint(&["a", "-s", "41", "-b", "2"]).ok();
    assert_eq!(run.stdout, "atelier-41.png\natelier-42.png\n");
    assert_eq!(folder.names(), ["atelier-41.png", "atelier-42.png"]);
    for expected in ["64x32", "2 steps", "seeds 41 to 42", "memory: ", "step 2/2", "total"] {
        assert!(run.stderr.contains(expected), "{expected} is not in: {}", run.stderr);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let folder = Folder::new();
    folder.paint(&["a cat", "-s", "7", "-o", "one.png", "-q"]).ok();
    folder.paint(&["a cat", "-s", "6", "-b", "2", "-o", "%d-%s.png", "-q"]).ok();
    assert_eq!(folder.names(), ["1-6.png", "2-7.png", "one.png"]);
    assert_eq!(folder.read("one.png"), folder.read("2-7.png"));
    assert_ne!(pixels(&folder, "1-6.png"), pixels(&folder, "2-7.png"));
}

fn pixels(folder: &Folder, name: &str) -> image::RgbaImage {
    image::load_from_memory(&folder.read(name)).unwrap().into_rgba8()
}

#[test]
fn a_drawn_seed_is_always_told() {
    let folder = Folder::new();
    let run = folder.paint(&["a", "-o", "a.png", "-q"]).ok();
    let seed: u32 = run.stderr.trim().strip_prefix("seed ").unwrap().parse().unwrap();
    let run = folder.paint(&["a", "-s", &seed.to_string(), "-o", "b.png", "-q"]).ok();
    assert_eq!((run.stderr.as_str(), run.stdout.as_str()), ("", "b.png\n"));
    assert_eq!(folder.read("a.png"), folder.read("b.png"));
    assert!(folder.paint(&["a", "-s", "-1"]).ok().stderr.contains("seed "));
}

#[test]
fn names_are_filled_in() {
    let folder = Folder::new();
    fs::create_dir(folder.join("sub")).unwrap();
    for (pattern, expected) in [
        ("%03d_%s%%.png", &["001_9%.png", "002_10%.png"][..]),
        ("x.jpg", &["x-1.jpg", "x-2.jpg"]),
        ("sub", &["sub/atelier-9.png", "sub/atelier-10.png"]),
        ("sub/", &["sub/atelier-9-2.png", "sub/atelier-10-2.png"]),
    ] {
        let run = folder.paint(&["a", "-s", "9", "-b", "2", "--steps", "1", "-o", pattern, "-q"]).ok();
        assert_eq!(run.stdout.lines().collect::<Vec<_>>(), expected, "{pattern}");
        assert!(expected.iter().all(|name| folder.join(name).is_file()), "{pattern}");
    }
}

#[test]
fn a_named_file_is_replaced_and_our_own_names_are_not() {
    let folder = Folder::new();
    folder.write("a.png", b"old").write("atelier-3.png", b"mine");
    folder.paint(&["a", "-s", "3", "-o", "a.png", "-q"]).ok();
    folder.paint(&["a", "-s", "3", "-q"]).ok();
    assert_eq!(folder.names(), ["a.png", "atelier-3-2.png", "atelier-3.png"]);
    assert_eq!(folder.read("atelier-3.png"), b"mine");
    assert_eq!(folder.read("a.png"), folder.read("atelier-3-2.png"));
}

#[test]
fn the_extension_decides_the_format() {
    let folder = Folder::new();
    for (name, format) in [("a.png", ImageFormat::Png), ("a.jpeg", ImageFormat::Jpeg), ("a.webp", ImageFormat::WebP)] {
        let run = folder.paint(&["a", "-s", "1", "-o", name]).ok();
        let bytes = folder.read(name);
        assert_eq!(image::guess_format(&bytes).unwrap(), format, "{name}");
        let picture = image::load_from_memory(&bytes).unwrap();
        assert_eq!((picture.width(), picture.height()), (64, 32), "{name}");
        assert_eq!(run.stderr.contains("JPEG has no transparency"), name == "a.jpeg", "{}", run.stderr);
    }
    let png = image::load_from_memory(&folder.read("a.png")).unwrap();
    assert_eq!(png.color(), image::ColorType::Rgba8);
    assert_eq!(pixels(&folder, "a.webp"), png.into_rgba8());
}

#[test]
fn json_is_one_object() {
    let folder = Folder::new();
    let run = folder.paint(&["a", "-s", "5", "-b", "2", "--sigmas", "1,0.5,0", "--json", "-n", "b"]).ok();
    assert_eq!(run.stdout.lines().count(), 1);
    let outcome = run.json();
    assert_eq!(outcome["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(outcome["model"], "tiny");
    assert_eq!(outcome["steps"], 2);
    assert_eq!(outcome["sigmas"].as_array().unwrap().len(), 3);
    assert_eq!(outcome["sigmas"][2], 0.0);
    let second = serde_json::json!({"path": "atelier-6.png", "seed": 6, "width": 64, "height": 32});
    assert_eq!(outcome["pictures"][1], second);
    assert!(outcome["seconds"].as_f64().unwrap() > 0.0);
    assert!(outcome["timings"].as_array().unwrap().iter().any(|t| t["stage"] == "denoise" && t["count"] == 4));
    assert!(outcome["notices"][0].as_str().unwrap().contains("negative prompt has no effect"));
}

#[test]
fn timings_hold_every_stage() {
    let folder = Folder::new();
    folder.paint(&["a", "--steps", "3", "-b", "2", "--timings", "t.json", "-q"]).ok();
    let report: serde_json::Value = serde_json::from_slice(&folder.read("t.json")).unwrap();
    let timings = report["timings"].as_array().unwrap();
    let steps: Vec<_> = timings.iter().filter(|t| t["stage"] == "denoise").collect();
    assert_eq!(steps.len(), 6);
    assert_eq!((&steps[4]["picture"], &steps[4]["index"]), (&1.into(), &1.into()));
    assert!(timings.iter().all(|t| t["seconds"].is_f64() && t["count"].is_u64() && t["unit"].is_string()));
    let stages: Vec<&str> = report["totals"].as_array().unwrap().iter().map(|t| t["stage"].as_str().unwrap()).collect();
    for stage in [
        "tokenize",
        "load text encoder",
        "text encode",
        "load transformer",
        "prefix",
        "noise",
        "denoise",
        "load vae",
        "vae decode",
        "write",
    ] {
        assert!(stages.contains(&stage), "{stage} is not in {stages:?}");
    }
    let sum: f64 = timings.iter().map(|t| t["seconds"].as_f64().unwrap()).sum();
    assert!(sum <= report["seconds"].as_f64().unwrap());
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let folder = Folder::new();
    folder.write("prompt.txt", "\u{feff}a red 苹果\r\n");
    folder.paint(&["a red 苹果", "-s", "1", "-o", "a.png", "-q"]).ok();
    folder.paint(&["-p", "@prompt.txt", "-s", "1", "-o", "b.png", "-q"]).ok();
    folder.paint(&["-p", "a red 苹果", "-s", "1", "-o", "c.png", "-q"]).ok();
    let model = crate::harness::tiny().display().to_string();
    let arguments =
        ["generate", "--model", &model, "--size", "64x32", "--steps", "2", "-p", "-", "-s", "1", "-o", "d.png", "-q"];
    folder.with_input(&arguments, "a red 苹果\n".as_bytes()).ok();
    for name in ["b.png", "c.png", "d.png"] {
        assert_eq!(folder.read(name), folder.read("a.png"), "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_written_is_found_before_painting() {
    let folder = Folder::new();
    fs::create_dir(folder.join("folder.png")).unwrap();
    for path in ["/proc/a.png", "/proc/self/a.webp"] {
        let run = folder.paint(&["a", "-o", path]).fails(1, "nothing can be written there");
        assert!(!run.stderr.contains("step"), "{}", run.stderr);
    }
    assert_eq!(folder.paint(&["a", "-s", "1", "-o", "folder.png", "-q"]).ok().stdout, "folder.png/atelier-1.png\n");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/dev/full", folder.join("full.png")).unwrap();
    folder.paint(&["a", "-o", "full.png", "-q", "-s", "1"]).fails(1, "full.png: No space left");
    assert_eq!(folder.names(), ["full.png"]);
}

#[cfg(unix)]
#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    use std::process::Stdio;
    let folder = Folder::new();
    let model = crate::harness::tiny().display().to_string();
    let arguments = ["generate", "a", "--model", &model, "--size", "64x32", "--steps", "1", "-s", "1"];
    let mut child = folder.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(folder.names(), ["atelier-1.png"]);
}
