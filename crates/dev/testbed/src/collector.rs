//! The collector nfcapd, and ports for collectors.

use crate::Background;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::Command;

/// The collector nfcapd on a port of loopback, with its files in a folder of its own.
pub struct Nfcapd {
    process: Background,
    files: tempfile::TempDir,
}

impl Nfcapd {
    pub fn start(port: u16) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut command = Command::new("nfcapd");
        command.args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-B", "4000000", "-w"]);
        Self { process: Background::start(command.arg(files.path())), files }
    }

    /// Stops nfcapd, and returns its files.
    pub fn stop(&mut self) -> Vec<PathBuf> {
        if self.process.0.try_wait().unwrap().is_none() {
            self.process.stop(libc::SIGTERM);
        }
        let mut files: Vec<_> = fs::read_dir(self.files.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// Stops nfcapd, and returns the output of nfdump for its files.
    pub fn dump(&mut self, options: &[&str]) -> String {
        self.stop();
        let mut nfdump = Command::new("nfdump");
        nfdump.args(options).args(["-q", "-R"]).arg(self.files.path()).env("TZ", "UTC");
        String::from_utf8(nfdump.output().unwrap().stdout).unwrap()
    }
}

/// A UDP port of loopback that is not in use.
pub fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
