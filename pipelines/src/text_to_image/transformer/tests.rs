//! Parity with the reference at every stage of the transformer.

use atelier_kernels::cpu::Cpu;

use super::*;
use crate::checkpoint::Files;
use crate::fixtures::{STAGE, Values, assert_close, folder};

fn load() -> Transformer<Cpu> {
    Transformer::load(&Cpu::default(), &Part::open(&Files::folder(folder().join("tiny")), "transformer").unwrap())
        .unwrap()
}

/// One scenario's inputs.
struct Case {
    values: Values,
    layout: Layout,
    grids: Vec<(usize, usize)>,
}

impl Case {
    /// `references` and `target` in latents, height first.
    fn read(scenario: &str, references: &[(usize, usize)], target: (usize, usize)) -> Self {
        let values = Values::read(scenario);
        let slots: Vec<bool> = values.get("text.image_slots").iter().map(|v| *v > 0.0).collect();
        Self { layout: Layout::new(&slots, references, target).unwrap(), values, grids: references.to_vec() }
    }

    fn states(&self) -> <Cpu as Backend>::Tensor {
        let name = "text.prompt_embeds";
        Cpu::default().upload(self.values.get(name), self.values.shape(name)).unwrap()
    }

    fn references(&self, channels: usize) -> Vec<<Cpu as Backend>::Tensor> {
        let mut start = 0;
        let upload = |(height, width): &(usize, usize)| {
            let tokens = height * width;
            let values = &self.values.get("reference_latents")[start * channels..(start + tokens) * channels];
            start += tokens;
            Cpu::default().upload(values, &[tokens, channels]).unwrap()
        };
        self.grids.iter().map(upload).collect()
    }

    fn prefix(&self, model: &Transformer<Cpu>) -> Prefix<Cpu> {
        let references = self.references(model.config.in_channels);
        let references: Vec<_> = references.iter().collect();
        model.prefix(&self.states(), &references, &self.layout, &Cancel::default()).unwrap()
    }

    /// The velocity of step `i` from the reference's own latents before the step.
    fn velocity(&self, model: &Transformer<Cpu>, prefix: &mut Prefix<Cpu>, i: usize) -> Vec<f32> {
        let before = if i == 0 { "noise".into() } else { format!("latents.{}", i - 1) };
        let latents = self.values.get(&before);
        let shape = [latents.len() / model.config.in_channels, model.config.in_channels];
        let latents = model.backend.upload(latents, &shape).unwrap();
        let t = self.values.get("timesteps")[i] / 1000.0;
        model.backend.download(&model.velocity(prefix, &latents, t, &Cancel::default()).unwrap()).unwrap()
    }
}

