//! File bytes → files: named by a pattern, whole or not at all.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use atelier_pipelines::text_to_image::picture::FileType;
use tempfile::NamedTempFile;

use crate::failure::Usage;
use crate::interrupt;

/// Name of a picture when none was asked for.
const DEFAULT_NAME: &str = "atelier-%s.png";

/// A picture file to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where.
    pub path: PathBuf,
    /// As what, by its extension.
    pub file_type: FileType,
    /// Whether a file that is there may be replaced: the person named it.
    replace: bool,
}

impl Target {
    /// Writes the picture, whole or not at all.
    ///
    /// # Errors
    /// When the file cannot be written, or a name of our own choosing has been taken since the start.
    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write(&self.path, bytes, self.replace)
    }
}

/// One target per seed. `pattern` is what `-o` said: a file name with `%d`, `%03d`, `%s` and `%%`, or a folder.
///
/// # Errors
/// [`Usage`] for an unknown `%`, an extension that stands for no picture type, or a folder that cannot be written to.
pub fn targets(pattern: Option<&str>, seeds: &[u64]) -> Result<Vec<Target>> {
    let (pattern, replace) = match pattern {
        None => (DEFAULT_NAME.to_owned(), false),
        Some(folder) if folder.ends_with(std::path::is_separator) || Path::new(folder).is_dir() => {
            let folder = folder.trim_end_matches(std::path::is_separator).replace('%', "%%");
            (format!("{folder}/{DEFAULT_NAME}"), false)
        }
        Some(name) => (name.to_owned(), true),
    };
    let mut names = expand_all(&pattern, seeds)?;
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        names = expand_all(&with_index(&pattern), seeds)?;
    }
    let mut targets = Vec::new();
    for name in names {
        let mut path = PathBuf::from(name);
        let file_type = FileType::of(&path).map_err(|error| Usage(error.to_string()))?;
        if !replace {
            path = unused(path);
        }
        check(&path)?;
        targets.push(Target { path, file_type, replace });
    }
    Ok(targets)
}

fn expand_all(pattern: &str, seeds: &[u64]) -> Result<Vec<String>> {
    seeds.iter().enumerate().map(|(index, &seed)| expand(pattern, index + 1, seed)).collect()
}

/// The pattern with `%d`, `%0Nd`, `%s` and `%%` filled in.
fn expand(pattern: &str, number: usize, seed: u64) -> Result<String> {
    let mut parts = pattern.split('%');
    let mut name = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        if part.is_empty() {
            // "%%": the text up to the next sign is literal
            name.push('%');
            let Some(literal) = parts.next() else {
                bail!(Usage(format!("{pattern}: a % at the end: write %% for a percent sign")));
            };
            name += literal;
            continue;
        }
        let letter = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let width = match &part[..part.len() - letter.len()] {
            "" => 0,
            digits => digits.parse().unwrap_or(usize::MAX),
        };
        if let Some(rest) = letter.strip_prefix('d').filter(|_| width <= 20) {
            name += &format!("{number:0width$}{rest}");
        } else if let Some(rest) = part.strip_prefix('s') {
            name += &format!("{seed}{rest}");
        } else {
            bail!(Usage(format!(
                "{pattern}: %{} is not known: %d is the number, %s the seed, %% a percent sign",
                part.chars().next().unwrap_or_default()
            )));
        }
    }
    Ok(name)
}

/// The pattern with `-%d` before its extension.
fn with_index(pattern: &str) -> String {
    match pattern.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains(std::path::is_separator) => format!("{stem}-%d.{extension}"),
        _ => format!("{pattern}-%d"),
    }
}

/// The path, or the first of `name-2`, `name-3`, ... that is free.
fn unused(path: PathBuf) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
    let others = (2_usize..).map(|number| path.with_file_name(format!("{stem}-{number}.{extension}")));
    std::iter::once(path.clone()).chain(others).find(|path| path.symlink_metadata().is_err()).unwrap_or(path)
}

/// Finds out before hours of work whether a file can be written.
///
/// # Errors
/// When the folder is missing or refuses a new file, or the path is a folder.
pub fn check(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("{}: is a folder, not a file", path.display());
    }
    if special(path) {
        return Ok(());
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        bail!("{}: there is no folder {}", path.display(), folder.display());
    }
    temporary(&folder).with_context(|| format!("{}: nothing can be written there", folder.display()))?;
    Ok(())
}

/// Writes a file under a passing name and renames it, so that a reader sees the old file or the whole new one.
///
/// # Errors
/// When the disk is full, the folder has gone, or `replace` is off and the file exists. Nothing is left behind.
pub fn write(path: &Path, bytes: &[u8], replace: bool) -> io::Result<()> {
    let _guard = interrupt::writing();
    if special(path) {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    // a link stays a link: what it points to is replaced
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut file = temporary(&folder_of(&path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    if replace { file.persist(&path) } else { file.persist_noclobber(&path) }.map_err(|error| error.error)?;
    Ok(())
}

/// A device or pipe, which must be written to and not replaced.
fn special(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir())
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A file that goes away unless it is renamed, with the rights an ordinary new file has.
fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".atelier-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, expected) in [
            ("a.png", "a.png"),
            ("%d.png", "7.png"),
            ("%03d-%s.png", "007-42.png"),
            ("100%%/%s%%.png", "100%/42%.png"),
            ("%%%d.png", "%7.png"),
            ("%s%s%d", "42427"),
        ] {
            assert_eq!(expand(pattern, 7, 42).unwrap(), expected, "{pattern}");
        }
        for pattern in ["%", "a%.png", "%x.png", "%3s.png", "%99999999999999999999d.png", "%é.png", "a%%%"] {
            assert!(expand(pattern, 7, 42).is_err(), "{pattern}");
        }
    }

    fn names(pattern: &str, seeds: &[u64]) -> Vec<String> {
        let file_name = |target: Target| target.path.file_name().unwrap().to_string_lossy().into_owned();
        targets(Some(pattern), seeds).unwrap().into_iter().map(file_name).collect()
    }

    #[test]
    fn equal_names_get_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| format!("{}/{name}", folder.path().display());
        assert_eq!(names(&inside("x.y.png"), &[5]), ["x.y.png"]);
        assert_eq!(names(&inside("x.y.png"), &[5, 6]), ["x.y-1.png", "x.y-2.png"]);
        assert_eq!(names(&inside("%s.webp"), &[5, 6]), ["5.webp", "6.webp"]);
        assert_eq!(names(&inside(""), &[5]), ["atelier-5.png"]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn our_own_names_are_never_taken() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().display().to_string();
        fs::write(folder.path().join("atelier-5.png"), "").unwrap();
        fs::write(folder.path().join("atelier-5-2.png"), "").unwrap();
        assert_eq!(names(&name, &[5]), ["atelier-5-3.png"]);
        let target = targets(Some(&name), &[6]).unwrap().remove(0);
        fs::write(&target.path, "mine").unwrap();
        assert_eq!(target.write(b"new").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target.path).unwrap(), b"mine");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_rights_are_as_people_expect() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file.png"), folder.path().join("link.png"));
        write(&file, b"old", true).unwrap();
        fs::write(folder.path().join("ordinary"), "").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode();
        assert_eq!(mode(&file), mode(&folder.path().join("ordinary")));
        symlink("file.png", &link).unwrap();
        write(&link, b"new", true).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        write(Path::new("/dev/null"), b"gone", true).unwrap();
        assert!(special(Path::new("/dev/null")));
    }
}
