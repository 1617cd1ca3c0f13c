//! What a picture is judged in: 5 dimensions, 23 categories, 56 facets, those of Qwen-Image-Bench
//! ([arXiv 2605.28091](https://arxiv.org/abs/2605.28091)).

use std::fmt;

/// A side of a picture that is judged on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dimension {
    /// Realism, detail, resolution.
    Quality,
    /// Composition, colour, light, anatomy, feeling, style.
    Aesthetics,
    /// Whether the picture shows what the prompt says.
    Alignment,
    /// Fairness, safety, knowledge of the world.
    RealWorldFidelity,
    /// Imagination, lettering, design, storytelling.
    CreativeGeneration,
}

/// A group of facets. Order is that of the benchmark's tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Category {
    dimension: Dimension,
    index: u8,
}

/// What one score is given for. Order is that of the benchmark's tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Facet {
    category: Category,
    index: u8,
}

/// A category's name and the names of its facets.
type Row = (&'static str, &'static [&'static str]);

const QUALITY: &[Row] = &[
    ("Realism", &["Physical Logic", "Material Texture"]),
    ("Detail", &["Noise", "Edge Clarity", "Naturalness"]),
    ("Resolution", &["Resolution"]),
];

const AESTHETICS: &[Row] = &[
    ("Composition", &["Composition"]),
    ("Color Harmony", &["Color Harmony"]),
    ("Lighting", &["Lighting & Atmosphere"]),
    ("Anatomical Portraiture", &["Anatomical Fidelity"]),
    ("Emotional Expression", &["Emotional Expression"]),
    ("Style Control", &["Style Control"]),
];

const ALIGNMENT: &[Row] = &[
    ("Attributes", &["Quantity", "Facial Expression", "Material Properties", "Color", "Shape", "Size"]),
    ("Actions", &["Contact Interaction", "Non-contact Interaction", "Full-body Action"]),
    ("Layout", &["2D Space", "3D Space"]),
    ("Relations", &["Composition Relationship", "Difference/Similarity", "Containment"]),
    ("Scene", &["Real-world Scene", "Virtual Scene"]),
];

const REAL_WORLD_FIDELITY: &[Row] = &[
    ("Fairness", &["Social Bias", "Cultural Fairness"]),
    ("Safety & Compliance", &["Safety & Compliance"]),
    (
        "World Knowledge",
        &["Animals", "Objects", "Information Visualization", "Temporal Characteristics", "Cultural Elements"],
    ),
];

const CREATIVE_GENERATION: &[Row] = &[
    ("Imagination", &["Imagination"]),
    ("Feature Matching", &["Feature Matching"]),
    ("Logical Resolution", &["Logical Resolution"]),
    ("Text Rendering", &["Text Accuracy", "Text Layout", "Font", "Cross-lingual Generation"]),
    (
        "Design Applications",
        &["Graphic Design", "Product Design", "Spatial Design", "Fashion Styling", "Game Design", "Art Design"],
    ),
    (
        "Visual Storytelling",
        &[
            "Cinematic Style",
            "Camera / Lens Style",
            "Storyboard Creation",
            "Shot Sizes",
            "Composition",
            "Angles",
            "Comic Creation",
        ],
    ),
];

impl Dimension {
    /// Every dimension, in the order of the benchmark's tables.
    pub const ALL: [Self; 5] =
        [Self::Quality, Self::Aesthetics, Self::Alignment, Self::RealWorldFidelity, Self::CreativeGeneration];

    /// The benchmark's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quality => "Quality",
            Self::Aesthetics => "Aesthetics",
            Self::Alignment => "Alignment",
            Self::RealWorldFidelity => "Real-world Fidelity",
            Self::CreativeGeneration => "Creative Generation",
        }
    }

    /// The dimension of that name; case, spaces and signs do not matter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| same(dimension.name(), name))
    }

    /// Its categories.
    pub fn categories(self) -> impl Iterator<Item = Category> {
        (0..self.rows().len()).map(move |index| Category { dimension: self, index: index as u8 })
    }

    /// The facets of all its categories.
    pub fn facets(self) -> impl Iterator<Item = Facet> {
        self.categories().flat_map(Category::facets)
    }

    /// The facet of that name, which is unique within a dimension; case, spaces and signs do not matter.
    #[must_use]
    pub fn facet(self, name: &str) -> Option<Facet> {
        self.facets().find(|facet| same(facet.name(), name))
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::Quality => QUALITY,
            Self::Aesthetics => AESTHETICS,
            Self::Alignment => ALIGNMENT,
            Self::RealWorldFidelity => REAL_WORLD_FIDELITY,
            Self::CreativeGeneration => CREATIVE_GENERATION,
        }
    }
}

impl Category {
    /// The dimension it is part of.
    #[must_use]
    pub fn dimension(self) -> Dimension {
        self.dimension
    }

    /// The benchmark's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Its facets.
    pub fn facets(self) -> impl Iterator<Item = Facet> {
        (0..self.row().1.len()).map(move |index| Facet { category: self, index: index as u8 })
    }

    fn row(self) -> Row {
        self.dimension.rows()[usize::from(self.index)]
    }
}

impl Facet {
    /// Every facet, in the order of the benchmark's tables.
    pub fn all() -> impl Iterator<Item = Self> {
        Dimension::ALL.into_iter().flat_map(Dimension::facets)
    }

    /// The category it is part of.
    #[must_use]
    pub fn category(self) -> Category {
        self.category
    }

    /// The dimension it is part of.
    #[must_use]
    pub fn dimension(self) -> Dimension {
        self.category.dimension
    }

    /// The benchmark's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.category.row().1[usize::from(self.index)]
    }
}

/// Whether two names have the same letters and digits, but for "and".
pub(crate) fn same(a: &str, b: &str) -> bool {
    let words = |name: &str| -> String {
        let lower = name.to_lowercase();
        lower.split(|c: char| !c.is_alphanumeric()).filter(|word| *word != "and").collect()
    };
    words(a) == words(b)
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `Quality / Detail`.
impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.dimension, self.name())
    }
}

/// `Quality / Detail / Noise`, as the benchmark writes it.
impl fmt::Display for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.category, self.name())
    }
}

impl fmt::Debug for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Facet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn five_dimensions_twenty_three_categories_fifty_six_facets() {
        let categories: Vec<_> = Dimension::ALL.into_iter().flat_map(Dimension::categories).collect();
        assert_eq!((categories.len(), Facet::all().count()), (23, 56));
        assert!(Facet::all().is_sorted());
        let names: BTreeSet<_> = Facet::all().map(|facet| facet.to_string()).collect();
        assert_eq!(names.len(), 56);
    }

    #[test]
    fn a_name_is_one_facet_of_its_dimension() {
        for facet in Facet::all() {
            assert_eq!(facet.dimension().facet(facet.name()), Some(facet));
            let shouted = facet.name().to_uppercase().replace(" & ", "  and ").replace('-', "_");
            assert_eq!(facet.dimension().facet(&shouted), Some(facet), "{shouted}");
        }
        assert_eq!(Dimension::Quality.facet("Color"), None);
        assert_eq!(Dimension::named("real_world fidelity"), Some(Dimension::RealWorldFidelity));
        assert_eq!(Dimension::named("Realism"), None);
    }
}
