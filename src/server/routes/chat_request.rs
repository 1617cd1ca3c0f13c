//! Fields of a chat request → questions for the looker.

use std::collections::HashMap;
use std::sync::Arc;

use atelier_pipelines::image_to_text::{Content, Message, Picture, Request, Role, SamplingOverrides};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::pictures;
use crate::server::error::ApiError;
use crate::server::remote;
use crate::server::settings::Settings;

/// Most pictures of one conversation.
const MOST_PICTURES: usize = 64;

/// Body of `POST /v1/chat/completions`: OpenAI's fields, and those of vLLM and `SGLang` that change what is sampled.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chat {
    messages: Vec<RawMessage>,
    pub model: Option<String>,
    max_tokens: Option<usize>,
    max_completion_tokens: Option<usize>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    seed: Option<i64>,
    stop: Option<Stop>,
    n: Option<u32>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    response_format: Option<ResponseFormat>,
    #[serde(rename = "chat_template_kwargs")]
    template_settings: Option<TemplateSettings>,
    reasoning_effort: Option<String>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    logit_bias: Option<HashMap<String, f32>>,
    tools: Option<Vec<Value>>,
    /// OpenAI's fields that change nothing here.
    #[serde(rename = "tool_choice")]
    _tool_choice: Option<IgnoredAny>,
    #[serde(rename = "parallel_tool_calls")]
    _parallel_tool_calls: Option<IgnoredAny>,
    #[serde(rename = "modalities")]
    _modalities: Option<IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(rename = "service_tier")]
    _service_tier: Option<IgnoredAny>,
    #[serde(rename = "store")]
    _store: Option<IgnoredAny>,
    #[serde(rename = "user")]
    _user: Option<IgnoredAny>,
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<IgnoredAny>,
    #[serde(rename = "safety_identifier")]
    _safety_identifier: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMessage {
    role: String,
    content: Option<RawContent>,
    reasoning_content: Option<String>,
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    #[serde(rename = "refusal")]
    _refusal: Option<IgnoredAny>,
    #[serde(rename = "annotations")]
    _annotations: Option<IgnoredAny>,
    #[serde(rename = "audio")]
    _audio: Option<IgnoredAny>,
    #[serde(rename = "function_call")]
    _function_call: Option<IgnoredAny>,
    #[serde(rename = "tool_calls")]
    _tool_calls: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum RawContent {
    Text(String),
    Parts(Vec<RawPart>),
}

#[derive(Debug, Deserialize)]
struct RawPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ImageUrl {
    /// As some clients write it.
    Plain(String),
    /// As OpenAI has it; `detail` changes nothing here.
    Object { url: String },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateSettings {
    enable_thinking: Option<bool>,
}

/// Checked questions: one for each answer that is asked for.
#[derive(Debug)]
pub struct Questions {
    /// They differ in their seeds alone.
    pub requests: Vec<Request>,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Whether the stream ends with the tokens.
    pub include_usage: bool,
}

impl Chat {
    /// Checks the fields and gets the pictures.
    ///
    /// # Errors
    /// 400 that names the field.
    pub async fn questions(self, settings: &Settings) -> Result<Questions, ApiError> {
        self.refuse()?;
        let n = self.n.unwrap_or(1);
        if !(1..=16).contains(&n) {
            return Err(ApiError::field("n", format!("n is {n}; it must be from 1 to 16.")));
        }
        let stop = match &self.stop {
            None => Vec::new(),
            Some(Stop::One(text)) => vec![text.clone()],
            Some(Stop::Several(texts)) => texts.clone(),
        };
        let thinking = match (&self.template_settings, self.reasoning_effort.as_deref()) {
            (Some(TemplateSettings { enable_thinking: Some(on) }), _) => Some(*on),
            (_, Some("none")) => Some(false),
            (_, Some(_)) => Some(true),
            _ => None,
        };
        let sampling = self.sampling()?;
        let seed = match self.seed {
            Some(seed) => seed as u64,
            None => getrandom::u64().map_err(|error| ApiError::internal(error.to_string()))?,
        };
        let defaults = Request::new(Vec::new());
        let max_tokens = self.max_completion_tokens.or(self.max_tokens).unwrap_or(defaults.max_tokens);
        let (stream, options) = (self.stream.unwrap_or(false), self.stream_options);
        let request =
            Request { messages: messages(self.messages, settings).await?, thinking, max_tokens, stop, ..defaults };
        let with_seed = |index: u32| Request {
            sampling: SamplingOverrides { seed: Some(seed.wrapping_add(u64::from(index))), ..sampling },
            ..request.clone()
        };
        let include_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
        Ok(Questions { requests: (0..n).map(with_seed).collect(), stream, include_usage })
    }

    /// What cannot be served is refused, not passed over.
    fn refuse(&self) -> Result<(), ApiError> {
        let refused = [
            ("tools", self.tools.as_ref().is_some_and(|tools| !tools.is_empty()), "Tools are not supported."),
            ("logprobs", self.logprobs == Some(true), "Log probabilities are not given."),
            ("top_logprobs", self.top_logprobs.is_some_and(|n| n > 0), "Log probabilities are not given."),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|b| !b.is_empty()), "logit_bias is not supported."),
        ];
        if let Some((param, _, message)) = refused.into_iter().find(|(_, asked, _)| *asked) {
            return Err(ApiError::field(param, message));
        }
        if self.stream_options.is_some() && self.stream != Some(true) {
            return Err(ApiError::field("stream_options", "stream_options needs \"stream\": true."));
        }
        match self.response_format.as_ref().map(|format| format.kind.as_str()) {
            None | Some("text") => Ok(()),
            Some(kind) => Err(ApiError::field(
                "response_format.type",
                format!("response_format '{kind}' is not supported: answers are text."),
            )),
        }
    }

    fn sampling(&self) -> Result<SamplingOverrides, ApiError> {
        // -1 stands for all, as with vLLM
        let top_k = match self.top_k {
            None => None,
            Some(-1) => Some(0),
            Some(k) => {
                Some(usize::try_from(k).map_err(|_| ApiError::field("top_k", "top_k must be at least 0, or -1."))?)
            }
        };
        Ok(SamplingOverrides {
            temperature: self.temperature,
            top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            seed: None,
        })
    }
}

