mod applications;
mod ndpi;
mod payload_readers;
mod transactions;
mod work;
