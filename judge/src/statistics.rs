//! Scores of pictures → mean and spread.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::scores::mean;
use crate::{Category, Dimension, Facet, Outcome, PictureScores, Reading, Repairs};

/// How often pictures are drawn again for an interval.
const RESAMPLES: usize = 2000;
/// Share of the resampled means that an interval holds.
const CONFIDENCE: f64 = 0.95;

/// Mean and spread of some pictures' points.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Spread {
    /// How many pictures have points.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (with `n - 1`); none for a single picture.
    pub deviation: Option<f64>,
    /// Where the mean of such a benchmark lies with 95 % confidence: the percentile bootstrap over pictures. None for a
    /// single picture.
    pub interval: Option<(f64, f64)>,
}

/// The judgement of a whole benchmark: every figure is the mean over those pictures that have one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Benchmark {
    /// How many pictures there are.
    pub pictures: usize,
    /// Of the pictures' totals.
    pub total: Option<Spread>,
    /// Of dimensions in which a picture has points.
    pub dimensions: BTreeMap<Dimension, Spread>,
    /// Of categories.
    pub categories: BTreeMap<Category, Spread>,
    /// Of facets.
    pub facets: BTreeMap<Facet, Spread>,
    /// How many pictures miss the dimension.
    pub missing: BTreeMap<Dimension, usize>,
    /// What had to be put right in all answers.
    pub repairs: Repairs,
}

impl Spread {
    /// Of these points, which may be none. The interval is drawn from `seed`: the same values give the same interval.
    #[must_use]
    pub fn of(values: &[f64], seed: u64) -> Option<Self> {
        let mean = mean(values.iter().copied())?;
        let count = values.len();
        let (mut deviation, mut interval) = (None, None);
        if count > 1 {
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            deviation = Some((squares / (count - 1) as f64).sqrt());
            interval = Some(bootstrap(values, seed));
        }
        Some(Self { count, mean, deviation, interval })
    }
}

/// The middle 95 % of the means of samples drawn with replacement.
fn bootstrap(values: &[f64], seed: u64) -> (f64, f64) {
    let mut draw = SplitMix(seed);
    let mut resample =
        || (0..values.len()).map(|_| values[draw.below(values.len())]).sum::<f64>() / values.len() as f64;
    let mut means: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    means.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    (quantile(&means, tail), quantile(&means, 1.0 - tail))
}

/// Between the two nearest of the sorted values, linearly.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Steele, Lea and Flood's `SplitMix64`: small, and the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; the bias is below `limit / 2^64`.
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

impl Benchmark {
    /// Of all pictures of a run; `seed` draws the intervals.
    #[must_use]
    pub fn new(pictures: &[PictureScores], seed: u64) -> Self {
        let spread = |points: &dyn Fn(&PictureScores) -> Option<f64>| {
            Spread::of(&pictures.iter().filter_map(points).collect::<Vec<_>>(), seed)
        };
        let mut benchmark = Self { pictures: pictures.len(), total: spread(&PictureScores::total), ..Self::default() };
        for dimension in Dimension::ALL {
            let points = spread(&|picture| picture.dimension(dimension).points());
            benchmark.dimensions.extend(points.map(|spread| (dimension, spread)));
            let missing = pictures.iter().filter(|picture| picture.dimension(dimension) == Outcome::Missing).count();
            benchmark.missing.extend((missing > 0).then_some((dimension, missing)));
            for category in dimension.categories() {
                benchmark.categories.extend(spread(&|picture| picture.category(category)).map(|s| (category, s)));
            }
            for facet in dimension.facets() {
                benchmark.facets.extend(spread(&|picture| picture.facet(facet)?.points()).map(|s| (facet, s)));
            }
        }
        for sheet in pictures.iter().flat_map(|picture| picture.readings().values()).filter_map(Reading::sheet) {
            let Repairs { moved, renamed, unknown_scores } = sheet.repairs;
            benchmark.repairs.moved += moved;
            benchmark.repairs.renamed += renamed;
            benchmark.repairs.unknown_scores += unknown_scores;
        }
        benchmark
    }
}

/// The figures under the names that the benchmark uses.
impl Serialize for Benchmark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn named<'a, K: ToString + 'a, V: Copy + 'a>(map: &'a BTreeMap<K, V>) -> BTreeMap<String, V> {
            map.iter().map(|(key, value)| (key.to_string(), *value)).collect()
        }
        let mut object = serializer.serialize_struct("Benchmark", 7)?;
        object.serialize_field("pictures", &self.pictures)?;
        object.serialize_field("total", &self.total)?;
        object.serialize_field("dimensions", &named(&self.dimensions))?;
        object.serialize_field("categories", &named(&self.categories))?;
        object.serialize_field("facets", &named(&self.facets))?;
        object.serialize_field("missing", &named(&self.missing))?;
        object.serialize_field("repairs", &self.repairs)?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first values that Java's `SplittableRandom` and the published C code give for seed 0.
    #[test]
    fn the_generator_is_the_published_one() {
        let mut draw = SplitMix(0);
        assert_eq!([draw.next(), draw.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert!((0..1000).all(|_| draw.below(7) < 7));
    }

    #[test]
    fn mean_and_deviation() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0], 0).unwrap();
        assert_eq!((spread.count, spread.mean), (8, 5.0));
        assert!((spread.deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[], 0), None);
        assert_eq!(Spread::of(&[60.0], 0), Some(Spread { count: 1, mean: 60.0, deviation: None, interval: None }));
        assert_eq!(Spread::of(&[60.0; 5], 0).unwrap().interval, Some((60.0, 60.0)));
    }

    /// For many values the interval is that of the central limit theorem.
    #[test]
    fn intervals() {
        let mut draw = SplitMix(1);
        let values: Vec<f64> = (0..400).map(|_| draw.below(101) as f64).collect();
        let spread = Spread::of(&values, 7).unwrap();
        let (low, high) = spread.interval.unwrap();
        let expected = 1.96 * spread.deviation.unwrap() / 20.0;
        assert!(((high - low) / 2.0 / expected - 1.0).abs() < 0.1, "{low} {high} {expected}");
        assert!(low < spread.mean && spread.mean < high);
        assert_eq!(Spread::of(&values, 7), Some(spread));
        assert_ne!(Spread::of(&values, 8).unwrap().interval, spread.interval);
    }

    #[test]
    fn quantiles() {
        let sorted = [1.0, 2.0, 3.0, 5.0];
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (1.0, 5.0), (0.9, 4.4)] {
            assert!((quantile(&sorted, share) - expected).abs() < 1e-12);
        }
    }
}
