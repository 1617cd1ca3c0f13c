//! Scores of facets → categories, dimensions, total of one picture.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::{Map, Value};

use crate::{Category, Dimension, Facet, Reading, Score};

/// What came of a dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    /// The judge was not asked: no facet applies to the prompt.
    NotAsked,
    /// The judge was asked and its answer could not be read, or there was none.
    Missing,
    /// The judge found that no facet applies.
    NotApplicable,
    /// Points out of 100.
    Points(f64),
}

/// The judgement of one picture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PictureScores {
    readings: BTreeMap<Dimension, Reading>,
}

impl Outcome {
    /// The points, if there are any.
    #[must_use]
    pub fn points(self) -> Option<f64> {
        match self {
            Self::Points(points) => Some(points),
            _ => None,
        }
    }
}

impl PictureScores {
    /// Of the readings of all dimensions that the judge was asked about.
    #[must_use]
    pub fn new(readings: BTreeMap<Dimension, Reading>) -> Self {
        Self { readings }
    }

    /// What was read of each answer.
    #[must_use]
    pub fn readings(&self) -> &BTreeMap<Dimension, Reading> {
        &self.readings
    }

    /// Scores of all facets that were given one.
    pub fn facets(&self) -> impl Iterator<Item = (Facet, Score)> {
        self.readings.values().filter_map(Reading::sheet).flat_map(|sheet| sheet.scores.iter().map(|(&f, &s)| (f, s)))
    }

    /// The score of a facet, if it was given one.
    #[must_use]
    pub fn facet(&self, facet: Facet) -> Option<Score> {
        self.readings.get(&facet.dimension())?.sheet()?.scores.get(&facet).copied()
    }

    /// Points of a category: the mean over its facets, those that do not apply left out.
    #[must_use]
    pub fn category(&self, category: Category) -> Option<f64> {
        mean(category.facets().filter_map(|facet| self.facet(facet)?.points()))
    }

    /// What came of a dimension: the mean over its categories, those without points left out.
    #[must_use]
    pub fn dimension(&self, dimension: Dimension) -> Outcome {
        match self.readings.get(&dimension) {
            None => Outcome::NotAsked,
            Some(Reading::Missing(_)) => Outcome::Missing,
            Some(Reading::Sheet(_)) => {
                let points = mean(dimension.categories().filter_map(|category| self.category(category)));
                points.map_or(Outcome::NotApplicable, Outcome::Points)
            }
        }
    }

    /// Points of the picture: the mean over its dimensions, those without points left out.
    #[must_use]
    pub fn total(&self) -> Option<f64> {
        mean(Dimension::ALL.into_iter().filter_map(|dimension| self.dimension(dimension).points()))
    }

    /// Dimensions that the judge was asked about in vain.
    #[must_use]
    pub fn missing(&self) -> Vec<Dimension> {
        Dimension::ALL.into_iter().filter(|dimension| self.dimension(*dimension) == Outcome::Missing).collect()
    }
}

/// `total`, `dimensions` (points, "N/A" or "missing"), `categories`, `facets`, and why a dimension is missing.
impl Serialize for PictureScores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let dimensions: Map<String, Value> = Dimension::ALL
            .into_iter()
            .map(|dimension| {
                let value = match self.dimension(dimension) {
                    Outcome::Points(points) => points.into(),
                    Outcome::Missing => "missing".into(),
                    Outcome::NotAsked | Outcome::NotApplicable => "N/A".into(),
                };
                (dimension.name().to_owned(), value)
            })
            .collect();
        let categories: Map<String, Value> = Dimension::ALL
            .into_iter()
            .flat_map(Dimension::categories)
            .filter_map(|category| Some((category.to_string(), self.category(category)?.into())))
            .collect();
        let facets: BTreeMap<String, Score> = self.facets().map(|(facet, score)| (facet.to_string(), score)).collect();
        let missing: BTreeMap<&str, &String> = self
            .readings
            .iter()
            .filter_map(|(dimension, reading)| match reading {
                Reading::Missing(problem) => Some((dimension.name(), problem)),
                Reading::Sheet(_) => None,
            })
            .collect();
        let sheets = || self.readings.values().filter_map(Reading::sheet);
        let extra: Vec<&String> = sheets().flat_map(|sheet| &sheet.extra).collect();
        let unknown: usize = sheets().map(|sheet| sheet.repairs.unknown_scores).sum();
        let mut object = serializer.serialize_struct("PictureScores", 7)?;
        object.serialize_field("total", &self.total())?;
        object.serialize_field("dimensions", &dimensions)?;
        object.serialize_field("categories", &categories)?;
        object.serialize_field("facets", &facets)?;
        object.serialize_field("missing", &missing)?;
        object.serialize_field("extra", &extra)?;
        object.serialize_field("unknown_scores", &unknown)?;
        object.end()
    }
}

/// The arithmetic mean, if there is a value.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}
