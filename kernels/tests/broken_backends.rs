//! The conformance suite finds mistakes: a backend that is right but for one fault must fail, and at that operation.

use std::collections::BTreeSet;

use atelier_kernels::conformance::{self, Tolerance, largest_error};
use atelier_kernels::cpu::{Cache, Cpu};
use atelier_kernels::{
    Activation, Attention, Backend, Conv2d, DeltaGates, DeltaRule, Expert, Matrix, Result, Rotary, Visible,
};

type Tensor = <Cpu as Backend>::Tensor;

/// A mistake that people make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Rows that are asked for twice are written once.
    AddRowsOverwrites,
    ColumnsFromTheStart,
    GateForgotten,
    GeluForTanhGelu,
    GateAndUpSwapped,
    BiasForgotten,
    EpsForgotten,
    MeanKept,
    RotaryPairsMixed,
    RotaryBackwards,
    MaskForgotten,
    /// A query sees one key less, where it sees more than one.
    MaskOffByOne,
    /// Query heads take key heads in turn instead of in groups.
    HeadsInterleaved,
    ScaleForgotten,
    CacheWritesAtZero,
    CacheReadsAll,
    CacheCopiesLess,
    /// The tokens before the first are taken for zeros.
    HistoryForgotten,
    /// The state starts anew.
    StateForgotten,
    DecayForgotten,
    SigmoidForSilu,
    /// One expert less than asked for.
    ExpertForgotten,
    PaddingSidesSwapped,
    UpsampleForgotten,
    SiluForgotten,
    TimeForgotten,
    ErrorsAccepted,
}

#[derive(Debug, Clone)]
struct Broken {
    cpu: Cpu,
    fault: Fault,
}

impl Broken {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

/// Functions that are as they should be.
macro_rules! sound {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $out { self.cpu.$name($($arg),*) })*
    };
}

impl Backend for Broken {
    type Tensor = Tensor;
    type Matrix = Matrix;
    type Cache = Cache;

