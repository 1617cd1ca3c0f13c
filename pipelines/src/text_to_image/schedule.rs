//! Steps → sigmas and timesteps: the flow-matching Euler schedule.
//!
//! Arithmetic and roundings follow `FlowMatchEulerDiscreteScheduler` of diffusers 0.42.1 as its Qwen-Image 2.1 pipeline
//! uses it: sigmas in single precision up to the shift, the Karras, exponential and beta conversions in double precision.

use serde::Deserialize;

use crate::checkpoint::Files;
use crate::{Error, Result};

/// Steps when neither the caller nor the checkpoint says otherwise: the pipeline's default.
const DEFAULT_STEPS: usize = 40;
/// More steps than this are taken for a mistake.
const MAX_STEPS: usize = 10_000;

/// `scheduler_config.json`. A missing key has the class's default, as in diffusers; an unknown one is an error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "the file's keys")]
pub struct SchedulerConfig {
    #[serde(rename = "_class_name")]
    class_name: Option<String>,
    num_train_timesteps: u32,
    shift: f64,
    use_dynamic_shifting: bool,
    base_shift: f64,
    max_shift: f64,
    base_image_seq_len: u32,
    max_image_seq_len: u32,
    invert_sigmas: bool,
    shift_terminal: Option<f64>,
    use_karras_sigmas: bool,
    use_exponential_sigmas: bool,
    use_beta_sigmas: bool,
    time_shift_type: TimeShift,
    stochastic_sampling: bool,
    /// Not options of the class, but it looks for them: they replace the ends in the conversions.
    sigma_min: Option<f64>,
    sigma_max: Option<f64>,
}

/// How the resolution shifts the sigmas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TimeShift {
    Exponential,
    Linear,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            class_name: None,
            num_train_timesteps: 1000,
            shift: 1.0,
            use_dynamic_shifting: false,
            base_shift: 0.5,
            max_shift: 1.15,
            base_image_seq_len: 256,
            max_image_seq_len: 4096,
            invert_sigmas: false,
            shift_terminal: None,
            use_karras_sigmas: false,
            use_exponential_sigmas: false,
            use_beta_sigmas: false,
            time_shift_type: TimeShift::Exponential,
            stochastic_sampling: false,
            sigma_min: None,
            sigma_max: None,
        }
    }
}

impl SchedulerConfig {
    /// Reads and checks `scheduler/scheduler_config.json`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the file is missing or damaged, names another class, or its options exclude each other.
    pub fn read(files: &Files) -> Result<Self> {
        const CLASS: &str = "FlowMatchEulerDiscreteScheduler";
        const NAME: &str = "scheduler/scheduler_config.json";
        let config: Self = files.json_strict(NAME, &[])?;
        let problem = match &config.class_name {
            Some(class) if class == CLASS => config.problem(),
            Some(class) => Some(format!("the scheduler {class} is not supported; supported is {CLASS}")),
            None => Some(format!("key `_class_name` is missing; expected {CLASS}")),
        };
        problem.map_or(Ok(config), |problem| Err(Error::checkpoint(files.path(NAME), problem)))
    }

    fn problem(&self) -> Option<String> {
        let conversions = [self.use_karras_sigmas, self.use_exponential_sigmas, self.use_beta_sigmas];
        if conversions.iter().filter(|on| **on).count() > 1 {
            let keys = "`use_karras_sigmas`, `use_exponential_sigmas` and `use_beta_sigmas`";
            Some(format!("{keys}: only one can be true"))
        } else if self.stochastic_sampling {
            // The reference draws this noise from the process's global generator, which no seed of a picture decides.
            Some("`stochastic_sampling` is not supported: its noise cannot be repeated from a seed".to_owned())
        } else if self.num_train_timesteps == 0 {
            Some("`num_train_timesteps` is 0".to_owned())
        } else if self.use_dynamic_shifting && self.base_image_seq_len == self.max_image_seq_len {
            let both = self.base_image_seq_len;
            Some(format!("`base_image_seq_len` and `max_image_seq_len` are both {both}: no shift lies between them"))
        } else {
            None
        }
    }
}

/// The noise levels of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// One level for each step, and the last one: 0, or 1 where the config inverts.
    pub sigmas: Vec<f32>,
    /// What the model is told of each step, in `0 .. num_train_timesteps`. The pipeline divides it by 1000.
    pub timesteps: Vec<f32>,
}

