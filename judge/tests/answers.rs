//! Odd answers and what must be read from them.

#![cfg(test)]

use atelier_judge::{Dimension, Facet, PictureScores, Reading, Repairs, Score, Sheet};
use proptest::prelude::*;

/// `Noise=1 Edge Clarity=N/A`, in the hierarchy's order.
fn scores(sheet: &Sheet) -> String {
    sheet.scores.iter().map(|(facet, score)| format!("{}={score} ", facet.name())).collect::<String>().trim_end().into()
}

#[track_caller]
fn read(answer: &str, dimension: Dimension) -> Sheet {
    match Reading::of(answer, dimension) {
        Reading::Sheet(sheet) => sheet,
        Reading::Missing(problem) => panic!("{problem}: {answer}"),
    }
}

const GOOD: &str = r#"{"Realism": {"Physical Logic": {"score": 1}, "Material Texture": {"score": 2}}, "Detail": {"Noise": {"score": 0}, "Edge Clarity": {"score": "N/A"}}}"#;
const GOOD_SCORES: &str = "Physical Logic=1 Material Texture=2 Noise=0 Edge Clarity=N/A";

#[test]
fn wrappings() {
    for answer in [
        GOOD.to_owned(),
        format!("\n\n  {GOOD}\n"),
        format!("I look closely. It is {{fine}}.\n</think>\n\n{GOOD}"),
        format!("<think>\nFirst draft: {{\"Detail\": {{\"Noise\": {{\"score\": 2}}}}}}</think>{GOOD}"),
        format!("a</think>b</think>{GOOD}"),
        format!("```json\n{GOOD}\n```"),
        format!("</think>Here is my judgement:\n{GOOD}\nI hope this helps."),
        format!("[{GOOD}]"),
        GOOD.replace(": ", " :\n\t"),
    ] {
        let sheet = read(&answer, Dimension::Quality);
        assert_eq!(scores(&sheet), GOOD_SCORES, "{answer}");
        assert_eq!((sheet.repairs, sheet.extra.len()), (Repairs::default(), 0), "{answer}");
    }
}

#[test]
fn missing() {
    for (answer, expected) in [
        ("", "empty"),
        ("thinking</think>  \n", "empty"),
        ("The picture is excellent.", "no JSON object"),
        ("<think>\nThe picture shows a cat. Noise? I would say", "no JSON object"),
        ("} {", "no JSON object"),
        ("}{", "no JSON object"),
        (&GOOD[..GOOD.len() - 30], "damaged"),
        (&GOOD[..GOOD.len() - 1], "damaged"),
        (&format!("{GOOD} {GOOD}"), "damaged"),
        ("{\"Detail\": {\"Noise\": {\"score\": 1}},}", "damaged"),
        ("{'Detail': {'Noise': {'score': 1}}}", "damaged"),
        ("{}", "names no facet of Quality"),
        ("{\"Detail\": {}}", "names no facet of Quality"),
        ("{\"Attributes\": {\"Color\": {\"score\": 1}}}", "names no facet of Quality"),
        ("1", "no JSON object"),
        ("null", "no JSON object"),
        (&format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500)), "damaged"),
    ] {
        match Reading::of(answer, Dimension::Quality) {
            Reading::Missing(problem) => {
                assert!(problem.contains(expected), "{expected} is not in {problem}: {answer}");
            }
            Reading::Sheet(sheet) => panic!("{sheet:?}: {answer}"),
        }
    }
}

/// Thinking that never ends is read like any other text, as the official tools do.
#[test]
fn unclosed_thinking() {
    assert_eq!(scores(&read(&format!("<think>\nWell. {GOOD}"), Dimension::Quality)), GOOD_SCORES);
}

