//! The public interface of this crate: files, and live sources in network namespaces.

mod files;
mod live;
