//! Python text → the strings and dictionaries of strings that are assigned to names at its top level.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// A value that is assigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// One string, adjacent literals joined.
    Text(String),
    /// Keys with strings or names.
    Table(Vec<(String, Value)>),
    /// Another variable.
    Name(String),
}

/// Assignments `NAME = value` at the beginning of a line; values of other kinds are left out.
pub(super) fn assignments(text: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.split('\n').next().unwrap_or_default();
        if let Some((name, value)) = line.split_once('=')
            && is_name(name.split(':').next().unwrap_or_default().trim_end())
            && !value.starts_with('=')
        {
            let name = name.split(':').next().unwrap_or_default().trim_end();
            let mut reader = Reader { chars: rest[line.len() - value.len()..].chars().peekable() };
            if let Some(value) = reader.value() {
                found.insert(name.to_owned(), value);
                // what follows a string of many lines is not looked at as a line of its own
                let left: usize = reader.chars.map(char::len_utf8).sum();
                rest = &rest[rest.len() - left..];
                continue;
            }
        }
        rest = rest.get(line.len() + 1..).unwrap_or_default();
    }
    found
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

struct Reader<'a> {
    chars: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn value(&mut self) -> Option<Value> {
        self.blanks(false);
        match self.chars.peek()? {
            '{' => self.table(),
            '(' => {
                self.chars.next();
                let value = self.strings(true)?;
                self.blanks(true);
                (self.chars.next()? == ')').then_some(value)
            }
            '"' | '\'' => self.strings(false),
            _ => {
                let mut name = String::new();
                while let Some(c) = self.chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                is_name(&name).then_some(Value::Name(name))
            }
        }
    }

    /// Adjacent string literals; over line ends only inside parentheses.
    fn strings(&mut self, lines: bool) -> Option<Value> {
        let mut text = String::new();
        self.blanks(lines);
        while let Some(quote) = self.chars.next_if(|c| ['"', '\''].contains(c)) {
            self.string(quote, &mut text)?;
            self.blanks(lines);
        }
        Some(Value::Text(text))
    }

    fn table(&mut self) -> Option<Value> {
        self.chars.next();
        let mut table = Vec::new();
        loop {
            self.blanks(true);
            if self.chars.next_if_eq(&'}').is_some() {
                return Some(Value::Table(table));
            }
            let Value::Text(key) = self.strings(true)? else { return None };
            if self.chars.next()? != ':' {
                return None;
            }
            self.blanks(true);
            table.push((key, self.value()?));
            self.blanks(true);
            if self.chars.peek()? != &'}' && self.chars.next()? != ',' {
                return None;
            }
        }
    }

    /// What stands up to the closing quotes; the first one has been read.
    fn string(&mut self, quote: char, text: &mut String) -> Option<()> {
        let mut quotes = 1;
        if self.chars.next_if_eq(&quote).is_some() {
            if self.chars.next_if_eq(&quote).is_none() {
                return Some(());
            }
            quotes = 3;
        }
        let mut run = 0;
        loop {
            let c = self.chars.next()?;
            run = if c == quote { run + 1 } else { 0 };
            if run == quotes {
                // the quotes before the last one were taken for text
                text.truncate(text.len() - (quotes - 1));
                return Some(());
            }
            match c {
                '\n' if quotes == 1 => return None,
                '\\' => self.escape(text)?,
                _ => text.push(c),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Option<()> {
        let digits = match self.chars.next()? {
            '\n' => 0,
            'n' => plain(text, "\n"),
            't' => plain(text, "\t"),
            'r' => plain(text, "\r"),
            c @ ('\\' | '"' | '\'') => plain(text, c.encode_utf8(&mut [0; 4])),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => plain(text, &format!("\\{other}")),
        };
        if digits == 0 {
            return Some(());
        }
        let mut code = 0;
        for _ in 0..digits {
            code = (code << 4) | self.chars.next()?.to_digit(16)?;
        }
        text.push(char::from_u32(code)?);
        Some(())
    }

    /// Skips blanks and, if asked to, line ends and comments.
    fn blanks(&mut self, lines: bool) {
        while let Some(&c) = self.chars.peek() {
            match c {
                ' ' | '\t' | '\r' => {}
                '\n' if lines => {}
                '#' if lines => while self.chars.next_if(|c| *c != '\n').is_some() {},
                _ => return,
            }
            if c != '#' {
                self.chars.next();
            }
        }
    }
}

/// An escape without hexadecimal digits.
fn plain(text: &mut String, meaning: &str) -> usize {
    *text += meaning;
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(source: &str) -> Option<String> {
        match assignments(source).remove("A") {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Expected values are what Python 3.11 prints.
    #[test]
    fn strings() {
        for (source, expected) in [
            (r#"A = "one""#, "one"),
            (r"A='it''s'", "its"),
            ("A = \"\"\"a\n\"b\" ''c''\"\"\"", "a\n\"b\" ''c''"),
            ("A = \"\"\"\\\na\\\nb\"\"\"", "ab"),
            ("A = (\n    \"a \"  # first\n    'b'\n)", "a b"),
            (r#"A = "\u4e2d\x41\n\\\"\d""#, "\u{4e2d}A\n\\\"\\d"),
            ("A: str = \"typed\"", "typed"),
            ("A = \"\"", ""),
            ("B = \"\"\"\nA = \"inner\"\n\"\"\"\nA = \"outer\"", "outer"),
            ("A = \"中文\"\r\nB = 1", "中文"),
        ] {
            assert_eq!(text(source).as_deref(), Some(expected), "{source}");
        }
    }

    #[test]
    fn tables() {
        let found = assignments("D = {\n  \"a\": X,  # note\n  'b': \"y\",\n}\n");
        let table = vec![("a".into(), Value::Name("X".into())), ("b".into(), Value::Text("y".into()))];
        assert_eq!(found["D"], Value::Table(table));
    }

    #[test]
    fn other_things_are_left_out() {
        for source in [
            "A == 1",
            "def f():\n    A = \"x\"",
            "A = \"open",
            "A = {\"a\" \"b\"",
            "A = (\"a\"",
            "A = \"\\ud800\"",
            "A = [1]",
        ] {
            assert_eq!(text(source), None, "{source}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_fall(source in r#"[A\n"'\\{}(): =,#é]{0,60}"#) {
            assignments(&source);
        }
    }
}
