//! Seed → starting noise, the same bits as `torch.randn` on the CPU.
//!
//! A picture of the reference can be repeated from its seed only if the noise is the same, so this follows torch's CPU
//! generator to the bit: MT19937 seeded with the lower 32 bits of the seed, then Box-Muller in one of three ways.
//! - Fewer than 16 values: one value at a time in double precision, then rounded to the asked type.
//! - 16 values or more, single precision: uniforms of 24 bits in blocks of 16, the first eight radii and the last eight
//!   angles. torch evaluates logarithm, sine and cosine with the Cephes polynomials of its AVX2 build, fused multiply-adds
//!   where the compiler put them; that order of operations is repeated here with scalars, so every processor gives it.
//! - 16 values or more, half precision: the same blocks with uniforms of 8 (bf16) or 11 (f16) bits, every intermediate
//!   result rounded to that type.
//!
//! When the count is no multiple of 16, the last 16 values are drawn anew.

use half::{bf16, f16};

/// The type in which the reference draws: that of its prompt embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseType {
    /// Single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

impl NoiseType {
    /// The nearest value of the type.
    #[must_use]
    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::Bf16 => bf16::from_f32(value).to_f32(),
            Self::F16 => f16::from_f32(value).to_f32(),
        }
    }
}

/// `count` values of the standard normal distribution: those of
/// `torch.randn(count, dtype=dtype, generator=torch.Generator().manual_seed(seed))`, in row-major order of any shape.
#[must_use]
pub fn torch_randn(seed: u64, count: usize, dtype: NoiseType) -> Vec<f32> {
    let mut engine = Mt19937::new(seed);
    // Uniforms of as many bits as the type's significand has.
    let bits = match dtype {
        NoiseType::F32 => 24,
        NoiseType::F16 => 11,
        NoiseType::Bf16 => 8,
    };
    let uniform = |drawn: u32| (drawn & ((1 << bits) - 1)) as f32 / (1_u32 << bits) as f32;
    match dtype {
        _ if count < BLOCK => pairs(&mut engine, count, dtype),
        NoiseType::F32 => blocks(&mut engine, count, uniform, box_muller),
        short => blocks(&mut engine, count, uniform, |u, v| rounded(u, v, |x| short.round(x))),
    }
}

/// Values of one vectorised Box-Muller step.
const BLOCK: usize = 16;

/// Box-Muller in double precision, sine after cosine.
fn pairs(engine: &mut Mt19937, count: usize, dtype: NoiseType) -> Vec<f32> {
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        let angle = std::f64::consts::TAU * engine.uniform();
        let radius = (-2.0 * (-engine.uniform()).ln_1p()).sqrt();
        // torch rounds by way of single precision.
        values.extend([radius * angle.cos(), radius * angle.sin()].map(|x| dtype.round(x as f32)));
    }
    values.truncate(count);
    values
}

/// Fills with uniforms, then turns each block's `(values[i], values[i + 8])` into two normal values. `count >= 16`.
fn blocks(
    engine: &mut Mt19937,
    count: usize,
    uniform: impl Fn(u32) -> f32,
    normal: impl Fn(f32, f32) -> (f32, f32),
) -> Vec<f32> {
    let transform = |block: &mut [f32]| {
        let (radii, angles) = block.split_at_mut(BLOCK / 2);
        for (u, v) in radii.iter_mut().zip(angles) {
            (*u, *v) = normal(*u, *v);
        }
    };
    let mut values: Vec<f32> = (0..count).map(|_| uniform(engine.next())).collect();
    values.chunks_exact_mut(BLOCK).for_each(transform);
    if !count.is_multiple_of(BLOCK) {
        let last = &mut values[count - BLOCK..];
        last.fill_with(|| uniform(engine.next()));
        transform(last);
    }
    values
}

/// Box-Muller in single precision, from two uniforms in `[0, 1)`.
fn box_muller(u: f32, v: f32) -> (f32, f32) {
    let radius = (-2.0 * ln(1.0 - u)).sqrt();
    let (sin, cos) = sin_cos(std::f32::consts::TAU * v);
    // Adding zero turns -0 into 0, as torch's scaling by the standard deviation and mean does.
    (radius * cos + 0.0, radius * sin + 0.0)
}

/// Box-Muller with every result rounded to a shorter type.
fn rounded(u: f32, v: f32, round: impl Fn(f32) -> f32) -> (f32, f32) {
    let radius = round((-2.0 * round((1.0 - u).ln())).sqrt());
    let angle = round((std::f64::consts::TAU * f64::from(v)) as f32);
    (round(radius * round(angle.cos())) + 0.0, round(radius * round(angle.sin())) + 0.0)
}

/// Natural logarithm of a normal positive number by Cephes `logf`'s polynomial.
fn ln(x: f32) -> f32 {
    const P: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_87e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    // x = mantissa * 2^exponent with the mantissa in [1/2, 1), then in [sqrt(1/2), sqrt(2)), less 1.
    let mut exponent = (x.to_bits() >> 23) as f32 - 126.0;
    let mantissa = f32::from_bits(x.to_bits() & 0x007f_ffff | 0.5_f32.to_bits());
    let mut r = mantissa - 1.0;
    if mantissa < std::f32::consts::FRAC_1_SQRT_2 {
        exponent -= 1.0;
        r += mantissa;
    }
    let z = r * r;
    let y = P[1..].iter().fold(P[0], |y, &p| y.mul_add(r, p)) * r;
    let y = y.mul_add(z, exponent * -2.121_944_4e-4);
    let y = z.mul_add(-0.5, y);
    exponent.mul_add(0.693_359_4, r + y)
}