async fn messages(raw: Vec<RawMessage>, settings: &Settings) -> Result<Vec<Message>, ApiError> {
    if raw.is_empty() {
        return Err(ApiError::field("messages", "There is no message."));
    }
    let (mut messages, mut pictures) = (Vec::new(), 0);
    for (index, message) in raw.into_iter().enumerate() {
        let at = format!("messages[{index}]");
        let role = match message.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => {
                let problem = format!("Role '{other}' is not supported: system, developer, user or assistant.");
                return Err(ApiError::field(format!("{at}.role"), problem));
            }
        };
        let parts = match message.content {
            None => Vec::new(),
            Some(RawContent::Text(text)) => vec![Content::Text(text)],
            Some(RawContent::Parts(parts)) => {
                let mut content = Vec::new();
                for (index, part) in parts.into_iter().enumerate() {
                    content.push(self::part(part, &format!("{at}.content[{index}]"), &mut pictures, settings).await?);
                }
                content
            }
        };
        messages.push(Message { role, content: parts, thinking: message.reasoning_content });
    }
    Ok(messages)
}

async fn part(part: RawPart, at: &str, pictures: &mut usize, settings: &Settings) -> Result<Content, ApiError> {
    match (part.kind.as_str(), part.text, part.image_url) {
        ("text", Some(text), _) => Ok(Content::Text(text)),
        ("image_url", _, Some(ImageUrl::Plain(url) | ImageUrl::Object { url })) => {
            *pictures += 1;
            if *pictures > MOST_PICTURES {
                return Err(ApiError::field(at, format!("More than {MOST_PICTURES} pictures.")));
            }
            let at = format!("{at}.image_url");
            let (limits, field) = (remote::Limits::of(settings), at.clone());
            let picture = tokio::task::spawn_blocking(move || picture(&url, limits, &field));
            let picture = picture.await.map_err(|error| ApiError::internal(error.to_string()))??;
            Ok(Content::Image(Arc::new(picture)))
        }
        ("text", None, _) => Err(ApiError::missing_field(&format!("{at}.text"))),
        ("image_url", _, None) => Err(ApiError::missing_field(&format!("{at}.image_url"))),
        (kind, ..) => Err(ApiError::field(
            format!("{at}.type"),
            format!("Content of type '{kind}' is not supported: text or image_url."),
        )),
    }
}