    sound! {
        describe() -> String;
        upload(values: &[f32], shape: &[usize]) -> Result<Tensor>;
        download(x: &Tensor) -> Result<Vec<f32>>;
        shape(x: &Tensor) -> Vec<usize>;
        load(weight: &Matrix) -> Result<Matrix>;
        reshape(x: &Tensor, shape: &[usize]) -> Result<Tensor>;
        transpose(x: &Tensor) -> Result<Tensor>;
        concat(parts: &[&Tensor]) -> Result<Tensor>;
        rows(x: &Tensor, start: usize, length: usize) -> Result<Tensor>;
        replace_rows(x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor>;
        add_scaled(x: &Tensor, factor: f32, y: &Tensor) -> Result<Tensor>;
        affine(x: &Tensor, factor: f32, offset: f32) -> Result<Tensor>;
        embed(table: &Matrix, ids: &[u32]) -> Result<Tensor>;
        cache(capacity: usize, width: usize) -> Result<Cache>;
        duplicate_up(x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor>;
        synchronize() -> Result<()>;
    }

    fn add(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let sum = self.cpu.add(x, y);
        if self.has(Fault::ErrorsAccepted) && sum.is_err() { Ok(x.clone()) } else { sum }
    }

    fn add_rows(&self, x: &Tensor, at: &[u32], values: &Tensor) -> Result<Tensor> {
        if self.has(Fault::AddRowsOverwrites) && at.iter().collect::<BTreeSet<_>>().len() < at.len() {
            return self.cpu.add_rows(x, &at[1..], &self.cpu.rows(values, 1, at.len() - 1)?);
        }
        self.cpu.add_rows(x, at, values)
    }

    fn columns(&self, x: &Tensor, start: usize, length: usize) -> Result<Tensor> {
        let right = self.cpu.columns(x, start, length)?;
        if self.has(Fault::ColumnsFromTheStart) { self.cpu.columns(x, 0, length) } else { Ok(right) }
    }

    fn gated_add(&self, x: &Tensor, gate: &Tensor, y: &Tensor) -> Result<Tensor> {
        let right = self.cpu.gated_add(x, gate, y)?;
        if self.has(Fault::GateForgotten) { self.cpu.add(x, y) } else { Ok(right) }
    }

    fn activate(&self, x: &Tensor, function: Activation) -> Result<Tensor> {
        let wrong = self.has(Fault::GeluForTanhGelu) && function == Activation::GeluTanh;
        self.cpu.activate(x, if wrong { Activation::Gelu } else { function })
    }

    fn swiglu(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
        if self.has(Fault::GateAndUpSwapped) { self.cpu.swiglu(up, gate) } else { self.cpu.swiglu(gate, up) }
    }

    fn linear(&self, x: &Tensor, weight: &Matrix, bias: Option<&Tensor>) -> Result<Tensor> {
        let right = self.cpu.linear(x, weight, bias)?;
        if self.has(Fault::BiasForgotten) { self.cpu.linear(x, weight, None) } else { Ok(right) }
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
        self.cpu.rms_norm(x, weight, if self.has(Fault::EpsForgotten) { 0.0 } else { eps })
    }

    fn layer_norm(&self, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        let right = self.cpu.layer_norm(x, weight, bias, eps)?;
        if self.has(Fault::MeanKept) { self.cpu.rms_norm(x, weight, eps) } else { Ok(right) }
    }

    fn rotary(&self, x: &Tensor, heads: usize, cos: &Tensor, sin: &Tensor, pairs: Rotary) -> Result<Tensor> {
        let right = self.cpu.rotary(x, heads, cos, sin, pairs)?;
        match self.fault {
            Fault::RotaryPairsMixed => self.cpu.rotary(x, heads, cos, sin, Rotary::Halves),
            Fault::RotaryBackwards => self.cpu.rotary(x, heads, cos, &self.cpu.affine(sin, -1.0, 0.0)?, pairs),
            _ => Ok(right),
        }
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, shape: Attention<'_>) -> Result<Tensor> {
        let right = self.cpu.attention(q, k, v, shape)?;
        match (self.fault, shape.visible) {
            (Fault::MaskForgotten, _) => self.cpu.attention(q, k, v, Attention { visible: Visible::All, ..shape }),
            (Fault::MaskOffByOne, Visible::First(counts)) => {
                let counts: Vec<u32> = counts.iter().map(|count| (count - 1).max(1)).collect();
                self.cpu.attention(q, k, v, Attention { visible: Visible::First(&counts), ..shape })
            }
            (Fault::ScaleForgotten, _) => self.cpu.attention(q, k, v, Attention { scale: 1.0, ..shape }),
            (Fault::HeadsInterleaved, _) => {
                // the heads as rows, in the order [kv head, group] instead of [group, kv head], and back
                let (n, width) = (q.dims()[0], q.dims()[1]);
                let (group, dim) = (shape.heads / shape.kv_heads, width / shape.heads);
                let swap = |x: &Tensor, outer: usize, inner: usize| -> Result<Tensor> {
                    let values = self.cpu.download(x)?;
                    let mut swapped = values.clone();
                    for (i, head) in swapped.chunks_exact_mut(dim).enumerate() {
                        let (token, at) = (i / (outer * inner), i % (outer * inner));
                        let from = token * width + (at % inner * outer + at / inner) * dim;
                        head.copy_from_slice(&values[from..from + dim]);
                    }
                    self.cpu.upload(&swapped, &[n, width])
                };
                let mixed = self.cpu.attention(&swap(q, shape.kv_heads, group)?, k, v, shape)?;
                swap(&mixed, group, shape.kv_heads)
            }
            _ => Ok(right),
        }
    }

    fn sigmoid_gate(&self, gate: &Tensor, x: &Tensor) -> Result<Tensor> {
        let right = self.cpu.sigmoid_gate(gate, x)?;
        if self.has(Fault::SigmoidForSilu) { self.cpu.swiglu(gate, x).or(Ok(right)) } else { Ok(right) }
    }

    fn experts(&self, x: &Tensor, logits: &Tensor, top: usize, experts: &[Expert<Matrix>]) -> Result<Tensor> {
        let less = usize::from(self.has(Fault::ExpertForgotten) && top > 1);
        self.cpu.experts(x, logits, top - less, experts)
    }

    fn causal_conv(&self, x: &Tensor, history: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let zeros = self.cpu.affine(history, 0.0, 0.0)?;
        let history = if self.has(Fault::HistoryForgotten) { &zeros } else { history };
        self.cpu.causal_conv(x, history, weight)
    }

    fn gated_delta(
        &self,
        qkv: &Tensor,
        gates: &DeltaGates<'_, Tensor>,
        state: &Tensor,
        rule: DeltaRule,
    ) -> Result<(Tensor, Tensor)> {
        let (zeros, no_rate) = (self.cpu.affine(state, 0.0, 0.0)?, self.cpu.affine(gates.rate, 0.0, 0.0)?);
        let state = if self.has(Fault::StateForgotten) { &zeros } else { state };
        let rate = if self.has(Fault::DecayForgotten) { &no_rate } else { gates.rate };
        self.cpu.gated_delta(qkv, &DeltaGates { rate, ..*gates }, state, rule)
    }

    fn cache_write(&self, cache: &mut Cache, at: usize, k: &Tensor, v: &Tensor) -> Result<()> {
        self.cpu.cache_write(cache, at, k, v)?;
        if self.has(Fault::CacheWritesAtZero) { self.cpu.cache_write(cache, 0, k, v) } else { Ok(()) }
    }

    fn cache_copy(&self, from: &Cache, to: &mut Cache, length: usize) -> Result<()> {
        self.cpu.cache_copy(from, to, length - usize::from(self.has(Fault::CacheCopiesLess)))
    }

    fn attention_cached(&self, q: &Tensor, cache: &Cache, length: usize, shape: Attention<'_>) -> Result<Tensor> {
        let right = self.cpu.attention_cached(q, cache, length, shape)?;
        if self.has(Fault::CacheReadsAll) {
            return self.cpu.attention_cached(q, cache, length + 1, shape).or(Ok(right));
        }
        Ok(right)
    }

    fn conv2d(&self, x: &Tensor, weight: &Matrix, bias: Option<&Tensor>, geometry: Conv2d) -> Result<Tensor> {
        let right = self.cpu.conv2d(x, weight, bias, geometry)?;
        let [top, bottom, left, right_side] = geometry.padding;
        match self.fault {
            Fault::PaddingSidesSwapped => {
                let geometry = Conv2d { padding: [bottom, top, right_side, left], ..geometry };
                self.cpu.conv2d(x, weight, bias, geometry)
            }
            Fault::UpsampleForgotten => {
                self.cpu.conv2d(x, weight, bias, Conv2d { upsample: 1, ..geometry }).or(Ok(right))
            }
            _ => Ok(right),
        }
    }

    fn channel_norm(&self, x: &Tensor, gamma: &Tensor, silu: bool) -> Result<Tensor> {
        self.cpu.channel_norm(x, gamma, silu && !self.has(Fault::SiluForgotten))
    }

    fn average_down(&self, x: &Tensor, channels: usize, time: usize, space: usize) -> Result<Tensor> {
        let right = self.cpu.average_down(x, channels, time, space)?;
        if self.has(Fault::TimeForgotten) {
            return self.cpu.average_down(x, channels, 1, space).or(Ok(right));
        }
        Ok(right)
    }
}

/// Names of the operations with failures.
fn failing(fault: Fault) -> Vec<&'static str> {
    let report = conformance::run(&Broken { cpu: Cpu::default(), fault }, Tolerance::F32);
    report.failures().map(|outcome| outcome.operation).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn every_fault_is_found_where_it_is() {
    for (fault, operation) in [
        (Fault::AddRowsOverwrites, "add_rows"),
        (Fault::ColumnsFromTheStart, "columns"),
        (Fault::GateForgotten, "gated_add"),
        (Fault::GeluForTanhGelu, "activate"),
        (Fault::GateAndUpSwapped, "swiglu"),
        (Fault::BiasForgotten, "linear"),
        (Fault::EpsForgotten, "rms_norm"),
        (Fault::MeanKept, "layer_norm"),
        (Fault::RotaryPairsMixed, "rotary"),
        (Fault::RotaryBackwards, "rotary"),
        (Fault::MaskForgotten, "attention"),
        (Fault::MaskOffByOne, "attention"),
        (Fault::HeadsInterleaved, "attention"),
        (Fault::ScaleForgotten, "attention"),
        (Fault::CacheWritesAtZero, "attention_cached"),
        (Fault::CacheReadsAll, "attention_cached"),
        (Fault::CacheCopiesLess, "cache_copy"),
        (Fault::HistoryForgotten, "causal_conv"),
        (Fault::StateForgotten, "gated_delta"),
        (Fault::DecayForgotten, "gated_delta"),
        (Fault::SigmoidForSilu, "sigmoid_gate"),
        (Fault::ExpertForgotten, "experts"),
        (Fault::PaddingSidesSwapped, "conv2d"),
        (Fault::UpsampleForgotten, "conv2d"),
        (Fault::SiluForgotten, "channel_norm"),
        (Fault::TimeForgotten, "average_down"),
        (Fault::ErrorsAccepted, "add"),
    ] {
        assert_eq!(failing(fault), [operation], "{fault:?}");
    }
    assert!(failing(Fault::None).is_empty());
}

#[test]
fn the_comparison_sees_every_value() {
    let right: Vec<f64> = (0..97).map(|i| f64::from(i) - 40.0).collect();
    let found: Vec<f32> = right.iter().map(|x| *x as f32).collect();
    assert!(largest_error(&found, &right) < f64::MIN_POSITIVE);
    for i in 0..found.len() {
        for wrong in [found[i] + 0.056, f32::NAN, f32::INFINITY] {
            let mut changed = found.clone();
            changed[i] = wrong;
            let error = largest_error(&changed, &right);
            assert!(if wrong.is_finite() { (error - 1e-3).abs() < 1e-6 } else { error.is_infinite() });
        }
    }
    assert!(largest_error(&found[1..], &right).is_infinite());
}
