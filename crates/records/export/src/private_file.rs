//! Files with secrets: only their owner may read them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// Checks that only its owner may read a file. `what` names the file in the message.
///
/// # Errors
/// It belongs to another user than this one and root, or others may read it.
pub(crate) fn check_private(file: &File, what: &str) -> io::Result<()> {
    let metadata = file.metadata()?;
    if ![0, rustix::process::geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(io::Error::other(format!(
            "this {what} belongs to another user; give it to the one that starts weir"
        )));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "other users may read this {what}; chmod 600 it, and change the password"
        )));
    }
    Ok(())
}
