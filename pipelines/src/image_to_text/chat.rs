//! A conversation, as a person or a client has it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::picture::Picture;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation; where a template has a place for them, the first message.
    System,
    /// The person who asks.
    User,
    /// The model.
    Assistant,
}

/// A part of a message.
#[derive(Debug, Clone)]
pub enum Content {
    /// Text. Special tokens in it (`<|im_end|>` ...) are special tokens, as in the reference; those that stand for the
    /// content of a picture or video are refused.
    Text(String),
    /// A picture.
    Image(Arc<Picture>),
}

/// One turn of a conversation.
#[derive(Debug, Clone)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said and shown, in this order.
    pub content: Vec<Content>,
    /// What the model thought before this answer; whether it is read again is the template's affair.
    pub thinking: Option<String>,
}

impl Message {
    /// A message of text alone.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, content: vec![Content::Text(text.into())], thinking: None }
    }

    /// A question about pictures, which stand before it.
    pub fn ask(pictures: impl IntoIterator<Item = Arc<Picture>>, question: impl Into<String>) -> Self {
        let mut content: Vec<Content> = pictures.into_iter().map(Content::Image).collect();
        content.push(Content::Text(question.into()));
        Self { role: Role::User, content, thinking: None }
    }

    /// The pictures, in order.
    pub fn pictures(&self) -> impl Iterator<Item = &Arc<Picture>> {
        self.content.iter().filter_map(|content| match content {
            Content::Image(picture) => Some(picture),
            Content::Text(_) => None,
        })
    }

    /// The texts, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.content.iter().filter_map(|content| match content {
            Content::Text(text) => Some(text.as_str()),
            Content::Image(_) => None,
        })
    }

    /// Whether nothing is said or shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pictures().next().is_none() && self.texts().all(str::is_empty)
    }

    /// The message as a chat template reads it: with `parts` the content is a list of parts, else one string.
    pub(super) fn for_template(&self, parts: bool) -> TemplateMessage<'_> {
        TemplateMessage {
            role: self.role,
            content: if parts {
                TemplateContent::Parts(self.content.iter().map(Part::of).collect())
            } else {
                TemplateContent::String(self.texts().collect())
            },
            reasoning_content: self.thinking.as_deref(),
        }
    }
}

/// A message as chat templates know it.
#[derive(Debug, Serialize)]
pub(super) struct TemplateMessage<'a> {
    role: Role,
    content: TemplateContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TemplateContent<'a> {
    String(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Part<'a> {
    Text { text: &'a str },
    Image,
}

impl<'a> Part<'a> {
    fn of(content: &'a Content) -> Self {
        match content {
            Content::Text(text) => Self::Text { text },
            Content::Image(_) => Self::Image,
        }
    }
}
