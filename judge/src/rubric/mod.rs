//! Rubrics: prompt, dimension → the question that a judge model is asked.
//!
//! Our own file format is Markdown: a level-1 heading `System`, `Request` or a dimension's name begins a part. `Request`
//! holds `{prompt}`, `{picture}`, `{dimension}` and `{checklist}`, `{picture}` once; a dimension's part is its checklist,
//! `## Category` and `- Facet: question` on a line each. The benchmark's own wording is read from its `checklists.py`.

// Markdown → rubric
mod own;
// the benchmark's Python file → rubric
mod official;
// Python text → strings and dictionaries
mod python;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::{Dimension, Error, Facet, Result};

/// Our own wording.
const DEFAULT: &str = include_str!("../../rubric/default.md");
/// Largest rubric that is read, in bytes.
const LIMIT: u64 = 1 << 20;

/// What a judge model is told and asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rubric {
    name: String,
    system: String,
    request: Vec<Piece>,
    /// One for each dimension.
    checklists: Vec<String>,
    notes: Vec<String>,
    fingerprint: String,
}

/// A stretch of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Prompt,
    Picture,
    Dimension,
    Checklist,
}

/// What a judge is asked about one dimension of a picture. The picture stands between `before` and `after`, in the same
/// message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What is asked about.
    pub dimension: Dimension,
    /// The system message.
    pub system: String,
    /// The user message up to the picture.
    pub before: String,
    /// The user message after the picture.
    pub after: String,
}

/// Our own wording.
impl Default for Rubric {
    fn default() -> Self {
        own::parse("atelier", DEFAULT).expect("the rubric inside the program is tested")
    }
}

impl Rubric {
    /// Reads a rubric: a Markdown file of our format, the benchmark's `checklists.py`, or a folder that holds one (a
    /// checkout of its repository).
    ///
    /// # Errors
    /// When the file cannot be read, or is not such a rubric: the message says what is missing or wrong, and where.
    pub fn read(path: &Path) -> Result<Self> {
        let path = if path.is_dir() { path.join("checklists.py") } else { path.to_owned() };
        let size = fs::metadata(&path).map_err(|source| Error::io(&path, source))?.len();
        if size > LIMIT {
            return Err(Error::file(
                &path,
                format!("{size} bytes are too many for a rubric, at most {LIMIT} are read"),
            ));
        }
        let bytes = fs::read(&path).map_err(|source| Error::io(&path, source))?;
        let text = String::from_utf8(bytes).map_err(|_| Error::file(&path, "is not UTF-8 text"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let parsed = if path.extension().is_some_and(|extension| extension == "py") {
            official::parse(&text)
        } else {
            own::parse(&name, &text)
        };
        parsed.map_err(|problem| Error::file(&path, problem))
    }

    /// A rubric of these parts, with a checklist for each dimension.
    fn new(name: String, system: String, request: Vec<Piece>, checklists: Vec<String>) -> Self {
        let mut rubric = Self { name, system, request, checklists, notes: Vec::new(), fingerprint: String::new() };
        let digest = Sha256::digest(format!("{:?}", (&rubric.system, &rubric.request, &rubric.checklists)));
        for byte in &digest[..8] {
            let _ = write!(rubric.fingerprint, "{byte:02x}");
        }
        rubric
    }

    /// What it is called in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Changes when any word of it changes: 16 hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// What a person should know about it: facets that it does not ask about.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The question about `dimension` of a picture painted from `prompt`.
    #[must_use]
    pub fn question(&self, prompt: &str, dimension: Dimension) -> Question {
        let (mut before, mut after, mut seen) = (String::new(), String::new(), false);
        for piece in &self.request {
            let text = match piece {
                Piece::Text(text) => text,
                Piece::Prompt => prompt,
                Piece::Dimension => dimension.name(),
                Piece::Checklist => &self.checklists[dimension as usize],
                Piece::Picture => {
                    seen = true;
                    continue;
                }
            };
            if seen { &mut after } else { &mut before }.push_str(text);
        }
        Question { dimension, system: self.system.clone(), before, after }
    }
}

/// The facets that a checklist asks about, and the names in it that the hierarchy does not know.
fn facets_of(checklist: &str, dimension: Dimension) -> (Vec<Facet>, Vec<String>) {
    let (mut facets, mut unknown) = (Vec::new(), Vec::new());
    for line in checklist.lines().filter_map(|line| line.trim_start().strip_prefix("- ")) {
        let name = line.split(':').next().unwrap_or(line).trim();
        match dimension.facet(name) {
            Some(facet) => facets.push(facet),
            None => unknown.push(name.to_owned()),
        }
    }
    (facets, unknown)
}

/// Cuts a request at its `{name}` marks; every mark but the picture may be repeated or left out, except that prompt,
/// picture and checklist must be there.
fn check_request(request: &[Piece]) -> std::result::Result<(), String> {
    for (piece, name) in [(Piece::Prompt, "prompt"), (Piece::Picture, "picture"), (Piece::Checklist, "checklist")] {
        let found = request.iter().filter(|other| **other == piece).count();
        if found == 0 || (piece == Piece::Picture && found > 1) {
            return Err(format!("the request has a place for the {name} {found} times, expected 1"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_wording_asks_about_every_facet() {
        let rubric = Rubric::default();
        assert_eq!(rubric.notes(), [""; 0]);
        for dimension in Dimension::ALL {
            let question = rubric.question("two cats", dimension);
            assert_eq!(question.before.matches("two cats").count(), 1);
            assert!(question.before.trim_end().ends_with("# The picture"), "{}", question.before);
            let (facets, unknown) = facets_of(&question.after, dimension);
            let asked: Vec<_> = dimension.facets().collect();
            assert!(facets.starts_with(&asked), "{facets:?}");
            // the scores are a list as well
            assert!(
                unknown.iter().all(|name| name.starts_with(|c: char| c.is_ascii_digit() || c == '"')),
                "{unknown:?}"
            );
            for category in dimension.categories() {
                assert!(question.after.contains(&format!("## {}\n", category.name())), "{category}");
            }
            assert!(question.after.contains(&format!("# What to judge\n{dimension}\n")));
            assert!(question.after.contains(r#""<point>": {"score": "N/A"}"#));
        }
    }

    #[test]
    fn marks_in_a_prompt_are_only_words() {
        let question = Rubric::default().question("{checklist} {picture} {{x}}", Dimension::Quality);
        assert!(question.before.contains("\n{checklist} {picture} {{x}}\n"));
        assert!(!question.before.contains("Physical Logic"));
    }

    #[test]
    fn a_fingerprint_follows_the_words() {
        let ours = Rubric::default();
        let changed = own::parse("atelier", &DEFAULT.replace("careful", "lenient")).unwrap();
        assert_eq!(ours.fingerprint().len(), 16);
        assert_ne!(ours.fingerprint(), changed.fingerprint());
        assert_eq!(own::parse("other name", DEFAULT).unwrap().fingerprint(), ours.fingerprint());
    }

    #[test]
    fn files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.md");
        fs::write(&path, DEFAULT).unwrap();
        assert_eq!(Rubric::read(&path).unwrap().name(), "mine.md");
        let error = Rubric::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("checklists.py"), "{error}");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(Rubric::read(&path).unwrap_err().to_string().ends_with("mine.md: is not UTF-8 text"));
        fs::File::create(&path).unwrap().set_len(LIMIT + 1).unwrap();
        assert!(Rubric::read(&path).unwrap_err().to_string().contains("too many for a rubric"));
    }
}
