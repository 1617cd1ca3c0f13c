//! Tensors and the operations that the models use, on every device.
//!
//! The models are written once against [`Backend`] and never name a device. A weight is a [`Matrix`]: bytes in the form
//! they are stored in a checkpoint, so that a quantised model is not a second model. [`cpu::Cpu`] is the backend for the
//! processor; every backend passes the same [`conformance`] suite.

mod error;
// file bytes → a weight that every backend can load
pub mod matrix;
// the contract: what a device must be able to do
mod backend;
// the processor
pub mod cpu;
// the proof: every operation against plain f64 loops
pub mod conformance;

pub use backend::{Activation, Attention, Backend, Conv2d, DeltaGates, DeltaRule, Expert, Rotary, Visible};
pub use error::{Error, Result};
pub use matrix::{Format, Matrix};
