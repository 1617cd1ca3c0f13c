//! How questions are answered: events, ends, limits, cancellation, refusals.

use std::sync::Mutex;

use atelier_kernels::cpu::Cpu;
use atelier_pipelines::Error;
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{
    Event, Finish, ImageToText, Message, PrefixCache, Request, Role, SamplingOverrides,
};
use atelier_pipelines::progress::{self, Cancel, Observer, Progress, Stage};

use crate::common::{Checkpoint, answer, greedy, picture};

fn question() -> Request {
    greedy(vec![Message::ask([picture(0, 64, 96)], "what is it?")])
}

fn looker() -> ImageToText<Cpu> {
    Checkpoint::of("qwen3_vl").open()
}

#[test]
fn the_answer_comes_as_it_is_made() {
    let looker = looker();
    let (mut said, mut prompts) = (String::new(), vec![]);
    let mut memory = PrefixCache::off();
    let found = looker.answer(&question(), &mut memory, &Progress::default(), &mut |event| {
        match event {
            Event::Prompt(usage) => prompts.push(usage),
            Event::Text(text) => said.push_str(text),
            other => panic!("{other:?}"),
        }
        Ok(())
    });
    let found = found.unwrap();
    assert_eq!(found.text, said);
    assert!(found.thinking.is_none());
    assert_eq!(prompts.len(), 1);
    let (usage, timings) = (found.usage, &found.timings);
    assert_eq!((prompts[0].prompt_tokens, prompts[0].completion_tokens), (usage.prompt_tokens, 0));
    assert_eq!((usage.image_tokens, usage.cached_tokens, usage.completion_tokens), (6, 0, found.tokens.len()));
    assert_eq!((timings.prefill_tokens, timings.decode_tokens), (usage.prompt_tokens, found.tokens.len() - 1));
    assert_eq!((timings.vision[0].size, timings.vision[0].tokens), ((64, 96), 6));
    assert!(timings.ttft_seconds >= timings.prefill_seconds + timings.vision[0].seconds);
    assert!(timings.prefill_seconds > 0.0 && timings.decode_seconds > 0.0);
    let tpot = timings.tpot().unwrap();
    assert!((tpot * timings.decode_rate().unwrap() - 1.0).abs() < 1e-9 && timings.vision_rate().is_some());
}

#[test]
fn stages_are_timed_for_whoever_watches() {
    #[derive(Default)]
    struct Watch(Mutex<Vec<(String, u64)>>);
    impl Observer for Watch {
        fn event(&self, event: progress::Event<'_>) {
            if let progress::Event::Finished(timing) = event {
                self.0.lock().unwrap().push((timing.stage.to_string(), timing.size.count));
            }
        }
    }
    let looker = looker();
    let watch = Watch::default();
    let progress = Progress::new(&watch, Cancel::default());
    let found = looker.answer(&question(), &mut PrefixCache::off(), &progress, &mut |_| Ok(())).unwrap();
    let stages = watch.0.lock().unwrap().clone();
    let expected = [
        (Stage::Tokenize, 1),
        (Stage::VisionEncode, 6),
        (Stage::Prefill, found.usage.prompt_tokens as u64),
        (Stage::Decode, found.timings.decode_tokens as u64),
    ];
    assert_eq!(stages, expected.map(|(stage, count)| (stage.to_string(), count)));
}

#[test]
fn an_answer_ends_at_its_limit_or_at_a_stop_string() {
    let looker = looker();
    let mut memory = PrefixCache::off();
    let whole = answer(&looker, &question(), &mut memory);
    assert_eq!(whole.finish, Finish::Length);
    let short = answer(&looker, &Request { max_tokens: 7, ..question() }, &mut memory);
    assert_eq!((short.finish, &short.tokens[..]), (Finish::Length, &whole.tokens[..7]));
    // A stop string from the middle of the answer.
    let middle: Vec<char> = whole.text.chars().skip(20).take(3).collect();
    let stop: String = middle.into_iter().collect();
    let stopped = answer(&looker, &Request { stop: vec![stop.clone()], ..question() }, &mut memory);
    assert_eq!(stopped.finish, Finish::Stop);
    assert_eq!(stopped.text, whole.text[..whole.text.find(&stop).unwrap()]);
    assert!(whole.tokens.starts_with(&stopped.tokens) && stopped.tokens.len() < whole.tokens.len());
}

#[test]
fn seeds_make_answers_that_can_be_had_again() {
    let looker = looker();
    let mut memory = PrefixCache::new(1 << 30);
    let ask = |seed| {
        let sampling = SamplingOverrides { temperature: Some(1.0), seed: Some(seed), ..SamplingOverrides::default() };
        Request { sampling, ..question() }
    };
    let one = answer(&looker, &ask(1), &mut memory);
    let again = answer(&looker, &ask(1), &mut memory);
    assert_eq!(one.tokens, again.tokens);
    assert!(again.usage.cached_tokens > 0, "a known beginning changes nothing");
    assert_ne!(one.tokens, answer(&looker, &ask(2), &mut memory).tokens);
}

