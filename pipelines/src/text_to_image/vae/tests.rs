//! Parity with the reference at every stage of the autoencoder.

use atelier_kernels::cpu::Cpu;

use super::*;
use crate::fixtures::{STAGE, Values, assert_close, folder};

type Tensor = <Cpu as Backend>::Tensor;

fn files() -> Files {
    Files::folder(folder().join("tiny"))
}

fn down(x: &Tensor) -> Vec<f32> {
    Cpu::default().download(x).unwrap()
}

fn upload(values: &Values, name: &str) -> Tensor {
    Cpu::default().upload(values.get(name), &values.shape(name)[1..]).unwrap()
}

fn close(name: &str, found: &[f32], values: &Values) {
    assert_close(name, found, values.get(name), STAGE);
}

#[test]
fn every_stage_of_the_decoder() {
    let vae = Vae::load(&Cpu::default(), &files(), Half::Decoder).unwrap();
    let (b, decoder, values) = (&vae.backend, vae.decoder.as_ref().unwrap(), Values::read("small"));
    let x = decoder.post_quant.run(b, &upload(&values, "vae.decode.latents")).unwrap();
    close("vae.post_quant_conv", &down(&x), &values);
    let x = decoder.conv_in.run(b, &x).unwrap();
    close("vae.decoder.conv_in", &down(&x), &values);
    let mut x = decoder.middle.run(b, x).unwrap();
    close("vae.decoder.mid_block", &down(&x), &values);
    for (i, up) in decoder.up.iter().enumerate() {
        x = up.run(b, x, &Cancel::default()).unwrap();
        close(&format!("vae.decoder.up_block.{i}"), &down(&x), &values);
    }
    let x = decoder.run(b, &upload(&values, "vae.decode.latents"), &Cancel::default()).unwrap();
    close("vae.decoder.conv_out", &down(&x), &values);
}

#[test]
fn every_stage_of_the_encoder() {
    let vae = Vae::load(&Cpu::default(), &files(), Half::Encoder).unwrap();
    let (b, encoder, values) = (&vae.backend, vae.encoder.as_ref().unwrap(), Values::read("references"));
    // The fixture keeps the resized picture, not its values in -1..=1.
    let name = "reference.0.resized";
    let (shape, bytes) = (values.shape(name), values.get(name));
    let channel = |c: usize| bytes.iter().skip(c).step_by(4).map(|v| 2.0 * (v / 255.0) - 1.0);
    let pixels: Vec<f32> = (0..4).flat_map(channel).collect();
    let picture = b.upload(&pixels, &[4, shape[0], shape[1]]).unwrap();
    let mut x = encoder.conv_in.run(b, &picture).unwrap();
    for (i, level) in encoder.down.iter().enumerate() {
        x = level.run(b, x, &Cancel::default()).unwrap();
        close(&format!("vae.encoder.down_block.{i}"), &down(&x), &values);
    }
    close("vae.encoder.mid_block", &down(&encoder.middle.run(b, x).unwrap()), &values);
    let tokens = down(&vae.encode(&picture, Tiling::Off, &Cancel::default()).unwrap());
    let z = vae.config.z_dim;
    let latents: Vec<f32> = (0..z).flat_map(|c| tokens.iter().skip(c).step_by(z).copied()).collect();
    close("vae.reference.0.latents", &latents, &values);
}

/// Final latents of a scenario to pixels, by way of `latents.N` and the checkpoint's mean and deviation.
fn decoded(vae: &Vae<Cpu>, values: &Values, last: usize, grid: (usize, usize), tiling: Tiling) -> Vec<f32> {
    let latents = values.get(&format!("latents.{last}"));
    let latents = vae.backend.upload(latents, &[grid.0 * grid.1, vae.config.z_dim]).unwrap();
    let mut calls = Vec::new();
    let picture =
        vae.decode(&latents, grid, tiling, &Cancel::default(), &mut |done, of| calls.push((done, of))).unwrap();
    assert_eq!(calls.last().map(|(done, of)| done == of), Some(true));
    assert_eq!(vae.backend.shape(&picture), [vae.config.out_channels, 16 * grid.0, 16 * grid.1]);
    down(&picture)
}

#[test]
fn pictures_from_final_latents() {
    let vae = Vae::load(&Cpu::default(), &files(), Half::Both).unwrap();
    for (scenario, last, grid, tiling) in [("small", 1, (2, 4), Tiling::Off), ("plain", 3, (4, 6), Tiling::On)] {
        let values = Values::read(scenario);
        close("vae.decode.pixels", &decoded(&vae, &values, last, grid, tiling), &values);
    }
}

#[test]
fn a_tiled_picture_is_the_reference_s() {
    let vae = Vae::load(&Cpu::default(), &files(), Half::Decoder).unwrap();
    let (values, (height, width)) = (Values::read("tiled"), (18, 20));
    let pixels = decoded(&vae, &values, 1, (height, width), Tiling::On);
    let count = pixels.len() / 4;
    let expected = values.get("picture");
    let level = |v: f32| (255.0 * (v / 2.0 + 0.5).clamp(0.0, 1.0)).round_ties_even();
    let mut off = 0;
    for (i, pixel) in expected.chunks(4).enumerate() {
        for (c, value) in pixel.iter().enumerate() {
            let difference = (level(pixels[c * count + i]) - value).abs();
            assert!(difference <= 1.0, "pixel {i} channel {c} is {difference} levels off");
            off += usize::from(difference > 0.0);
        }
    }
    println!("tiled picture: {off} of {} values one level off", expected.len());
    assert!(off * 1000 <= expected.len());
}
