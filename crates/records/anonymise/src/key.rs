//! The key of anonymisation, and its file: 32 octets, or 64 hexadecimal digits and perhaps a line feed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Octets of a key: the AES key, and the pad.
const KEY_OCTETS: usize = 32;
/// A longer file is read no further.
const MOST_OCTETS: u64 = 4096;
/// Bits of a mode with which others than the owner may read.
const READABLE_BY_OTHERS: u32 = 0o044;

/// A key. Its `Debug` does not have it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_OCTETS]);

/// Why a file has no key. No text has a part of what is in the file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is neither 32 octets nor 64 hexadecimal digits.
    #[error("{}: a key has 32 octets, or 64 hexadecimal digits; this file has {octets} octets{}", path.display(), if *is_longer { " or more" } else { "" })]
    Length {
        /// The file.
        path: PathBuf,
        /// Octets that were read.
        octets: usize,
        /// There may be more.
        is_longer: bool,
    },
    /// It has the length of 64 digits, but other characters.
    #[error("{}: a key has 32 octets, or 64 hexadecimal digits; this file has other characters", path.display())]
    Digits {
        /// The file.
        path: PathBuf,
    },
}

impl Key {
    /// Reads a key. Also returns the mode of the file if others than its owner may read it.
    ///
    /// # Errors
    /// The file cannot be read, or has no key.
    pub fn read(path: &Path) -> Result<(Self, Option<u32>), KeyError> {
        let failed = |error| KeyError::Io { path: path.into(), error };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let mut octets = Vec::new();
        file.take(MOST_OCTETS).read_to_end(&mut octets).map_err(failed)?;
        let mode = metadata.permissions().mode() & 0o777;
        let is_readable = metadata.is_file() && mode & READABLE_BY_OTHERS != 0;
        Ok((Self::parse(path, &octets)?, is_readable.then_some(mode)))
    }

    fn parse(path: &Path, octets: &[u8]) -> Result<Self, KeyError> {
        if let Ok(key) = octets.try_into() {
            return Ok(Self(key));
        }
        let line = octets.strip_suffix(b"\n").unwrap_or(octets);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let path = path.into();
        if line.len() != 2 * KEY_OCTETS {
            let is_longer = octets.len() as u64 == MOST_OCTETS;
            return Err(KeyError::Length { path, octets: octets.len(), is_longer });
        }
        let digit = |octet: u8| char::from(octet).to_digit(16);
        let mut key = [0; KEY_OCTETS];
        for (octet, pair) in key.iter_mut().zip(line.as_chunks().0) {
            let [Some(high), Some(low)] = pair.map(digit) else { return Err(KeyError::Digits { path }) };
            *octet = (high << 4 | low) as u8;
        }
        Ok(Self(key))
    }

    /// The key of AES-128, and the pad.
    pub(crate) fn halves(&self) -> [[u8; 16]; 2] {
        let (key, pad) = self.0.split_at(KEY_OCTETS / 2);
        [key, pad].map(|half| half.try_into().expect("half of 32 octets"))
    }

    /// All octets.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl From<[u8; KEY_OCTETS]> for Key {
    fn from(octets: [u8; KEY_OCTETS]) -> Self {
        Self(octets)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(content: &[u8], mode: u32) -> Result<(Key, Option<u32>), KeyError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        Key::read(&path)
    }

    #[test]
    fn a_key_has_32_octets_or_64_digits() {
        let key = Key([0xab; 32]);
        for content in
            [vec![0xab; 32], b"ab".repeat(32), b"AB".repeat(32), [b"ab".repeat(32), b"\n".into()].concat(), {
                [b"aB".repeat(32), b"\r\n".into()].concat()
            }]
        {
            assert_eq!(read(&content, 0o600).unwrap(), (key.clone(), None));
        }
    }

    #[test]
    fn other_lengths_and_characters_are_refused_without_naming_the_content() {
        for (content, reason) in [
            (b"".to_vec(), "has 0 octets"),
            (vec![7; 16], "has 16 octets"),
            (vec![7; 31], "has 31 octets"),
            (vec![7; 33], "has 33 octets"),
            (b"5a".repeat(31), "has 62 octets"),
            (b"5a".repeat(33), "has 66 octets"),
            ([b"5a".repeat(32), b"\n\n".into()].concat(), "has 66 octets"),
            (b"5a".repeat(5000), "has 4096 octets or more"),
            (b"5g".repeat(32), "has other characters"),
        ] {
            let error = read(&content, 0o600).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(text.contains(reason) || text.contains("has other"), "{text}");
            assert!(error.to_string().contains(reason) && !text.contains("5a5a") && !text.contains("5g5g"), "{text}");
        }
        let missing = Key::read(Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/key: "), "{missing}");
    }

    #[test]
    fn a_file_that_others_may_read_is_named() {
        for (mode, expected) in
            [(0o600, None), (0o400, None), (0o640, Some(0o640)), (0o604, Some(0o604)), (0o622, None)]
        {
            assert_eq!(read(&[1; 32], mode).unwrap().1, expected);
        }
    }

    #[test]
    fn debug_does_not_have_the_key() {
        assert_eq!(format!("{:?}", Key([0x5a; 32])), "Key");
    }
}
