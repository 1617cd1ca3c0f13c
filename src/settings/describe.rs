//! `atelier describe`: what was typed means.

use anyhow::{Result, bail};
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{Request, SamplingOverrides};

use super::{Verbosity, device, draw_seed, files, text_of, usual_model, verbosity};
use crate::cli::{self, Seed, Think};
use crate::demo;
use crate::failure::Usage;
use crate::pictures::Source;

/// The variable that names the model when no flag does.
pub(crate) const MODEL_VARIABLE: &str = "ATELIER_VISION_MODEL";
/// Where questions come from when pictures are all that is given.
const QUESTION: &str = "Describe this picture.";
const QUESTION_OF_SEVERAL: &str = "Describe these pictures.";

/// What `atelier describe` will do.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "switches are what people type")]
pub struct Describe {
    /// The pictures of the first question.
    pub pictures: Vec<Source>,
    /// The first question; a conversation may have none yet.
    pub question: Option<String>,
    /// Instructions for the whole conversation.
    pub system: Option<String>,
    /// The checkpoint.
    pub files: Files,
    /// The checkpoint's name, for people.
    pub model: String,
    /// How to answer; its messages are still to come.
    pub request: Request,
    /// A seed that was drawn, so that the person does not know it.
    pub drawn: Option<u64>,
    /// Whether thoughts are shown.
    pub thoughts: bool,
    /// Whether more questions follow, from standard input.
    pub chat: bool,
    /// Whether the timings are printed.
    pub timings: bool,
    /// Whether standard output gets one JSON object.
    pub json: bool,
    /// How much is said.
    pub verbosity: Verbosity,
}

/// Flags → meaning.
///
/// # Errors
/// [`Usage`] when the flags make no sense; others when a file or folder they name is not as it should be.
pub fn describe(typed: Box<cli::Describe>) -> Result<Describe> {
    let typed = *typed;
    device(typed.device)?;
    let pictures: Vec<Source> = typed.images.iter().map(|image| Source::parse(image)).collect::<Result<_>>()?;
    one_reader(&typed, &pictures)?;
    let question = match (&typed.prompt, pictures.len()) {
        (Some(flag), _) => Some(text_of(flag, "question")?),
        (None, _) if typed.chat => None,
        (None, 0) => bail!(Usage("what to look at? Give a picture, or a question with -p".into())),
        (None, 1) => Some(QUESTION.into()),
        (None, _) => Some(QUESTION_OF_SEVERAL.into()),
    };
    if question.as_deref().is_some_and(|question| question.trim().is_empty()) {
        bail!(Usage("the question is empty".into()));
    }
    let system = typed.system.as_deref().map(|flag| text_of(flag, "system text")).transpose()?;
    let drawn = if typed.seed == Some(Seed::Random) { Some(draw_seed()?) } else { None };
    let model = typed.model.clone().unwrap_or_else(|| usual_model(MODEL_VARIABLE));
    let files = files(&model, "the Hub's layout", demo::LOOKER)?;
    let cli::Describe { chat, timings, json, verbose, quiet, .. } = typed;
    Ok(Describe {
        pictures,
        question,
        system,
        files,
        model: model.display().to_string(),
        request: request(&typed, drawn),
        drawn,
        thoughts: typed.think != Some(Think::Hide),
        chat,
        timings: timings || verbose,
        json,
        verbosity: verbosity(quiet, verbose),
    })
}

/// Standard input can be read by one reader only.
fn one_reader(typed: &cli::Describe, pictures: &[Source]) -> Result<()> {
    let texts = [&typed.prompt, &typed.system].into_iter().filter(|flag| flag.as_deref() == Some("-")).count();
    let readers = texts + pictures.iter().filter(|source| matches!(source, Source::Stdin)).count();
    if readers > 1 {
        bail!(Usage("standard input (-) can be one picture or one text".into()));
    }
    if typed.chat && readers > 0 {
        bail!(Usage("with --chat standard input is the conversation: it can be no picture and no text".into()));
    }
    Ok(())
}

fn request(typed: &cli::Describe, drawn: Option<u64>) -> Request {
    let seed = match typed.seed {
        Some(Seed::Fixed(seed)) => Some(seed),
        _ => drawn,
    };
    let defaults = Request::new(Vec::new());
    Request {
        thinking: typed.think.map(|think| think != Think::Off),
        sampling: SamplingOverrides {
            temperature: typed.temperature,
            top_k: typed.top_k,
            top_p: typed.top_p,
            min_p: typed.min_p,
            repetition_penalty: typed.repetition_penalty,
            presence_penalty: typed.presence_penalty,
            seed,
            ..SamplingOverrides::default()
        },
        max_tokens: typed.max_tokens.unwrap_or(defaults.max_tokens),
        stop: typed.stop.clone(),
        prefill_chunk: typed.prefill_chunk.unwrap_or(defaults.prefill_chunk),
        ..defaults
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn typed(arguments: &[&str]) -> Box<cli::Describe> {
        let all = ["atelier", "describe", "--model", env!("CARGO_MANIFEST_DIR")].iter().chain(arguments);
        let parsed = cli::Cli::try_parse_from(all).unwrap();
        let cli::Command::Describe(typed) = parsed.command else { panic!("{parsed:?}") };
        typed
    }

    #[test]
    fn the_question_follows_the_pictures() {
        for (arguments, expected) in [
            (&["a.png"][..], Some("Describe this picture.")),
            (&["a.png", "b.png"], Some("Describe these pictures.")),
            (&["-p", "why?"], Some("why?")),
            (&["a.png", "--chat"], None),
            (&["--chat", "-p", "hello"], Some("hello")),
        ] {
            assert_eq!(describe(typed(arguments)).unwrap().question.as_deref(), expected, "{arguments:?}");
        }
        for arguments in
            [&[][..], &["-p", " "], &["-", "-"], &["-", "-p", "-"], &["-", "--chat"], &["--chat", "-p", "-"]]
        {
            assert!(describe(typed(arguments)).unwrap_err().is::<Usage>(), "{arguments:?}");
        }
    }

    #[test]
    fn what_is_not_typed_is_the_models() {
        let settings = describe(typed(&["a.png"])).unwrap();
        assert_eq!(settings.request.sampling, SamplingOverrides::default());
        assert_eq!((settings.request.thinking, settings.thoughts), (None, true));
        let arguments =
            ["a.png", "--think", "hide", "--top-k", "3", "--presence-penalty", "-0.5", "-s", "7", "--stop", "x"];
        let settings = describe(typed(&arguments)).unwrap();
        assert_eq!((settings.request.thinking, settings.thoughts), (Some(true), false));
        let sampling = settings.request.sampling;
        assert_eq!((sampling.top_k, sampling.presence_penalty, sampling.seed), (Some(3), Some(-0.5), Some(7)));
        assert_eq!(settings.request.stop, ["x"]);
        assert_eq!(describe(typed(&["a.png", "--think", "off"])).unwrap().request.thinking, Some(false));
        assert!(describe(typed(&["a.png", "-s", "random"])).unwrap().drawn.is_some());
    }
}
