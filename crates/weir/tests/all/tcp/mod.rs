mod command;
mod payload;
mod report;
