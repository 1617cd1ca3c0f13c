//! Arguments that must be refused, and what each refusal says.

use crate::harness::{Folder, tiny};

#[test]
fn bad_arguments_are_usage_errors() {
    let folder = Folder::new();
    for (arguments, expected) in [
        (&[][..], "what to paint"),
        (&["a", "-p", "b"], "cannot be used with"),
        (&["a", "--no-such-flag"], "--no-such-flag"),
        (&["a", "b"], "unexpected argument 'b'"),
        (&["a", "-W", "16"], "16 is not in 32..=16384"),
        (&["a", "-H", "20000"], "20000 is not in 32..=16384"),
        (&["a", "-W", "wide"], "invalid"),
        (&["a", "--size", "64"], "such as 1024x768"),
        (&["a", "--size", "64x8"], "such as 1024x768"),
        (&["a", "--size", "64x64", "-W", "64"], "cannot be used with"),
        (&["a", "--steps", "0"], "0 is not in 1..=1000"),
        (&["a", "--steps", "2.5"], "invalid"),
        (&["a", "--steps", "2", "--sigmas", "1,0.5"], "cannot be used with"),
        (&["a", "--sigmas", "0.5,0.9"], "noise levels fall"),
        (&["a", "--sigmas", "1.5,0.9"], "noise levels fall"),
        (&["a", "--sigmas", "nan"], "noise levels fall"),
        (&["a", "--sigmas", "1,,0.5"], "invalid"),
        (&["a", "--cfg-scale", "-1"], "--cfg-scale"),
        (&["a", "--cfg-scale=nan"], "a number from 0 to 100"),
        (&["a", "-s", "-7"], "a whole number from 0"),
        (&["a", "-s", "18446744073709551616"], "a whole number from 0"),
        (&["a", "-s", "18446744073709551615", "-b", "2"], "leaves no room for 2 pictures"),
        (&["a", "-b", "0"], "0 is not in 1..=1000"),
        (&["a", "--ref-resolution", "0"], "0 is not in 32..=16384"),
        (&["a", "--device", "tpu"], "possible values: auto, cpu, cuda, musa"),
        (&["a", "--device", "cuda"], "no CUDA backend"),
        (&["a", "--device", "musa"], "no MUSA backend"),
        (&["a", "--dtype", "fp8"], "possible values: auto, f32, bf16, f16"),
        (&["a", "--vae-tiling", "maybe"], "possible values: auto, on, off"),
        (&["a", "-q", "-v"], "cannot be used with"),
        (&["a", "-o", "a.gif"], "not .gif"),
        (&["a", "-o", "picture"], "no extension"),
        (&["a", "-o", "%x.png"], "%x is not known"),
        (&["a", "-o", "50%"], "%% for a percent sign"),
    ] {
        let model = tiny().display().to_string();
        let mut all = vec!["generate", "--model", &model];
        all.extend(arguments);
        folder.atelier(&all).fails(2, expected);
    }
    let eleven: Vec<&str> = ["-i", "a.png"].into_iter().cycle().take(22).collect();
    folder.paint(&[&["a"], &eleven[..]].concat()).fails(2, "11 reference pictures, at most 10");
    assert!(folder.names().is_empty());
}

#[test]
fn what_the_arguments_name_must_be_there() {
    let folder = Folder::new();
    folder.write("latin1.txt", b"caf\xe9").write("file", b"").write("long.txt", vec![b'a'; (1 << 20) + 1]);
    for (arguments, expected) in [
        (&["-p", "@missing.txt"][..], "missing.txt: No such file"),
        (&["-p", "@latin1.txt"], "not UTF-8"),
        (&["-p", "@long.txt"], "longer than 1024 KiB"),
        (&["a", "-o", "missing/a.png"], "there is no folder missing"),
        (&["a", "-o", "file/a.png"], "there is no folder file"),
        (&["a", "--timings", "missing/t.json"], "there is no folder missing"),
        (&["a", "--timings", "."], "is a folder"),
        (&["--from-image", "missing.png"], "missing.png: No such file"),
        (&["--from-image", "."], ".: "),
        (&["--from-image", "file"], "not a readable PNG"),
    ] {
        folder.paint(arguments).fails(1, expected);
    }
    folder.atelier(&["generate", "a", "--model", "missing"]).fails(1, "missing: there is no such folder");
    folder.atelier(&["generate", "a", "--model", "file"]).fails(1, "file: there is no such folder");
    assert_eq!(folder.names(), ["file", "latin1.txt", "long.txt"]);
}

#[test]
fn the_model_can_stand_in_the_environment() {
    let folder = Folder::new();
    let mut command = folder.command(&["generate", "a", "-q", "--size", "64x32", "--steps", "1", "-o", "a.png"]);
    assert!(command.env("ATELIER_MODEL", tiny()).status().unwrap().success());
    assert_eq!(folder.names(), ["a.png"]);
    let mut command = folder.command(&["generate", "a", "-q"]);
    let output = command.env("ATELIER_MODEL", "nowhere").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere: there is no such folder"));
}
