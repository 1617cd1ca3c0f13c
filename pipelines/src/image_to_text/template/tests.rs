use std::collections::BTreeMap;
use std::sync::Arc;

use image::RgbImage;

use super::super::chat::Content;
use super::super::picture::Picture;
use super::*;
use crate::fixtures::folder;

/// `chat.json`: conversations, and what transformers makes of them.
#[derive(Deserialize)]
pub(in super::super) struct Fixture {
    conversations: BTreeMap<String, Vec<Turn>>,
    pub(in super::super) renders: Vec<Render>,
}

#[derive(Deserialize)]
struct Turn {
    role: Role,
    content: Vec<Part>,
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part {
    Text { text: String },
    Image { size: (u32, u32) },
}

#[derive(Deserialize)]
pub(in super::super) struct Render {
    pub(in super::super) template: String,
    pub(in super::super) conversation: String,
    answer: bool,
    pub(in super::super) thinking: Option<bool>,
    text: Option<String>,
    error: Option<String>,
    /// The tokens, with the pictures looked at.
    pub(in super::super) ids: Option<Vec<u32>>,
}

impl Fixture {
    pub(in super::super) fn read() -> Self {
        serde_json::from_slice(&std::fs::read(folder().join("chat.json")).unwrap()).unwrap()
    }

    pub(in super::super) fn messages(&self, conversation: &str) -> Vec<Message> {
        let part = |part: &Part| match part {
            Part::Text { text } => Content::Text(text.clone()),
            Part::Image { size: (w, h) } => Content::Image(Arc::new(Picture::new(RgbImage::new(*w, *h)))),
        };
        let message = |turn: &Turn| Message {
            role: turn.role,
            content: turn.content.iter().map(part).collect(),
            thinking: turn.reasoning_content.clone(),
        };
        self.conversations[conversation].iter().map(message).collect()
    }
}

fn template(source: &str) -> Result<ChatTemplate> {
    let special = vec![("eos_token", "<|im_end|>".to_owned()), ("pad_token", "<|endoftext|>".to_owned())];
    ChatTemplate::new(PathBuf::from("test.jinja"), source, special)
}

#[test]
fn conversations_read_as_transformers_renders_them() {
    let fixture = Fixture::read();
    let mut compared = 0;
    for render in &fixture.renders {
        let source = std::fs::read_to_string(folder().join("chat").join(&render.template)).unwrap();
        let template = template(&source).unwrap();
        assert_eq!(template.parts(), render.template != "words.jinja", "{}", render.template);
        assert_eq!(template.switches_thinking(), render.template != "plain.jinja", "{}", render.template);
        let messages = fixture.messages(&render.conversation);
        let case = format!("{} {:?} {} {:?}", render.template, render.conversation, render.answer, render.thinking);
        match (template.render(&messages, render.answer, render.thinking), &render.text, &render.error) {
            (Ok(text), Some(expected), None) => assert_eq!(text, *expected, "{case}"),
            (Err(error), None, Some(expected)) => {
                let reason = expected.strip_prefix("TemplateError: ").unwrap();
                assert!(error.to_string().contains(reason), "{case}: {error}");
            }
            (found, ..) => panic!("{case}: found {found:?}, expected {:?} {:?}", render.text, render.error),
        }
        compared += 1;
    }
    assert!(compared > 150, "only {compared} cases");
}

fn checkpoint(files: &[(&str, &str)]) -> (tempfile::TempDir, Files) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let files = Files::folder(folder.path());
    (folder, files)
}

#[test]
fn the_template_is_looked_for_in_the_order_of_transformers() {
    let mut files = vec![
        ("processor_config.json", r#"{"chat_template": "processor"}"#),
        ("chat_template.json", r#"{"chat_template": "legacy"}"#),
        ("chat_template.jinja", "file"),
        ("chat_templates/default.jinja", "folder"),
        (
            "tokenizer_config.json",
            r#"{"chat_template": [{"name": "other", "template": "x"}, {"name": "default", "template": "tokenizer"}]}"#,
        ),
    ];
    for expected in ["processor", "legacy", "file", "folder", "tokenizer"] {
        let (_folder, found) = checkpoint(&files);
        assert_eq!(find(&found).unwrap().1, expected);
        files.remove(0);
    }
    for (config, problem) in [
        ("{}", "there is no chat template"),
        (r#"{"chat_template": {"other": "x"}}"#, "no template named default; it has other"),
        (r#"{"chat_template": 3}"#, "neither a template"),
    ] {
        let (_folder, found) = checkpoint(&[("tokenizer_config.json", config)]);
        let error = find(&found).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    // A null counts as none.
    let (_folder, found) =
        checkpoint(&[("processor_config.json", r#"{"chat_template": null}"#), ("chat_template.jinja", "file")]);
    assert_eq!(find(&found).unwrap().1, "file");
}

#[test]
fn damaged_and_endless_templates_are_refused() {
    let error = template("{% for x in %}").unwrap_err().to_string();
    assert!(error.contains("test.jinja") && error.contains("line 1"), "{error}");
    let question = [Message::text(Role::User, "hello")];
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    let error = template(endless).unwrap().render(&question, true, None).unwrap_err().to_string();
    assert!(error.contains("fuel"), "{error}");
    let error = template("{{ messages.nothing.at.all }}").unwrap().render(&question, true, None).unwrap_err();
    assert!(error.to_string().contains("cannot write this conversation"), "{error}");
    let deep = "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}";
    assert!(template(deep).unwrap().render(&question, true, None).is_err());
}

#[test]
fn the_date_is_written_as_asked() {
    let question = [Message::text(Role::User, "hello")];
    let text = template("{{ strftime_now('%Y %d %b') }}").unwrap().render(&question, true, None).unwrap();
    assert_eq!(text, jiff::Zoned::now().strftime("%Y %d %b").to_string());
    assert!(template("{{ strftime_now('%') }}").unwrap().render(&question, true, None).is_err());
}