/// Sine and cosine of a number in `[0, 2 pi)` by Cephes `sinf` and `cosf`'s polynomials.
fn sin_cos(x: f32) -> (f32, f32) {
    // The nearest even multiple of pi/4 goes away; what is left lies in [-pi/4, pi/4].
    let octant = ((x * (4.0 / std::f32::consts::PI)) as u32 + 1) & !1;
    let y = octant as f32;
    let r = y.mul_add(-0.785_156_25, x);
    let r = y.mul_add(-2.418_756_5e-4, r);
    let r = y.mul_add(-3.774_895e-8, r);
    let z = r * r;
    let c = 2.443_315_7e-5_f32.mul_add(z, -1.388_731_6e-3).mul_add(z, 4.166_664_6e-2) * z;
    let c = c.mul_add(z, z * -0.5) + 1.0;
    let s = (-1.951_529_6e-4_f32).mul_add(z, 8.332_161e-3).mul_add(z, -1.666_665_5e-1) * z;
    let s = s.mul_add(r, r);
    match octant & 7 {
        0 => (s, c),
        2 => (c, -s),
        4 => (-s, -c),
        _ => (-c, s),
    }
}

/// The Mersenne twister of Matsumoto and Nishimura (1998), `MT19937`.
struct Mt19937 {
    state: [u32; 624],
    next: usize,
}

impl Mt19937 {
    /// The generator knows the lower 32 bits of a seed only.
    fn new(seed: u64) -> Self {
        let mut state = [0; 624];
        state[0] = seed as u32;
        for i in 1..state.len() {
            let before: u32 = state[i - 1];
            state[i] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Self { state, next: state.len() }
    }

    fn next(&mut self) -> u32 {
        if self.next == self.state.len() {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn twist(&mut self) {
        let n = self.state.len();
        for i in 0..n {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % n] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + 397) % n] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// 53 bits in `[0, 1)`.
    fn uniform(&mut self) -> f64 {
        let high = u64::from(self.next());
        let bits = high << 32 | u64::from(self.next());
        (bits & ((1 << 53) - 1)) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    /// The bits of a stored tensor's values, widened to f32.
    fn expected(data: &[u8], dtype: NoiseType) -> Vec<u32> {
        let (pairs, quads) = (data.as_chunks::<2>().0, data.as_chunks::<4>().0);
        let values: Vec<f32> = match dtype {
            NoiseType::F32 => quads.iter().map(|&b| f32::from_le_bytes(b)).collect(),
            NoiseType::Bf16 => pairs.iter().map(|&b| bf16::from_le_bytes(b).to_f32()).collect(),
            NoiseType::F16 => pairs.iter().map(|&b| f16::from_le_bytes(b).to_f32()).collect(),
        };
        values.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn equals_torch_bit_for_bit() {
        let file = std::fs::read("../tests/fixtures/noise.safetensors").unwrap();
        let fixtures = SafeTensors::deserialize(&file).unwrap();
        let mut checked = 0;
        for (name, tensor) in fixtures.tensors() {
            let parts: Vec<&str> = name.split('.').collect();
            let [dtype, seed, count] = parts[..] else { continue };
            let dtype = match dtype {
                "float32" => NoiseType::F32,
                "bfloat16" => NoiseType::Bf16,
                _ => NoiseType::F16,
            };
            let found = torch_randn(seed.parse().unwrap(), count.parse().unwrap(), dtype);
            let found: Vec<u32> = found.into_iter().map(f32::to_bits).collect();
            assert_eq!(found, expected(tensor.data(), dtype), "{name}");
            checked += 1;
        }
        assert!(checked >= 100, "{checked} fixtures");
    }

    /// As many values as a 2048x2048 picture takes, by the sum of all bits weighted with their place:
    /// ```python
    /// x = torch.randn(64 * 128 * 128, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    /// bits = x.view(torch.int32).long() & 0xffffffff  # int16 and 0xffff for the half types
    /// print((bits * (torch.arange(len(x)) % 65521 + 1)).sum())
    /// ```
    #[test]
    fn equals_torch_at_full_size() {
        for (seed, dtype, expected) in [
            (0, NoiseType::F32, 8_663_201_915_031_707_842),
            (42, NoiseType::F32, 8_593_479_737_975_759_675),
            (u64::MAX, NoiseType::F32, 8_613_601_194_719_237_457),
            (0, NoiseType::Bf16, 1_105_614_963_942_943),
            (42, NoiseType::Bf16, 1_107_123_401_456_193),
            (u64::MAX, NoiseType::Bf16, 1_107_983_437_457_315),
            (0, NoiseType::F16, 1_055_855_961_514_027),
            (42, NoiseType::F16, 1_055_746_471_577_812),
            (u64::MAX, NoiseType::F16, 1_056_417_477_783_250_u64),
        ] {
            let bits = |x: f32| match dtype {
                NoiseType::F32 => u64::from(x.to_bits()),
                NoiseType::Bf16 => u64::from(bf16::from_f32(x).to_bits()),
                NoiseType::F16 => u64::from(f16::from_f32(x).to_bits()),
            };
            let values = torch_randn(seed, 64 * 128 * 128, dtype);
            let sum = (0..).zip(values).fold(0_u64, |sum, (i, x)| sum.wrapping_add(bits(x) * (i % 65_521 + 1)));
            assert_eq!(sum & (u64::MAX >> 1), expected, "{dtype:?}, seed {seed}");
        }
    }
}
