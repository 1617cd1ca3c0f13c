//! Files of rows: JSONL, JSON, CSV, or plain text with a prompt on each line.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// A row: column → value.
pub type Row = Map<String, Value>;

/// Largest file that is read, in bytes.
const LIMIT: u64 = 1 << 30;

/// Reads all rows of a file, by its extension: `.jsonl`, `.json` (an array, or an object on each line), `.csv` (the first
/// line names the columns), `.txt` (column `prompt`).
///
/// # Errors
/// When the file cannot be read, is of another kind, or a row is damaged: the message names its line.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    let io = |source| Error::io(path, source);
    let size = fs::metadata(path).map_err(io)?.len();
    if size > LIMIT {
        return Err(Error::file(path, format!("{size} bytes are too many for a file of rows")));
    }
    let text = String::from_utf8(fs::read(path).map_err(io)?).map_err(|_| Error::file(path, "is not UTF-8 text"))?;
    let text = text.trim_start_matches('\u{feff}');
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let rows = match extension.as_str() {
        "json" if text.trim_start().starts_with('[') => {
            serde_json::from_str(text).map_err(|error| format!("is no array of objects: {error}"))
        }
        "jsonl" | "json" => lines(text),
        "csv" => csv(text),
        "txt" => Ok(text.lines().filter(|line| !line.trim().is_empty()).map(prompt).collect()),
        _ => Err("is of an unknown kind: .jsonl, .json, .csv and .txt are read".into()),
    };
    let rows = rows.map_err(|problem| Error::file(path, problem))?;
    if rows.is_empty() {
        return Err(Error::file(path, "holds no rows"));
    }
    Ok(rows)
}

/// The first of `columns` that holds text (or a number), without blanks at the ends; an empty one counts as none.
#[must_use]
pub fn text(row: &Row, columns: &[&str]) -> Option<String> {
    columns.iter().find_map(|column| match row.get(*column)? {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

fn prompt(line: &str) -> Row {
    Row::from_iter([("prompt".to_owned(), line.trim().into())])
}

fn lines(text: &str) -> std::result::Result<Vec<Row>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(number, line)| serde_json::from_str(line).map_err(|e| format!("line {} is no object: {e}", number + 1)))
        .collect()
}

/// RFC 4180: fields in quotes may hold commas, line ends and doubled quotes.
fn csv(text: &str) -> std::result::Result<Vec<Row>, String> {
    let mut records = records(text)?.into_iter();
    let Some((_, columns)) = records.next() else { return Ok(Vec::new()) };
    records
        .map(|(line, fields)| {
            if fields.len() != columns.len() {
                let (found, expected) = (fields.len(), columns.len());
                return Err(format!("line {line}: {found} fields, but the first line names {expected} columns"));
            }
            Ok(columns.iter().cloned().zip(fields.into_iter().map(Value::String)).collect())
        })
        .collect()
}

/// Fields of every record that is not blank, and the line it begins on.
fn records(text: &str) -> std::result::Result<Vec<(usize, Vec<String>)>, String> {
    let (mut records, mut fields, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut start, mut quoted) = (1, 1, false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        line += usize::from(c == '\n');
        match c {
            '"' if quoted && chars.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted || field.is_empty() => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                fields.push(std::mem::take(&mut field));
                let record = std::mem::take(&mut fields);
                if record.len() > 1 || !record[0].trim().is_empty() {
                    records.push((start, record));
                }
                start = line;
            }
            _ => field.push(c),
        }
    }
    if quoted {
        return Err(format!("line {start}: a quote is not closed"));
    }
    if !field.is_empty() || !fields.is_empty() {
        fields.push(field);
        records.push((start, fields));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str, bytes: &[u8]) -> std::result::Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let rows = read(&path).map_err(|error| error.to_string())?;
        Ok(serde_json::to_string(&rows).unwrap())
    }

    #[test]
    fn kinds() {
        for (name, text, expected) in [
            ("a.jsonl", "{\"a\":1}\n\n{\"a\":2}\r\n", r#"[{"a":1},{"a":2}]"#),
            ("a.json", " [{\"a\":1}]", r#"[{"a":1}]"#),
            ("a.JSON", "{\"a\":1}\n{\"a\":2}", r#"[{"a":1},{"a":2}]"#),
            ("a.txt", "\u{feff}a cat\n\n  a dog \n", r#"[{"prompt":"a cat"},{"prompt":"a dog"}]"#),
            ("a.csv", "a,b\n1,\"x, \"\"y\"\"\nz\"\r\n\n,中\n", r#"[{"a":"1","b":"x, \"y\"\nz"},{"a":"","b":"中"}]"#),
            ("a.csv", "a\n5\" nail", r#"[{"a":"5\" nail"}]"#),
        ] {
            assert_eq!(rows(name, text.as_bytes()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn damage() {
        for (name, bytes, expected) in [
            ("a.jsonl", &b"{}\n{\"a\":"[..], "a.jsonl: line 2 is no object"),
            ("a.jsonl", b"[]", "line 1 is no object"),
            ("a.json", b"[1]", "is no array of objects"),
            ("a.csv", b"a,b\n1,2\n3", "line 3: 1 fields, but the first line names 2 columns"),
            ("a.csv", b"a\n\"open\n", "line 2: a quote is not closed"),
            ("a.csv", b"a,b\n", "holds no rows"),
            ("a.jsonl", b"", "holds no rows"),
            ("a.xlsx", b"PK", "of an unknown kind"),
            ("a.jsonl", b"\xff", "is not UTF-8"),
        ] {
            let error = rows(name, bytes).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
    }

    #[test]
    fn columns() {
        let row: Row = serde_json::from_str(r#"{"ID": 7, "prompt": " ", "prompt_en": " a cat ", "x": null}"#).unwrap();
        assert_eq!(text(&row, &["prompt", "prompt_en"]).as_deref(), Some("a cat"));
        assert_eq!(text(&row, &["ID"]).as_deref(), Some("7"));
        assert_eq!(text(&row, &["x", "y"]), None);
    }
}
