//! The prefix cache: the same answers with less work, within its limit.

use atelier_kernels::cpu::Cpu;
use atelier_pipelines::image_to_text::{Answer, Content, ImageToText, Message, PrefixCache, Request, Role};
use atelier_pipelines::progress::Progress;

use crate::common::{Checkpoint, FAMILIES, answer, greedy, picture, user};

fn text(text: &str) -> Content {
    Content::Text(text.into())
}

fn image(number: u32) -> Content {
    Content::Image(picture(number, 64 + 32 * (number % 2), 64))
}

/// The answer with an empty memory.
fn fresh(looker: &ImageToText<Cpu>, request: &Request) -> Answer {
    answer(looker, request, &mut PrefixCache::off())
}

/// Asks with `memory`, and compares with the answer without.
fn same(looker: &ImageToText<Cpu>, request: &Request, memory: &mut PrefixCache<Cpu>) -> Answer {
    let found = answer(looker, request, memory);
    assert_eq!(found.tokens, fresh(looker, request).tokens);
    found
}

#[test]
fn several_conversations_go_on_side_by_side() {
    for family in FAMILIES {
        let checkpoint = Checkpoint::of(family);
        let looker = checkpoint.open();
        let mut memory = PrefixCache::new(1 << 30);
        let system = Message::text(Role::System, "be brief and look at the light in the windows");
        let mut conversations: Vec<Vec<Message>> = (0..3).map(|_| vec![system.clone()]).collect();
        let mut known = vec![];
        for turn in 0..3 {
            for (number, messages) in conversations.iter_mut().enumerate() {
                let number = number as u32;
                // Two of them begin with the same picture.
                let content = match turn {
                    0 => vec![text("look "), image(number / 2), text(&format!(" question {number}"))],
                    1 => vec![text("and now?")],
                    _ => vec![image(number), text("or here?")],
                };
                messages.push(user(content));
                let mut request = greedy(messages.clone());
                request.max_tokens = 12;
                let answer = same(&looker, &request, &mut memory);
                known.push((turn, number, answer.usage.cached_tokens, answer.usage.prompt_tokens));
                messages.push(answer.message());
            }
        }
        println!("{family}: {known:?}");
        for (turn, number, cached, prompt) in known {
            match (turn, number) {
                (0, 0) => assert_eq!(cached, 0),
                // The second conversation has system message and picture from the first, the third the system message
                // alone, which a recurrent model learns to keep when it sees that two conversations part there.
                (0, 1) => assert!(cached > prompt / 2, "{family}: {cached} of {prompt}"),
                (0, _) => (),
                _ => assert!(cached > prompt / 3, "{family}, turn {turn}: {cached} of {prompt}"),
            }
        }
    }
}

#[test]
fn a_second_question_about_a_picture_does_not_look_again() {
    for family in FAMILIES {
        let checkpoint = Checkpoint::of(family);
        let looker = checkpoint.open();
        let mut memory = PrefixCache::new(1 << 30);
        let ask = |question: &str| greedy(vec![Message::ask([picture(1, 96, 64)], question)]);
        let first = same(&looker, &ask("how many?"), &mut memory);
        assert!(!first.timings.vision[0].cached && first.timings.vision[0].seconds > 0.0);
        for question in ["what colour?", "where is it?", "is it a cat?", "and why?"] {
            let next = same(&looker, &ask(question), &mut memory);
            assert!(next.timings.vision[0].cached, "{family}");
            assert!(next.usage.cached_tokens >= next.usage.image_tokens, "{family}: {:?}", next.usage);
            assert_eq!(next.timings.prefill_tokens, next.usage.prompt_tokens - next.usage.cached_tokens);
        }
        // After other words its tokens have to be read again, but not made.
        let moved =
            greedy(vec![Message::text(Role::System, "be brief"), Message::ask([picture(1, 96, 64)], "how many?")]);
        let moved = same(&looker, &moved, &mut memory);
        assert!(moved.timings.vision[0].cached && moved.usage.cached_tokens < moved.usage.image_tokens, "{family}");
        // The same question once more is known up to the beginning of the answer.
        let again = same(&looker, &ask("how many?"), &mut memory);
        let turn = looker.prompter().prompt(&ask("how many?").messages, None).unwrap().turn;
        assert!(again.usage.cached_tokens >= turn, "{family}: {:?}", again.usage);
    }
}

