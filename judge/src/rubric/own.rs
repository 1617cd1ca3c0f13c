//! Markdown → rubric.

use super::{Piece, Rubric, check_request, facets_of};
use crate::{Dimension, Facet};

/// Parses a rubric of our own format.
pub(super) fn parse(name: &str, text: &str) -> Result<Rubric, String> {
    let parts = parts(text)?;
    let part = |name: &str| {
        let found = parts.iter().find(|(heading, _)| *heading == name);
        found.map(|(_, text)| text.clone()).ok_or_else(|| format!("there is no part \"# {name}\""))
    };
    let system = part("System")?;
    let request = pieces(&part("Request")?);
    check_request(&request).map_err(|problem| {
        format!("{problem}: \"# Request\" holds {{prompt}}, {{picture}}, {{dimension}} and {{checklist}}")
    })?;
    let checklists =
        Dimension::ALL.into_iter().map(|dimension| part(dimension.name())).collect::<Result<Vec<_>, _>>()?;
    for (dimension, checklist) in Dimension::ALL.into_iter().zip(&checklists) {
        let (facets, unknown) = facets_of(checklist, dimension);
        if let Some(name) = unknown.first() {
            let known: Vec<_> = dimension.facets().map(Facet::name).collect();
            return Err(format!("\"- {name}\" is no facet of {dimension}: {}", known.join(", ")));
        }
        if facets.is_empty() {
            return Err(format!("\"# {dimension}\" asks nothing: write a line \"- Facet: question\" for each facet"));
        }
    }
    Ok(Rubric::new(name.to_owned(), system, request, checklists))
}

/// The parts under their headings, without blank lines at either end.
fn parts(text: &str) -> Result<Vec<(&str, String)>, String> {
    let is_part = |name: &str| ["System", "Request"].contains(&name) || Dimension::ALL.iter().any(|d| d.name() == name);
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let heading = line.strip_prefix("# ").map(str::trim).filter(|name| is_part(name));
        if let Some(name) = heading.filter(|name| parts.iter().any(|(other, _)| other == name)) {
            return Err(format!("line {}: \"# {name}\" is there twice", number + 1));
        }
        match (heading, parts.last_mut()) {
            (Some(name), _) => parts.push((name, String::new())),
            (None, Some((_, text))) => {
                *text += line;
                text.push('\n');
            }
            (None, None) if line.trim().is_empty() => {}
            (None, None) => {
                return Err(format!(
                    "line {}: \"{}\" stands before the first part: begin with \"# System\"",
                    number + 1,
                    line.chars().take(40).collect::<String>()
                ));
            }
        }
    }
    for (_, text) in &mut parts {
        *text = text.trim().to_owned();
    }
    Ok(parts)
}

/// Cuts at `{prompt}`, `{picture}`, `{dimension}` and `{checklist}`; other braces are text.
fn pieces(mut text: &str) -> Vec<Piece> {
    let marks = [
        ("{prompt}", Piece::Prompt),
        ("{picture}", Piece::Picture),
        ("{dimension}", Piece::Dimension),
        ("{checklist}", Piece::Checklist),
    ];
    let mut pieces = Vec::new();
    loop {
        let next = marks.iter().filter_map(|(mark, piece)| Some((text.find(mark)?, mark, piece))).min_by_key(|f| f.0);
        let Some((at, mark, piece)) = next else { break };
        pieces.extend([Piece::Text(text[..at].to_owned()), piece.clone()]);
        text = &text[at + mark.len()..];
    }
    pieces.push(Piece::Text(text.to_owned()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rubric::DEFAULT;

    #[test]
    fn what_is_wrong_is_said() {
        for (from, to, expected) in [
            ("# System\n", "", "line 2: \"You are a careful"),
            ("# Aesthetics\n", "# Beauty\n", "no part \"# Aesthetics\""),
            ("{picture}", "", "the picture 0 times, expected 1"),
            ("{picture}", "{picture}{picture}", "the picture 2 times, expected 1"),
            ("{prompt}", "", "the prompt 0 times"),
            ("- Noise:", "- Grain:", "\"- Grain\" is no facet of Quality: Physical Logic, Material Texture, Noise"),
            ("# Alignment\n", "# Quality\n", "\"# Quality\" is there twice"),
        ] {
            let error = parse("x", &DEFAULT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
        assert!(parse("x", "").is_err());
    }

    #[test]
    fn a_shorter_checklist_is_a_rubric() {
        let start = DEFAULT.find("# Quality").unwrap();
        let lists = Dimension::ALL.map(|d| format!("# {d}\n- {}: ?\n", d.facets().next().unwrap().name()));
        let text = format!("\u{feff}{}{}", &DEFAULT[..start], lists.concat()).replace('\n', "\r\n");
        let question = parse("x", &text).unwrap().question("p", Dimension::Alignment);
        assert!(question.after.contains("# Checklist\n- Quantity: ?\n"), "{}", question.after);
    }
}
