//! Reads picture files as the pipelines do: for `tests/fixtures/compare_pictures.py`.
//!
//! Standard input names a file a line. For each, standard output gets a line, `WIDTH HEIGHT NOTES` or `error: ...`,
//! and after the former `WIDTH * HEIGHT * 3` bytes, RGB. With a processor's folder as argument: `ROWS COLUMNS NOTES`
//! in patches, and the patches' values, f32.

use std::io::{self, BufRead as _, Write as _};

use atelier_pipelines::checkpoint::Files;
use atelier_pipelines::image_to_text::{ImageProcessor, Picture};
use atelier_pipelines::{Error, Result};

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1);
    let processor = folder.map(|folder| ImageProcessor::load(&Files::folder(folder), "")).transpose()?;
    let mut output = io::stdout().lock();
    for path in io::stdin().lock().lines().map_while(io::Result::ok) {
        let answer = match read(&path, processor.as_ref()) {
            Ok(answer) => answer,
            Err(error) => format!("error: {}\n", error.to_string().replace('\n', " ")).into_bytes(),
        };
        output.write_all(&answer).and_then(|()| output.flush()).map_err(|error| Error::io("standard output", error))?;
    }
    Ok(())
}

fn read(path: &str, processor: Option<&ImageProcessor>) -> Result<Vec<u8>> {
    let picture = Picture::decode(&std::fs::read(path).map_err(|error| Error::io(path, error))?)?;
    let notes = picture.notes().join("; ");
    let (width, height) = picture.pixels().dimensions();
    Ok(match processor.map(|processor| processor.patches(picture.pixels())).transpose()? {
        None => [format!("{width} {height} {notes}\n").as_bytes(), picture.pixels().as_raw()].concat(),
        Some(patches) => {
            let line = format!("{} {} {notes}\n", patches.grid.height, patches.grid.width);
            line.into_bytes().into_iter().chain(patches.values.iter().flat_map(|value| value.to_le_bytes())).collect()
        }
    })
}
