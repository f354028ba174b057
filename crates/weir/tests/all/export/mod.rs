mod file_errors;
mod options_records;
mod rotation;
mod udp_export;
