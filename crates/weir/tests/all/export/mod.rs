mod anonymise;
mod arrow;
mod file_errors;
mod ipfix_source;
mod options_records;
mod rotation;
pub mod store;
mod tcp_export;
mod udp_export;
