//! The safetensors format: a length, a JSON header, the data.
//!
//! `u64` header length (little endian), then the header: an object of `name: {dtype, shape, data_offsets}` and an optional
//! `__metadata__` object of strings, then the data that the offsets refer to, without gaps.
//! See <https://github.com/huggingface/safetensors#format>.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use atelier_kernels::Format;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::config;
use super::tensor::{Dtype, Stored, check_overlap, count};
use crate::{Error, Result};

/// The longest header that is believed, as in the reference implementation.
const MAX_HEADER: usize = 100_000_000;

/// All tensors of a file, in the header's order.
pub(super) fn read(file: &Path, bytes: &Bytes) -> Result<Vec<(String, Stored)>> {
    let bad = |problem: String| Error::checkpoint(file, problem);
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(bad(format!(
            "no safetensors file: it has {} bytes, the header's length alone takes 8",
            bytes.len()
        )));
    };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > rest.len() || length > MAX_HEADER {
        return Err(bad(format!(
            "truncated, or no safetensors file: the header should take {length} bytes, the file has {} after the length \
             (and at most {MAX_HEADER} are accepted)",
            rest.len()
        )));
    }
    let Header(entries) = config::parse_lenient(file, &rest[..length])?;
    let data = bytes.slice(8 + length..);
    let mut spans = Vec::with_capacity(entries.len());
    for (name, entry) in &entries {
        let [start, end] = entry.data_offsets;
        if start > end || end > data.len() {
            return Err(bad(format!(
                "truncated or lying header: tensor {name} stands at bytes {start}..{end} of the data, which has {} bytes",
                data.len()
            )));
        }
        entry.check_size(file, name)?;
        spans.push((start, end, name.as_str()));
    }
    check_overlap(file, &mut spans)?;
    let named: usize = spans.iter().map(|(start, end, _)| end - start).sum();
    if named != data.len() {
        return Err(bad(format!(
            "lying header: it names {named} bytes of tensors, the file has {} bytes of data",
            data.len()
        )));
    }
    drop(spans);
    Ok(entries
        .into_iter()
        .map(|(name, entry)| {
            let data = data.slice(entry.data_offsets[0]..entry.data_offsets[1]);
            (name, Stored { dtype: dtype(entry.dtype), shape: entry.shape, data })
        })
        .collect())
}

fn dtype(name: String) -> Dtype {
    match name.as_str() {
        "F32" => Dtype::Known(Format::F32),
        "F16" => Dtype::Known(Format::F16),
        "BF16" => Dtype::Known(Format::Bf16),
        _ => Dtype::Other(name),
    }
}

/// Bits of one value, for the types the format has.
fn bits(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "C64" | "F64" | "I64" | "U64" => 64,
        _ => return None,
    })
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Entry {
    fn check_size(&self, file: &Path, name: &str) -> Result<()> {
        let found = self.data_offsets[1] - self.data_offsets[0];
        let Some(bits) = bits(&self.dtype) else {
            return Err(Error::checkpoint(file, format!("tensor {name}: unknown dtype {}", self.dtype)));
        };
        match count(&self.shape).and_then(|values| values.checked_mul(bits)) {
            Some(total) if total % 8 == 0 && total / 8 == found => Ok(()),
            _ => Err(Error::checkpoint(
                file,
                format!("lying header: tensor {name}: {found} bytes do not hold shape {:?} {}", self.shape, self.dtype),
            )),
        }
    }
}

/// The header's tensors in order, duplicates refused: a map type would silently keep the last.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<HashMap<String, String>>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
