mod anonymise;
mod file_errors;
mod options_records;
mod rotation;
mod store;
mod udp_export;
