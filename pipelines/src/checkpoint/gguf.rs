//! The GGUF format, versions 2 and 3, little endian: counts, metadata, tensor descriptions, aligned data.
//!
//! Only what a part needs is read: tensors. Metadata is checked and skipped but for `general.alignment`; the architecture
//! stands in `config.json`. Every length is compared with what is left of the file before anything is allocated.
//! See <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::path::Path;

use atelier_kernels::Format;
use bytes::Bytes;

use super::tensor::{Dtype, Stored, check_overlap, count};
use crate::{Error, Result};

/// Axes of a tensor at most, as in ggml.
const MAX_AXES: u32 = 4;
/// Arrays of arrays of metadata at most.
const MAX_NESTING: usize = 4;

/// All tensors of a file, in its order.
pub(super) fn read(file: &Path, bytes: &Bytes) -> Result<Vec<(String, Stored)>> {
    let mut cursor = Cursor { file, bytes, at: 0 };
    if cursor.take(4, "the magic number")? != b"GGUF" {
        return Err(Error::checkpoint(file, "no GGUF file: it does not start with `GGUF`"));
    }
    let version = cursor.u32("the version")?;
    if !(2..=3).contains(&version) {
        return Err(Error::checkpoint(
            file,
            format!("GGUF version {version}; versions 2 and 3, little endian, are supported"),
        ));
    }
    let tensors = cursor.u64("the number of tensors")?;
    let pairs = cursor.u64("the number of metadata entries")?;
    let mut alignment = 32;
    for _ in 0..pairs {
        let key = cursor.string("a metadata key")?;
        let kind = cursor.u32(&key)?;
        if key == "general.alignment" {
            if kind != UINT32 {
                return Err(cursor.bad(format!("`{key}` has the type {kind}; expected {UINT32}, a u32")));
            }
            alignment = cursor.u32(&key)? as usize;
        } else {
            cursor.skip(kind, &key, 0)?;
        }
    }
    if !alignment.is_power_of_two() {
        return Err(Error::checkpoint(file, format!("`general.alignment` is {alignment}; expected a power of two")));
    }
    let mut entries = Vec::new();
    for _ in 0..tensors {
        entries.push(Entry::read(&mut cursor)?);
    }
    // A file without tensors may end before the padding.
    let start = cursor.at.checked_next_multiple_of(alignment).map_or(bytes.len(), |at| at.min(bytes.len()));
    place(file, &bytes.slice(start..), alignment, entries)
}

/// Gives every tensor its bytes.
fn place(file: &Path, data: &Bytes, alignment: usize, entries: Vec<Entry>) -> Result<Vec<(String, Stored)>> {
    let mut spans = Vec::with_capacity(entries.len());
    for Entry { name, format, shape, offset } in &entries {
        let bad = |problem: String| Error::checkpoint(file, format!("tensor {name}: {problem}"));
        let row = shape.last().copied().unwrap_or(1);
        if !row.is_multiple_of(format.block()) {
            let (name, block) = (format.name(), format.block());
            return Err(bad(format!("lying header: rows of {row} are no multiple of {name}'s block of {block}")));
        }
        let size = count(shape).and_then(|n| (n / format.block()).checked_mul(format.block_bytes()));
        let end = size.and_then(|size| usize::try_from(*offset).ok()?.checked_add(size));
        let (Some(size), Some(end)) = (size, end.filter(|&end| end <= data.len())) else {
            return Err(bad(format!(
                "truncated or lying header: shape {shape:?} {} at byte {offset} of the data, which has {} bytes",
                format.name(),
                data.len()
            )));
        };
        if !(end - size).is_multiple_of(alignment) {
            return Err(bad(format!("lying header: byte {offset} is no multiple of the alignment {alignment}")));
        }
        spans.push((end - size, end, name.as_str()));
    }
    let places: Vec<_> = spans.iter().map(|&(start, end, _)| start..end).collect();
    check_overlap(file, &mut spans)?;
    drop(spans);
    Ok(entries
        .into_iter()
        .zip(places)
        .map(|(entry, place)| {
            (entry.name, Stored { dtype: Dtype::Known(entry.format), shape: entry.shape, data: data.slice(place) })
        })
        .collect())
}

