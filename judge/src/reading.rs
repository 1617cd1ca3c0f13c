//! A judge's answer → the scores of its facets.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{Category, Dimension, Facet};

/// Ends the thinking part of an answer.
const THINKING_ENDS: &str = "</think>";

/// What a judge gives a facet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Score {
    /// 0: a visible fault.
    Fail,
    /// 1: no fault.
    Pass,
    /// 2: outstanding.
    Excel,
    /// The facet has nothing to apply to.
    NotApplicable,
}

/// What was made of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Scores.
    Sheet(Sheet),
    /// No scores could be read, for this reason. That is neither a score nor "not applicable".
    Missing(String),
}

/// The scores in an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sheet {
    /// Facets that were given a score. A facet that the answer leaves out is not here.
    pub scores: BTreeMap<Facet, Score>,
    /// What had to be put right.
    pub repairs: Repairs,
    /// Names that are no facets of the dimension: they count for nothing.
    pub extra: Vec<String>,
}

/// How often something in an answer had to be put right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repairs {
    /// Facets that stood outside of any category or in a wrong one.
    pub moved: usize,
    /// Facets called by an old name.
    pub renamed: usize,
    /// Scores other than 0, 1, 2 and "N/A", counted as "N/A".
    pub unknown_scores: usize,
}

impl Score {
    /// Points out of 100: 0, 60, 100; none when not applicable.
    #[must_use]
    pub fn points(self) -> Option<f64> {
        match self {
            Self::Fail => Some(0.0),
            Self::Pass => Some(60.0),
            Self::Excel => Some(100.0),
            Self::NotApplicable => None,
        }
    }

    /// A score as judges write it; none for what the official tools do not know. As there, numbers are cut to whole ones
    /// and may stand in quotes.
    fn of(value: &Value) -> Option<Self> {
        let number = match value {
            Value::Bool(yes) => i64::from(*yes),
            Value::Number(number) => number.as_f64()? as i64,
            Value::String(text) if text.eq_ignore_ascii_case("N/A") => return Some(Self::NotApplicable),
            Value::String(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        match number {
            0 => Some(Self::Fail),
            1 => Some(Self::Pass),
            2 => Some(Self::Excel),
            _ => None,
        }
    }
}

/// `0`, `1`, `2` or `N/A`.
impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fail => "0",
            Self::Pass => "1",
            Self::Excel => "2",
            Self::NotApplicable => "N/A",
        })
    }
}

/// A number, or the string "N/A".
impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::NotApplicable => serializer.serialize_str("N/A"),
            other => serializer.serialize_u8(*other as u8),
        }
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let exact = Self::of(&value).filter(|score| serde_json::to_value(score).is_ok_and(|other| other == value));
        exact.ok_or_else(|| serde::de::Error::custom(format!("{value} is no score: 0, 1, 2 or \"N/A\" is expected")))
    }
}

impl Reading {
    /// Reads an answer about `dimension`: what follows the last `</think>`, as JSON, or else the outermost braces in it.
    ///
    /// Facets at top level or under a wrong category are put under their own (one that stands in its place wins), and
    /// "Feature Mapping" is Feature Matching. A score that is not known counts as [`Score::NotApplicable`].
    #[must_use]
    pub fn of(answer: &str, dimension: Dimension) -> Self {
        let text = answer.rsplit_once(THINKING_ENDS).map_or(answer, |(_, text)| text).trim();
        if text.is_empty() {
            return Self::Missing("the answer is empty".into());
        }
        let object = match object(text) {
            Ok(object) => object,
            Err(problem) => return Self::Missing(problem),
        };
        let sheet = Sheet::of(&object, dimension);
        if sheet.scores.is_empty() {
            return Self::Missing(format!("the JSON object in the answer names no facet of {dimension}"));
        }
        Self::Sheet(sheet)
    }

    /// The scores, if any could be read.
    #[must_use]
    pub fn sheet(&self) -> Option<&Sheet> {
        match self {
            Self::Sheet(sheet) => Some(sheet),
            Self::Missing(_) => None,
        }
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    if let Ok(object) = serde_json::from_str(text) {
        return Ok(object);
    }
    let braces = text.find('{').zip(text.rfind('}')).filter(|(start, end)| start < end);
    let braces = braces.map(|(start, end)| &text[start..=end]).ok_or("there is no JSON object in the answer")?;
    serde_json::from_str(braces).map_err(|error| format!("the JSON object in the answer is damaged: {error}"))
}

impl Sheet {
    fn of(object: &Map<String, Value>, dimension: Dimension) -> Self {
        let mut sheet = Self::default();
        let mut in_place = Vec::new();
        let mut note = |sheet: &mut Self, category: Option<Category>, key: &str, name: &str, value: &Value| match find(
            name, dimension,
        ) {
            Some((facet, renamed)) => {
                sheet.repairs.renamed += usize::from(renamed);
                if category == Some(facet.category()) {
                    in_place.push((facet, value.clone()));
                } else {
                    sheet.repairs.moved += 1;
                    let score = sheet.score(value);
                    sheet.scores.insert(facet, score);
                }
            }
            None => sheet.extra.push(if key.is_empty() { name.to_owned() } else { format!("{key} / {name}") }),
        };
        for (key, value) in object {
            match value {
                // a facet and its category may have the same name: what stands under it tells which is meant
                Value::Object(facets) if !facets.contains_key("score") => {
                    let category = dimension.categories().find(|category| crate::hierarchy::same(category.name(), key));
                    for (name, value) in facets {
                        note(&mut sheet, category, key, name, value);
                    }
                }
                _ => note(&mut sheet, None, "", key, value),
            }
        }
        for (facet, value) in in_place {
            let score = sheet.score(&value);
            sheet.scores.insert(facet, score);
        }
        sheet
    }

    /// `{"score": 1}` or `1`.
    fn score(&mut self, value: &Value) -> Score {
        let value = match value {
            Value::Object(object) => object.get("score").unwrap_or(&Value::Null),
            other => other,
        };
        Score::of(value).unwrap_or_else(|| {
            self.repairs.unknown_scores += 1;
            Score::NotApplicable
        })
    }
}

/// The facet of that name, and whether it is an old name.
fn find(name: &str, dimension: Dimension) -> Option<(Facet, bool)> {
    if dimension == Dimension::CreativeGeneration && crate::hierarchy::same(name, "Feature Mapping") {
        return dimension.facet("Feature Matching").map(|facet| (facet, true));
    }
    dimension.facet(name).map(|facet| (facet, false))
}