#[test]
fn a_cancelled_answer_leaves_what_it_read() {
    let looker = looker();
    let mut memory = PrefixCache::new(1 << 30);
    let cancel = Cancel::default();
    let mut pieces = 0;
    let outcome = looker.answer(&question(), &mut memory, &Progress::new(&(), cancel.clone()), &mut |event| {
        pieces += usize::from(matches!(event, Event::Text(_)));
        if pieces == 5 {
            cancel.cancel();
        }
        Ok(())
    });
    assert!(matches!(outcome, Err(Error::Cancelled)));
    assert_eq!((pieces, memory.conversations()), (5, 1));
    let resumed = answer(&looker, &question(), &mut memory);
    assert_eq!(resumed.tokens, answer(&looker, &question(), &mut PrefixCache::off()).tokens);
    assert!(resumed.usage.cached_tokens + 1 >= resumed.usage.prompt_tokens);
    // Before anything was read.
    let outcome = looker.answer(&question(), &mut memory, &Progress::new(&(), cancel), &mut |_| Ok(()));
    assert!(matches!(outcome, Err(Error::Cancelled)));
}

#[test]
fn a_conversation_that_is_cancelled_while_it_looks_is_not_forgotten() {
    /// Cancels when the second picture is looked at.
    struct Watch(Cancel);
    impl Observer for Watch {
        fn event(&self, event: progress::Event<'_>) {
            if let progress::Event::Started { stage: Stage::VisionEncode, .. } = event {
                self.0.cancel();
            }
        }
    }
    let looker = looker();
    let mut memory = PrefixCache::new(1 << 30);
    let mut request = question();
    let first = answer(&looker, &request, &mut memory);
    request.messages.push(first.message());
    request.messages.push(Message::ask([picture(1, 64, 64)], "and here?"));
    let cancel = Cancel::default();
    let watch = Watch(cancel.clone());
    let outcome = looker.answer(&request, &mut memory, &Progress::new(&watch, cancel), &mut |_| Ok(()));
    assert!(matches!(outcome, Err(Error::Cancelled)));
    let found = answer(&looker, &request, &mut memory);
    assert!(found.usage.cached_tokens >= first.usage.prompt_tokens, "{:?}", found.usage);
    assert_eq!(found.tokens, answer(&looker, &request, &mut PrefixCache::off()).tokens);
}

#[test]
fn whoever_listens_may_end_it() {
    let looker = looker();
    let mut memory = PrefixCache::new(1 << 30);
    let outcome =
        looker.answer(&question(), &mut memory, &Progress::default(), &mut |_| Err(Error::input("nobody listens")));
    assert_eq!(outcome.unwrap_err().to_string(), "nobody listens");
    assert_eq!(memory.conversations(), 1);
}

#[test]
fn the_context_is_a_limit() {
    let checkpoint = Checkpoint::of("qwen3_vl");
    let file = checkpoint.path.join("config.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(r#""max_position_embeddings": 262144"#, r#""max_position_embeddings": 40"#))
        .unwrap();
    let looker = checkpoint.open();
    let mut memory = PrefixCache::off();
    let found = answer(&looker, &question(), &mut memory);
    assert_eq!(found.finish, Finish::Length);
    assert_eq!(found.usage.prompt_tokens + found.tokens.len(), 40);
    let long = greedy(vec![Message::ask([picture(0, 192, 192)], "what is it?")]);
    let error = looker.answer(&long, &mut memory, &Progress::default(), &mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("(36 of them for pictures") && error.contains("reads 40 at most"), "{error}");
}

#[test]
fn requests_that_cannot_be_answered_are_refused() {
    let looker = looker();
    for (request, problem) in [
        (greedy(vec![]), "there is no message"),
        (Request { max_tokens: 0, ..question() }, "`max_tokens` is 0"),
        (Request { prefill_chunk: 0, ..question() }, "`prefill_chunk` is 0"),
        (Request { stop: vec![String::new()], ..question() }, "a stop string has 0 bytes"),
        (Request { stop: vec!["x".into(); 17], ..question() }, "17 stop strings"),
        (
            Request { sampling: SamplingOverrides { top_p: Some(2.0), ..SamplingOverrides::default() }, ..question() },
            "`top_p` is 2",
        ),
        (greedy(vec![Message::text(Role::User, "")]), "message 1 (user) is empty"),
    ] {
        let outcome = looker.answer(&request, &mut PrefixCache::off(), &Progress::default(), &mut |_| Ok(()));
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Input(_)) && error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn checkpoints_that_lack_a_file_are_refused() {
    for (file, problem) in [
        ("tokenizer.json", "lacks this file"),
        ("tokenizer_config.json", "lacks this file"),
        ("chat_template.jinja", "there is no chat template"),
        ("processor_config.json", "lacks this file"),
    ] {
        let checkpoint = Checkpoint::of("qwen3_vl");
        std::fs::remove_file(checkpoint.path.join(file)).unwrap();
        let error = ImageToText::open(&Cpu::default(), &Files::folder(&checkpoint.path)).unwrap_err();
        assert!(matches!(error, Error::Checkpoint { .. }) && error.to_string().contains(problem), "{file}: {error}");
    }
}
