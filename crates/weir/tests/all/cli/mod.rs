mod bench;
mod doctor;
pub mod doctor_service;
mod help;
mod logging;
mod synth;
mod synth_apps;
mod terminal;
mod troubleshooting;
