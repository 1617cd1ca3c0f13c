use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::fixtures::folder;

/// Everything stays; the tests change what they are about.
const ALL: Sampling = Sampling { temperature: 1.0, ..Sampling::GREEDY };

#[derive(Deserialize)]
struct Row {
    settings: SamplingOverrides,
    seen: Vec<u32>,
    kept: BTreeMap<u32, f64>,
    logits: Vec<f32>,
}

/// Tokens that may be drawn, with their probabilities.
fn distribution(sampler: &Sampler, mut logits: Vec<f32>) -> BTreeMap<u32, f64> {
    sampler.penalise(&mut logits);
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let kept = sampler.narrow(&logits, highest);
    let all: f64 = kept.iter().map(|(_, weight)| weight).sum();
    kept.into_iter().map(|(id, weight)| (id, weight / all)).collect()
}

#[test]
fn what_is_left_is_what_transformers_leaves() {
    let rows: Vec<Row> = serde_json::from_slice(&std::fs::read(folder().join("sampling.json")).unwrap()).unwrap();
    let mut largest: f64 = 0.0;
    for row in &rows {
        let sampling = ALL.with(&row.settings).unwrap();
        let found = distribution(&Sampler::new(sampling, &row.seen), row.logits.clone());
        let ids = |kept: &BTreeMap<u32, f64>| kept.keys().copied().collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&row.kept), "{:?}", row.settings);
        for (found, expected) in found.values().zip(row.kept.values()) {
            largest = largest.max((found - expected).abs());
        }
    }
    println!("{} settings, largest difference of a probability {largest:.1e}", rows.len());
    assert!(rows.len() >= 28 && largest < 1e-6);
}

#[test]
fn the_answers_own_tokens_are_penalised_as_in_vllm() {
    let sampling =
        Sampling { presence_penalty: 0.5, frequency_penalty: 0.25, repetition_penalty: 2.0, ..Sampling::GREEDY };
    let mut sampler = Sampler::new(sampling, &[1]);
    let logits = vec![3.0, 2.0, -1.0, 0.0];
    assert_eq!(sampler.next(logits.clone()).unwrap(), 0);
    let mut found = logits.clone();
    sampler.penalise(&mut found);
    // 3 / 2 - 0.25 - 0.5 for the token of the answer; 2 / 2 for the prompt's.
    assert_eq!(found, [0.75, 1.0, -1.0, 0.0]);
    assert_eq!(sampler.next(logits.clone()).unwrap(), 1);
    let mut found = logits;
    sampler.penalise(&mut found);
    assert_eq!(found, [0.75, 0.25, -1.0, 0.0]);
}

/// Draws of one distribution.
const DRAWS: usize = 20_000;

#[test]
fn draws_follow_the_probabilities() {
    let logits = vec![0.0, 1.0, 2.0, -1.0, f32::NEG_INFINITY];
    let expected = distribution(&Sampler::new(ALL, &[]), logits.clone());
    let mut sampler = Sampler::new(Sampling { seed: 3, ..ALL }, &[]);
    let mut counts = [0_usize; 5];
    for _ in 0..DRAWS {
        counts[sampler.next(logits.clone()).unwrap() as usize] += 1;
    }
    assert_eq!(counts[4], 0);
    for (&id, &probability) in &expected {
        let found = counts[id as usize] as f64 / DRAWS as f64;
        // four standard deviations
        let margin = 4.0 * (probability * (1.0 - probability) / DRAWS as f64).sqrt();
        assert!((found - probability).abs() < margin, "token {id}: {found} of {probability}");
    }
}

