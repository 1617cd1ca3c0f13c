//! One suite for every backend: each operation against plain `f64` loops.
//!
//! The suite knows nothing about a device but the [`Backend`] trait. Inputs come from a seeded generator and sizes are
//! odd on purpose, so that the edges of every tile and block are met.

// inputs: a seeded generator, and arrays of them
mod array;
mod weights;
// what is right: loops written for clarity
mod reference;
// how near is near enough, and what came out
mod outcome;
// the cases, by the kind of operation
mod arrangement;
mod attention;
mod delta;
mod elementwise;
mod pictures;
mod refusals;
mod tokens;

pub use outcome::{Outcome, Report, Tolerance, largest_error};

use array::{Array, Random};

use crate::{Backend, Result};

/// Runs every operation of `backend` and compares it with the reference.
///
/// The report has one [`Outcome`] per case; print it for a table.
#[must_use]
pub fn run<B: Backend>(backend: &B, tolerance: Tolerance) -> Report {
    let mut suite = Suite { backend, tolerance, random: Random::new(20), outcomes: Vec::new() };
    arrangement::run(&mut suite);
    elementwise::run(&mut suite);
    tokens::run(&mut suite);
    attention::run(&mut suite);
    delta::run(&mut suite);
    pictures::run(&mut suite);
    refusals::run(&mut suite);
    Report { device: backend.describe(), outcomes: suite.outcomes }
}

/// The backend under test and what is known of it so far.
struct Suite<'a, B: Backend> {
    backend: &'a B,
    tolerance: Tolerance,
    random: Random,
    outcomes: Vec<Outcome>,
}

impl<B: Backend> Suite<'_, B> {
    /// Brings an input to the device.
    fn upload(&self, x: &Array) -> Result<B::Tensor> {
        self.backend.upload(&x.single(), &x.shape)
    }

    /// A factor of a product as the backend takes it.
    fn factor(&self, x: &Array) -> Array {
        if self.tolerance.rounds_factors { x.map(|x| half::bf16::from_f32(x as f32).to_f64()) } else { x.clone() }
    }

    /// Compares a result with what it should be.
    fn compare(
        &mut self,
        operation: &'static str,
        case: String,
        tolerance: f64,
        found: Result<B::Tensor>,
        expected: &Array,
    ) {
        let result = found.and_then(|tensor| Ok((self.backend.shape(&tensor), self.backend.download(&tensor)?)));
        let (error, problem) = match result {
            Err(error) => (f64::INFINITY, Some(error.to_string())),
            Ok((shape, _)) if shape != expected.shape => {
                (f64::INFINITY, Some(format!("shape {shape:?}, expected {:?}", expected.shape)))
            }
            Ok((_, values)) => (largest_error(&values, &expected.values), None),
        };
        self.outcomes.push(Outcome { operation, case, error, tolerance, problem });
    }

    /// Notes whether operands that do not fit were refused.
    fn refused<T>(&mut self, operation: &'static str, case: &str, result: &Result<T>) {
        let problem = match result {
            Err(crate::Error::Shape { .. }) => None,
            Err(other) => Some(format!("refused with another error: {other}")),
            Ok(_) => Some("was accepted".into()),
        };
        let error = if problem.is_none() { 0.0 } else { f64::INFINITY };
        self.outcomes.push(Outcome { operation, case: format!("refuses {case}"), error, tolerance: 0.0, problem });
    }
}
