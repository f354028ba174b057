mod capture_point;
mod command;
mod payload;
mod report;
