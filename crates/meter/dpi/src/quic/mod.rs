//! QUIC versions 1 (RFC 9000, 9001) and 2 (RFC 9369), and drafts 22 to 34 of version 1.
//!
//! ```text
//! datagram -> packets -> Initial, decrypted -> CRYPTO frames -> ClientHello, ServerHello -> extracted fields
//! ```
//! The keys of Initial packets follow from the connection id that the client sends to first, or
//! after a Retry. A ClientHello may come in frames of any order, over several packets and datagrams.
//! The packets of a server can be decrypted only after the first of the client. A packet of a known
//! version that cannot be decrypted is a pattern ([`Confidence::Pattern`]): its lengths agree.
//! The work per datagram is bounded: [`MAX_PACKETS`], [`MAX_INITIALS`], [`MAX_DERIVATIONS`].
//! Connections that began before the capture are not recognised: their packets show nothing.

pub(crate) mod crypto_stream;
mod initial;
mod packet;
#[cfg(test)]
mod tests;
mod version;

use crate::start::{Read, Start};
use crate::tls::hello::{CLIENT_HELLO, Next, read_client_hello, read_server_message};
use crate::tls::split_message;
use crate::{Application, Confidence, Datagram, Fact, Findings, Note, Verdict};
use arrayvec::ArrayVec;
use crypto_stream::CryptoStream;
use initial::{LastKeys, Plaintext, Sender, decrypt};
use packet::{Kind, MAX_ID_OCTETS, Packet, split, variable};

/// Packets of a datagram that are read: one of each type, and as many again.
const MAX_PACKETS: usize = 8;
/// Initial packets of a datagram that are decrypted. A sender should have one (RFC 9000 section 12.2).
const MAX_INITIALS: usize = 4;
/// Keys that are derived for a datagram: each takes longer than all else that is done with a packet. Two are
/// needed after a Retry that was not captured, and for a server that changes to another version (RFC 9369
/// section 4.1).
const MAX_DERIVATIONS: u8 = 2;

/// What is read next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    ClientHello,
    ServerHello,
    Finished,
}

/// What the reader keeps of a flow between datagrams.
#[derive(Clone, Debug, Default)]
pub struct State {
    is_recognised: bool,
    /// The side that sent payload first is the client, once a packet of it was decrypted.
    first_is_client: Option<bool>,
    /// The server asked the client for another Initial, to another connection id.
    has_retry: bool,
    stage: Stage,
    /// The connection id from which the keys follow.
    id: ArrayVec<u8, MAX_ID_OCTETS>,
    keys: LastKeys,
    /// Octets of the messages of the side that is read.
    pub(crate) stream: CryptoStream,
}

const _: () = assert!(size_of::<State>() <= 4096 + 128);

impl State {
    /// Forgets the flow, and keeps the memory.
    pub fn clear(&mut self) {
        (self.is_recognised, self.first_is_client, self.has_retry) = (false, None, false);
        self.stage = Stage::ClientHello;
        self.id.clear();
        self.keys = LastKeys::default();
        self.stream.clear();
    }
}

/// Reads the next datagram of a flow.
pub fn read(state: &mut State, datagram: &Datagram<'_>, findings: &mut Findings) -> Verdict {
    let mut rest = Start(datagram.payload);
    let missing_octets = (datagram.wire_octets as usize).saturating_sub(datagram.payload.len());
    let is_long = datagram.payload.first().is_none_or(|first| first & 0x80 != 0);
    let mut verdict = if is_long && missing_octets > 0 { Verdict::More } else { Verdict::No };
    if state.is_recognised && !is_long {
        // A short header: the handshake is over, or it is no packet of the connection.
        if state.stage == Stage::ClientHello {
            return Verdict::No;
        }
        state.stage = Stage::Finished;
    }
    let (mut destination_id, mut packets, mut initials) = (None, 0, 0);
    state.keys.begin_datagram(MAX_DERIVATIONS);
    // Padding may follow the packets.
    while let Ok(packet) = split(&mut rest, missing_octets) {
        verdict = Verdict::More;
        packets += 1;
        initials += usize::from(packet.kind == Kind::Initial);
        if packets > MAX_PACKETS || initials > MAX_INITIALS {
            findings.limit_work();
            break;
        }
        // All packets of a datagram have one (RFC 9000 section 12.2).
        if *destination_id.get_or_insert(packet.destination_id) != packet.destination_id {
            continue;
        }
        let is_from_client = state.first_is_client == Some(datagram.from_first);
        match packet.kind {
            Kind::Reserved => continue,
            Kind::VersionNegotiation => {
                state.stage = Stage::ClientHello;
                state.id.clear();
                state.stream.clear();
            }
            Kind::Initial => {
                state.read_initial(&packet, initials == 1, datagram.from_first, findings);
            }
            Kind::Retry => state.has_retry |= !is_from_client,
            Kind::Handshake if is_from_client => state.stage = Stage::Finished,
            Kind::Handshake | Kind::ZeroRtt => {}
        }
        if !state.is_recognised {
            findings.recognise(Application::Quic, Confidence::Pattern);
            state.is_recognised = true;
        }
        if packet.version != 0 {
            findings.set_number(Fact::QuicVersion, packet.version.into());
        }
    }
    if state.keys.is_limited() {
        findings.limit_work();
    }
    if state.is_recognised && missing_octets > 0 {
        findings.note(Note::Gap);
    }
    match (state.is_recognised, state.stage) {
        (false, _) => verdict,
        (true, Stage::Finished) => Verdict::Complete,
        (true, _) => Verdict::Recognised,
    }
}

