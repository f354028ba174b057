//! A `weir view` that serves the page of captures or stored flows.

use crate::served::Answer;
use crate::{binary, command};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, Stdio};
use std::thread::JoinHandle;

/// A running view. It is killed on drop.
pub struct Viewed {
    child: Child,
    pub address: SocketAddr,
    out: BufReader<std::process::ChildStdout>,
    err: Option<JoinHandle<String>>,
}

/// Starts a view with an open standard input, which has not printed its page yet.
pub struct Starting {
    pub child: Child,
    err: JoinHandle<String>,
}

impl Starting {
    pub fn new(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = command();
        command.arg("view").args(arguments).envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut err = child.stderr.take().unwrap();
        let read = move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        };
        Self { child, err: std::thread::spawn(read) }
    }

    pub fn input(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    /// Waits for its page.
    pub fn viewed(mut self) -> Viewed {
        drop(self.child.stdin.take());
        let mut out = BufReader::new(self.child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let Some(address) = line.strip_prefix("page: http://").and_then(|line| line.strip_suffix("/\n")) else {
            let _ = self.child.wait();
            panic!("no page: {line:?} {}", self.err.join().unwrap());
        };
        Viewed { child: self.child, address: address.parse().unwrap(), out, err: Some(self.err) }
    }

    /// Waits for its end: exit code and standard error.
    pub fn ended(mut self) -> (i32, String) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        (status.code().unwrap(), self.err.join().unwrap())
    }
}

impl Viewed {
    pub fn start(arguments: &[&str]) -> Self {
        Starting::new(arguments, &[]).viewed()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path)
    }

    pub fn request(&self, method: &str, path: &str) -> Answer {
        Answer::parse(
            &self.raw(
                format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).as_bytes(),
            ),
        )
    }

    /// Sends octets on a connection of their own, and reads to its end.
    pub fn raw(&self, octets: &[u8]) -> String {
        String::from_utf8_lossy(&self.octets(octets)).into_owned()
    }

    /// The same as octets.
    pub fn octets(&self, octets: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(octets);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// Ends it with a signal: exit code, the rest of standard output, standard error.
    pub fn stop(mut self, signal: i32) -> (i32, String, String) {
        binary::signal(&self.child, signal);
        let status = self.child.wait().unwrap();
        let mut out = String::new();
        self.out.read_to_string(&mut out).unwrap();
        (status.code().unwrap(), out, self.err.take().unwrap().join().unwrap())
    }
}

impl Drop for Viewed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
