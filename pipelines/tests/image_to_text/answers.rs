//! Whole answers, token by token as transformers gives them.

use std::collections::BTreeMap;

use atelier_kernels::Backend as _;
use atelier_kernels::cpu::Cpu;
use atelier_pipelines::image_to_text::{Content, Finish, Message, PrefixCache, Request, Role};
use atelier_pipelines::progress::Cancel;
use serde::Deserialize;

use crate::common::{Checkpoint, FAMILIES, answer, fixture, greedy, picture, user};

#[derive(Deserialize)]
pub(crate) struct Conversation {
    name: String,
    turns: Vec<Vec<Part>>,
    answers: Vec<Expected>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Text(String),
    Picture(u32, u32),
}

#[derive(Deserialize)]
struct Expected {
    prompt_tokens: usize,
    tokens: Vec<u32>,
    text: String,
}

fn conversations() -> BTreeMap<String, Vec<Conversation>> {
    serde_json::from_slice(&std::fs::read(fixture("answers.json")).unwrap()).unwrap()
}

/// The messages of a conversation up to a turn, with the answers that the reference gave.
fn messages(conversation: &Conversation, turn: usize) -> Vec<Message> {
    let mut number = 0;
    let mut messages = Vec::new();
    for (at, parts) in conversation.turns[..=turn].iter().enumerate() {
        let content = parts.iter().map(|part| match part {
            Part::Text(text) => Content::Text(text.clone()),
            Part::Picture(width, height) => {
                number += 1;
                Content::Image(picture(number - 1, *width, *height))
            }
        });
        messages.push(user(content.collect()));
        if at < turn {
            messages.push(Message::text(Role::Assistant, &conversation.answers[at].text));
        }
    }
    messages
}

/// Every turn of every conversation of every family, with these settings.
fn compare(settings: impl Fn(&mut Request), mut memory: PrefixCache<Cpu>) -> usize {
    let mut known = 0;
    for (family, conversations) in conversations() {
        let checkpoint = Checkpoint::of(&family);
        let looker = checkpoint.open();
        for conversation in &conversations {
            for (turn, expected) in conversation.answers.iter().enumerate() {
                let mut request = greedy(messages(conversation, turn));
                settings(&mut request);
                let found = answer(&looker, &request, &mut memory);
                let case = format!("{family}, {:?}, turn {turn}", conversation.name);
                assert_eq!(found.usage.prompt_tokens, expected.prompt_tokens, "{case}");
                assert_eq!(found.tokens, expected.tokens, "{case}");
                assert_eq!(looker.prompter().tokenizer().decode(&found.tokens), expected.text, "{case}");
                if found.thinking.is_none() {
                    assert_eq!(found.text, expected.text, "{case}");
                }
                let finish = if expected.tokens.len() == 64 { Finish::Length } else { Finish::Stop };
                assert_eq!(found.finish, finish, "{case}");
                known += found.usage.cached_tokens;
            }
        }
    }
    known
}

#[test]
fn answers_are_those_of_transformers() {
    assert_eq!(compare(|_| (), PrefixCache::off()), 0);
}

#[test]
fn a_prompt_may_be_read_in_chunks() {
    for chunk in [1, 3, 8] {
        compare(|request| request.prefill_chunk = chunk, PrefixCache::off());
    }
}

#[test]
fn what_is_known_changes_no_answer() {
    let known = compare(|_| (), PrefixCache::new(1 << 30));
    assert!(known > 100, "{known} tokens were known");
}

#[test]
fn a_long_answer_is_what_one_pass_over_it_says() {
    const TOKENS: usize = 300;
    for family in FAMILIES {
        let checkpoint = Checkpoint::of(family);
        let looker = checkpoint.open();
        // A random model ends an answer at random.
        let questions = ["what is it?", "a cat?", "and here?", "why?", "how many?", "一座山"];
        let found = questions.into_iter().find_map(|question| {
            let messages = vec![Message::ask([picture(0, 75, 50), picture(1, 64, 96)], question)];
            let request = Request { max_tokens: TOKENS, ..greedy(messages.clone()) };
            let found = answer(&looker, &request, &mut PrefixCache::off());
            (found.tokens.len() == TOKENS).then_some((messages, found))
        });
        let Some((messages, found)) = found else { panic!("{family}: no question has a long answer") };
        let prompt = looker.prompter().prompt(&messages, None).unwrap();
        let (model, cancel) = (looker.model(), Cancel::default());
        let see = |picture: &_| {
            let patches = looker.prompter().processor().patches(picture).unwrap();
            model.see(&patches, &cancel).unwrap()
        };
        let features: Vec<_> = prompt.images.iter().map(|image| see(image.picture.pixels())).collect();
        let pictures: Vec<_> = prompt.images.iter().map(|image| image.slots).zip(&features).collect();
        let ids = [&prompt.ids[..], &found.tokens].concat();
        let mut positions = prompt.positions.clone();
        positions.extend((prompt.next..).take(TOKENS).map(|position| [position; 3]));
        let inputs = model.part(&ids, &positions, 0..ids.len(), 0, &pictures).unwrap();
        let states = model.read(&inputs, None, &cancel).unwrap();
        let logits = model.backend().download(&model.logits(&states).unwrap()).unwrap();
        let rows: Vec<_> = logits.chunks_exact(logits.len() / ids.len()).collect();
        for (at, token) in found.tokens.iter().enumerate() {
            let row = rows[prompt.ids.len() - 1 + at];
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // Rounding may make two equal.
            assert!(row[*token as usize] >= most - 1e-4, "{family}, token {at}");
        }
    }
}
