//! Where messages go: datagrams to a collector, a connection to one, or a file.

use crate::file_output::{FileOutput, RecordBoundary};
use crate::pending_records::PendingRecords;
use crate::stream::StreamOutput;
use crate::udp::UdpOutput;
use std::net::SocketAddr;
use weir_ledger::SinkCounters;

/// Longest message in a file, octets.
const MAX_FILE_MESSAGE_BYTES: usize = 65_535;
/// The same over a connection: a collector may have a buffer that is a little shorter than 64 KiB.
const MAX_STREAM_MESSAGE_BYTES: usize = 64_000;

pub(crate) enum Transport {
    Udp(UdpOutput),
    Stream(Box<StreamOutput>),
    File(FileOutput),
}

/// What became of a message.
pub(super) struct Sent {
    /// The next message is numbered after it.
    pub counts: bool,
    /// It was lost, or an earlier one was reported as lost meanwhile.
    pub is_lost: bool,
    /// The path MTU has become too small for the limit before.
    pub path_mtu_fell: bool,
}

impl Transport {
    pub fn udp(&mut self) -> Option<&mut UdpOutput> {
        if let Self::Udp(output) = self { Some(output) } else { None }
    }

    pub fn stream(&mut self) -> Option<&mut StreamOutput> {
        if let Self::Stream(output) = self { Some(output) } else { None }
    }

    pub fn file(&mut self) -> Option<&mut FileOutput> {
        if let Self::File(output) = self { Some(output) } else { None }
    }

    /// Local and remote address, over UDP.
    pub fn endpoints(&self) -> Option<[SocketAddr; 2]> {
        if let Self::Udp(output) = self { output.endpoints() } else { None }
    }

    /// Present limit of a message, octets.
    pub fn max_message_bytes(&self) -> usize {
        match self {
            Self::Udp(udp) => udp.max_payload(),
            Self::Stream(_) => MAX_STREAM_MESSAGE_BYTES,
            Self::File(_) => MAX_FILE_MESSAGE_BYTES,
        }
    }

    /// Sends a message and counts its flow records. `data_records`: those that IPFIX counts.
    pub(super) fn send(
        &mut self,
        message: &[u8],
        pending: PendingRecords,
        data_records: u32,
        counters: &mut SinkCounters,
    ) -> Sent {
        match self {
            Self::Udp(udp) => {
                let sent = udp.send(message, pending, counters);
                let is_lost = !sent.accepted || sent.lost_before.is_some();
                Sent { counts: true, is_lost, path_mtu_fell: sent.path_mtu_fell }
            }
            Self::Stream(stream) => {
                // It is numbered, and its records are counted, when it is sent.
                stream.push(message, pending, Some(data_records));
                Sent { counts: false, is_lost: false, path_mtu_fell: false }
            }
            Self::File(output) => {
                let boundary = RecordBoundary { end: message.len(), pending };
                let is_written = output.write(message, &[boundary], counters);
                counters.messages += u64::from(is_written);
                // Records that are not in the file were not sent.
                Sent { counts: is_written, is_lost: !is_written, path_mtu_fell: false }
            }
        }
    }
}