/// What the file says of a tensor.
struct Entry {
    name: String,
    format: Format,
    shape: Vec<usize>,
    offset: u64,
}

impl Entry {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let name = cursor.string("a tensor's name")?;
        let axes = cursor.u32(&name)?;
        if axes > MAX_AXES {
            return Err(
                cursor.bad(format!("tensor {name}: lying header: {axes} axes, at most {MAX_AXES} are possible"))
            );
        }
        let mut shape = Vec::with_capacity(axes as usize);
        for _ in 0..axes {
            let side = cursor.u64(&name)?;
            shape.push(usize::try_from(side).unwrap_or(usize::MAX));
        }
        // GGUF writes the fastest axis first.
        shape.reverse();
        let code = cursor.u32(&name)?;
        let format = format(code).map_err(|kind| {
            cursor.bad(format!(
                "tensor {name}: type {kind} is not supported; supported are F32, F16, BF16, Q8_0, Q4_K, Q6_K"
            ))
        })?;
        let offset = cursor.u64(&name)?;
        Ok(Self { name, format, shape, offset })
    }
}

/// The format of a ggml type code, or the name of one that is not supported.
fn format(code: u32) -> std::result::Result<Format, String> {
    const NAMES: [&str; 42] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
        "NVFP4",
        "Q1_0",
    ];
    match code {
        0 => Ok(Format::F32),
        1 => Ok(Format::F16),
        8 => Ok(Format::Q8_0),
        12 => Ok(Format::Q4K),
        14 => Ok(Format::Q6K),
        30 => Ok(Format::Bf16),
        _ => Err(NAMES.get(code as usize).map_or_else(|| format!("number {code}"), |name| (*name).to_owned())),
    }
}

const UINT32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Bytes of a metadata value of fixed size.
fn scalar_bytes(kind: u32) -> Option<usize> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

/// A reader that never leaves the file.
struct Cursor<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn bad(&self, problem: String) -> Error {
        Error::checkpoint(self.file, problem)
    }

    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            return Err(self.bad(format!(
                "truncated or lying header: {what} should take {count} bytes at byte {}, the file has {}",
                self.at,
                self.bytes.len()
            )));
        };
        self.at += count;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut number = [0; N];
        number.copy_from_slice(self.take(N, what)?);
        Ok(number)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        self.number(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        self.number(what).map(u64::from_le_bytes)
    }

    fn length(&mut self, what: &str) -> Result<usize> {
        Ok(usize::try_from(self.u64(what)?).unwrap_or(usize::MAX))
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let length = self.length(what)?;
        let text = self.take(length, what)?;
        std::str::from_utf8(text)
            .map(str::to_owned)
            .map_err(|_| self.bad(format!("{what} at byte {} is no UTF-8", self.at)))
    }

    /// Passes over a metadata value.
    fn skip(&mut self, kind: u32, key: &str, depth: usize) -> Result<()> {
        if let Some(size) = scalar_bytes(kind) {
            self.take(size, key)?;
        } else if kind == STRING {
            let length = self.length(key)?;
            self.take(length, key)?;
        } else if kind == ARRAY && depth < MAX_NESTING {
            let (kind, length) = (self.u32(key)?, self.length(key)?);
            if let Some(size) = scalar_bytes(kind) {
                self.take(length.saturating_mul(size), key)?;
            } else {
                // Each element takes at least a length of 8 bytes, so the file bounds this loop.
                for _ in 0..length {
                    self.skip(kind, key, depth + 1)?;
                }
            }
        } else {
            return Err(self.bad(format!("metadata `{key}` has the unknown type {kind}")));
        }
        Ok(())
    }
}
