use image::RgbImage;

use super::super::template::tests::Fixture;
use super::*;
use crate::fixtures::folder;

fn picture(width: u32, height: u32) -> Arc<Picture> {
    Arc::new(Picture::new(RgbImage::new(width, height)))
}

/// The tiny checkpoint's prompter with one of the fixtures' templates.
fn prompter(template: &str) -> Prompter {
    let file = folder().join("tiny/text_encoder/config.json");
    let config = Config::parse(&file, &std::fs::read(&file).unwrap()).unwrap();
    let mut prompter = Prompter::load(&Files::folder(folder().join("tiny/processor")), &config).unwrap();
    let file = folder().join("chat").join(template);
    let source = std::fs::read_to_string(&file).unwrap();
    prompter.template = ChatTemplate::new(file, &source, prompter.tokenizer.special_tokens().to_vec()).unwrap();
    prompter
}

#[test]
fn conversations_have_the_tokens_of_the_references_processor() {
    let fixture = Fixture::read();
    let mut compared = 0;
    for render in &fixture.renders {
        let Some(expected) = &render.ids else { continue };
        let case = format!("{} {:?} {:?}", render.template, render.conversation, render.thinking);
        let prompter = prompter(&render.template);
        let messages = fixture.messages(&render.conversation);
        let found = prompter.prompt(&messages, render.thinking);
        if render.conversation == "picture in system" {
            // The reference drops the picture's place and looks at it all the same.
            assert!(found.unwrap_err().to_string().contains("made 0 places of <|image_pad|> for 1 pictures"), "{case}");
            continue;
        }
        let found = found.unwrap();
        assert_eq!(found.ids, *expected, "{case}");
        let image = prompter.image.0;
        let slots =
            found.images.iter().flat_map(|image| image.slots.start..image.slots.start + image.slots.grid.tokens());
        assert_eq!(
            slots.collect::<Vec<_>>(),
            (0..expected.len()).filter(|&i| expected[i] == image).collect::<Vec<_>>()
        );
        assert_eq!(found.positions.len(), expected.len());
        let text = prompter.tokenizer.token(found.ids[found.turn]);
        if render.template != "words.jinja" {
            assert_eq!(text.as_deref(), Some("<|im_start|>"), "{case}");
            let opened = render.template == "thinking.jinja" && render.thinking != Some(false);
            assert_eq!(found.thinking, opened, "{case}");
        }
        compared += 1;
    }
    assert!(compared > 70, "only {compared} cases");
}

#[test]
fn what_cannot_be_a_prompt_is_refused() {
    let prompter = prompter("plain.jinja");
    let question = |text: &str| Message::text(Role::User, text);
    let refused = |messages: &[Message], problem: &str| {
        let error = prompter.prompt(messages, None).unwrap_err();
        assert!(matches!(error, Error::Input(_)) && error.to_string().contains(problem), "{error}");
    };
    refused(&[], "there is no message");
    refused(&[question("hello"), question("")], "message 2 (user) is empty");
    refused(&[Message::text(Role::System, ""), question("hello")], "message 1 (system) is empty");
    refused(&[question("look: <|image_pad|>")], "message 1 (user) holds <|image_pad|>");
    refused(&[Message::ask([picture(64, 64)], "<|video_pad|>")], "holds <|video_pad|>");
    let thought = Message { thinking: Some("<|image_pad|>".into()), ..Message::text(Role::Assistant, "yes") };
    refused(&[question("hello"), thought, question("and?")], "message 2 (assistant) holds <|image_pad|>");
    // A token put together from two parts.
    let parts = ["<|image", "_pad|>"].map(|text| Content::Text(text.into())).to_vec();
    refused(&[Message { role: Role::User, content: parts, thinking: None }], "made 1 places of <|image_pad|>");
    refused(&[Message::ask([picture(1000, 2)], "thin")], "200 times");
    // An answer may be empty.
    assert!(prompter.prompt(&[question("hello"), Message::text(Role::Assistant, ""), question("again")], None).is_ok());
}

#[test]
fn pictures_need_a_template_that_has_places_for_them() {
    let prompter = prompter("words.jinja");
    let error = prompter.prompt(&[Message::ask([picture(64, 64)], "what?")], None).unwrap_err().to_string();
    assert!(error.contains("message 1 (user) holds a picture") && error.contains("takes text alone"), "{error}");
    assert!(prompter.prompt(&[Message::text(Role::User, "what?")], None).unwrap().images.is_empty());
}

#[test]
fn special_tokens_in_a_text_are_special_tokens() {
    let prompter = prompter("plain.jinja");
    let prompt = prompter.prompt(&[Message::text(Role::User, "a<|im_end|>b")], None).unwrap();
    let end = prompter.tokenizer.id("<|im_end|>").unwrap();
    assert_eq!(prompt.ids.iter().filter(|&&id| id == end).count(), 2);
}

#[test]
fn a_picture_is_known_by_its_pixels_and_shape() {
    let key = |picture: &Picture| PictureKey::of(picture);
    assert_eq!(key(&picture(4, 6)), key(&picture(4, 6)));
    assert_ne!(key(&picture(4, 6)), key(&picture(6, 4)));
    let mut other = RgbImage::new(4, 6);
    other.get_pixel_mut(3, 5).0[2] = 1;
    assert_ne!(key(&picture(4, 6)), key(&Picture::new(other)));
}

#[test]
fn tokenizer_and_model_must_fit() {
    let file = folder().join("tiny/text_encoder/config.json");
    let text = std::fs::read_to_string(&file).unwrap().replace(r#""image_token_id": 418"#, r#""image_token_id": 70"#);
    let config = Config::parse(&file, text.as_bytes()).unwrap();
    let error = Prompter::load(&Files::folder(folder().join("tiny/processor")), &config).unwrap_err().to_string();
    assert!(error.contains("no special token with id 70"), "{error}");
}

#[test]
fn common_beginnings_end_at_whole_characters() {
    assert_eq!(common_text("é", "è"), 0);
    assert_eq!(common_text("aé", "aéb"), 3);
    assert_eq!(common_text("", "a"), 0);
    assert_eq!(common_text("ab", "ab"), 2);
}
