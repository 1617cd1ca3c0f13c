//! Runs the program in a folder of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tiny checkpoint.
pub(crate) fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tiny")
}

/// Pictures of the demo model by the reference.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The run succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// The run ended with `code` and one paragraph that names `expected`.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, expected: &str) -> Self {
        let Self { stderr, .. } = &self;
        assert_eq!(self.code, Some(code), "{stderr}");
        assert_eq!(self.stdout, "", "an error prints nothing on standard output");
        assert!(!stderr.contains("panicked"), "{stderr}");
        let error = stderr.split_once("error: ").unwrap_or_else(|| panic!("no error: {stderr}")).1;
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
        if code == 1 {
            assert_eq!(error.trim_end().lines().count(), 1, "one paragraph: {error}");
        }
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A folder that the program runs in.
#[derive(Debug)]
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Names of everything in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap_or_else(|error| panic!("{name}: {error}; there is {:?}", self.names()))
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        fs::write(self.join(name), bytes).unwrap();
        self
    }

    /// The program, with these arguments, ready to start here.
    pub(crate) fn command(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atelier"));
        command.args(arguments).current_dir(self.path()).env_remove("ATELIER_MODEL").env_remove("ATELIER_VISION_MODEL");
        command
    }

    /// `atelier ARGUMENTS`.
    pub(crate) fn atelier(&self, arguments: &[&str]) -> Run {
        self.with_input(arguments, b"")
    }

    /// `atelier ARGUMENTS` with something on standard input.
    pub(crate) fn with_input(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // a program that does not read its input is no failure
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The tiny checkpoint as one that looks: the folder "looker" in the Hub's layout.
    pub(crate) fn with_looker(self) -> Self {
        for part in ["text_encoder", "processor"] {
            copy_folder(&tiny().join(part), &self.join("looker"));
        }
        self
    }

    /// `atelier describe` with the looker, with something on standard input.
    pub(crate) fn look(&self, arguments: &[&str], input: &[u8]) -> Run {
        self.with_input(&[&["describe", "--model", "looker"], arguments].concat(), input)
    }

    /// A small picture by the tiny checkpoint, with these arguments as well.
    pub(crate) fn paint(&self, arguments: &[&str]) -> Run {
        let model = tiny().display().to_string();
        let mut all = vec!["generate", "--model", &model];
        if !arguments.contains(&"--from-image") && !arguments.contains(&"-W") {
            all.extend(["--size", "64x32"]);
        }
        if !arguments.contains(&"--from-image") && !arguments.iter().any(|a| ["--sigmas", "--steps"].contains(a)) {
            all.extend(["--steps", "2"]);
        }
        all.extend(arguments);
        self.atelier(&all)
    }
}

/// Copies a folder with everything in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
