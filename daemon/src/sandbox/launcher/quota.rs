//! How much a program keeps in a scratch directory on the host's disk, where no file system bounds it as a whole, and how
//! many threads it has where no namespace counts them apart.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

/// Files and folders at once.
const MAX_ENTRIES: u64 = 4096;

/// Whether what lies below the directory is over `bytes` or more than [`MAX_ENTRIES`]. Follows no link. A tree too deep to
/// be looked at counts as over.
pub(super) fn is_exceeded(directory: &Path, bytes: u64) -> bool {
    let (mut used, mut entries) = (0_u64, 0_u64);
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        let listing = match fs::read_dir(&folder) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::InvalidFilename => return true,
            // Gone since it was listed, or closed by the program to itself, which empties nothing and is removed later.
            Err(_) => continue,
        };
        for entry in listing.flatten() {
            entries += 1;
            let Ok(data) = entry.metadata() else { continue };
            // A sparse file takes what it has, not what it claims.
            used = used.saturating_add(data.blocks().saturating_mul(512));
            if used > bytes || entries > MAX_ENTRIES {
                return true;
            }
            if data.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    false
}

/// The number of threads in the text of `/proc/PID/stat`. The name of the program, which it chooses, stands in brackets.
#[cfg(target_os = "linux")]
pub(super) fn threads(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(17)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn bytes_and_entries_are_bounded_and_links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let scratch = home.path().join("scratch");
        fs::create_dir_all(scratch.join("a/b")).unwrap();
        fs::write(home.path().join("large"), vec![1; 1 << 20]).unwrap();
        symlink(home.path(), scratch.join("a/out")).unwrap();
        fs::write(scratch.join("a/b/file"), vec![1; 100_000]).unwrap();
        assert!(!is_exceeded(&scratch, 400_000));
        assert!(is_exceeded(&scratch, 50_000));
        for index in 0..=MAX_ENTRIES {
            fs::write(scratch.join(format!("f{index}")), "").unwrap();
        }
        assert!(is_exceeded(&scratch, u64::MAX));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_are_read_whatever_the_program_calls_itself() {
        let stat = "7 (a) R 1 1) S 1 2 3 0 -1 4 5 6 7 8 9 10 11 12 20 0 65 0 99\n";
        assert_eq!(threads(stat), Some(65));
        assert_eq!(threads(&fs::read_to_string("/proc/self/stat").unwrap()).map(|count| count > 0), Some(true));
        assert_eq!(threads(""), None);
    }
}
