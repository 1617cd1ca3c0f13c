//! `dims_en` → what applies to a prompt.

use std::collections::BTreeSet;

use crate::hierarchy::same;
use crate::{Dimension, Facet};

/// What applies to a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applicable {
    /// None: the prompt does not say, so everything may.
    facets: Option<BTreeSet<Facet>>,
    unknown: Vec<String>,
}

impl Applicable {
    /// Every facet.
    #[must_use]
    pub fn everything() -> Self {
        Self { facets: None, unknown: Vec::new() }
    }

    /// Reads `Quality / Realism / Physical Logic; Aesthetics / Color Harmony`: paths joined by semicolons. A path that
    /// ends with its category stands for the facet of the category's name if there is one, else for all its facets; a
    /// dimension alone for all of its facets. Facet names may hold slashes. An empty text is everything.
    #[must_use]
    pub fn parse(dims_en: &str) -> Self {
        let mut facets = BTreeSet::new();
        let mut unknown = Vec::new();
        for path in dims_en.split(';').map(str::trim).filter(|path| !path.is_empty()) {
            let found = find(path);
            if found.is_empty() {
                unknown.push(path.to_owned());
            }
            facets.extend(found);
        }
        let facets = (!facets.is_empty() || !unknown.is_empty()).then_some(facets);
        Self { facets, unknown }
    }

    /// Dimensions in which at least one facet applies: a judge is asked about each of them.
    #[must_use]
    pub fn dimensions(&self) -> Vec<Dimension> {
        let applies = |dimension: &Dimension| dimension.facets().any(|facet| self.contains(facet));
        Dimension::ALL.into_iter().filter(applies).collect()
    }

    /// Whether the prompt is meant to be judged in this facet.
    #[must_use]
    pub fn contains(&self, facet: Facet) -> bool {
        self.facets.as_ref().is_none_or(|facets| facets.contains(&facet))
    }

    /// Paths that name no facet of the hierarchy.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }
}

fn find(path: &str) -> Vec<Facet> {
    let mut levels = path.splitn(3, '/').map(str::trim);
    let Some(dimension) = levels.next().and_then(Dimension::named) else { return Vec::new() };
    let Some(name) = levels.next() else { return dimension.facets().collect() };
    let Some(category) = dimension.categories().find(|category| same(category.name(), name)) else {
        return Vec::new();
    };
    match levels.next() {
        Some(name) => category.facets().filter(|facet| same(facet.name(), name)).collect(),
        None => match category.facets().find(|facet| facet.name() == category.name()) {
            Some(facet) => vec![facet],
            None => category.facets().collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dims_en: &str) -> Vec<String> {
        let applicable = Applicable::parse(dims_en);
        Facet::all().filter(|facet| applicable.contains(*facet)).map(|facet| facet.to_string()).collect()
    }

    #[test]
    fn paths() {
        for (dims_en, expected) in [
            ("Quality / Realism / Physical Logic", &["Quality / Realism / Physical Logic"][..]),
            (
                "Aesthetics / Color Harmony / Color Harmony;Quality/Detail/Noise ; ",
                &["Quality / Detail / Noise", "Aesthetics / Color Harmony / Color Harmony"],
            ),
            ("Aesthetics / Color Harmony", &["Aesthetics / Color Harmony / Color Harmony"]),
            ("Alignment / Layout", &["Alignment / Layout / 2D Space", "Alignment / Layout / 3D Space"]),
            ("Alignment / Relations / Difference/Similarity", &["Alignment / Relations / Difference/Similarity"]),
            (
                "Creative Generation / Visual Storytelling / Camera / Lens Style",
                &["Creative Generation / Visual Storytelling / Camera / Lens Style"],
            ),
        ] {
            assert_eq!(names(dims_en), expected, "{dims_en}");
        }
        assert_eq!(names("Quality").len(), 6);
    }

    #[test]
    fn every_facet_finds_itself() {
        for facet in Facet::all() {
            assert_eq!(names(&facet.to_string()), [facet.to_string()]);
        }
    }

    #[test]
    fn nothing_said_is_everything_and_nonsense_is_nothing() {
        for text in ["", " ; ;"] {
            assert_eq!(Applicable::parse(text), Applicable::everything());
            assert_eq!(Applicable::parse(text).dimensions(), Dimension::ALL);
        }
        let nonsense = Applicable::parse("Beauty / Charm / Smile; Quality / Detail / Noise");
        assert_eq!(nonsense.unknown(), ["Beauty / Charm / Smile"]);
        assert_eq!(nonsense.dimensions(), [Dimension::Quality]);
        assert!(Applicable::parse("Beauty").dimensions().is_empty());
    }
}
