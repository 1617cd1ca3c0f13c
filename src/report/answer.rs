//! An answer → figures for people and JSON for programs.

use atelier_pipelines::image_to_text::{Answer, Finish, Timings, Usage, VisionTiming};
use serde::Serialize;

use crate::display::precise;
use crate::recipe::VERSION;

/// A picture that was looked at.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// Where it came from.
    pub name: String,
    /// Width of the upright picture in the file, in pixels.
    pub width: u32,
    /// Height of it.
    pub height: u32,
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
pub struct Outcome<'a> {
    version: &'static str,
    model: &'a str,
    question: &'a str,
    answer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a str>,
    finish: Finish,
    usage: Usage,
    pictures: Vec<Picture<'a>>,
    timings: Figures,
    /// Wall-clock seconds from opening the checkpoint to the last token.
    seconds: f64,
    notices: &'a [String],
}

/// A picture and what looking at it took.
#[derive(Debug, Serialize)]
struct Picture<'a> {
    #[serde(flatten)]
    seen: &'a Seen,
    /// Width and height as the model saw it.
    resized: (usize, usize),
    tokens: usize,
    vision_ms: f64,
}

/// Times in the units and by the names in which they are published.
#[derive(Debug, Serialize)]
struct Figures {
    vision_ms: f64,
    vision_frames_per_second: Option<f64>,
    ttft_ms: f64,
    prefill_tokens: usize,
    prefill_tokens_per_second: Option<f64>,
    decode_tokens: usize,
    decode_tokens_per_second: Option<f64>,
    tpot_ms: Option<f64>,
}

impl Figures {
    fn of(timings: &Timings) -> Self {
        let milliseconds = |seconds: f64| thousandths(seconds * 1e3);
        Self {
            vision_ms: milliseconds(timings.vision.iter().map(|picture| picture.seconds).sum()),
            vision_frames_per_second: timings.vision_rate().map(thousandths),
            ttft_ms: milliseconds(timings.ttft_seconds),
            prefill_tokens: timings.prefill_tokens,
            prefill_tokens_per_second: timings.prefill_rate().map(thousandths),
            decode_tokens: timings.decode_tokens,
            decode_tokens_per_second: timings.decode_rate().map(thousandths),
            tpot_ms: timings.tpot().map(milliseconds),
        }
    }
}

/// No clock is better.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl<'a> Outcome<'a> {
    /// Of an answer about pictures, in the order in which they were shown.
    #[must_use]
    pub fn new(
        model: &'a str,
        question: &'a str,
        pictures: &'a [Seen],
        answer: &'a Answer,
        notices: &'a [String],
    ) -> Self {
        let picture = |(seen, vision): (&'a Seen, &VisionTiming)| Picture {
            seen,
            resized: vision.size,
            tokens: vision.tokens,
            vision_ms: thousandths(vision.seconds * 1e3),
        };
        Self {
            version: VERSION,
            model,
            question,
            answer: &answer.text,
            thinking: answer.thinking.as_deref(),
            finish: answer.finish,
            usage: answer.usage,
            pictures: pictures.iter().zip(&answer.timings.vision).map(picture).collect(),
            timings: Figures::of(&answer.timings),
            seconds: 0.0,
            notices,
        }
    }

    /// With the whole run's wall-clock seconds.
    #[must_use]
    pub fn took(mut self, seconds: f64) -> Self {
        self.seconds = thousandths(seconds);
        self
    }
}

/// The figures as lines.
#[must_use]
pub fn summary(answer: &Answer) -> String {
    let Answer { usage, timings, .. } = answer;
    let mut lines = Vec::new();
    for (index, VisionTiming { size: (width, height), tokens, seconds, cached }) in timings.vision.iter().enumerate() {
        let took = if *cached { "known".to_owned() } else { precise(*seconds) };
        lines.push(format!("picture {:<10}{took:>9}   {width}x{height}, {tokens} tokens", index + 1));
    }
    let rate = |rate: Option<f64>, unit: &str| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1} {unit}"));
    if let Some(frames) = timings.vision_rate() {
        lines.push(format!("vision            {frames:>9.1}   frames/s"));
    }
    let Usage { prompt_tokens, image_tokens, cached_tokens, completion_tokens, .. } = usage;
    lines.push(format!(
        "prompt            {prompt_tokens:>9}   tokens, {image_tokens} of pictures, {cached_tokens} cached"
    ));
    lines.push(format!("TTFT              {:>9}", precise(timings.ttft_seconds)));
    lines.push(format!(
        "prefill           {:>9}   {} tokens, {}",
        precise(timings.prefill_seconds),
        timings.prefill_tokens,
        rate(timings.prefill_rate(), "tokens/s")
    ));
    lines.push(format!(
        "decode            {:>9}   {completion_tokens} tokens, {}, TPOT {}",
        precise(timings.decode_seconds),
        rate(timings.decode_rate(), "tokens/s"),
        timings.tpot().map_or_else(|| "-".into(), precise),
    ));
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            text: "a fox".into(),
            thinking: Some("hm".into()),
            tokens: vec![1, 2, 3],
            finish: Finish::Stop,
            usage: Usage {
                prompt_tokens: 90,
                image_tokens: 64,
                cached_tokens: 10,
                completion_tokens: 3,
                thinking_tokens: 1,
            },
            timings: Timings {
                vision: vec![
                    VisionTiming { size: (256, 256), tokens: 64, seconds: 0.02, cached: false },
                    VisionTiming { size: (64, 32), tokens: 2, seconds: 0.0, cached: true },
                ],
                prefill_tokens: 80,
                prefill_seconds: 0.4,
                ttft_seconds: 0.5,
                decode_tokens: 2,
                decode_seconds: 0.1,
            },
        }
    }

    #[test]
    fn figures_have_their_units() {
        let text = summary(&answer());
        for line in [
            "  picture 1           20.0 ms   256x256, 64 tokens",
            "  picture 2             known   64x32, 2 tokens",
            "  vision                 50.0   frames/s",
            "  prompt                   90   tokens, 64 of pictures, 10 cached",
            "  TTFT                 0.50 s",
            "  prefill              0.40 s   80 tokens, 200.0 tokens/s",
            "  decode               0.10 s   3 tokens, 20.0 tokens/s, TPOT 50.0 ms",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
        }
    }

    #[test]
    fn the_object_has_the_published_names() {
        let seen = [Seen { name: "a.png".into(), width: 300, height: 300 }];
        let answer = answer();
        let object = serde_json::to_value(Outcome::new("demo", "what?", &seen, &answer, &[]).took(1.5)).unwrap();
        assert_eq!(object["timings"]["vision_frames_per_second"], 50.0);
        assert_eq!(object["timings"]["tpot_ms"], 50.0);
        assert_eq!(object["pictures"][0]["resized"], serde_json::json!([256, 256]));
        assert_eq!((&object["thinking"], &object["finish"]), (&"hm".into(), &"stop".into()));
    }
}
