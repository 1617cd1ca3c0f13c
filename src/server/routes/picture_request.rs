//! Fields of a request to paint → the painter's request.

use atelier_pipelines::text_to_image::picture::{FileType, encode, encode_jpeg, on_white};
use atelier_pipelines::text_to_image::{Picture, Request};
use image::RgbaImage;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::server::error::ApiError;

/// Longest prompt in characters, as OpenAI's.
const PROMPT_LIMIT: usize = 32_000;
/// Most steps of one picture.
const MOST_STEPS: usize = 200;

/// Body of `POST /v1/images/generations`: OpenAI's fields, and `seed`, `steps`, `cfg_scale`, `negative_prompt` and `progress`,
/// which are ours.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generation {
    pub prompt: String,
    pub model: Option<String>,
    pub n: Option<u32>,
    pub size: Option<String>,
    pub background: Option<Background>,
    pub output_format: Option<Format>,
    pub output_compression: Option<u32>,
    pub response_format: Option<String>,
    pub stream: Option<bool>,
    pub partial_images: Option<u32>,
    pub seed: Option<u64>,
    pub steps: Option<usize>,
    pub cfg_scale: Option<f32>,
    pub negative_prompt: Option<String>,
    pub progress: Option<bool>,
    /// OpenAI's fields that change nothing here.
    #[serde(rename = "quality")]
    _quality: Option<IgnoredAny>,
    #[serde(rename = "moderation")]
    _moderation: Option<IgnoredAny>,
    #[serde(rename = "style")]
    _style: Option<IgnoredAny>,
    #[serde(rename = "user")]
    _user: Option<IgnoredAny>,
    #[serde(rename = "input_fidelity")]
    _input_fidelity: Option<IgnoredAny>,
}

/// What is behind the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Background {
    /// As it was painted.
    #[default]
    Auto,
    /// As it was painted; the file type must have alpha.
    Transparent,
    /// Laid on white.
    Opaque,
}

/// The file type of the pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Lossless.
    #[default]
    Png,
    /// Lossy, laid on white.
    Jpeg,
    /// Lossless.
    Webp,
}

/// A checked request.
#[derive(Debug)]
pub(crate) struct Order {
    /// For the painter.
    pub request: Request,
    /// What the pictures become.
    pub output: Output,
    /// Whether the answer is a stream.
    pub stream: bool,
    /// Whether the stream tells of every stage.
    pub progress: bool,
}

/// What pictures become.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    format: Format,
    quality: u8,
    /// What is behind the object.
    pub background: Background,
}

impl Output {
    /// The format's name.
    pub(crate) fn name(self) -> &'static str {
        match self.format {
            Format::Png => "png",
            Format::Jpeg => "jpeg",
            Format::Webp => "webp",
        }
    }

    /// Picture → file.
    pub(crate) fn encode(self, picture: &Picture) -> Result<Vec<u8>, ApiError> {
        let alpha = picture.has_alpha && self.background != Background::Opaque;
        let laid;
        let image = if picture.has_alpha && !alpha {
            laid = image::DynamicImage::from(on_white(&picture.image)).into_rgba8();
            &laid
        } else {
            &picture.image
        };
        let file = match self.format {
            Format::Png => encode(image, alpha, FileType::Png, &[])?,
            Format::Webp => encode(image, alpha, FileType::WebP, &[])?,
            Format::Jpeg => encode_jpeg(image, alpha, self.quality)?,
        };
        Ok(file.bytes)
    }
}

fn within<T: PartialOrd + std::fmt::Display + Copy>(param: &str, value: T, least: T, most: T) -> Result<T, ApiError> {
    if value >= least && value <= most {
        return Ok(value);
    }
    Err(ApiError::field(param, format!("{param} is {value}; it must be from {least} to {most}.")))
}

