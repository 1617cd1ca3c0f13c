//! Lines of JSON that outlive a crash: each is on the disk before the next step is taken.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// A file to which finished work is added, a line of JSON each. It is locked while it is open.
#[derive(Debug)]
pub struct Journal<T> {
    path: PathBuf,
    file: File,
    kind: PhantomData<fn(T)>,
}

impl<T: Serialize + DeserializeOwned> Journal<T> {
    /// Opens or creates the file and reads what is in it. A last line that is not whole - the program or the machine
    /// stopped while it was written - is cut off.
    ///
    /// # Errors
    /// When the file cannot be read or written, is in use by another run, or a line before the last is damaged.
    pub fn open(path: &Path) -> Result<(Self, Vec<T>)> {
        let io = |source| Error::io(path, source);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::file(path, "another run is writing to it")),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let (mut entries, mut whole) = (Vec::new(), 0);
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let entry = line.strip_suffix(b"\n").map(serde_json::from_slice);
            match entry {
                Some(Ok(entry)) => entries.push(entry),
                Some(Err(error)) if whole + line.len() < bytes.len() => {
                    return Err(Error::file(path, format!("line {} is damaged: {error}", number + 1)));
                }
                Some(Err(_)) | None => break,
            }
            whole += line.len();
        }
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io)?;
            file.sync_all().map_err(io)?;
        }
        file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok((Self { path: path.to_owned(), file, kind: PhantomData }, entries))
    }

    /// Adds a line; when this returns it is on the disk.
    ///
    /// # Errors
    /// When the disk is full or the file has gone.
    pub fn append(&mut self, entry: &T) -> Result<()> {
        let io = |source| Error::io(&self.path, source);
        let mut line = serde_json::to_vec(entry).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        self.file.write_all(&line).and_then(|()| self.file.sync_data()).map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_torn_last_line_is_cut_off_wherever_it_tears() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let all = ["one".to_owned(), "zwei ü\n".into(), "3".into()];
        let (mut journal, old) = Journal::<String>::open(&path).unwrap();
        assert!(old.is_empty());
        for entry in &all {
            journal.append(entry).unwrap();
        }
        drop(journal);
        let bytes = fs::read(&path).unwrap();
        for length in 0..=bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            let (mut journal, old) = Journal::<String>::open(&path).unwrap();
            let whole = bytes[..length].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(old, all[..whole], "{length}");
            for entry in &all[whole..] {
                journal.append(entry).unwrap();
            }
            drop(journal);
            assert_eq!(fs::read(&path).unwrap(), bytes, "{length}");
        }
        // a last line that a crash filled with zeros
        fs::write(&path, [&bytes[..6], &[0; 9], b"\n"].concat()).unwrap();
        assert_eq!(Journal::<String>::open(&path).unwrap().1, all[..1]);
    }

    #[test]
    fn damage_in_the_middle_and_a_second_run_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, "1\ntwo\n3\n").unwrap();
        let error = Journal::<u8>::open(&path).unwrap_err().to_string();
        assert!(error.contains("a.jsonl: line 2 is damaged"), "{error}");
        fs::write(&path, "1\n").unwrap();
        let (_journal, old) = Journal::<u8>::open(&path).unwrap();
        assert_eq!(old, [1]);
        assert!(Journal::<u8>::open(&path).unwrap_err().to_string().ends_with("another run is writing to it"));
    }
}