#[test]
fn seeds_repeat_and_differ() {
    let logits: Vec<f32> = (0..50_i16).map(|i| f32::from(i % 7)).collect();
    let answer = |seed| {
        let mut sampler = Sampler::new(Sampling { seed, ..ALL }, &[]);
        (0..40).map(|_| sampler.next(logits.clone()).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(answer(5), answer(5));
    assert_ne!(answer(5), answer(6));
    // Steele, Lea and Flood's generator begins so.
    let mut numbers = SplitMix64(1_234_567);
    let first = (numbers.uniform() * (1_u64 << 53) as f64) as u64;
    assert_eq!(first, 6_457_827_717_110_365_317 >> 11);
}

#[test]
fn bad_logits_are_errors() {
    for logits in [vec![1.0, f32::NAN], vec![f32::NEG_INFINITY; 3], vec![1.0, f32::INFINITY], Vec::new()] {
        for sampling in [ALL, Sampling::GREEDY] {
            assert!(matches!(Sampler::new(sampling, &[]).next(logits.clone()), Err(Error::Numbers(_))), "{logits:?}");
        }
    }
}

#[test]
fn requests_change_the_models_settings() {
    let model = Sampling { temperature: 0.7, top_k: 20, ..Sampling::GREEDY };
    let request = SamplingOverrides { top_p: Some(0.5), seed: Some(4), ..SamplingOverrides::default() };
    assert_eq!(model.with(&request).unwrap(), Sampling { top_p: 0.5, seed: 4, ..model });
    // A greedy model that is asked to narrow its choice is asked to choose.
    assert_eq!(Sampling::GREEDY.with(&request).unwrap().temperature.to_bits(), 1.0_f32.to_bits());
    let greedy = SamplingOverrides { top_p: Some(0.5), ..SamplingOverrides::greedy() };
    assert_eq!(model.with(&greedy).unwrap().temperature.to_bits(), 0.0_f32.to_bits());
    for (name, wrong) in [
        ("temperature", SamplingOverrides { temperature: Some(f32::NAN), ..SamplingOverrides::default() }),
        ("temperature", SamplingOverrides { temperature: Some(f32::INFINITY), ..SamplingOverrides::default() }),
        ("top_p", SamplingOverrides { top_p: Some(0.0), ..SamplingOverrides::default() }),
        ("min_p", SamplingOverrides { min_p: Some(1.1), ..SamplingOverrides::default() }),
        ("repetition_penalty", SamplingOverrides { repetition_penalty: Some(0.0), ..SamplingOverrides::default() }),
        ("presence_penalty", SamplingOverrides { presence_penalty: Some(2.5), ..SamplingOverrides::default() }),
        ("frequency_penalty", SamplingOverrides { frequency_penalty: Some(-3.0), ..SamplingOverrides::default() }),
    ] {
        let error = model.with(&wrong).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{name}` is")), "{error}");
    }
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    // Quarters, so that there are equal ones.
    prop::collection::vec((-40_i16..40).prop_map(|v| f32::from(v) / 4.0), 1..900)
}

proptest! {
    #[test]
    fn greedy_takes_the_first_of_the_largest(logits in logits()) {
        let token = Sampler::new(Sampling::GREEDY, &[]).next(logits.clone()).unwrap() as usize;
        prop_assert!(logits.iter().all(|logit| *logit <= logits[token]));
        prop_assert!(logits[..token].iter().all(|logit| *logit < logits[token]));
    }

    #[test]
    fn top_k_keeps_the_k_likeliest_and_their_equals(logits in logits(), k in 1_usize..1000) {
        let kept = distribution(&Sampler::new(Sampling { top_k: k, ..ALL }, &[]), logits.clone());
        let mut sorted = logits.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let last = sorted[k.min(sorted.len()) - 1];
        let expected: Vec<u32> = (0..).zip(&logits).filter(|(_, logit)| **logit >= last).map(|(id, _)| id).collect();
        prop_assert_eq!(kept.into_keys().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn top_p_keeps_the_fewest_that_reach_it(logits in logits(), p in 0.001_f32..0.999) {
        let all = distribution(&Sampler::new(ALL, &[]), logits.clone());
        let kept = distribution(&Sampler::new(Sampling { top_p: p, ..ALL }, &[]), logits);
        let mass: f64 = kept.keys().map(|id| all[id]).sum();
        let least = kept.keys().map(|id| all[id]).fold(f64::INFINITY, f64::min);
        prop_assert!(mass >= f64::from(p) - 1e-9, "{mass} of {p}");
        prop_assert!(mass - least < f64::from(p) + 1e-9, "{mass} less {least} still reaches {p}");
        let left: Vec<_> = all.iter().filter(|(id, _)| !kept.contains_key(id)).collect();
        prop_assert!(left.iter().all(|(_, probability)| **probability <= least));
    }

    #[test]
    fn min_p_keeps_what_has_its_share(logits in logits(), p in 0.0_f32..=1.0) {
        let all = distribution(&Sampler::new(ALL, &[]), logits.clone());
        let kept = distribution(&Sampler::new(Sampling { min_p: p, ..ALL }, &[]), logits);
        let most = all.values().copied().fold(0.0, f64::max);
        for (id, probability) in all {
            let share = probability / most;
            let near = (share - f64::from(p)).abs() < 1e-9;
            prop_assert!(near || kept.contains_key(&id) == (share > f64::from(p)));
        }
    }

    #[test]
    fn every_draw_is_one_of_what_is_left(
        logits in logits(),
        seed: u64,
        temperature in 0.05_f32..5.0,
        top_k in 0_usize..50,
        top_p in 0.01_f32..=1.0,
        min_p in 0.0_f32..=1.0,
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::GREEDY };
        let mut sampler = Sampler::new(sampling, &[]);
        let kept = distribution(&sampler, logits.clone());
        prop_assert!(!kept.is_empty());
        for _ in 0..4 {
            prop_assert!(kept.contains_key(&sampler.next(logits.clone()).unwrap()));
        }
    }
}
