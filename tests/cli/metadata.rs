//! What a PNG file says about itself, and repeating it.

use std::io::Cursor;

use crate::harness::{Folder, tiny};

/// The texts of a PNG file by keyword.
fn texts(bytes: &[u8]) -> Vec<(String, String)> {
    let reader = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
    let info = reader.info();
    let plain = info.uncompressed_latin1_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.text.clone()));
    plain.chain(info.utf8_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap()))).collect()
}

#[test]
fn parameters_are_written_as_others_read_them() {
    let folder = Folder::new();
    folder.paint(&["a red 苹果\non a table", "-n", "blurry", "-s", "9", "-o", "a.png", "-q"]).ok();
    let texts = texts(&folder.read("a.png"));
    let parameters = &texts.iter().find(|(keyword, _)| keyword == "parameters").unwrap().1;
    let (head, last) = parameters.rsplit_once('\n').unwrap();
    assert_eq!(head, "a red 苹果\non a table\nNegative prompt: blurry");
    assert!(
        last.starts_with("Steps: 2, Sampler: Euler (flow match), CFG scale: 1, Seed: 9, Size: 64x32, Model: tiny, ")
    );
    assert!(last.contains("Sigmas: \"1, ") && last.ends_with(concat!("Version: atelier ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn an_old_picture_is_repeated() {
    let folder = Folder::new();
    for (number, arguments) in [
        &["a 🍎", "-s", "18446744073709551615"][..],
        &["", "--sigmas", "1,0.7,0.2", "-n", "blurry", "--cfg-scale", "2.5", "-s", "3"],
        &["tiles", "-W", "96", "-H", "64", "--vae-tiling", "on", "--dtype", "bf16", "--steps", "1", "-s", "4"],
    ]
    .iter()
    .enumerate()
    {
        let (old, new) = (format!("old-{number}.png"), format!("new-{number}.png"));
        folder.paint(&[arguments, &["-q", "-o", &old][..]].concat()).ok();
        let run = folder.atelier(&["generate", "--from-image", &old, "-q", "-o", &new]).ok();
        assert_eq!(run.stderr, "");
        assert_eq!(folder.read(&old), folder.read(&new), "{arguments:?}");
    }
}

#[test]
fn flags_win_over_the_old_picture() {
    let folder = Folder::new();
    folder.paint(&["a cat", "-s", "3", "-o", "old.png", "-q"]).ok();
    folder.paint(&["a dog", "-s", "5", "-W", "32", "-H", "32", "--steps", "1", "-o", "fresh.png", "-q"]).ok();
    let arguments = ["--from-image", "old.png", "-s", "5", "-W", "32", "--steps", "1", "-o", "new.png", "-q"];
    folder.paint(&[&["a dog"], &arguments[..]].concat()).ok();
    assert_eq!(folder.read("new.png"), folder.read("fresh.png"));
    let run = folder.paint(&["--from-image", "old.png", "-s", "random", "--json", "-o", "drawn.png"]).ok();
    assert_ne!(run.json()["pictures"][0]["seed"], 3);
}

#[test]
fn several_pictures_each_know_their_seed() {
    let folder = Folder::new();
    folder.paint(&["a", "-s", "3", "-b", "2", "-q"]).ok();
    folder.atelier(&["generate", "--from-image", "atelier-4.png", "-o", "again.png", "-q"]).ok();
    assert_eq!(folder.read("again.png"), folder.read("atelier-4.png"));
}

#[test]
fn references_are_found_again_and_checked() {
    let folder = Folder::new();
    let picture = tiny().with_file_name("reference_one.png");
    std::fs::copy(&picture, folder.join("one.png")).unwrap();
    folder.paint(&["a", "-i", "one.png", "-W", "64", "-H", "64", "-s", "1", "-o", "old.png", "-q"]).ok();
    folder.paint(&["--from-image", "old.png", "-o", "new.png", "-q"]).ok();
    assert_eq!(folder.read("old.png"), folder.read("new.png"));
    std::fs::copy(tiny().with_file_name("reference_two.png"), folder.join("one.png")).unwrap();
    folder
        .paint(&["--from-image", "old.png", "-q"])
        .fails(1, "one.png: the reference picture is not the one that was used");
    std::fs::remove_file(folder.join("one.png")).unwrap();
    folder.paint(&["--from-image", "old.png", "-q"]).fails(1, "one.png: the reference picture cannot be read");
    std::fs::copy(&picture, folder.join("two.png")).unwrap();
    folder.paint(&["--from-image", "old.png", "-i", "two.png", "-o", "new.png", "-q"]).ok();
    let pixels = |name| image::load_from_memory(&folder.read(name)).unwrap();
    assert_eq!(pixels("new.png"), pixels("old.png"));
}

#[test]
fn pictures_without_a_recipe_are_refused() {
    let folder = Folder::new();
    folder.paint(&["a", "-s", "1", "-o", "a.jpg", "-q"]).ok();
    folder.paint(&["a", "-s", "1", "-o", "a.png", "-q"]).ok();
    let good = folder.read("a.png");
    folder.write("cut.png", &good[..60]);
    // the recipe's checksum no longer fits its text
    let mut spoilt = good.clone();
    let at = spoilt.windows(8).position(|window| window == b"\"prompt\"").unwrap();
    spoilt[at] ^= 1;
    folder.write("spoilt.png", spoilt);
    for (bytes, name) in [("{}", "empty.png"), ("{\"version\":\"9\",\"more\":1}", "newer.png"), ("[", "broken.png")] {
        folder.write(name, with_text(bytes));
    }
    let plain = tiny().with_file_name("reference_one.png").display().to_string();
    for (name, expected) in [
        ("a.jpg", "not a readable PNG"),
        ("cut.png", "not a readable PNG"),
        ("spoilt.png", "spoilt.png: "),
        ("empty.png", "recipe is damaged or of another version"),
        ("newer.png", "recipe is damaged or of another version"),
        ("broken.png", "recipe is damaged or of another version"),
        (&plain, "carries no atelier recipe"),
    ] {
        folder.paint(&["--from-image", name]).fails(1, expected);
    }
}

/// A PNG file whose recipe is `text`.
fn with_text(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.add_text_chunk("atelier".into(), text.into()).unwrap();
    encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
    bytes
}
