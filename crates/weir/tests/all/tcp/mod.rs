mod capture_point;
mod command;
mod findings;
mod payload;
mod report;