/// The schedule for a target of `image_tokens` latent tokens (one for 16x16 pixels).
///
/// `sigmas` are the caller's own, `sample_sigmas` those of the checkpoint; one as the other comes before `steps` evenly
/// spaced ones (40 when there is none), and all go through the config's shift and conversion.
///
/// # Errors
/// [`Error::Input`] when `steps` contradicts the number of given sigmas, when these do not fall strictly within `(0, 1]`,
/// and when the result is not finite.
pub fn schedule(
    config: &SchedulerConfig,
    steps: Option<usize>,
    sigmas: Option<&[f64]>,
    sample_sigmas: Option<&[f64]>,
    image_tokens: usize,
) -> Result<Schedule> {
    let given = match (sigmas, sample_sigmas) {
        (Some(own), _) => {
            check(own).map_err(|problem| Error::input(format!("sigmas: {problem}")))?;
            if let Some(steps) = steps.filter(|&steps| steps != own.len()) {
                let n = own.len();
                return Err(Error::input(format!(
                    "{steps} steps but {n} sigmas: each sigma is a step, leave out one of the two"
                )));
            }
            own.to_vec()
        }
        (None, Some(fixed)) => {
            check(fixed).map_err(|problem| Error::input(format!("the checkpoint's `sample_sigmas`: {problem}")))?;
            if let Some(steps) = steps.filter(|&steps| steps != fixed.len()) {
                let n = fixed.len();
                return Err(Error::input(format!(
                    "{steps} steps, but this checkpoint was made for the {n} steps of its `sample_sigmas`: leave the steps \
                     out, or give {steps} sigmas of your own"
                )));
            }
            fixed.to_vec()
        }
        (None, None) => {
            let steps = steps.unwrap_or(DEFAULT_STEPS);
            if !(1..=MAX_STEPS).contains(&steps) {
                return Err(Error::input(format!("{steps} steps: expected 1 to {MAX_STEPS}")));
            }
            linspace(1.0, 1.0 / steps as f64, steps)
        }
    };
    let mut levels = config.convert(&config.shift(&given, image_tokens));
    if config.invert_sigmas {
        for sigma in &mut levels {
            *sigma = 1.0 - *sigma;
        }
    }
    let timesteps = levels.iter().map(|sigma| sigma * config.num_train_timesteps as f32).collect();
    levels.push(if config.invert_sigmas { 1.0 } else { 0.0 });
    if let Some(step) = levels.iter().position(|sigma| !sigma.is_finite()) {
        return Err(Error::input(format!(
            "the scheduler's options give no finite sigma for step {} of {}: take another number of steps or other sigmas",
            step + 1,
            given.len()
        )));
    }
    Ok(Schedule { sigmas: levels, timesteps })
}

/// What is wrong with given sigmas: they fall strictly from at most 1 and stay above 0.
pub(crate) fn check(sigmas: &[f64]) -> std::result::Result<(), String> {
    if sigmas.is_empty() || sigmas.len() > MAX_STEPS {
        return Err(format!("{} values; expected 1 to {MAX_STEPS}", sigmas.len()));
    }
    let mut before = f64::INFINITY;
    for (i, &sigma) in sigmas.iter().enumerate() {
        let place = i + 1;
        if !(sigma > 0.0 && sigma <= 1.0) {
            return Err(format!("value {place} is {sigma}; expected above 0 and at most 1 (the final 0 is added)"));
        }
        if sigma >= before {
            return Err(format!("value {place} is {sigma}, after {before}; expected falling values"));
        }
        before = sigma;
    }
    Ok(())
}

impl SchedulerConfig {
    /// Resolution-dependent or fixed shift, then the stretch to the terminal sigma, in single precision.
    fn shift(&self, sigmas: &[f64], image_tokens: usize) -> Vec<f32> {
        let sigmas = sigmas.iter().map(|&sigma| sigma as f32);
        let mut shifted: Vec<f32> = if self.use_dynamic_shifting {
            let mu = match self.time_shift_type {
                TimeShift::Exponential => self.mu(image_tokens).exp() as f32,
                TimeShift::Linear => self.mu(image_tokens) as f32,
            };
            sigmas.map(|sigma| mu / (mu + (1.0 / sigma - 1.0))).collect()
        } else {
            let (factor, rest) = (self.shift as f32, (self.shift - 1.0) as f32);
            sigmas.map(|sigma| factor * sigma / (1.0 + rest * sigma)).collect()
        };
        // 0 stands for "none", too.
        if let (Some(terminal), Some(last)) = (self.shift_terminal.filter(|&end| end != 0.0), shifted.last().copied()) {
            let scale = (1.0 - last) / (1.0 - terminal) as f32;
            for sigma in &mut shifted {
                *sigma = 1.0 - (1.0 - *sigma) / scale;
            }
        }
        shifted
    }