/// All inner values of one forward of the joint sequence, each compared with the reference's.
fn stages(case: &Case) {
    let (model, values) = (load(), &case.values);
    let b = &model.backend;
    let close = |name: &str, found: &[f32], expected: &[f32]| assert_close(name, found, expected, STAGE);
    let (cos, sin) = case.layout.angles(0..case.layout.tokens(), model.config.axes_dims_rope);
    close("rope_cos", &cos, values.get("transformer.rope_cos"));
    close("rope_sin", &sin, values.get("transformer.rope_sin"));

    let t = values.get("timesteps")[0] / 1000.0;
    let time_proj = values.get("transformer.time_proj");
    close("time_proj", &[time_sinusoids(t), time_sinusoids(0.0)].concat(), time_proj);
    let down = |x: &_| b.download(x).unwrap();
    let time = [down(&model.embed_time(t).unwrap()), down(&model.embed_time(0.0).unwrap())].concat();
    close("temb", &time, values.get("transformer.temb"));
    let (c, all) = (model.config.width(), values.get("transformer.modulation"));
    for (time, row) in [t, 0.0].into_iter().zip(all.chunks(4 * c)) {
        let m = model.modulation(time).unwrap();
        let expected = |i: usize, f: fn(f32) -> f32| row[i * c..(i + 1) * c].iter().map(|v| f(*v)).collect::<Vec<_>>();
        close("attention scale", &down(&m.attention_scale), &expected(0, |v| 1.0 + v));
        close("attention gate", &down(&m.attention_gate), &expected(1, f32::tanh));
        close("mlp scale", &down(&m.mlp_scale), &expected(2, |v| 1.0 + v));
        close("mlp gate", &down(&m.mlp_gate), &expected(3, f32::tanh));
    }

    let states = case.states();
    close("txt_in", &down(&model.embed_text(&states).unwrap()), values.get("transformer.txt_in"));
    let channels = model.config.in_channels;
    let references = case.references(channels);
    let noise = values.get("noise");
    let noise = b.upload(noise, &[noise.len() / channels, channels]).unwrap();
    let images: Vec<_> = references.iter().chain([&noise]).collect();
    let image_in = b.linear(&b.concat(&images).unwrap(), &model.weights.image_in, None).unwrap();
    close("img_in", &down(&image_in), values.get("transformer.img_in"));

    // The prefix from time zero, then the target against it: block by block as `prefix` and `velocity` do.
    let (n, m) = (case.layout.prefix_tokens(), case.layout.target_tokens());
    let mut x = model.embed_prefix(&states, &references.iter().collect::<Vec<_>>(), &case.layout).unwrap();
    let mut target = b.rows(&image_in, b.shape(&image_in)[0] - m, m).unwrap();
    let (zero, step) = (model.modulation(0.0).unwrap(), model.modulation(t).unwrap());
    let before = model.angles(&case.layout, 0..n).unwrap();
    let behind = model.angles(&case.layout, n..n + m).unwrap();
    for (i, block) in model.weights.blocks.iter().enumerate() {
        let (mut cache, mut attended) = (b.cache(n + m, c).unwrap(), Vec::new());
        x = model
            .block(block, x, &zero, &before, |q, k, v| {
                b.cache_write(&mut cache, 0, &k, &v)?;
                let out = b.attention(&q, &k, &v, model.attention(Visible::First(&case.layout.visible()[..n])))?;
                attended.extend(down(&out));
                Ok(out)
            })
            .unwrap();
        target = model
            .block(block, target, &step, &behind, |q, k, v| {
                b.cache_write(&mut cache, n, &k, &v)?;
                let out = b.attention_cached(&q, &cache, n + m, model.attention(Visible::All))?;
                attended.extend(down(&out));
                Ok(out)
            })
            .unwrap();
        if i == 0 {
            close("attention.0", &attended, values.get("transformer.attention.0"));
        }
        let joint = b.concat(&[&x, &target]).unwrap();
        close(&format!("block.{i}"), &down(&joint), values.get(&format!("transformer.block.{i}")));
    }
    let norm_out = [(&x, &zero), (&target, &step)]
        .map(|(x, m)| down(&b.layer_norm(x, &m.out_scale, None, model.config.eps).unwrap()));
    close("norm_out", &norm_out.concat(), values.get("transformer.norm_out"));
}

#[test]
fn every_stage_of_a_prompt() {
    stages(&Case::read("small", &[], (2, 4)));
}

#[test]
fn every_stage_with_two_references() {
    stages(&Case::read("references", &REFERENCES, (6, 4)));
}

const REFERENCES: [(usize, usize); 2] = [(4, 8), (8, 4)];

#[test]
fn velocity_of_every_step() {
    let model = load();
    let cases = [
        ("small", vec![], (2, 4), 2),
        ("plain", vec![], (4, 6), 4),
        ("turbo", vec![], (6, 4), 8),
        ("dynamic_shift", vec![], (4, 6), 4),
        ("references", REFERENCES.to_vec(), (6, 4), 3),
    ];
    for (scenario, references, target, steps) in cases {
        let case = Case::read(scenario, &references, target);
        let mut prefix = case.prefix(&model);
        for i in 0..steps {
            let name = format!("velocity.{i}");
            let found = case.velocity(&model, &mut prefix, i);
            assert_close(&format!("{scenario} {name}"), &found, case.values.get(&name), STAGE);
        }
    }
}
