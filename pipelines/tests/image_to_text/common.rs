//! Tiny checkpoints, pictures and conversations.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use atelier_kernels::cpu::Cpu;
use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{
    Answer, Content, ImageToText, Message, Picture, PrefixCache, Request, Role, SamplingOverrides,
};
use atelier_pipelines::progress::Progress;
use image::{Rgb, RgbImage};

/// The families that there are tiny checkpoints of.
pub(crate) const FAMILIES: [&str; 3] = ["qwen3_vl", "qwen3_5", "qwen3_5_moe"];

/// A file or folder under `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

/// A checkpoint in the Hub's layout.
pub(crate) struct Checkpoint {
    /// Where it was put together from several folders.
    _folder: Option<tempfile::TempDir>,
    pub(crate) path: PathBuf,
}

impl Checkpoint {
    /// The tiny checkpoint of a family.
    pub(crate) fn of(family: &str) -> Self {
        if family != "qwen3_vl" {
            return Self { _folder: None, path: fixture("looking").join(family) };
        }
        // The painter's text encoder and processor.
        let folder = tempfile::tempdir().unwrap();
        for part in ["text_encoder", "processor"] {
            for file in std::fs::read_dir(fixture("tiny").join(part)).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
            }
        }
        Self { path: folder.path().to_owned(), _folder: Some(folder) }
    }

    /// The same with the template of a thinking model.
    pub(crate) fn thinking(family: &str) -> Self {
        let plain = Self::of(family);
        let folder = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&plain.path).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        std::fs::copy(fixture("chat/thinking.jinja"), folder.path().join("chat_template.jinja")).unwrap();
        Self { path: folder.path().to_owned(), _folder: Some(folder) }
    }

    pub(crate) fn open(&self) -> ImageToText<Cpu> {
        ImageToText::open(&Cpu::default(), &Files::folder(&self.path)).unwrap()
    }
}

/// The picture that `answers.py` makes for a number.
pub(crate) fn picture(number: u32, width: u32, height: u32) -> Arc<Picture> {
    let pixel =
        |x: u32, y: u32| Rgb([7 * x + 40 * number, 5 * y + 90 * number, x * y + number].map(|v| (v % 256) as u8));
    Arc::new(Picture::new(RgbImage::from_fn(width, height, pixel)))
}

pub(crate) fn user(content: Vec<Content>) -> Message {
    Message { role: Role::User, content, thinking: None }
}

/// A greedy request of 64 tokens.
pub(crate) fn greedy(messages: Vec<Message>) -> Request {
    Request { sampling: SamplingOverrides::greedy(), max_tokens: 64, ..Request::new(messages) }
}

pub(crate) fn answer(looker: &ImageToText<Cpu>, request: &Request, memory: &mut PrefixCache<Cpu>) -> Answer {
    looker.answer(request, memory, &Progress::default(), &mut |_| Ok(())).unwrap()
}