    /// The shift's strength: linear in the number of tokens, through (base length, base shift) and (max length, max shift).
    fn mu(&self, image_tokens: usize) -> f64 {
        let (base, max) = (f64::from(self.base_image_seq_len), f64::from(self.max_image_seq_len));
        let slope = (self.max_shift - self.base_shift) / (max - base);
        image_tokens as f64 * slope + (self.base_shift - slope * base)
    }

    /// Karras, exponential or beta spacing between the first and last sigma, in double precision.
    fn convert(&self, sigmas: &[f32]) -> Vec<f32> {
        let steps = sigmas.len();
        let end = |at: Option<&f32>, config: Option<f64>| config.unwrap_or_else(|| at.map_or(0.0, |&s| f64::from(s)));
        let (max, min) = (end(sigmas.first(), self.sigma_max), end(sigmas.last(), self.sigma_min));
        let spaced: Vec<f64> = if self.use_karras_sigmas {
            const RHO: f64 = 7.0;
            let (from, to) = (max.powf(1.0 / RHO), min.powf(1.0 / RHO));
            linspace(0.0, 1.0, steps).into_iter().map(|ramp| (from + ramp * (to - from)).powf(RHO)).collect()
        } else if self.use_exponential_sigmas {
            linspace(max.ln(), min.ln(), steps).into_iter().map(f64::exp).collect()
        } else if self.use_beta_sigmas {
            linspace(0.0, 1.0, steps).into_iter().map(|ramp| min + beta_quantile(1.0 - ramp) * (max - min)).collect()
        } else {
            return sigmas.to_vec();
        };
        spaced.into_iter().map(|sigma| sigma as f32).collect()
    }
}

/// `count` evenly spaced numbers with both ends, as numpy rounds them.
fn linspace(start: f64, end: f64, count: usize) -> Vec<f64> {
    let step = (end - start) / count.saturating_sub(1).max(1) as f64;
    let mut values: Vec<f64> = (0..count).map(|i| i as f64 * step + start).collect();
    if let [_, .., last] = values.as_mut_slice() {
        *last = end;
    }
    values
}

