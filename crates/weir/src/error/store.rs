use super::advice;
use std::io;

/// Why `weir store` failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: {error}{}", advice(error))]
    Folder { path: String, error: io::Error },
    #[error(transparent)]
    Store(#[from] weir_store::Error),
    #[error(transparent)]
    IpfixFile(#[from] weir_ipfix_file::Error),
}
