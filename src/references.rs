//! Files → reference pictures: any common format, upright, RGBA, within limits.

use std::fs::File;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::image_to_text::picture::decode_rgba;
use image::RgbaImage;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::pictures::read_all;

/// A reference picture's file: where, and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The path, as it was typed.
    pub path: PathBuf,
    /// SHA-256 of the file in lower-case hexadecimal; empty until the file has been read.
    pub sha256: String,
}

impl Reference {
    /// A file that has not been read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, sha256: String::new() }
    }

    /// Reads the picture. The first reading notes the file's hash; later ones insist on it.
    ///
    /// # Errors
    /// When the file cannot be read, is no picture, is too large, or has changed.
    pub fn read(&mut self) -> Result<RgbaImage> {
        let name = self.path.display().to_string();
        let bytes = File::open(&self.path).map_err(Into::into).and_then(read_all);
        let bytes = bytes.with_context(|| format!("{name}: the reference picture cannot be read"))?;
        let sha256 = hexadecimal(&Sha256::digest(&bytes));
        if !self.sha256.is_empty() && self.sha256 != sha256 {
            bail!(
                "{name}: the reference picture is not the one that was used (SHA-256 {sha256}, then {}): give the right \
                 one with -i",
                self.sha256
            );
        }
        let picture = decode_rgba(&bytes).with_context(|| format!("{name}: the reference picture cannot be used"))?;
        self.sha256 = sha256;
        Ok(picture)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, ImageFormat};

    use super::*;

    fn file(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        picture.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn a_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        std::fs::write(&path, file(image::RgbImage::new(2, 2), ImageFormat::Png)).unwrap();
        let mut reference = Reference::new(path.clone());
        reference.read().unwrap();
        assert_eq!(reference.sha256.len(), 64);
        reference.read().unwrap();
        std::fs::write(&path, file(image::RgbImage::new(4, 4), ImageFormat::Png)).unwrap();
        assert!(reference.read().unwrap_err().to_string().contains("is not the one that was used"));
    }
}
