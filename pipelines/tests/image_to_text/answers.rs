//! Whole answers, token by token as transformers gives them.

use std::collections::BTreeMap;

use atelier_kernels::cpu::Cpu;
use atelier_pipelines::image_to_text::{Content, Finish, Message, PrefixCache, Request, Role};
use serde::Deserialize;

use crate::common::{Checkpoint, answer, fixture, greedy, picture, user};

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
                assert_eq!(found.text, expected.text, "{case}");
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
