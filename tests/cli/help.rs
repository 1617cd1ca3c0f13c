//! What the program says about itself.

use crate::harness::Folder;

#[test]
fn help_names_every_flag_and_the_exit_codes() {
    let folder = Folder::new();
    let help = folder.atelier(&["generate", "--help"]).ok().stdout;
    for flag in [
        "--prompt",
        "--negative-prompt",
        "--model",
        "--width",
        "--height",
        "--size",
        "--steps",
        "--sigmas",
        "--cfg-scale",
        "--seed",
        "--count",
        "--image",
        "--ref-resolution",
        "--output",
        "--device",
        "--dtype",
        "--vae-tiling",
        "--low-memory",
        "--timings",
        "--json",
        "--quiet",
        "--verbose",
        "--from-image",
        "[PROMPT]",
        "130",
    ] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    let help = folder.atelier(&["judge", "--help"]).ok().stdout;
    for flag in
        ["[IMAGE]", "--prompt", "--dims", "--input", "--judge-url", "ATELIER_JUDGE_API_KEY", "--rubric", "--json"]
    {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    let help = folder.atelier(&["bench", "image", "--help"]).ok().stdout;
    for flag in [
        "--prompts",
        "--num-prompts",
        "--shard",
        "--compare",
        "--painter-url",
        "ATELIER_PAINTER_API_KEY",
        "--judge-url",
    ] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    let help = folder.atelier(&["describe", "--help"]).ok().stdout;
    for flag in [
        "[IMAGE]...",
        "--prompt",
        "--system",
        "--chat",
        "--model",
        "ATELIER_VISION_MODEL",
        "--device",
        "--prefill-chunk",
        "--max-tokens",
        "--stop",
        "--think",
        "--temperature",
        "--top-p",
        "--top-k",
        "--min-p",
        "--repetition-penalty",
        "--presence-penalty",
        "--seed",
        "--timings",
        "--json",
        "--quiet",
        "--verbose",
        "130",
    ] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    assert!(folder.atelier(&["--help"]).ok().stdout.contains("Exit codes: 0 done"));
    assert!(folder.atelier(&["generate", "-h"]).ok().stdout.contains("-H, --height"));
}

#[test]
fn the_version_is_the_package_s() {
    let version = Folder::new().atelier(&["--version"]).ok().stdout;
    assert_eq!(version, format!("atelier {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn no_command_is_a_usage_error() {
    let run = Folder::new().atelier(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("Usage: atelier"));
}
