//! Ctrl-C.
#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use crate::harness::{Folder, tiny};

/// Starts a long run and waits until its first step is done.
fn long_run(folder: &Folder) -> (Child, BufReader<std::process::ChildStderr>) {
    let model = tiny().display().to_string();
    let arguments = ["generate", "a", "--model", &model, "--size", "64x64", "--steps", "1000", "-b", "100"];
    let mut child = folder.command(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("step 1/1000") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "the run ended early: {:?}", child.wait());
    }
    (child, stderr)
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_stops_and_leaves_nothing() {
    let folder = Folder::new();
    let (mut child, mut stderr) = long_run(&folder);
    interrupt(&child);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.ends_with("interrupted\n") && !rest.contains("error"), "{rest}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}

#[test]
fn a_second_ctrl_c_ends_at_once() {
    let folder = Folder::new();
    let (mut child, _stderr) = long_run(&folder);
    interrupt(&child);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
