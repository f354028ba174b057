//! IPFIX (RFC 7011, RFC 5103 for two-way flows, RFC 5655 in files) and NetFlow v9 (RFC 3954): records that follow templates.
//!
//! ```text
//! for each flow: encode -> shape; a new shape is a new template, sent before its first record
//!                no room left in the message for all records of the flow -> send the message first
//! ```
//! Always true: the records of one flow are in one message, so that a flow is exported or lost as a whole; no message
//! is longer than its limit; over UDP all templates are sent again from time to time, and soon after a
//! message was lost; sets are padded to 4 octets, which is less than the shortest record.

use crate::account::Carried;
use crate::element::{Body, Formats};
use crate::fields::one_way;
use crate::layout::{Layout, Shape};
use crate::output::{Output, Piece};
use crate::sink::{Error, ExportOptions, Sink};
use crate::udp::Datagrams;
use crate::uptime::Uptime;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_flow::FlowRecord;
use weir_ledger::SinkCounters;

/// Over UDP all templates are sent again after so many messages,
const TEMPLATES_EVERY_MESSAGES: u32 = 1000;
/// or, together with the types of our own elements, after this time, and after a loss, but then not more often than this.
const ALL_EVERY: Duration = Duration::from_secs(60);
const ALL_AFTER_LOSS: Duration = Duration::from_secs(1);
/// Shapes of two-way flows with a template of their own. Ordinary traffic has some dozens; traffic made
/// to have more is sent as one-way records, whose shapes are fewer than the identifiers that are left.
const TWO_WAY_SHAPES: usize = 4096;
/// The first identifier of a template with data (RFC 7011 section 3.4.1).
const FIRST_ID: u16 = 256;
/// Longest message in a file.
pub(crate) const FILE_MESSAGE: usize = 65_535;

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Ipfix,
    Netflow9,
}

impl Version {
    const fn header_octets(self) -> usize {
        match self {
            Self::Ipfix => 16,
            Self::Netflow9 => 20,
        }
    }

    const fn template_set(self) -> u16 {
        match self {
            Self::Ipfix => 2,
            Self::Netflow9 => 0,
        }
    }
}

/// Where messages go.
pub(crate) enum Transport {
    Udp(Datagrams),
    File(Output),
}

/// A sink of messages with templates.
pub(crate) struct Templated {
    version: Version,
    layout: Layout,
    uniflow: bool,
    domain: u32,
    transport: Transport,
    /// Longest message, octets.
    limit: usize,
    message: Message,
    /// IPFIX: data records before this message; v9: messages before it.
    sequence: u32,
    templates: HashMap<Shape, u16>,
    /// The one that was asked for last.
    last: Option<(Shape, u16)>,
    /// Template n has identifier FIRST_ID + n, behind the one for types in IPFIX.
    order: Vec<Shape>,
    /// When types and templates were sent last.
    announced: Option<Instant>,
    /// Messages since templates were sent.
    messages_since: u32,
    lost_since: bool,
    uptime: Uptime,
    /// Records of the present flow, and the shape of each with the place where it ends.
    body: Body,
    parts: Vec<(Shape, usize)>,
    line: SinkCounters,
}

/// The message in the making.
#[derive(Default)]
struct Message {
    /// The header's place, then sets.
    octets: Vec<u8>,
    /// Identifier and place of the set that is open.
    set: Option<(u16, usize)>,
    records: u32,
    data_records: u32,
    carried: Carried,
}

