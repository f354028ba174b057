mod applications;
mod ndpi;
mod payload_readers;
mod transaction_records;
mod transactions;
mod work;
