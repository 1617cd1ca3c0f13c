//! Lists the demo models' files for `src/demo.rs`, which compiles them into the program.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDER: &str = "assets/models";
const MODELS: [&str; 2] = ["painter", "looker"];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}");
    for model in MODELS {
        let root = path_variable("CARGO_MANIFEST_DIR").join(FOLDER).join(model);
        let mut files = Vec::new();
        if env::var_os("CARGO_FEATURE_DEMO").is_some() && root.is_dir() {
            list(&root, &mut files)?;
        }
        files.sort();
        let mut table = String::from("&[\n");
        for file in &files {
            let name = file.strip_prefix(&root).unwrap_or(file).to_string_lossy().replace('\\', "/");
            table += &format!("    ({name:?}, include_bytes!({:?})),\n", file.to_string_lossy());
        }
        table.push_str("]\n");
        fs::write(path_variable("OUT_DIR").join(model).with_extension("rs"), table)?;
    }
    Ok(())
}

fn path_variable(name: &str) -> PathBuf {
    env::var_os(name).map(PathBuf::from).unwrap_or_default()
}

/// Every file under `folder`.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