#[test]
fn thinking_that_is_not_read_again_costs_only_itself() {
    for family in FAMILIES {
        let checkpoint = Checkpoint::thinking(family);
        let looker = checkpoint.open();
        let mut memory = PrefixCache::new(1 << 30);
        let mut messages = vec![Message::ask([picture(1, 96, 64)], "how many?")];
        let first = same(&looker, &greedy(messages.clone()), &mut memory);
        assert!(first.thinking.is_some() && first.text.is_empty(), "{family}: the template opens the thinking");
        assert_eq!(first.usage.thinking_tokens, first.usage.completion_tokens);
        let turn = looker.prompter().prompt(&messages, None).unwrap().turn;
        messages.push(first.message());
        messages.push(user(vec![text("and what colour?")]));
        let next = same(&looker, &greedy(messages.clone()), &mut memory);
        assert!(next.usage.cached_tokens >= turn, "{family}: {:?}, {turn}", next.usage);
        let quick = Request { thinking: Some(false), ..greedy(messages) };
        let quick = same(&looker, &quick, &mut memory);
        assert!(quick.thinking.is_none() && !quick.text.is_empty(), "{family}");
    }
}

#[test]
fn another_picture_of_the_same_size_is_another_picture() {
    let checkpoint = Checkpoint::of("qwen3_vl");
    let looker = checkpoint.open();
    let mut memory = PrefixCache::new(1 << 30);
    let ask = |number| greedy(vec![Message::ask([picture(number, 64, 64)], "what is it?")]);
    let one = same(&looker, &ask(0), &mut memory);
    let other = same(&looker, &ask(5), &mut memory);
    assert_ne!(one.tokens, other.tokens);
    assert!(!other.timings.vision[0].cached);
    assert!(other.usage.cached_tokens < 8, "{:?}", other.usage);
}

#[test]
fn the_limit_holds_and_what_is_not_used_goes_first() {
    for family in FAMILIES {
        let checkpoint = Checkpoint::of(family);
        let looker = checkpoint.open();
        let ask = |number: u32| {
            let mut request = greedy(vec![Message::ask([picture(number, 64, 64)], format!("{number} what is it?"))]);
            request.max_tokens = 4;
            request
        };
        let mut memory = PrefixCache::new(1 << 30);
        same(&looker, &ask(0), &mut memory);
        let one = memory.bytes();
        assert!(one > 0);
        let mut memory = PrefixCache::new(3 * one);
        for number in [0, 1, 2, 0, 3, 0, 4, 0] {
            same(&looker, &ask(number), &mut memory);
            assert!(memory.bytes() <= memory.limit(), "{family}: {} of {}", memory.bytes(), memory.limit());
            assert!(memory.conversations() > 0);
        }
        assert!(same(&looker, &ask(0), &mut memory).usage.cached_tokens > 8, "{family}: what is used often stays");
        assert!(same(&looker, &ask(1), &mut memory).usage.cached_tokens < 8, "{family}: what is not used goes");
        // Too small for anything.
        let mut memory = PrefixCache::new(100);
        same(&looker, &ask(0), &mut memory);
        assert_eq!((memory.bytes(), memory.conversations()), (0, 0));
    }
}

#[test]
fn another_model_begins_anew() {
    let checkpoint = Checkpoint::of("qwen3_vl");
    let (one, other) = (checkpoint.open(), checkpoint.open());
    let mut memory = PrefixCache::new(1 << 30);
    let request = greedy(vec![Message::text(Role::User, "a red apple on a table")]);
    answer(&one, &request, &mut memory);
    assert!(answer(&one, &request, &mut memory).usage.cached_tokens > 0);
    assert_eq!(answer(&other, &request, &mut memory).usage.cached_tokens, 0);
}

#[test]
fn generations_may_take_turns() {
    for family in FAMILIES {
        let checkpoint = Checkpoint::of(family);
        let looker = checkpoint.open();
        let mut memory = PrefixCache::new(1 << 30);
        let requests: Vec<Request> = (0..3)
            .map(|number| {
                let mut request = greedy(vec![Message::ask([picture(number, 64, 64)], "what is it?")]);
                request.prefill_chunk = 3 + number as usize;
                request.max_tokens = 10 + 5 * number as usize;
                request
            })
            .collect();
        let progress = Progress::default();
        let mut running: Vec<_> =
            requests.iter().map(|request| Some(looker.begin(request, &mut memory, &progress).unwrap())).collect();
        let mut answers = vec![None; requests.len()];
        while running.iter().any(Option::is_some) {
            for (slot, answer) in running.iter_mut().zip(&mut answers) {
                let Some(generation) = slot else { continue };
                generation.step(progress.cancel(), &mut |_| Ok(())).unwrap();
                if generation.finished() {
                    *answer = slot.take().and_then(|generation| looker.end(generation, &mut memory));
                }
            }
        }
        for (request, answer) in requests.iter().zip(answers) {
            assert_eq!(answer.unwrap().tokens, fresh(&looker, request).tokens, "{family}");
        }
        assert_eq!(memory.conversations(), 3);
    }
}
