//! `atelier describe --chat` from outside.

use crate::harness::{Folder, tiny};

fn folder() -> Folder {
    let folder = Folder::new().with_looker();
    for (name, fixture) in [("a.png", "reference_one.png"), ("b.png", "reference_two.png")] {
        folder.write(name, std::fs::read(tiny().with_file_name(fixture)).unwrap());
    }
    folder
}

/// The numbers before `word` in the figures of every answer.
fn figures(stderr: &str, word: &str) -> Vec<u64> {
    let lines = stderr.lines().filter(|line| line.starts_with("  prompt "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|found| *found == word).unwrap();
            words[at - 1].parse().unwrap()
        })
        .collect()
}

#[test]
fn turns_go_on_from_what_was_read() {
    let folder = folder();
    let arguments = ["a.png", "--chat", "--max-tokens", "6", "--timings"];
    let run = folder.look(&arguments, b"what is it?\n\nand now?\n").ok();
    let (prompt, cached) = (figures(&run.stderr, "tokens"), figures(&run.stderr, "cached"));
    assert_eq!(cached.len(), 2, "{}", run.stderr);
    assert_eq!(cached[0], 0);
    assert!(cached[1] >= prompt[0], "the first turn is not read again: {}", run.stderr);
    assert!(run.stderr.contains("known"), "the picture is not looked at again: {}", run.stderr);
    // the first answer is that of a single question
    let single = folder.look(&["a.png", "-p", "what is it?", "--max-tokens", "6"], b"").ok().stdout;
    assert!(run.stdout.starts_with(&single), "{:?} {single:?}", run.stdout);
    // -p is the first question
    let first = folder.look(&[&arguments[..], &["-p", "what is it?"]].concat(), b"and now?\n/quit\nnever").ok();
    assert_eq!(first.stdout, run.stdout);
}

#[test]
fn commands() {
    let folder = folder();
    folder.write("text.png", "words");
    let lines = b"/help\n/sing\n/image\n/image missing.png\n/image text.png\n/image b.png\nwhat?\n/reset\nwhat?\n";
    let run = folder.look(&["--chat", "--max-tokens", "4", "--timings"], lines).ok();
    for expected in [
        "Ctrl-C stops an answer",
        "/sing: no such command",
        "/image: no such command",
        "missing.png: the picture cannot be read: No such file",
        "text.png: the picture cannot be used: no picture format was recognised",
        "41x90; the next question is about it",
        "a new conversation",
    ] {
        assert!(run.stderr.contains(expected), "{expected:?} is not in: {}", run.stderr);
    }
    let pictures = figures(&run.stderr, "of");
    assert!(pictures.len() == 2 && pictures[0] > 0 && pictures[1] == 0, "{pictures:?}: {}", run.stderr);
}

#[test]
fn what_cannot_be_answered_is_told_and_forgotten() {
    let folder = folder();
    let lines = b"<|image_pad|>\n\xff\xfe\nwhat is it?\n";
    let run = folder.look(&["a.png", "--chat", "--max-tokens", "6"], lines).ok();
    assert!(run.stderr.contains("error: ") && run.stderr.contains("not UTF-8"), "{}", run.stderr);
    let single = folder.look(&["a.png", "-p", "what is it?", "--max-tokens", "6"], b"").ok();
    assert_eq!(run.stdout, single.stdout, "the picture waited for a question that can be answered");
}