#[test]
fn repairs() {
    for (answer, dimension, expected, moved, renamed) in [
        // at top level
        (
            r#"{"Noise": {"score": 1}, "Edge Clarity": {"score": 2}}"#,
            Dimension::Quality,
            "Noise=1 Edge Clarity=2",
            2,
            0,
        ),
        (r#"{"Noise": 1, "Resolution": "0"}"#, Dimension::Quality, "Noise=1 Resolution=0", 2, 0),
        // some in place, some at top level, in either order
        (
            r#"{"Noise": {"score": 1}, "Realism": {"Physical Logic": {"score": 0}}}"#,
            Dimension::Quality,
            "Physical Logic=0 Noise=1",
            1,
            0,
        ),
        (
            r#"{"Realism": {"Physical Logic": {"score": 0}}, "Noise": {"score": 1}}"#,
            Dimension::Quality,
            "Physical Logic=0 Noise=1",
            1,
            0,
        ),
        // a facet named like its category
        (r#"{"Resolution": {"score": 2}}"#, Dimension::Quality, "Resolution=2", 1, 0),
        (r#"{"Resolution": {"Resolution": {"score": 2}}}"#, Dimension::Quality, "Resolution=2", 0, 0),
        // in a wrong category, or in one that does not exist
        (
            r#"{"Realism": {"Noise": {"score": 1}}, "Sharpness": {"Edge Clarity": {"score": 0}}}"#,
            Dimension::Quality,
            "Noise=1 Edge Clarity=0",
            2,
            0,
        ),
        // in place wins
        (
            r#"{"Realism": {"Noise": {"score": 0}}, "Detail": {"Noise": {"score": 2}}}"#,
            Dimension::Quality,
            "Noise=2",
            1,
            0,
        ),
        (r#"{"Detail": {"Noise": {"score": 2}}, "Noise": {"score": 0}}"#, Dimension::Quality, "Noise=2", 1, 0),
        // the last of equal keys counts
        (r#"{"Detail": {"Noise": {"score": 2}, "Noise": {"score": 1}}}"#, Dimension::Quality, "Noise=1", 0, 0),
        // an old name
        (
            r#"{"Feature Matching": {"Feature Mapping": {"score": 1}}}"#,
            Dimension::CreativeGeneration,
            "Feature Matching=1",
            0,
            1,
        ),
        (r#"{"Feature Mapping": {"score": 1}}"#, Dimension::CreativeGeneration, "Feature Matching=1", 1, 1),
        // other spellings
        (
            r#"{"lighting": {"Lighting and Atmosphere": {"score": 1}}}"#,
            Dimension::Aesthetics,
            "Lighting & Atmosphere=1",
            0,
            0,
        ),
        (
            r#"{"Relations": {"Difference / Similarity": {"score": 1}}}"#,
            Dimension::Alignment,
            "Difference/Similarity=1",
            0,
            0,
        ),
    ] {
        let sheet = read(answer, dimension);
        assert_eq!(scores(&sheet), expected, "{answer}");
        assert_eq!((sheet.repairs.moved, sheet.repairs.renamed), (moved, renamed), "{answer}");
        assert!(sheet.extra.is_empty(), "{:?}", sheet.extra);
    }
}

#[test]
fn facets_that_do_not_exist_count_for_nothing() {
    let answer = r#"{"Detail": {"Noise": {"score": 1}, "Grain": {"score": 0}}, "Charm": {"score": 0}, "Layout": {"2D Space": {"score": 0}}}"#;
    let sheet = read(answer, Dimension::Quality);
    assert_eq!(scores(&sheet), "Noise=1");
    let mut extra = sheet.extra.clone();
    extra.sort();
    assert_eq!(extra, ["Charm", "Detail / Grain", "Layout / 2D Space"]);
    // "Feature Mapping" is an old name in one dimension only
    assert!(Reading::of(r#"{"Feature Mapping": {"score": 1}}"#, Dimension::Quality).sheet().is_none());
}

/// As Python's `int()` and the official table have it.
#[test]
fn score_spellings() {
    for (written, expected, unknown) in [
        ("0", Score::Fail, 0),
        ("1", Score::Pass, 0),
        ("2", Score::Excel, 0),
        ("\"2\"", Score::Excel, 0),
        ("\" 1 \"", Score::Pass, 0),
        ("1.0", Score::Pass, 0),
        ("1.9", Score::Pass, 0),
        ("true", Score::Pass, 0),
        ("\"N/A\"", Score::NotApplicable, 0),
        ("\"n/a\"", Score::NotApplicable, 0),
        ("3", Score::NotApplicable, 1),
        ("-1", Score::NotApplicable, 1),
        ("1e300", Score::NotApplicable, 1),
        ("null", Score::NotApplicable, 1),
        ("\"\"", Score::NotApplicable, 1),
        ("\"1.0\"", Score::NotApplicable, 1),
        ("\"Pass\"", Score::NotApplicable, 1),
        ("\"2 (Excel)\"", Score::NotApplicable, 1),
        ("[1]", Score::NotApplicable, 1),
    ] {
        for value in [format!("{{\"score\": {written}, \"reason\": \"x\"}}"), written.to_owned()] {
            let sheet = read(&format!("{{\"Detail\": {{\"Noise\": {value}}}}}"), Dimension::Quality);
            assert_eq!(scores(&sheet), format!("Noise={expected}"), "{value}");
            assert_eq!(sheet.repairs.unknown_scores, unknown, "{value}");
        }
    }
    let without = read("{\"Detail\": {\"Noise\": {\"verdict\": 1}}}", Dimension::Quality);
    assert_eq!((scores(&without), without.repairs.unknown_scores), ("Noise=N/A".into(), 1));
}

#[test]
fn scores_are_written_as_judges_write_them() {
    let written = serde_json::to_string(&[Score::Fail, Score::Pass, Score::Excel, Score::NotApplicable]).unwrap();
    assert_eq!(written, r#"[0,1,2,"N/A"]"#);
    assert_eq!(serde_json::from_str::<Vec<Score>>(&written).unwrap().len(), 4);
    for bad in ["3", "\"1\"", "null", "1.5", "\"n/a\""] {
        assert!(serde_json::from_str::<Score>(bad).is_err(), "{bad}");
    }
}

proptest! {
    /// Whatever a judge says, reading it ends, and every score in it belongs to the dimension.
    #[test]
    fn nothing_makes_it_fall(answer in r#"([{}\[\]",:]|"?score"?|"?Noise"?|"Detail"|[0-3]|N/A|</?think>|[ \né😀]){0,40}"#) {
        for dimension in Dimension::ALL {
            if let Reading::Sheet(sheet) = Reading::of(&answer, dimension) {
                prop_assert!(!sheet.scores.is_empty());
                prop_assert!(sheet.scores.keys().all(|facet| facet.dimension() == dimension));
            }
        }
    }

    /// A full answer comes back whole, and its total lies between 0 and 100.
    #[test]
    fn full_answers_come_back(given in prop::collection::vec(0_u8..4, 56)) {
        let text = |n: u8| if n == 3 { "\"N/A\"".to_owned() } else { n.to_string() };
        let given: Vec<_> = Facet::all().zip(given).collect();
        let readings = Dimension::ALL.map(|dimension| {
            let categories: Vec<_> = dimension.categories().map(|category| {
                let facets: Vec<_> = given.iter().filter(|(facet, _)| facet.category() == category)
                    .map(|(facet, n)| format!("{:?}: {{\"score\": {}}}", facet.name(), text(*n))).collect();
                format!("{:?}: {{{}}}", category.name(), facets.join(", "))
            }).collect();
            (dimension, Reading::of(&format!("</think>{{{}}}", categories.join(", ")), dimension))
        });
        let picture = PictureScores::new(readings.into());
        for (facet, n) in given {
            prop_assert_eq!(picture.facet(facet).unwrap().to_string(), text(n).replace('"', ""));
        }
        prop_assert!(picture.total().is_none_or(|total| (0.0..=100.0).contains(&total)));
        prop_assert!(picture.missing().is_empty());
    }
}
