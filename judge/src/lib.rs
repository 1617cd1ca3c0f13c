//! The referee: how good is a picture?
//!
//! ```text
//! prompt, dims_en ── dimensions ─┐
//! rubric ────────────────────────┴─ questions ── judge ── answers ── readings ── scores ── statistics
//! ```
//!
//! A picture is judged as in Qwen-Image-Bench ([arXiv 2605.28091](https://arxiv.org/abs/2605.28091)): one question to a
//! judge model for each dimension, answered by a JSON object with a score for each facet.
//!
//! ```
//! use atelier_judge::{Applicable, Dimension, PictureScores, Reading, Rubric};
//!
//! let rubric = Rubric::default();
//! let applicable = Applicable::parse("Quality / Detail / Noise");
//! for dimension in applicable.dimensions() {
//!     let question = rubric.question("a red apple", dimension);
//!     assert!(question.before.contains("a red apple"));
//! }
//! let answer = r#"Sharp, no grain.</think>{"Detail": {"Noise": {"score": 2}, "Edge Clarity": {"score": 1}}}"#;
//! let reading = Reading::of(answer, Dimension::Quality);
//! let scores = PictureScores::new([(Dimension::Quality, reading)].into());
//! assert_eq!(scores.total(), Some(80.0));
//! ```

mod error;
// dimensions, categories, facets
mod hierarchy;
// dims_en → what applies
mod applicable;
// prompt, dimension → question
pub mod rubric;
// files of rows: JSONL, JSON, CSV
pub mod rows;
// many pieces of work at once
mod parallel;
// lines that outlive a crash
pub mod journal;
// JSON ↔ a server, again and again
pub mod http;
// question, picture → answer
pub mod judges;
// prompt → picture
pub mod painters;
// answer → scores of facets
mod reading;
// scores of facets → categories, dimension, total
mod scores;
// scores of pictures → mean and spread
mod statistics;
// prompts → pictures, scores, times, reports
pub mod bench;

pub use applicable::Applicable;
pub use error::{Error, Result};
pub use hierarchy::{Category, Dimension, Facet};
pub use judges::{Asked, Judge, View};
pub use painters::Painter;
pub use reading::{Reading, Repairs, Score, Sheet};
pub use rubric::{Question, Rubric};
pub use scores::{Outcome, PictureScores};
pub use statistics::{Benchmark, Spread};
