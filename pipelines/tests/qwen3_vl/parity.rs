//! The text encoder, stage by stage, against transformers and diffusers (`tests/fixtures/make_fixtures.py`).

use std::fs;

use atelier_kernels::Backend;
use atelier_kernels::cpu::Cpu;
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{Features, Grid, ImageProcessor, Inputs, Model, Patches};
use atelier_pipelines::progress::Cancel;
use atelier_pipelines::text_to_image::prompt::{Prompter, Tokens};
use atelier_pipelines::text_to_image::reference::ReferenceImage;
use atelier_pipelines::text_to_image::text_encoder::TextEncoder;
use atelier_pipelines::{Error, Result};

use crate::common::{STAGE, Values, compare, fixture};

const SMALL: &str = "Un café — 一只戴着帽子的猫 ☕\nñ";
const BIRD: &str = "put the bird on the table";

fn tiny() -> Files {
    Files::folder(fixture("tiny"))
}

fn cpu() -> Cpu {
    Cpu::default()
}

fn load(with_vision: bool) -> TextEncoder<Cpu> {
    TextEncoder::load(&cpu(), &tiny(), with_vision).unwrap()
}

fn references() -> Vec<ReferenceImage> {
    prepare(&["reference_one.png", "reference_two.png"], 96)
}

fn prepare(names: &[&str], side: usize) -> Vec<ReferenceImage> {
    let processor = ImageProcessor::load(&tiny(), "processor").unwrap();
    let prepare = |name: &&str| {
        let picture = image::open(fixture(name)).unwrap().to_rgba8();
        ReferenceImage::prepare(&picture, side * side, &processor).unwrap()
    };
    names.iter().map(prepare).collect()
}

fn look(encoder: &TextEncoder<Cpu>, references: &[ReferenceImage]) -> Vec<Features<Cpu>> {
    references.iter().map(|r| encoder.vision(&r.patches, &Cancel::default()).unwrap()).collect()
}

fn bird(references: &[ReferenceImage]) -> Tokens {
    let grids: Vec<Grid> = references.iter().map(|r| r.patches.grid).collect();
    Prompter::load(&tiny()).unwrap().tokens(BIRD, &grids).unwrap()
}

fn download(x: &<Cpu as Backend>::Tensor) -> Vec<f32> {
    cpu().download(x).unwrap()
}

fn hidden_states(encoder: &TextEncoder<Cpu>, inputs: &Inputs<Cpu>, values: &Values) {
    let observe = |layer: usize, x: &_| -> Result<()> {
        compare(&format!("text.hidden.{layer}"), &download(x), values.get(&format!("text.hidden.{layer}")), STAGE);
        Ok(())
    };
    encoder.decoder().forward_observed(&cpu(), inputs, None, &Cancel::default(), observe).unwrap();
}

fn positions(inputs: &Inputs<Cpu>) -> Vec<u32> {
    (0..3).flat_map(|axis| inputs.positions.iter().map(move |position| position[axis])).collect()
}

#[test]
fn a_prompt_becomes_the_references_states() {
    let values = Values::open("values/small.safetensors");
    let encoder = load(false);
    let tokens = Prompter::load(&tiny()).unwrap().tokens(SMALL, &[]).unwrap();
    assert_eq!(tokens.ids, values.integers("text.input_ids"));

    let inputs = Inputs::new(&cpu(), encoder.decoder(), encoder.config(), &tokens.ids, &[]).unwrap();
    assert_eq!(positions(&inputs), values.integers("text.position_ids"));
    hidden_states(&encoder, &inputs, &values);

    let conditioning = encoder.encode(&tokens, &[], &Cancel::default()).unwrap();
    assert_eq!(cpu().shape(&conditioning.states), values.shape("text.prompt_embeds"));
    compare("text.prompt_embeds", &download(&conditioning.states), values.get("text.prompt_embeds"), STAGE);
    assert!(conditioning.image_slots.iter().all(|slot| !slot));
    assert_eq!(conditioning.image_slots.len(), values.get("text.image_slots").len());
}

#[test]
fn every_scenario_has_the_references_ids_and_states() {
    for (scenario, prefix, prompt) in [
        ("empty", "", ""),
        ("cfg_empty", "negative.", ""),
        ("plain", "", prompt_of("plain", "prompt").as_str()),
        ("cfg", "", prompt_of("cfg", "prompt").as_str()),
        ("cfg", "negative.", prompt_of("cfg", "negative_prompt").as_str()),
    ] {
        let values = Values::open(&format!("values/{scenario}.safetensors"));
        let name = |value: &str| format!("{prefix}text.{value}");
        let tokens = Prompter::load(&tiny()).unwrap().tokens(prompt, &[]).unwrap();
        assert_eq!(tokens.ids, values.integers(&name("input_ids")), "{scenario}");
        let conditioning = load(false).encode(&tokens, &[], &Cancel::default()).unwrap();
        let stage = format!("{scenario} {}", name("prompt_embeds"));
        compare(&stage, &download(&conditioning.states), values.get(&name("prompt_embeds")), STAGE);
    }
}

