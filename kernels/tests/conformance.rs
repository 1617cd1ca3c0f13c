//! The processor passes the suite that every backend must pass.

use atelier_kernels::conformance::{self, Tolerance};
use atelier_kernels::cpu::{Cpu, Products};
use atelier_kernels::{Activation, Attention, Backend, Conv2d, Matrix, Result, Visible};

#[test]
fn exact_products() {
    let report = conformance::run(&Cpu::new(Products::F32), Tolerance::F32);
    println!("{report}");
    assert!(report.passed(), "{report}");
}

#[test]
fn rounded_products() {
    let report = conformance::run(&Cpu::new(Products::Bf16), Tolerance::BF16_PRODUCTS);
    println!("{report}");
    assert!(report.passed(), "{report}");
}

/// Sizes at which every operation splits its work.
fn results(cpu: &Cpu) -> Result<Vec<Vec<f32>>> {
    let tensor = |shape: &[usize]| {
        let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.7).sin()).collect();
        cpu.upload(&values, shape)
    };
    let (x, weight) = (tensor(&[301, 256])?, tensor(&[256])?);
    let (one, picture, gamma) = (tensor(&[1, 256])?, tensor(&[33, 61, 67])?, tensor(&[33])?);
    let kernel = cpu.load(&Matrix::from_f32(&vec![0.37; 17 * 33 * 9], 17, 33 * 9)?)?;
    let table = cpu.load(&Matrix::from_f32(&cpu.download(&x)?, 301, 256)?)?;
    let causal: Vec<u32> = (1..=301).collect();
    let all = Attention { heads: 8, kv_heads: 8, scale: 0.2, visible: Visible::All };
    [
        cpu.attention(&x, &x, &x, Attention { visible: Visible::First(&causal), ..all })?,
        cpu.attention(&x, &x, &x, all)?,
        cpu.attention(&one, &x, &x, all)?,
        cpu.linear(&x, &table, None)?,
        cpu.linear(&one, &table, None)?,
        cpu.conv2d(&picture, &kernel, None, Conv2d::same(3))?,
        cpu.channel_norm(&picture, &gamma, true)?,
        cpu.rms_norm(&x, &weight, 1e-6)?,
        cpu.layer_norm(&x, &weight, Some(&weight), 1e-6)?,
        cpu.activate(&x, Activation::Gelu)?,
        cpu.swiglu(&x, &x)?,
        cpu.gated_add(&x, &weight, &x)?,
        cpu.average_down(&cpu.rows(&picture, 0, 32)?, 32, 2, 1)?,
        cpu.transpose(&x)?,
    ]
    .iter()
    .map(|tensor| cpu.download(tensor))
    .collect()
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for products in [Products::F32, Products::Bf16] {
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| results(&Cpu::new(products))).expect("operands fit")
        };
        let one = with(1);
        for threads in [2, 3, 7] {
            let several = with(threads);
            for (i, (one, several)) in one.iter().zip(&several).enumerate() {
                let same = one.iter().zip(several).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "result {i} with {threads} threads, {products:?}");
            }
        }
    }
}
