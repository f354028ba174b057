//! All checks: documents, dependencies, and the form of sources.

mod dependencies;
mod documents;
mod field_names;
mod sources;

pub(crate) use documents::{files, linked_files};

use std::path::Path;

/// All violations in the repository with this root, as `FILE:LINE: what is wrong`.
pub fn violations(root: &Path) -> Vec<String> {
    [
        documents::violations(root),
        crate::site::violations(root),
        dependencies::violations(root),
        field_names::violations(root),
        sources::violations(root),
    ]
    .concat()
}