fn prompt_of(scenario: &str, argument: &str) -> String {
    arguments(scenario)[argument].as_str().unwrap().to_owned()
}

/// The arguments of a scenario, from the metadata of its values.
fn arguments(scenario: &str) -> serde_json::Value {
    let bytes = fs::read(fixture(&format!("values/{scenario}.safetensors"))).unwrap();
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let scenario = &metadata.metadata().as_ref().unwrap()["scenario"];
    serde_json::from_str(scenario).unwrap()
}

#[test]
fn reference_pictures_are_prepared_as_the_reference_does() {
    let values = Values::open("values/references.safetensors");
    let mut pixels = Vec::new();
    for (index, reference) in references().iter().enumerate() {
        let name = format!("reference.{index}.resized");
        assert_eq!(values.shape(&name), [reference.height, reference.width, 4]);
        let resized = values.get(&name);
        let planes: Vec<f32> = (0..4)
            .flat_map(|channel| resized.iter().skip(channel).step_by(4).map(|value| 2.0 * (value / 255.0) - 1.0))
            .collect();
        assert_eq!(reference.pixels, planes, "reference {index}: RGBA for the VAE");
        pixels.extend_from_slice(&reference.patches.values);
    }
    assert_eq!(pixels, values.get("vision.pixel_values"), "patches are the reference's, bit for bit");
    let grids: Vec<u32> =
        references().iter().flat_map(|r| [1, r.patches.grid.height as u32, r.patches.grid.width as u32]).collect();
    assert_eq!(grids, values.integers("vision.grid_thw"));
}

#[test]
fn pictures_become_the_references_visual_tokens() {
    let values = Values::open("values/references.safetensors");
    let encoder = load(true);
    let tower = encoder.vision_tower().unwrap();
    let mut stages: Vec<Vec<f32>> = Vec::new();
    for reference in references() {
        let observe = |block: usize, x: &_| -> Result<()> {
            stages.resize(stages.len().max(block + 1), Vec::new());
            stages[block].extend(download(x));
            Ok(())
        };
        tower.forward_observed(&cpu(), &reference.patches, &Cancel::default(), observe).unwrap();
    }
    assert_eq!(stages.len(), 4);
    for (block, found) in stages.iter().enumerate() {
        let name = format!("vision.hidden.{block}");
        compare(&name, found, values.get(&name), STAGE);
    }
    let features = look(&encoder, &references());
    let join = |pick: &dyn Fn(&Features<Cpu>) -> Vec<f32>| features.iter().flat_map(pick).collect::<Vec<_>>();
    compare("vision.features", &join(&|f| download(&f.tokens)), values.get("vision.features"), STAGE);
    for k in 0..2 {
        let name = format!("vision.deepstack.{k}");
        compare(&name, &join(&|f| download(&f.deepstack[k])), values.get(&name), STAGE);
    }
}

#[test]
fn a_prompt_with_pictures_becomes_the_references_states() {
    let values = Values::open("values/references.safetensors");
    let encoder = load(true);
    let references = references();
    let features = look(&encoder, &references);
    let tokens = bird(&references);
    assert_eq!(tokens.ids, values.integers("text.input_ids"));

    let pictures: Vec<_> = features.iter().collect();
    let inputs = Inputs::new(&cpu(), encoder.decoder(), encoder.config(), &tokens.ids, &pictures).unwrap();
    assert_eq!(positions(&inputs), values.integers("text.position_ids"));
    hidden_states(&encoder, &inputs, &values);

    let conditioning = encoder.encode(&tokens, &features, &Cancel::default()).unwrap();
    compare("text.prompt_embeds", &download(&conditioning.states), values.get("text.prompt_embeds"), STAGE);
    let slots: Vec<u32> = conditioning.image_slots.iter().map(|slot| u32::from(*slot)).collect();
    assert_eq!(slots, values.integers("text.image_slots"));
}

