//! Outputs as the user writes them.

use crate::balance::Balance;
use crate::error::Error;
use crate::queue::QUEUE_OCTETS;
use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use weir_capture::XdpSender;
use weir_text::most_similar;

/// Where packets go, by its name: `af_packet:eth1`, `af_xdp:eth1`, `dpdk:0000:17:00.1`, `pcap:/run/ids.fifo`, `pcap:-`,
/// `folder:DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputSpec {
    /// An interface, through an AF_PACKET socket.
    AfPacket(String),
    /// An interface, through an AF_XDP socket.
    AfXdp(String),
    /// A port of DPDK, with settings.
    Dpdk(String),
    /// A pipe or a file in pcap format; `-` is standard output.
    Pcap(PathBuf),
    /// A folder of rolling files.
    Folder(PathBuf),
}

/// Several outputs, and how packets are spread over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressSpec {
    /// The outputs, at least one.
    pub outputs: Vec<OutputSpec>,
    /// Which of them gets a packet.
    pub balance: Balance,
}

/// A scheme, how an output with it is written, and the output with a name.
type Scheme = (&'static str, &'static str, fn(&str) -> OutputSpec);

const SCHEMES: [Scheme; 5] = [
    ("af_packet", "af_packet:IFACE", |name| OutputSpec::AfPacket(name.into())),
    ("af_xdp", "af_xdp:IFACE", |name| OutputSpec::AfXdp(name.into())),
    ("pcap", "pcap:PATH", |name| OutputSpec::Pcap(name.into())),
    ("folder", "folder:DIR", |name| OutputSpec::Folder(name.into())),
    ("dpdk", "dpdk:DEVICE", |name| OutputSpec::Dpdk(name.into())),
];

impl OutputSpec {
    /// Memory of the queues of this output, octets.
    pub fn memory_bytes(&self, pipelines: usize) -> u64 {
        let of_pipeline = match self {
            Self::Pcap(_) | Self::Folder(_) => QUEUE_OCTETS,
            Self::AfXdp(_) => XdpSender::MEMORY_BYTES,
            // DPDK has its own memory, which is taken when it starts.
            Self::AfPacket(_) | Self::Dpdk(_) => 0,
        };
        (pipelines * of_pipeline) as u64
    }

    /// What is opened again while the program runs, and so must stay writable: a FIFO for its next
    /// reader, a folder for its next file.
    pub fn writable_path(&self) -> Option<&Path> {
        let is_fifo = |path: &&PathBuf| fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        match self {
            Self::Folder(path) => Some(path),
            Self::Pcap(path) => Some(path).filter(is_fifo).map(PathBuf::as_path),
            Self::AfPacket(_) | Self::AfXdp(_) | Self::Dpdk(_) => None,
        }
    }
}

impl FromStr for OutputSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (scheme, name) = text.split_once(':').unwrap_or((text, ""));
        let Some((_, form, output)) = SCHEMES.iter().find(|(known, ..)| *known == scheme) else {
            return Err(Error::Unknown(text.into(), most_similar(scheme, SCHEMES.map(|(known, ..)| known))));
        };
        if name.is_empty() {
            return Err(Error::NoName(text.into(), form));
        }
        let settings = name.find(',').map(|at| &name[at..]);
        if let (Some(settings), "af_packet" | "af_xdp") = (settings, scheme) {
            return Err(Error::Settings(text.into(), settings.into()));
        }
        Ok(output(name))
    }
}

impl fmt::Display for OutputSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfPacket(name) => write!(f, "af_packet:{name}"),
            Self::AfXdp(name) => write!(f, "af_xdp:{name}"),
            Self::Dpdk(name) => write!(f, "dpdk:{name}"),
            Self::Pcap(path) => write!(f, "pcap:{}", path.display()),
            Self::Folder(path) => write!(f, "folder:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_parsed_and_printed_as_written() {
        for text in
            ["af_packet:eth1", "af_xdp:eth1", "dpdk:net_pcap0;tx_pcap=x,core=1", "pcap:-", "pcap:a:b", "folder:/var"]
        {
            assert_eq!(text.parse::<OutputSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_text_is_refused_with_what_to_do() {
        let error = |text: &str| text.parse::<OutputSpec>().unwrap_err().to_string();
        for (text, part) in [
            ("eth1", "outputs are: af_packet:IFACE"),
            ("afpacket:eth1", "did you mean af_packet?"),
            ("pacp:x", "did you mean pcap?"),
            ("Folder:x", "did you mean folder?"),
            ("", "not an output; outputs are"),
            ("pcap:", "the name is missing: pcap:PATH"),
            ("af_packet:eth1,queues=2", "remove ',queues=2'"),
            ("af_xdp:eth1,queues=2", "remove ',queues=2'"),
            ("af_xpd:eth1", "did you mean af_xdp?"),
            ("dpkd:0000:17:00.0", "did you mean dpdk?"),
        ] {
            assert!(error(text).contains(part), "{}", error(text));
        }
    }
}
