use proptest::prelude::*;

use super::*;
use crate::checkpoint::Files;
use crate::fixtures::folder;

fn tokenizer() -> Tokenizer {
    Tokenizer::load(&Files::folder(folder().join("tiny/processor"))).unwrap()
}

/// What a stream says of tokens: thinking, answer, and the answer after each token.
fn say(stream: &mut TextStream<'_>, tokens: &[u32]) -> (String, String, Vec<String>) {
    let (mut thinking, mut text, mut steps) = (String::new(), String::new(), Vec::new());
    let mut add = |said: Vec<Said>| {
        for said in said {
            match said {
                Said::Thinking(part) => thinking.push_str(&part),
                Said::Text(part) => text.push_str(&part),
            }
        }
        steps.push(text.clone());
    };
    for &token in tokens {
        add(stream.push(token));
    }
    add(stream.finish());
    (thinking, text, steps)
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text).unwrap()
}

/// Thinking and answer of a text that is said.
fn split(text: &str, opened: bool, stop: &[&str]) -> (String, String) {
    let tokenizer = tokenizer();
    let stop = stop.iter().map(ToString::to_string).collect();
    let mut stream = TextStream::new(&tokenizer, stop, opened);
    let (thinking, text, _) = say(&mut stream, &ids(&tokenizer, text));
    (thinking, text)
}

#[test]
fn characters_come_whole_and_special_tokens_not_at_all() {
    let tokenizer = tokenizer();
    let text = "é 雪夜 😀👩‍👩‍👧 end";
    let tokens = ids(&tokenizer, &format!("<|im_start|>{text}<|im_end|><|vision_start|>"));
    assert!(tokens.len() > text.chars().count(), "characters are spread over tokens");
    let mut stream = TextStream::new(&tokenizer, Vec::new(), false);
    let (_, said, steps) = say(&mut stream, &tokens);
    assert_eq!(said, text);
    assert!(steps.iter().all(|step| text.starts_with(step.as_str())));
    // Ids without a token say nothing.
    assert!(TextStream::new(&tokenizer, Vec::new(), false).push(9999).is_empty());
}

#[test]
fn an_unfinished_character_is_marked_at_the_end_only() {
    let tokenizer = tokenizer();
    let tokens = ids(&tokenizer, "a😀");
    let cut = &tokens[..tokens.len() - 1];
    let (_, text, steps) = say(&mut TextStream::new(&tokenizer, Vec::new(), false), cut);
    assert_eq!(text, "a\u{fffd}");
    assert!(steps[..steps.len() - 1].iter().all(|step| !step.contains('\u{fffd}')));
}

#[test]
fn thinking_is_told_from_the_answer() {
    let pair = |thinking: &str, text: &str| (thinking.to_owned(), text.to_owned());
    for (said, opened, expected) in [
        ("<think>\na cat\n\nor a hat?\n</think>\n\nA cat.\n", false, pair("a cat\n\nor a hat?", "A cat.\n")),
        ("a cat\n</think>\n\nA cat.", true, pair("a cat", "A cat.")),
        ("\n<think></think>A cat.", false, pair("", "A cat.")),
        ("</think>\n\nA cat.", true, pair("", "A cat.")),
        ("a cat with no", true, pair("a cat with no", "")),
        ("\n A cat.", false, pair("", "\n A cat.")),
        (" \n ", false, pair("", " \n ")),
        ("A cat. <think> is a word, </think> too", false, pair("", "A cat. <think> is a word, </think> too")),
        ("<think>one</think>\n\n\ntwo <think>", false, pair("one", "two <think>")),
    ] {
        assert_eq!(split(said, opened, &[]), expected, "{said:?}");
    }
}

#[test]
fn stop_strings_end_the_answer_and_are_no_part_of_it() {
    let answer = |said: &str, opened: bool, stop: &[&str]| split(said, opened, stop).1;
    assert_eq!(answer("a red apple on a table", false, &["apple"]), "a red ");
    assert_eq!(answer("a red apple", false, &["apples", "zebra"]), "a red apple");
    assert_eq!(answer("one\n\ntwo", false, &["\n\n"]), "one");
    // The one that is complete first wins.
    assert_eq!(answer("xabcx", false, &["abcx", "b"]), "xa");
    // The longest of those that end together.
    assert_eq!(answer("xabc", false, &["bc", "abc"]), "x");
    assert_eq!(answer("\n", false, &["\n"]), "");
    // The thinking may hold it.
    assert_eq!(split("stop\n</think>\n\ngo stop", true, &["stop"]), ("stop".into(), "go ".into()));
    let tokenizer = tokenizer();
    let mut stream = TextStream::new(&tokenizer, vec!["a".into()], false);
    let (_, text, _) = say(&mut stream, &ids(&tokenizer, "bab"));
    assert!(stream.stopped() && stream.push(5).is_empty() && text == "b");
}

/// Where the text ends, found without streaming.
fn cut(text: &str, stop: &[String]) -> String {
    for end in (0..=text.len()).filter(|&end| text.is_char_boundary(end)) {
        let longest = stop.iter().filter(|stop| text[..end].ends_with(stop.as_str())).map(String::len).max();
        if let Some(length) = longest {
            return text[..end - length].to_owned();
        }
    }
    text.to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_tokens_read_as_the_tokenizers_decoder_reads_them(tokens in prop::collection::vec(0_u32..440, 0..60)) {
        let tokenizer = tokenizer();
        let reference = tokenizers::Tokenizer::from_file(folder().join("tiny/processor/tokenizer.json")).unwrap();
        let (open, close) = tokenizer.thinking().unwrap();
        let tokens: Vec<u32> = tokens.into_iter().filter(|token| ![open, close].contains(token)).collect();
        let expected = reference.decode(&tokens, true).unwrap();
        prop_assert_eq!(&tokenizer.decode(&tokens), &expected);
        let (thinking, text, steps) = say(&mut TextStream::new(&tokenizer, Vec::new(), false), &tokens);
        prop_assert_eq!((thinking.as_str(), &text), ("", &expected));
        prop_assert!(steps.iter().all(|step| expected.starts_with(step.as_str())));
    }

    #[test]
    fn no_part_of_a_stop_string_is_said(text in "[ab ]{0,40}", stop in prop::collection::vec("[ab ]{1,4}", 1..4)) {
        let tokenizer = tokenizer();
        let expected = cut(&text, &stop);
        let tokens = ids(&tokenizer, &text);
        let (_, said, steps) = say(&mut TextStream::new(&tokenizer, stop, false), &tokens);
        prop_assert_eq!(&said, &expected);
        prop_assert!(steps.iter().all(|step| expected.starts_with(step.as_str())));
    }
}
