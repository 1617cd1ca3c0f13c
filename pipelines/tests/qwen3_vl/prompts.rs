//! Prompts to token ids, against the reference's processor (`tests/fixtures/prompts.py`, `qwen_ids.py`).

use std::fs;
use std::path::Path;

use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::Grid;
use atelier_pipelines::text_to_image::prompt::Prompter;
use serde_json::Value;

use crate::common::fixture;

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(fixture(name)).unwrap()).unwrap()
}

fn ids(row: &Value) -> Vec<u32> {
    row["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn tiny() -> Prompter {
    Prompter::load(&Files::folder(fixture("tiny"))).unwrap()
}

fn grid(height: usize, width: usize) -> Grid {
    Grid { height, width, merge: 2 }
}

#[test]
fn prompts_have_the_references_ids() {
    let expected = json("prompts.json");
    let prompter = tiny();
    let rows = expected["prompts"].as_array().unwrap();
    assert!(rows.len() > 10);
    for row in rows {
        let prompt = row["prompt"].as_str().unwrap();
        let tokens = prompter.tokens(prompt, &[]).unwrap();
        assert_eq!(tokens.ids, ids(row), "{prompt:?}");
        assert_eq!(tokens.dropped as u64, expected["dropped"].as_u64().unwrap());
    }
}

#[test]
fn every_picture_has_its_tokens() {
    let prompter = tiny();
    let image = 418;
    for grids in [vec![grid(4, 6)], vec![grid(2, 2), grid(8, 2), grid(4, 4)]] {
        let tokens = prompter.tokens("x", &grids).unwrap();
        let runs: Vec<usize> = tokens.ids.split(|id| *id != image).map(<[u32]>::len).filter(|n| *n > 0).collect();
        assert_eq!(runs, grids.iter().map(|g| g.tokens()).collect::<Vec<_>>());
        assert!(tokens.ids[..tokens.dropped].iter().all(|id| *id != image));
    }
}

#[test]
fn a_prompt_cannot_claim_a_picture() {
    let prompter = tiny();
    let fails = |prompt: &str, grids: &[Grid], token: &str| {
        let error = prompter.tokens(prompt, grids).unwrap_err().to_string();
        assert!(error.contains(token) && error.contains("take it out"), "{error}");
    };
    fails("a <|image_pad|> b", &[], "<|image_pad|>");
    fails("<|vision_start|><|image_pad|><|vision_end|>", &[grid(2, 2)], "<|image_pad|>");
    fails("<|video_pad|>", &[grid(2, 2)], "<|video_pad|>");
}

/// The tiny checkpoint's tokenizer and text encoder config in a folder of their own, with changes.
fn altered(change: impl Fn(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["processor/tokenizer.json", "text_encoder/config.json"] {
        let target = folder.path().join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(fixture("tiny").join(name), target).unwrap();
    }
    change(folder.path());
    folder
}

fn edit(file: &Path, change: impl Fn(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut value);
    fs::write(file, serde_json::to_vec(&value).unwrap()).unwrap();
}

#[test]
fn the_tokenizer_may_stand_in_either_folder() {
    let folder = altered(|root| fs::rename(root.join("processor"), root.join("tokenizer")).unwrap());
    let tokens = Prompter::load(&Files::folder(folder.path())).unwrap().tokens("a cat", &[]).unwrap();
    assert_eq!(tokens, tiny().tokens("a cat", &[]).unwrap());
}

#[test]
fn settings_of_the_last_use_do_not_matter() {
    let folder = altered(|root| {
        edit(&root.join("processor/tokenizer.json"), |tokenizer| {
            tokenizer["truncation"] = serde_json::json!({
                "direction": "Right", "max_length": 30, "strategy": "LongestFirst", "stride": 0
            });
            tokenizer["padding"] = serde_json::json!({
                "strategy": { "Fixed": 500 }, "direction": "Left", "pad_to_multiple_of": null, "pad_id": 406,
                "pad_type_id": 0, "pad_token": "<|endoftext|>"
            });
        });
    });
    let tokens = Prompter::load(&Files::folder(folder.path())).unwrap().tokens("a cat", &[]).unwrap();
    assert_eq!(tokens, tiny().tokens("a cat", &[]).unwrap());
}

#[test]
fn what_does_not_fit_together_is_named() {
    let fails = |change: &dyn Fn(&Path), words: &[&str]| {
        let folder = altered(change);
        let error = Prompter::load(&Files::folder(folder.path())).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
    };
    let tokenizer = |root: &Path| root.join("processor/tokenizer.json");
    let config = |root: &Path| root.join("text_encoder/config.json");
    fails(&|root| fs::remove_file(tokenizer(root)).unwrap(), &["no tokenizer", "tokenizer/tokenizer.json"]);
    fails(
        &|root| fs::write(tokenizer(root), "{\"version\":").unwrap(),
        &["tokenizer.json", "no tokenizer that can be read"],
    );
    fails(&|root| fs::remove_file(config(root)).unwrap(), &["text_encoder"]);
    fails(
        &|root| edit(&config(root), |config| config["image_token_id"] = 7.into()),
        &["<|image_pad|> has id 418", "config.json says 7", "different models"],
    );
    fails(
        &|root| {
            edit(&tokenizer(root), |tokenizer| {
                let added = tokenizer["added_tokens"].as_array_mut().unwrap();
                for token in added {
                    if token["content"] == "<|im_end|>" {
                        token["content"] = "<|other|>".into();
                    }
                }
            });
        },
        &["<|im_end|> is missing"],
    );
}

/// Needs the real tokenizer, which is too large for the repository: `qwen_ids.json` says where to get it.
#[test]
#[ignore = "needs QWEN_TOKENIZER, the path of Qwen's tokenizer.json"]
fn the_real_tokenizer_gives_the_golden_ids() {
    let file = std::env::var("QWEN_TOKENIZER").unwrap();
    let tokenizer = tokenizers::Tokenizer::from_file(&file).unwrap();
    let golden = json("qwen_ids.json");
    let rows = golden["prompts"].as_array().unwrap();
    for row in rows {
        let text = row["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, true).unwrap().get_ids(), ids(row), "{text:?}");
    }

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("tokenizer")).unwrap();
    fs::create_dir_all(folder.path().join("text_encoder")).unwrap();
    fs::copy(&file, folder.path().join("tokenizer/tokenizer.json")).unwrap();
    let config = serde_json::json!({
        "image_token_id": 151_655, "video_token_id": 151_656,
        "vision_start_token_id": 151_652, "vision_end_token_id": 151_653
    });
    fs::write(folder.path().join("text_encoder/config.json"), config.to_string()).unwrap();
    let tokens = Prompter::load(&Files::folder(folder.path())).unwrap().tokens("a cat", &[]).unwrap();
    let whole = rows.iter().find(|row| row["text"].as_str().unwrap().contains("Comprehend")).unwrap();
    assert_eq!(tokens.ids, ids(whole));
    assert_eq!(tokens.dropped, 14);
}