impl Templated {
    pub fn new(sink: &str, version: Version, transport: Transport, limit: usize, options: &ExportOptions) -> Self {
        let format = match version {
            Version::Ipfix => Formats::Ipfix,
            Version::Netflow9 => Formats::Netflow9,
        };
        Self {
            version,
            layout: Layout::new(format),
            uniflow: options.uniflow || version == Version::Netflow9,
            domain: options.observation_domain,
            transport,
            limit,
            message: Message::default(),
            sequence: 0,
            templates: HashMap::new(),
            last: None,
            order: Vec::new(),
            announced: None,
            messages_since: 0,
            lost_since: false,
            uptime: Uptime::default(),
            body: Body::new(),
            parts: Vec::new(),
            line: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    fn add(&mut self, flow: &FlowRecord) -> Result<(), Error> {
        let mut result = Ok(());
        if self.version == Version::Netflow9 {
            if !self.uptime.fits(flow) {
                result = result.and(self.send());
            }
            self.uptime.enter(flow, &mut self.line);
        }
        result = result.and(self.announce_when_due());
        self.encode(flow);
        for at in 0..self.parts.len() {
            let (shape, _) = self.parts[at];
            if self.template(shape).is_none() {
                result = result.and(self.learn(shape));
            }
        }
        // Each record may open a set behind a padded one, and the last is padded too.
        let needed = self.body.octets().len() + self.parts.len() * (3 + 4) + 3;
        if self.message.octets.len() + needed > self.limit {
            result = result.and(self.send());
        }
        let parts = std::mem::take(&mut self.parts);
        let body = std::mem::take(&mut self.body);
        let mut from = 0;
        for &(shape, end) in &parts {
            let template = self.template(shape).expect("learnt above");
            result = result.and(self.put(template, &body.octets()[from..end]));
            from = end;
        }
        self.message.carried.merge(Carried::one(flow, parts.len() as u64));
        (self.parts, self.body) = (parts, body);
        result
    }

    /// Fills `body` and `parts`: one record, or one for each direction.
    fn encode(&mut self, flow: &FlowRecord) {
        let boot_ms = self.uptime.boot_ms();
        self.body.clear();
        self.parts.clear();
        if !self.uniflow && flow.forward.packets > 0 && flow.reverse.packets > 0 {
            let shape = self.layout.encode(flow, false, boot_ms, &mut self.body);
            if self.template(shape).is_some() || self.order.len() < TWO_WAY_SHAPES {
                self.parts.push((shape, self.body.octets().len()));
                return;
            }
            self.body.clear();
        }
        if flow.reverse.packets == 0 {
            let shape = self.layout.encode(flow, false, boot_ms, &mut self.body);
            self.parts.push((shape, self.body.octets().len()));
            return;
        }
        for (part, from_responder) in one_way(flow) {
            let shape = self.layout.encode(&part, from_responder, boot_ms, &mut self.body);
            self.parts.push((shape, self.body.octets().len()));
        }
    }

    /// The identifier of the template for a shape. Records of one shape mostly follow each other.
    fn template(&mut self, shape: Shape) -> Option<u16> {
        if let Some((last, id)) = self.last
            && last == shape
        {
            return Some(id);
        }
        let id = *self.templates.get(&shape)?;
        self.last = Some((shape, id));
        Some(id)
    }

    /// Gives a shape its template and sends it.
    fn learn(&mut self, shape: Shape) -> Result<(), Error> {
        let id = self.first_template() as usize + self.order.len();
        let id = u16::try_from(id).expect("one-way shapes are fewer than identifiers");
        self.templates.insert(shape, id);
        self.order.push(shape);
        self.put(self.version.template_set(), &self.layout.template(id, shape))
    }

    const fn first_template(&self) -> u16 {
        match self.version {
            Version::Ipfix => FIRST_ID + 1,
            Version::Netflow9 => FIRST_ID,
        }
    }

    /// At the start, and over UDP again and again, sends all that collectors must know to read what follows. It stands at
    /// the start of a message, for those that begin to listen with it.
    fn announce_when_due(&mut self) -> Result<(), Error> {
        let udp = matches!(self.transport, Transport::Udp(_));
        // The clock is not read for a file.
        let all = self.announced.is_none_or(|announced| {
            udp && {
                let age = announced.elapsed();
                age >= ALL_EVERY || self.lost_since && age >= ALL_AFTER_LOSS
            }
        });
        let templates = all || udp && self.messages_since >= TEMPLATES_EVERY_MESSAGES;
        if !templates {
            return Ok(());
        }
        let mut result = self.send();
        if all {
            (self.announced, self.lost_since) = (Some(Instant::now()), false);
            if self.version == Version::Ipfix {
                result = result.and(self.announce_types());
            }
        }
        self.messages_since = 0;
        for at in 0..self.order.len() {
            let template = self.layout.template(self.first_template() + at as u16, self.order[at]);
            result = result.and(self.put(self.version.template_set(), &template));
        }
        result
    }

    /// Sends the types of our own elements. In messages of their own and not more often than needed: nfdump 1.7.1 does not
    /// count these records, and takes those before later data for lost ones.
    fn announce_types(&mut self) -> Result<(), Error> {
        let mut result = self.put(3, &types_template());
        let types: Vec<Vec<u8>> = self.layout.own_types().collect();
        for record in types {
            result = result.and(self.put(FIRST_ID, &record));
        }
        result.and(self.send())
    }

    /// Appends a record to the open set or to a new one, in the next message if this one has no room.
    fn put(&mut self, set: u16, record: &[u8]) -> Result<(), Error> {
        let mut result = Ok(());
        let opens = self.message.set.is_none_or(|(open, _)| open != set);
        let needed = if opens { 3 + 4 } else { 0 } + record.len() + 3;
        if !self.message.octets.is_empty() && self.message.octets.len() + needed > self.limit {
            result = self.send();
        }
        let message = &mut self.message;
        if message.octets.is_empty() {
            message.octets.resize(self.version.header_octets(), 0);
        }
        if message.set.is_none_or(|(open, _)| open != set) {
            message.close_set();
            message.set = Some((set, message.octets.len()));
            message.octets.extend(set.to_be_bytes());
            message.octets.extend([0, 0]);
        }
        message.octets.extend(record);
        message.records += 1;
        message.data_records += u32::from(set >= FIRST_ID);
        result
    }

    /// Sends the message if there is something in it.
    fn send(&mut self) -> Result<(), Error> {
        let mut message = std::mem::take(&mut self.message);
        if message.octets.is_empty() {
            return Ok(());
        }
        message.close_set();
        debug_assert!(message.octets.len() <= self.limit, "a message keeps to its limit");
        let octets = &mut message.octets;
        match self.version {
            Version::Ipfix => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let length = u16::try_from(octets.len()).expect("the limit is below 65536");
                octets[0..2].copy_from_slice(&10u16.to_be_bytes());
                octets[2..4].copy_from_slice(&length.to_be_bytes());
                octets[4..8].copy_from_slice(&(now as u32).to_be_bytes());
                octets[8..12].copy_from_slice(&self.sequence.to_be_bytes());
                octets[12..16].copy_from_slice(&self.domain.to_be_bytes());
                self.sequence = self.sequence.wrapping_add(message.data_records);
            }
            Version::Netflow9 => {
                let (up_ms, seconds) = self.uptime.header();
                let count = u16::try_from(message.records).expect("records are longer than an octet");
                octets[0..2].copy_from_slice(&9u16.to_be_bytes());
                octets[2..4].copy_from_slice(&count.to_be_bytes());
                octets[4..8].copy_from_slice(&up_ms.to_be_bytes());
                octets[8..12].copy_from_slice(&seconds.to_be_bytes());
                octets[12..16].copy_from_slice(&self.sequence.to_be_bytes());
                octets[16..20].copy_from_slice(&self.domain.to_be_bytes());
                self.sequence = self.sequence.wrapping_add(1);
            }
        }
        self.messages_since += 1;
        match &mut self.transport {
            Transport::Udp(datagrams) => {
                let sent = datagrams.send(octets, message.carried, &mut self.line);
                self.lost_since |= !sent.taken || sent.refused_before;
                self.message.reuse(message);
                Ok(())
            }
            Transport::File(output) => {
                let before = self.line.octets;
                let piece = Piece { end: octets.len(), carried: message.carried };
                let result = output.write(octets, &[piece], &mut self.line);
                self.line.messages += u64::from(self.line.octets - before == octets.len() as u64);
                self.message.reuse(message);
                result
            }
        }
    }
}

impl Message {
    /// Pads the open set and fills in its length.
    fn close_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            self.octets.resize(self.octets.len().next_multiple_of(4), 0);
            let length = u16::try_from(self.octets.len() - start).expect("the limit is below 65536");
            self.octets[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Takes the memory of a message that was sent.
    fn reuse(&mut self, sent: Message) {
        self.octets = sent.octets;
        self.octets.clear();
    }
}

impl Sink for Templated {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        let mut result = Ok(());
        for flow in flows {
            result = result.and(self.add(flow));
        }
        result.and(self.send())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let result = self.send();
        if let Transport::Udp(datagrams) = &mut self.transport {
            self.lost_since |= datagrams.finish(&mut self.line);
        }
        result
    }

    fn counters(&self) -> &SinkCounters {
        &self.line
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        match &self.transport {
            Transport::Udp(datagrams) => datagrams.ends(),
            Transport::File(_) => None,
        }
    }
}

/// The options template of type information (RFC 5610 section 3): two scope fields and four more.
fn types_template() -> Vec<u8> {
    const VARIABLE: u16 = 65_535;
    let fields = [(346, 4), (303, 2), (339, 1), (344, 1), (345, 2), (341, VARIABLE)];
    let mut record = Vec::new();
    record.extend(FIRST_ID.to_be_bytes());
    record.extend((fields.len() as u16).to_be_bytes());
    record.extend(2u16.to_be_bytes());
    for (number, octets) in fields {
        record.extend(u16::to_be_bytes(number));
        record.extend(octets.to_be_bytes());
    }
    record
}