/// A data URI, or an address where that is allowed → a picture.
fn picture(url: &str, limits: remote::Limits, field: &str) -> Result<Picture, ApiError> {
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let bytes = match scheme.as_str() {
        "data" => pictures::data(url).map_err(|error| format!("{error:#}.")),
        "http" | "https" if limits.allowed => remote::fetch(url, limits),
        "http" | "https" => Err("This server fetches no pictures: send a data: URI.".into()),
        _ => Err("The address of a picture must begin with data:, http:// or https://.".into()),
    };
    let decoded = bytes.and_then(|bytes| {
        remote::check_size(&bytes, limits)?;
        Picture::decode(&bytes).map_err(|error| format!("{error}."))
    });
    decoded.map_err(|message| ApiError { code: Some("invalid_image"), ..ApiError::field(field, message) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::serve::Serve;
    use crate::server::body::parse;
    use crate::server::settings::settings;

    const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

    async fn questions(body: &str) -> Result<Questions, ApiError> {
        parse::<Chat>(body.as_bytes())?.questions(&settings(Serve::default()).unwrap()).await
    }

    #[tokio::test]
    async fn fields_reach_the_looker() {
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"developer","content":"be brief"}},{{"role":"user","content":[
            {{"type":"text","text":"what is"}},{{"type":"image_url","image_url":{{"url":"{PIXEL}","detail":"low"}}}}]}}],
            "max_completion_tokens":7,"temperature":0.5,"top_k":-1,"seed":3,"n":2,"stop":"x","stream":true,
            "stream_options":{{"include_usage":true}},"chat_template_kwargs":{{"enable_thinking":false}},"user":"me"}}"#
        );
        let Questions { requests, stream, include_usage } = questions(&body).await.unwrap();
        assert!(stream && include_usage);
        let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
        assert_eq!((first.sampling.seed, second.sampling.seed), (Some(3), Some(4)));
        assert_eq!((first.max_tokens, first.thinking, first.sampling.top_k), (7, Some(false), Some(0)));
        assert_eq!((first.stop.as_slice(), first.messages.len()), (&["x".to_owned()][..], 2));
        assert_eq!(first.messages[1].pictures().count(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_served_is_named() {
        let user = |content: &str| format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
        let with = |fields: &str| format!(r#"{{"messages":[{{"role":"user","content":"a"}}],{fields}}}"#);
        for (body, param) in [
            (r#"{"messages":[]}"#.to_owned(), "messages"),
            (r#"{"messages":[{"role":"tool","content":"a"}]}"#.to_owned(), "messages[0].role"),
            (user(r#"[{"type":"text"}]"#), "messages[0].content[0].text"),
            (user(r#"[{"type":"input_audio"}]"#), "messages[0].content[0].type"),
            (
                user(r#"[{"type":"image_url","image_url":"https://example.org/a.png"}]"#),
                "messages[0].content[0].image_url",
            ),
            (user(r#"[{"type":"image_url","image_url":"file:///etc/passwd"}]"#), "messages[0].content[0].image_url"),
            (user(r#"[{"type":"image_url","image_url":"data:,nonsense"}]"#), "messages[0].content[0].image_url"),
            (with(r#""n":0"#), "n"),
            (with(r#""top_k":-2"#), "top_k"),
            (with(r#""tools":[{}]"#), "tools"),
            (with(r#""logprobs":true"#), "logprobs"),
            (with(r#""stream_options":{}"#), "stream_options"),
            (with(r#""response_format":{"type":"json_object"}"#), "response_format.type"),
            (with(r#""colour":1"#), "colour"),
        ] {
            assert_eq!(questions(&body).await.unwrap_err().param.as_deref(), Some(param), "{body}");
        }
    }
}