/// Quantile of the Beta(0.6, 0.6) distribution.
fn beta_quantile(p: f64) -> f64 {
    const A: f64 = 0.6;
    /// `Gamma(0.6)^2 / Gamma(1.2)`.
    const BETA: f64 = 2.415_344_208_002_472_3;
    if p > 0.5 {
        return 1.0 - beta_quantile(1.0 - p);
    }
    // With u = x^a the distribution function is u / (a B) * (1 + ...), convex in u on this half, so Newton's steps from
    // the first term's solution fall towards the root. Its series is
    // I(x) = x^a / B * sum_k (1 - a)_k / k! * x^k / (a + k); x <= 1/2 makes 60 terms exact.
    let mut u = p * A * BETA;
    for _ in 0..50 {
        let x = u.powf(1.0 / A);
        let (mut sum, mut term) = (0.0, 1.0);
        for k in 0..60 {
            let k = f64::from(k);
            sum += term / (A + k);
            term *= x * (1.0 - A + k) / (1.0 + k);
        }
        let step = (u / BETA * sum - p) * A * BETA * (1.0 - x).powf(1.0 - A);
        u -= step;
        if step.abs() <= f64::EPSILON * u {
            break;
        }
    }
    u.powf(1.0 / A)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Fixture {
        name: String,
        config: SchedulerConfig,
        steps: Option<usize>,
        image_tokens: usize,
        given_sigmas: Option<Vec<f64>>,
        sigmas: Vec<f32>,
        timesteps: Vec<f32>,
    }

    fn assert_close(found: &[f32], expected: &[f32], what: &str) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{what}: {found} for {expected}");
        }
    }

    #[test]
    fn equals_diffusers() {
        let text = std::fs::read_to_string("../tests/fixtures/schedules.json").unwrap();
        let fixtures: Vec<Fixture> = serde_json::from_str(&text).unwrap();
        assert!(fixtures.len() >= 40);
        for Fixture { name, config, steps, image_tokens, given_sigmas, sigmas, timesteps } in fixtures {
            let what = format!("{name}, {steps:?} steps, {image_tokens} tokens");
            let found = schedule(&config, steps, given_sigmas.as_deref(), None, image_tokens).unwrap();
            assert_close(&found.sigmas, &sigmas, &what);
            assert_close(&found.timesteps, &timesteps, &what);
            let as_checkpoint = schedule(&config, steps, None, given_sigmas.as_deref(), image_tokens).unwrap();
            assert_eq!(as_checkpoint, found, "{what}");
        }
    }

    /// `FlowMatchEulerDiscreteScheduler.from_config({"use_karras_sigmas": True, "sigma_min": 0.01, "sigma_max": 0.9,
    /// "shift": 2.0})`, `set_timesteps(sigmas=numpy.linspace(1, 0.25, 4))`.
    #[test]
    fn looks_for_the_ends_in_the_config() {
        let json = r#"{"use_karras_sigmas": true, "sigma_min": 0.01, "sigma_max": 0.9, "shift": 2.0}"#;
        let config: SchedulerConfig = serde_json::from_str(json).unwrap();
        let found = schedule(&config, Some(4), None, None, 64).unwrap();
        assert_close(&found.sigmas, &[0.9, 0.269_891_53, 0.062_957_786, 0.01, 0.0], "karras");
    }

    /// `scipy.stats.beta.ppf(p, 0.6, 0.6)`.
    #[test]
    fn beta_quantiles_equal_scipy() {
        for (p, expected) in [
            (0.0, 0.0),
            (1e-12, 1.855_882_462_491_409_7e-20),
            (0.001, 1.855_873_851_745_199e-5),
            (0.1, 0.039_584_405_588_780_85),
            (0.25, 0.175_680_378_652_694_98),
            (0.5, 0.5),
            (0.75, 0.824_319_621_347_305),
            (0.975, 0.996_037_040_796_596_7),
            (1.0, 1.0),
        ] {
            let found = beta_quantile(p);
            assert!((found - expected).abs() <= 1e-13 * expected, "ppf({p}) = {found}, expected {expected}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let config = SchedulerConfig::default();
        let turbo = [1.0, 0.9, 0.5];
        let message = |steps, sigmas: Option<&[f64]>, fixed: Option<&[f64]>| {
            schedule(&config, steps, sigmas, fixed, 64).unwrap_err().to_string()
        };
        assert!(message(Some(8), None, Some(&turbo)).contains("8 steps, but this checkpoint was made for the 3 steps"));
        assert!(message(Some(8), Some(&turbo), None).contains("8 steps but 3 sigmas"));
        assert!(message(Some(0), None, None).contains("0 steps: expected 1 to"));
        assert!(message(Some(usize::MAX), None, None).contains("expected 1 to"));
        assert!(message(None, Some(&[]), None).contains("0 values"));
        assert!(message(None, Some(&[0.5, 0.5]), None).contains("value 2 is 0.5, after 0.5"));
        assert!(message(None, Some(&[1.5]), None).contains("value 1 is 1.5"));
        assert!(message(None, Some(&[1.0, f64::NAN]), None).contains("value 2 is NaN"));
        assert!(message(None, Some(&[1.0, 0.0]), None).contains("value 2 is 0"));
        let stretched = SchedulerConfig { shift_terminal: Some(0.1), ..SchedulerConfig::default() };
        let one = schedule(&stretched, Some(1), None, None, 64).unwrap_err().to_string();
        assert!(one.contains("no finite sigma for step 1 of 1"), "{one}");
    }

    #[test]
    fn the_callers_sigmas_win() {
        let config = SchedulerConfig::default();
        let found = schedule(&config, None, Some(&[1.0, 0.5]), Some(&[1.0, 0.9, 0.8]), 64).unwrap();
        assert_eq!(found.sigmas, [1.0, 0.5, 0.0]);
        assert_eq!(schedule(&config, None, None, None, 64).unwrap().timesteps.len(), 40);
    }
}