impl Generation {
    /// Checks the fields.
    ///
    /// # Errors
    /// 400 that names the field.
    pub(crate) fn order(self, references: Vec<RgbaImage>) -> Result<Order, ApiError> {
        if self.prompt.trim().is_empty() {
            return Err(ApiError::field("prompt", "The prompt is empty: say what to paint."));
        }
        if self.prompt.chars().count() > PROMPT_LIMIT {
            return Err(ApiError::field("prompt", format!("The prompt is longer than {PROMPT_LIMIT} characters.")));
        }
        if self.prompt.contains('\0') {
            return Err(ApiError::field("prompt", "The prompt holds a zero character."));
        }
        if let Some(format) = self.response_format.as_deref().filter(|format| *format != "b64_json") {
            let message = match format {
                "url" => "This server keeps no pictures, so it has no URLs to give: use b64_json.".into(),
                other => format!("response_format '{other}' is unknown: use b64_json."),
            };
            return Err(ApiError::field("response_format", message));
        }
        let stream = self.stream.unwrap_or(false);
        let previews = within("partial_images", self.partial_images.unwrap_or(0), 0, 3)? as usize;
        if previews > 0 && !stream {
            return Err(ApiError::field("partial_images", "partial_images needs \"stream\": true."));
        }
        let output = self.output()?;
        let first = self.seed.map_or_else(draw, Ok)?;
        let n = u64::from(within("n", self.n.unwrap_or(1), 1, 10)?);
        let last = first.checked_add(n - 1);
        let last = last.ok_or_else(|| ApiError::field("seed", "seed leaves no room for n pictures."))?;
        let steps = self.steps.map(|steps| within("steps", steps, 1, MOST_STEPS)).transpose()?;
        let request = Request {
            negative_prompt: self.negative_prompt,
            size: self.size.as_deref().map(size).transpose()?.flatten(),
            steps,
            cfg_scale: within("cfg_scale", self.cfg_scale.unwrap_or(1.0), 0.0, 100.0)?,
            seeds: (first..=last).collect(),
            references,
            previews,
            ..Request::new(self.prompt)
        };
        Ok(Order { request, output, stream, progress: self.progress.unwrap_or(false) })
    }

    fn output(&self) -> Result<Output, ApiError> {
        let format = self.output_format.unwrap_or_default();
        let background = self.background.unwrap_or_default();
        if format == Format::Jpeg && background == Background::Transparent {
            return Err(ApiError::field("background", "JPEG has no transparency: use png or webp."));
        }
        let quality = within("output_compression", self.output_compression.unwrap_or(95), 0, 100)?;
        if self.output_compression.is_some_and(|given| given != 100) && format != Format::Jpeg {
            return Err(ApiError::field(
                "output_compression",
                "png and webp are written without loss here: output_compression is for jpeg.",
            ));
        }
        Ok(Output { format, quality: quality.max(1) as u8, background })
    }
}

/// `1024x768`; `auto` leaves it to the model.
fn size(text: &str) -> Result<Option<(u32, u32)>, ApiError> {
    if text == "auto" {
        return Ok(None);
    }
    let sides = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    let sides = sides.filter(|&(width, height): &(u32, u32)| width.min(height) >= 32 && width.max(height) <= 16384);
    let problem =
        || ApiError::field("size", format!("size '{text}' must be WIDTHxHEIGHT, each from 32 to 16384, or auto."));
    sides.map(Some).ok_or_else(problem)
}

fn draw() -> Result<u64, ApiError> {
    getrandom::u32().map(u64::from).map_err(|error| ApiError::internal(format!("no seed could be drawn: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::body::parse;

    fn order(fields: &str) -> Result<Order, ApiError> {
        parse::<Generation>(format!("{{\"prompt\":\"a cat\"{fields}}}").as_bytes())?.order(Vec::new())
    }

    #[test]
    fn fields_reach_the_painter() {
        let found = order(
            r#","n":2,"size":"256x128","seed":7,"steps":4,"stream":true,"partial_images":2,"user":"me","quality":"high""#,
        );
        let Order { request, stream, .. } = found.unwrap();
        assert_eq!((request.seeds, request.size, request.steps), (vec![7, 8], Some((256, 128)), Some(4)));
        assert!(stream && request.previews == 2);
        assert_eq!(order(r#","size":"auto""#).unwrap().request.size, None);
        assert_eq!(order("").unwrap().request.seeds.len(), 1);
    }

    #[test]
    fn bad_values_are_named() {
        for (fields, param) in [
            (r#","n":0"#, "n"),
            (r#","n":11"#, "n"),
            (r#","size":"big""#, "size"),
            (r#","size":"16x16""#, "size"),
            (r#","size":"999999999999x64""#, "size"),
            (r#","partial_images":1"#, "partial_images"),
            (r#","stream":true,"partial_images":4"#, "partial_images"),
            (r#","steps":0"#, "steps"),
            (r#","cfg_scale":-1"#, "cfg_scale"),
            (r#","response_format":"url""#, "response_format"),
            (r#","background":"transparent","output_format":"jpeg""#, "background"),
            (r#","output_compression":101,"output_format":"jpeg""#, "output_compression"),
            (r#","output_compression":50"#, "output_compression"),
            (r#","output_format":"gif""#, "output_format"),
            (r#","seed":-1"#, "seed"),
            (r#","seed":18446744073709551615,"n":2"#, "seed"),
            (r#","colour":"red""#, "colour"),
        ] {
            assert_eq!(order(fields).unwrap_err().param.as_deref(), Some(param), "{fields}");
        }
        assert_eq!(
            parse::<Generation>(br#"{"prompt":" "}"#).unwrap().order(vec![]).unwrap_err().param.unwrap(),
            "prompt"
        );
    }
}
