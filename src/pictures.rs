//! Files, standard input and data URIs → pictures.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::image_to_text::Picture;
use atelier_pipelines::image_to_text::picture::FILE_LIMIT;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::failure::Usage;

/// Base64 as people write it: with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Where a picture comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
    /// The picture itself, as `data:image/png;base64,...`.
    Data(String),
}

impl Source {
    /// What was typed: a path, `-`, or a data URI (`./data:` is a file).
    ///
    /// # Errors
    /// [`Usage`] for an address in the network, which is not fetched.
    pub fn parse(typed: &OsStr) -> Result<Self> {
        let scheme =
            |text: &str, scheme: &str| text.get(..scheme.len()).is_some_and(|t| t.eq_ignore_ascii_case(scheme));
        match typed.to_str() {
            Some("-") => Ok(Self::Stdin),
            Some(text) if scheme(text, "data:") => Ok(Self::Data(text.into())),
            Some(text) if scheme(text, "http://") || scheme(text, "https://") => {
                bail!(Usage(format!("{text}: pictures are not fetched from the network: download it first")))
            }
            _ => Ok(Self::File(typed.into())),
        }
    }

    /// A short name for people.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::File(path) => path.to_string_lossy(),
            Self::Stdin => "standard input".into(),
            Self::Data(_) => "data URI".into(),
        }
    }

    /// Reads and decodes the picture.
    ///
    /// # Errors
    /// When the bytes cannot be read, are no picture, or the picture is damaged or too large.
    pub fn read(&self) -> Result<Arc<Picture>> {
        let bytes = match self {
            Self::File(path) => File::open(path).map_err(Into::into).and_then(read_all),
            Self::Stdin => read_all(io::stdin()),
            Self::Data(uri) => data(uri),
        };
        let bytes = bytes.with_context(|| format!("{}: the picture cannot be read", self.name()))?;
        let picture =
            Picture::decode(&bytes).with_context(|| format!("{}: the picture cannot be used", self.name()))?;
        Ok(Arc::new(picture))
    }
}

/// Everything that `reader` has, up to the largest picture file.
///
/// # Errors
/// When it cannot be read, or has more.
pub fn read_all(reader: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_LIMIT {
        bail!("the file is larger than {} MiB", FILE_LIMIT >> 20);
    }
    Ok(bytes)
}

/// The bytes of `data:[TYPE][;base64],DATA` (RFC 2397).
///
/// # Errors
/// When the URI has no comma, a percent sign without two hexadecimal digits, or characters that are not base64.
pub fn data(uri: &str) -> Result<Vec<u8>> {
    let rest = uri.get("data:".len()..).unwrap_or_default();
    let Some((kind, data)) = rest.split_once(',') else {
        bail!("a data URI is data:image/png;base64,... or data:image/png,...: there is no comma");
    };
    let mut bytes = percent_decoded(data)?;
    if kind.rsplit(';').next().is_some_and(|last| last.trim().eq_ignore_ascii_case("base64")) {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        // The alphabet of addresses is common too.
        for byte in &mut bytes {
            match byte {
                b'-' => *byte = b'+',
                b'_' => *byte = b'/',
                _ => {}
            }
        }
        bytes = BASE64.decode(&bytes).context("the data is not base64")?;
    }
    Ok(bytes)
}

fn percent_decoded(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digit = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            bail!("a percent sign at byte {} is not followed by two hexadecimal digits", text.len() - after.len() - 1);
        };
        bytes.push((high * 16 + low) as u8);
        rest = &after[2..];
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_uris() {
        for uri in [
            "data:image/png;base64,/+8BAg==",
            "DATA:image/png;name=a;BASE64,/+8B Ag",
            "data:;base64,_-8BAg",
            "data:;base64,%2F%2b8BAg%3D%3d",
            "data:,%ff%EF%01%02",
        ] {
            assert_eq!(data(uri).unwrap(), [255, 239, 1, 2], "{uri}");
        }
        assert_eq!(data("data:text/plain,a+b%20c").unwrap(), b"a+b c");
        for (uri, expected) in [
            ("data:image/png;base64", "no comma"),
            ("data:", "no comma"),
            ("data:;base64,a", "not base64"),
            ("data:;base64,!!!!", "not base64"),
            ("data:,%f", "percent sign at byte 0"),
            ("data:,ab%é", "percent sign at byte 2"),
        ] {
            let error = format!("{:#}", data(uri).unwrap_err());
            assert!(error.contains(expected), "{uri}: {error}");
        }
    }

    #[test]
    fn sources() {
        let parse = |text: &str| Source::parse(OsStr::new(text)).unwrap();
        assert_eq!(parse("-"), Source::Stdin);
        assert_eq!(parse("Data:,a"), Source::Data("Data:,a".into()));
        assert_eq!(parse("./data:,a"), Source::File("./data:,a".into()));
        assert!(Source::parse(OsStr::new("HTTPS://example.org/a.png")).unwrap_err().is::<Usage>());
    }
}
