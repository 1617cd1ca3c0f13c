//! Tolerances, and the table of results.

use std::collections::BTreeMap;
use std::fmt;

/// The largest error that is accepted, relative to the largest reference value of a case, by kind of operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// The backend rounds the factors of linear layers and convolutions to bf16, and so does the reference.
    pub(super) rounds_factors: bool,
    /// Values that are only moved.
    pub(super) arrangement: f64,
    /// Element-wise functions and norms.
    pub(super) element: f64,
    /// Linear layers, embeddings and convolutions.
    pub(super) product: f64,
    /// Attention.
    pub(super) attention: f64,
}

impl Tolerance {
    /// Everything in `f32`.
    pub const F32: Self =
        Self { rounds_factors: false, arrangement: 0.0, element: 1e-6, product: 2e-6, attention: 5e-6 };
    /// The factors of linear layers and convolutions rounded to bf16, all else in `f32`.
    pub const BF16_PRODUCTS: Self = Self { rounds_factors: true, ..Self::F32 };
    /// Activations held in bf16 as well: one rounding is off by at most 2^-9 of the value.
    pub const BF16: Self =
        Self { rounds_factors: true, arrangement: 2e-3, element: 8e-3, product: 8e-3, attention: 1.2e-2 };
}

/// What came of one case.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Name of the [`Backend`](crate::Backend) function.
    pub operation: &'static str,
    /// Sizes and options.
    pub case: String,
    /// Largest error relative to the largest reference value; infinite where there is no result to compare.
    pub error: f64,
    /// Largest error accepted.
    pub tolerance: f64,
    /// What went wrong apart from the numbers.
    pub problem: Option<String>,
}

impl Outcome {
    /// Whether the case came out right.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.problem.is_none() && self.error <= self.tolerance
    }
}

/// All outcomes of a run. Displays as a table: the worst case of every operation, then every failure.
#[derive(Debug, Clone)]
pub struct Report {
    /// What the device calls itself.
    pub device: String,
    /// One per case, in the order of the run.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Cases that did not come out right.
    pub fn failures(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.passed())
    }

    /// Whether every case came out right.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut operations = BTreeMap::<&str, Vec<&Outcome>>::new();
        for outcome in &self.outcomes {
            operations.entry(outcome.operation).or_default().push(outcome);
        }
        writeln!(f, "{}", self.device)?;
        writeln!(f, "{:<18} {:>5} {:>9} {:>9}  worst case", "operation", "cases", "error", "allowed")?;
        for (operation, outcomes) in &operations {
            let share = |outcome: &Outcome| outcome.error / outcome.tolerance.max(f64::MIN_POSITIVE);
            if let Some(worst) = outcomes.iter().rev().max_by(|a, b| share(a).total_cmp(&share(b))) {
                let (cases, Outcome { case, error, tolerance, .. }) = (outcomes.len(), worst);
                writeln!(f, "{operation:<18} {cases:>5} {error:>9.1e} {tolerance:>9.1e}  {case}")?;
            }
        }
        for Outcome { operation, case, error, tolerance, problem } in self.failures() {
            let problem = problem.as_deref().unwrap_or("is too far off");
            writeln!(f, "FAILED {operation}, {case}: error {error:.1e}, allowed {tolerance:.1e}: {problem}")?;
        }
        let (failed, all) = (self.failures().count(), self.outcomes.len());
        write!(f, "{} of {all} cases passed", all - failed)
    }
}

/// The largest difference, relative to the largest expected value (absolute where all of them are zero). Infinite where
/// the lengths differ or a value is not finite.
#[must_use]
pub fn largest_error(found: &[f32], expected: &[f64]) -> f64 {
    if found.len() != expected.len() || found.iter().any(|x| !x.is_finite()) {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let error = found.iter().zip(expected).fold(0.0_f64, |error, (x, y)| error.max((f64::from(*x) - y).abs()));
    if largest > 0.0 { error / largest } else { error }
}