#[test]
fn the_negative_prompt_sees_the_pictures_too() {
    let values = Values::open("values/references_cfg.safetensors");
    let encoder = load(true);
    let arguments = arguments("references_cfg");
    let names: Vec<&str> = arguments["references"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    let references = prepare(&names, arguments["ref_resolution"].as_u64().unwrap() as usize);
    let grids: Vec<Grid> = references.iter().map(|r| r.patches.grid).collect();
    let prompt = prompt_of("references_cfg", "negative_prompt");
    let tokens = Prompter::load(&tiny()).unwrap().tokens(&prompt, &grids).unwrap();
    let conditioning = encoder.encode(&tokens, &look(&encoder, &references), &Cancel::default()).unwrap();
    let expected = values.get("negative.text.prompt_embeds");
    compare("negative.text.prompt_embeds", &download(&conditioning.states), expected, STAGE);
}

#[test]
fn prefill_in_chunks_is_prefill_at_once() {
    let encoder = load(true);
    let decoder = encoder.decoder();
    let references = references();
    let features = look(&encoder, &references);
    let tokens = bird(&references);
    let pictures: Vec<_> = features.iter().collect();
    let inputs = Inputs::new(&cpu(), decoder, encoder.config(), &tokens.ids, &pictures).unwrap();
    let cancel = Cancel::default();
    let whole = download(&decoder.forward(&cpu(), &inputs, None, &cancel).unwrap());
    // Single tokens, chunks that end inside a picture, chunks without one, and everything at once.
    for chunk in [1, 7, 30, 40, inputs.len()] {
        let mut cache = decoder.cache(&cpu(), inputs.len()).unwrap();
        let mut found = Vec::new();
        for start in (0..inputs.len()).step_by(chunk) {
            let part = inputs.slice(&cpu(), start, chunk.min(inputs.len() - start)).unwrap();
            found.extend(download(&decoder.forward(&cpu(), &part, Some(&mut cache), &cancel).unwrap()));
            assert_eq!(cache.len(), start + part.len());
        }
        compare(&format!("chunks of {chunk}"), &found, &whole, 1e-6);
    }
    // A cache cut back reads the rest again.
    let mut cache = decoder.cache(&cpu(), inputs.len()).unwrap();
    decoder.forward(&cpu(), &inputs, Some(&mut cache), &cancel).unwrap();
    cache.rewind(50, None).unwrap();
    let rest = inputs.slice(&cpu(), 50, inputs.len() - 50).unwrap();
    let found = download(&decoder.forward(&cpu(), &rest, Some(&mut cache), &cancel).unwrap());
    compare("after a cut", &found, &whole[50 * encoder.hidden()..], 1e-6);
    // And a full one refuses more.
    let error = decoder.forward(&cpu(), &rest, Some(&mut cache), &cancel).unwrap_err();
    assert!(error.to_string().contains("for a cache of"), "{error}");
}

#[test]
fn a_picture_does_not_depend_on_the_others() {
    let encoder = load(true);
    let references = references();
    let together = look(&encoder, &references);
    let alone = encoder.vision(&references[1].patches, &Cancel::default()).unwrap();
    assert_eq!(download(&together[1].tokens), download(&alone.tokens));
}

#[test]
fn cancelling_stops_both_models() {
    let encoder = load(true);
    let references = references();
    let cancel = Cancel::default();
    cancel.cancel();
    assert!(matches!(encoder.vision(&references[0].patches, &cancel), Err(Error::Cancelled)));
    let tokens = Prompter::load(&tiny()).unwrap().tokens("a cat", &[]).unwrap();
    assert!(matches!(encoder.encode(&tokens, &[], &cancel), Err(Error::Cancelled)));
}

#[test]
fn mismatches_are_errors() {
    let encoder = load(true);
    let references = references();
    let features = look(&encoder, &references);
    let tokens = bird(&references);
    let cancel = Cancel::default();
    let fails = |tokens: &Tokens, images: &[Features<Cpu>], words: &str| {
        let error = encoder.encode(tokens, images, &cancel).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    fails(&tokens, &features[..1], "image tokens");
    fails(&tokens, &[], "image tokens");
    let beyond = Tokens { ids: vec![432], dropped: 0 };
    fails(&beyond, &[], "token id 432");
    let short = Tokens { ids: vec![1, 2], dropped: 3 };
    fails(&short, &[], "3 tokens to drop of 2");

    let error = load(false).vision(&references[0].patches, &cancel).unwrap_err();
    assert!(error.to_string().contains("without its vision tower"), "{error}");
    let grid = Grid { height: 2, width: 2, merge: 2 };
    let error = encoder.vision(&Patches { values: vec![0.0; 5], grid }, &cancel).unwrap_err();
    assert!(error.to_string().contains("1536 for a patch"), "{error}");
}

#[test]
fn the_whole_model_reads_as_the_text_encoder_does() {
    let encoder = load(true);
    let model = Model::open(&cpu(), &Files::folder(fixture("tiny/text_encoder"))).unwrap();
    let references = references();
    let cancel = Cancel::default();
    let seen: Vec<_> = references.iter().map(|r| model.see(&r.patches, &cancel).unwrap()).collect();
    let tokens = bird(&references);
    let pictures: Vec<_> = seen.iter().collect();
    let inputs = model.inputs(&tokens.ids, &pictures).unwrap();
    let expected = encoder.decoder().forward(&cpu(), &inputs, None, &cancel).unwrap();
    let mut cache = model.cache(inputs.len()).unwrap();
    let states = model.read(&inputs, Some(&mut cache), &cancel).unwrap();
    assert_eq!(download(&states), download(&expected));
    assert!(cache.bytes() > 0 && !cache.recurrent() && cache.checkpoint().len() == inputs.len());
    assert!(cache.rewind(inputs.len() + 1, None).is_err());
    let logits = model.logits(&states).unwrap();
    assert_eq!(cpu().shape(&logits), [inputs.len(), model.config().text.vocabulary]);
    let last = cpu().rows(&states, inputs.len() - 1, 1).unwrap();
    let alone = download(&model.logits(&last).unwrap());
    let all = download(&logits);
    compare("the last token's logits", &alone, &all[all.len() - alone.len()..], 1e-6);
}
