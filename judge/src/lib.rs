//! The referee: how good is a picture? So far the five dimensions it is judged in, those of Qwen-Image-Bench
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
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