impl State {
    /// `is_first`: of its datagram. Only that one may change the connection id: keys cost much more than
    /// the packet.
    fn read_initial(&mut self, packet: &Packet<'_>, is_first: bool, from_first: bool, findings: &mut Findings) {
        let mut plaintext = Plaintext::new();
        let is_client = self.first_is_client.is_none_or(|first_is_client| first_is_client == from_first);
        if is_client && std::mem::take(&mut self.has_retry) {
            self.use_id(packet.destination_id);
        }
        let frames = match self.stage {
            Stage::ClientHello if is_client => {
                if self.id.is_empty() {
                    self.use_id(packet.destination_id);
                }
                decrypt(packet, (&self.id, Sender::Client), &mut self.keys, &mut plaintext).or_else(|| {
                    // The Retry was not captured, or another connection has the same ports.
                    let is_other = is_first && *self.id != *packet.destination_id;
                    let id = (packet.destination_id, Sender::Client);
                    let frames = is_other.then(|| decrypt(packet, id, &mut self.keys, &mut plaintext)).flatten()?;
                    self.use_id(packet.destination_id);
                    Some(frames)
                })
            }
            Stage::ServerHello if !is_client => {
                decrypt(packet, (&self.id, Sender::Server), &mut self.keys, &mut plaintext)
            }
            _ => return,
        };
        let Some(frames) = frames else { return };
        self.is_recognised = true;
        findings.recognise(Application::Quic, Confidence::Message);
        self.first_is_client.get_or_insert(from_first);
        let is_closed = self.read_frames(&plaintext[frames], findings);
        self.read_messages(findings);
        if is_closed {
            self.stage = Stage::Finished;
        }
    }

    fn use_id(&mut self, id: &[u8]) {
        self.id = id.iter().copied().take(MAX_ID_OCTETS).collect();
        if self.stage == Stage::ClientHello {
            self.stream.clear();
        }
    }

    /// Reads the frames of an Initial packet (RFC 9000 section 12.4). Returns whether one closes the
    /// connection.
    fn read_frames(&mut self, frames: &[u8], findings: &mut Findings) -> bool {
        let mut rest = Start(frames);
        loop {
            // Padding is most of the packet of a client.
            while let Some((padding, after)) = rest.0.split_first_chunk::<16>()
                && *padding == [0; 16]
            {
                rest.0 = after;
            }
            match self.read_frame(&mut rest, findings) {
                Ok(false) => {}
                read => return read == Ok(true),
            }
        }
    }

    /// Reads a frame. Returns whether it closes the connection. An error: no frame that may be in an
    /// Initial packet is left.
    fn read_frame(&mut self, rest: &mut Start<'_>, findings: &mut Findings) -> Read<bool> {
        match rest.u8()? {
            // PADDING, PING
            0 | 1 => {}
            // ACK, ACK with counts of ECN
            kind @ (2 | 3) => {
                let (_largest, _delay, ranges) = (variable(rest)?, variable(rest)?, variable(rest)?);
                variable(rest)?;
                for _ in 0..ranges {
                    let (_gap, _length) = (variable(rest)?, variable(rest)?);
                }
                for _ in 0..if kind == 3 { 3 } else { 0 } {
                    variable(rest)?;
                }
            }
            // CRYPTO
            6 => {
                let (offset, octets) = (variable(rest)?, variable(rest)?);
                self.stream.insert(offset, rest.take(octets as usize)?, findings);
            }
            // CONNECTION_CLOSE: 0x0100 and the description of an alert, which is fatal (RFC 9001 section 4.8)
            0x1c => {
                if let Ok(error @ 0x100..=0x1ff) = variable(rest) {
                    findings.set_number(Fact::TlsAlert, 0x200 | error & 0xff);
                }
                return Ok(true);
            }
            _ => return Err(Verdict::No),
        }
        Ok(false)
    }

    fn read_messages(&mut self, findings: &mut Findings) {
        let mut messages = Start(self.stream.contiguous());
        while let Ok(message) = split_message(&mut messages) {
            self.stage = match self.stage {
                Stage::ClientHello if message.kind == CLIENT_HELLO => {
                    match read_client_hello(message, Application::Quic, findings) {
                        Next::Foreign => Stage::Finished,
                        Next::Undecided | Next::Incomplete => return,
                        _ => {
                            self.stage = Stage::ServerHello;
                            return self.stream.clear();
                        }
                    }
                }
                Stage::ServerHello => match read_server_message(message, Application::Quic, findings) {
                    Next::Message | Next::ServerHello => Stage::ServerHello,
                    Next::Undecided | Next::Incomplete => return,
                    Next::Foreign | Next::Nothing => Stage::Finished,
                },
                _ => Stage::Finished,
            };
        }
    }
}
