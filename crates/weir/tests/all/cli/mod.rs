mod bench;
mod doctor;
mod help;
mod logging;
mod synth;
mod synth_apps;
mod terminal;
mod troubleshooting;
