use std::sync::atomic::{AtomicUsize, Ordering};

use super::Instructions;
use crate::conformance::{self, Tolerance};
use crate::cpu::{Cpu, Products};

/// How many of the widest kinds [`Instructions::best`] passes over; other tests may run meanwhile, as they pass with any.
static PASSED_OVER: AtomicUsize = AtomicUsize::new(0);

/// Whether [`Instructions::best`] may choose this kind.
pub(super) fn allowed(kind: Instructions) -> bool {
    Instructions::available().position(|other| other == kind) >= Some(PASSED_OVER.load(Ordering::Relaxed))
}

#[test]
fn narrower_vectors_pass_the_suite() {
    for passed_over in 1..Instructions::available().count() {
        for (products, tolerance) in [(Products::F32, Tolerance::F32), (Products::Bf16, Tolerance::BF16_PRODUCTS)] {
            PASSED_OVER.store(passed_over, Ordering::Relaxed);
            let report = conformance::run(&Cpu::new(products), tolerance);
            PASSED_OVER.store(0, Ordering::Relaxed);
            assert!(report.passed(), "{:?}: {report}", Instructions::available().nth(passed_over));
        }
    }
}
