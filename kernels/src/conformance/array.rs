//! Host arrays for inputs and references.

/// Row-major values with a shape. Inputs hold values that an `f32` holds exactly.
#[derive(Debug, Clone)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

impl Array {
    /// Calls `f` with the flat index of every value.
    pub(super) fn build(shape: &[usize], f: impl FnMut(usize) -> f64) -> Self {
        Self { shape: shape.to_vec(), values: (0..shape.iter().product()).map(f).collect() }
    }

    /// The same shape with `f` of every value.
    pub(super) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { shape: self.shape.clone(), values: self.values.iter().map(|&x| f(x)).collect() }
    }

    /// `f` of the values of two arrays of one shape.
    pub(super) fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        assert_eq!(self.shape, other.shape);
        let values = self.values.iter().zip(&other.values).map(|(&x, &y)| f(x, y)).collect();
        Self { shape: self.shape.clone(), values }
    }

    /// The same values under another shape.
    pub(super) fn reshaped(mut self, shape: &[usize]) -> Self {
        assert_eq!(self.values.len(), shape.iter().product::<usize>());
        self.shape = shape.to_vec();
        self
    }

    /// The values as `f32`.
    pub(super) fn single(&self) -> Vec<f32> {
        self.values.iter().map(|&x| x as f32).collect()
    }

    /// Rows `start .. start + length` of the first axis.
    pub(super) fn rows(&self, start: usize, length: usize) -> Self {
        let row: usize = self.shape[1..].iter().product();
        let mut shape = self.shape.clone();
        shape[0] = length;
        Self { shape, values: self.values[start * row..(start + length) * row].to_vec() }
    }
}

/// A seeded generator (`SplitMix64`).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Evenly distributed values in `-range .. range`, each exact in `f32`.
    pub(super) fn spread(&mut self, shape: &[usize], range: f64) -> Array {
        Array::build(shape, |_| {
            let unit = (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
            f64::from((unit * range) as f32)
        })
    }

    /// Evenly distributed values in `-1 .. 1`.
    pub(super) fn array(&mut self, shape: &[usize]) -> Array {
        self.spread(shape, 1.0)
    }
}
