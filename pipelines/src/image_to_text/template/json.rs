//! `tojson` as transformers defines it: Python's `json.dumps`.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
#[expect(clippy::needless_pass_by_value, reason = "filters take their options by value")]
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent).unwrap_or(0)),
        }),
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: `separators` are two strings")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let python = Python {
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        indent,
        item,
        key,
        depth: 0,
        filled: false,
    };
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, python);
    let written = if sorted {
        // serde_json's maps are sorted.
        serde_json::to_value(value).and_then(|value| value.serialize(&mut serializer))
    } else {
        value.serialize(&mut serializer)
    };
    written.map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))?;
    String::from_utf8(out).map_err(|error| Error::new(ErrorKind::BadSerialization, format!("tojson: {error}")))
}

/// The layout of Python's encoder.
struct Python {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    depth: usize,
    /// Whether the innermost list or map has an entry.
    filled: bool,
}

impl Python {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        match &self.indent {
            Some(indent) => write!(writer, "\n{}", indent.repeat(self.depth)),
            None => Ok(()),
        }
    }

    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &str) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(bracket.as_bytes())
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &str) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.line(writer)?;
        }
        // The list or map that holds this one has it as an entry.
        self.filled = true;
        writer.write_all(bracket.as_bytes())
    }

    fn entry<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.item.as_bytes())?;
        }
        self.filled = true;
        self.line(writer)
    }
}

impl Formatter for Python {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        // Python writes exponents from 1e16 on and below 1e-4, with a sign and two digits at least.
        let plain = format!("{value:?}");
        let Some((mantissa, exponent)) = plain.split_once('e') else { return writer.write_all(plain.as_bytes()) };
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        write!(writer, "{}e{sign}{digits:0>2}", mantissa.strip_suffix(".0").unwrap_or(mantissa))
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, "[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, "]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.entry(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, "{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, "}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.entry(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.key.as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        if !self.ascii {
            return writer.write_all(fragment.as_bytes());
        }
        for unit in fragment.encode_utf16() {
            match u8::try_from(unit) {
                Ok(byte @ b' '..=b'~') => writer.write_all(&[byte])?,
                _ => write!(writer, "\\u{unit:04x}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(template: &str) -> String {
        let mut environment = minijinja::Environment::new();
        environment.add_filter("tojson", tojson);
        environment.render_str(template, ()).unwrap()
    }

    /// What `json.dumps` of Python 3.11 writes for the same values and options.
    #[test]
    fn python_would_write_the_same() {
        for (template, expected) in [
            (r#"{{ {"b": [1, 2.0, true, none], "a": {}} | tojson }}"#, r#"{"b": [1, 2.0, true, null], "a": {}}"#),
            (r#"{{ {"b": 1, "a": []} | tojson(sort_keys=true) }}"#, r#"{"a": [], "b": 1}"#),
            (r#"{{ "é<&>'\"\n" | tojson }}"#, r#""é<&>'\"\n""#),
            (r#"{{ "é😀" | tojson(ensure_ascii=true) }}"#, r#""\u00e9\ud83d\ude00""#),
            (
                r#"{{ [1, {"a": [2]}, []] | tojson(indent=2) }}"#,
                "[\n  1,\n  {\n    \"a\": [\n      2\n    ]\n  },\n  []\n]",
            ),
            (r#"{{ [1, {"a": 2}] | tojson(separators=[",", ":"]) }}"#, r#"[1,{"a":2}]"#),
            ("{{ [1e16, 1.5e-7, 0.0001, 123456789.125] | tojson }}", "[1e+16, 1.5e-07, 0.0001, 123456789.125]"),
        ] {
            assert_eq!(dump(template), expected, "{template}");
        }
    }
}
