//! The benchmark's own wording, from `checklists.py` of a checkout of its repository.

use super::python::{Value, assignments};
use super::{Piece, Rubric, check_request, facets_of};
use crate::{Dimension, Facet};

/// What the rubric is called in reports.
const NAME: &str = "official (checklists.py)";

/// Reads `SYSTEM_PROMPT`, `USER_PROMPT_TEMPLATE` and `DIM_TO_CHECKLIST`.
pub(super) fn parse(source: &str) -> Result<Rubric, String> {
    let found = assignments(source);
    let text = |name: &str| match found.get(name) {
        Some(Value::Text(text)) => Ok(text.clone()),
        _ => Err(format!("the string {name} is missing: this is not the checklists.py of Qwen-Image-Bench")),
    };
    let system = text("SYSTEM_PROMPT")?;
    let request =
        pieces(&text("USER_PROMPT_TEMPLATE")?).map_err(|problem| format!("USER_PROMPT_TEMPLATE: {problem}"))?;
    check_request(&request).map_err(|problem| format!("USER_PROMPT_TEMPLATE: {problem}"))?;
    let Some(Value::Table(table)) = found.get("DIM_TO_CHECKLIST") else {
        return Err("the dictionary DIM_TO_CHECKLIST is missing".into());
    };
    let (mut checklists, mut notes) = (Vec::new(), Vec::new());
    for dimension in Dimension::ALL {
        let entry = table.iter().find(|(key, _)| key == dimension.name()).map(|(_, value)| value);
        let checklist = match entry {
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Name(name)) => text(name)?,
            _ => return Err(format!("DIM_TO_CHECKLIST has no checklist for {dimension}")),
        };
        let (facets, unknown) = facets_of(&checklist, dimension);
        if facets.is_empty() {
            return Err(format!("the checklist for {dimension} holds no line \"- Facet: question\""));
        }
        for name in unknown {
            notes.push(format!("the rubric asks about {dimension} / {name}, which is no facet of the benchmark"));
        }
        let absent: Vec<_> = dimension.facets().filter(|f| !facets.contains(f)).map(Facet::name).collect();
        if !absent.is_empty() {
            notes.push(format!("the rubric does not ask about {dimension}: {}", absent.join(", ")));
        }
        checklists.push(checklist);
    }
    let mut rubric = Rubric::new(NAME.to_owned(), system, request, checklists);
    rubric.notes = notes;
    Ok(rubric)
}

/// A template of Python's `str.format` with a `<image>` in it.
fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(c) = rest.chars().next() {
        let (piece, length) = if rest.starts_with("<image>") {
            (Piece::Picture, "<image>".len())
        } else if rest.starts_with("{{") || rest.starts_with("}}") {
            text.push(c);
            rest = &rest[2..];
            continue;
        } else if c == '{' {
            let end = rest.find('}').ok_or("a brace is not closed")?;
            let piece = match &rest[1..end] {
                "prompt" => Piece::Prompt,
                "level1_dim" => Piece::Dimension,
                "format_checklist" => Piece::Checklist,
                other => return Err(format!("the field {{{other}}} is not known")),
            };
            (piece, end + 1)
        } else {
            text.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        pieces.extend([Piece::Text(std::mem::take(&mut text)), piece]);
        rest = &rest[length..];
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Laid out as the benchmark's file is, with words of our own.
    fn source() -> String {
        let lists = Dimension::ALL.map(|dimension| {
            let constant = dimension.name().to_uppercase().replace([' ', '-'], "_");
            let lines: String = dimension
                .categories()
                .map(|category| {
                    let facets = category.facets().map(|facet| format!("\n- {}: is it \"good\"?", facet.name()));
                    format!("## {}{}\n", category.name(), facets.collect::<String>())
                })
                .collect();
            (format!("{constant}_CHECKLIST = \"\"\"{}\"\"\"\n\n", lines.trim_end()), constant, dimension)
        });
        let table: String = lists
            .iter()
            .map(|(_, constant, dimension)| format!("    \"{dimension}\": {constant}_CHECKLIST,\n"))
            .collect();
        let lists: String = lists.iter().map(|(text, ..)| text.as_str()).collect();
        format!(
            "from collections import defaultdict\n\n{lists}\nDIM_TO_CHECKLIST = {{\n{table}}}\n\nSYSTEM_PROMPT = (\n    \
             \"Judge. \"\n    \"Well.\"\n)\n\nUSER_PROMPT_TEMPLATE = \"\"\"\\\n# Text\n{{prompt}}\n\n# Picture\n<image>\n\n# \
             Side\n{{level1_dim}}\n\n{{format_checklist}}\n\n{{{{\n  \"{{{{level2}}}}\": 0\n}}}}\"\"\"\n\n\ndef f(x):\n    \
             return x\n"
        )
    }

    #[test]
    fn a_checkout_is_read_word_for_word() {
        let rubric = parse(&source()).unwrap();
        assert_eq!((rubric.name(), rubric.notes()), (NAME, &[][..]));
        let question = rubric.question("{prompt} two cats", Dimension::Quality);
        assert_eq!(question.system, "Judge. Well.");
        assert_eq!(question.before, "# Text\n{prompt} two cats\n\n# Picture\n");
        assert_eq!(
            question.after,
            "\n\n# Side\nQuality\n\n## Realism\n- Physical Logic: is it \"good\"?\n- Material Texture: is it \"good\"?\n## \
             Detail\n- Noise: is it \"good\"?\n- Edge Clarity: is it \"good\"?\n- Naturalness: is it \"good\"?\n## \
             Resolution\n- Resolution: is it \"good\"?\n\n{\n  \"{level2}\": 0\n}"
        );
    }

    #[test]
    fn facets_that_are_not_asked_about_are_noted() {
        let rubric = parse(&source().replace("- Font:", "- Weight:")).unwrap();
        assert_eq!(
            rubric.notes(),
            [
                "the rubric asks about Creative Generation / Weight, which is no facet of the benchmark",
                "the rubric does not ask about Creative Generation: Font"
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, expected) in [
            ("SYSTEM_PROMPT", "OTHER", "the string SYSTEM_PROMPT is missing"),
            ("DIM_TO_CHECKLIST", "OTHER", "the dictionary DIM_TO_CHECKLIST is missing"),
            ("    \"Quality\": ", "    \"Other\": ", "no checklist for Quality"),
            ("<image>", "", "USER_PROMPT_TEMPLATE: the request has a place for the picture 0 times"),
            ("{level1_dim}", "{name}", "the field {name} is not known"),
            ("{level1_dim}", "{name", "the field {name\n\n{format_checklist} is not known"),
        ] {
            let error = parse(&source().replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
        assert!(parse("").is_err());
    }
}
