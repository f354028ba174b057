//! IPFIX (RFC 7011; RFC 5103 for bidirectional flows, RFC 5655 for files) and NetFlow v9 (RFC
//! 3954): data records that follow templates.
//!
//! ```text
//! for each flow: encode -> set of elements; a new set gets a new template, sent before the record
//!                message too full for all records of the flow -> send the message first
//! ```
//! Invariants: all records of a flow are in one message, so a flow is exported or lost as a whole.
//! No message is longer than its limit. Over UDP all templates are retransmitted regularly, and
//! soon after a message was lost; those that no record has used for two refresh intervals expire
//! (RFC 7011 section 8.4: there are no withdrawals over UDP), so that there is space for others.
//! Sets are padded to 4 octets, which is less than the shortest record.

use crate::element::{Context, Format, MAX_TEXT_OCTETS, MIN_MESSAGE_BYTES};
use crate::fields::unidirectional;
use crate::file_output::{FileOutput, RecordBoundary};
use crate::ipfix_file::{
    FIRST_DATA_TEMPLATE_ID, FIRST_TEMPLATE_ID, FileTemplates, MAX_TEMPLATE_ID, OPTIONS_TEMPLATE_SET, TEMPLATE_SET,
};
use crate::options_records::{
    MeteringStatus, application_records, flow_keys_record, options_records, options_templates,
};
use crate::pending_records::PendingRecords;
use crate::profile::{ElementChoice, Layout};
use crate::record_encoder::{ElementSet, RecordEncoder};
use crate::sink::{Error, ExportOptions, Sink};
use crate::udp::UdpOutput;
use crate::uptime::SysUptime;
use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_dpi::Note;
use weir_flow::{FlowRecord, KeyOptions};
use weir_ledger::SinkCounters;

/// Over UDP all templates are retransmitted when the data sent since then is this many times
/// longer, after at least [`MIN_MESSAGES_BETWEEN_TEMPLATES`].
const DATA_PER_TEMPLATE_OCTET: usize = 100;
const MIN_MESSAGES_BETWEEN_TEMPLATES: u32 = 20;
/// Default time after which templates and type information are retransmitted over UDP.
const TEMPLATE_REFRESH: Duration = Duration::from_secs(60);
/// In this time after the start, templates are retransmitted more often, for a collector that
/// starts shortly after Weir.
const EARLY: Duration = Duration::from_secs(60);
const EARLY_TEMPLATE_REFRESH: Duration = Duration::from_secs(1);
/// The same after a message was lost.
const TEMPLATE_REFRESH_AFTER_LOSS: Duration = Duration::from_secs(1);
/// Number of templates over UDP from which on only basic templates are added, of which there are
/// five, and up to twelve more with MAC addresses of IP flows. Ordinary traffic needs some dozens,
/// crafted packets could make tens of thousands.
const MAX_TEMPLATES: usize = 256;
/// The last ID of another template in a file, which has about 32 000 templates then. They take 3 MB
/// of memory, and the templates of a file that is continued up to 40 MB.
const MAX_FULL_TEMPLATE_ID: u16 = MAX_TEMPLATE_ID - 24;
/// Records that may be shorter are not written, because the padding of a set (RFC 7011 section
/// 3.3.1) could be taken for one. A list of elements may lead to them, and to empty ones.
const MIN_RECORD_OCTETS: usize = MAX_PADDING + 1;
/// Longer template records do not fit into the smallest message.
const MAX_TEMPLATE_OCTETS: usize =
    MIN_MESSAGE_BYTES - Format::Netflow9.header_octets() - SET_HEADER_OCTETS - MAX_PADDING;
/// The texts of a record that does not fit into a message are cut to the first of these lengths
/// with which it fits, octets.
const CUT_TEXT_OCTETS: [usize; 5] = [255, 128, 64, 32, 16];
/// Key in `altered` of flows whose texts were cut.
const CUT_TEXT: &str = "cut_text";
/// Key in `altered` of flows that were written as basic records for these reasons.
const BASIC_TEMPLATE: &str = "basic_template";
const SET_HEADER_OCTETS: usize = 4;
/// Largest number of octets that pad a set.
const MAX_PADDING: usize = 3;
/// Longest message in a file, octets.
const MAX_FILE_MESSAGE_BYTES: usize = 65_535;

impl Format {
    const fn header_octets(self) -> usize {
        match self {
            Self::Ipfix => 16,
            Self::Netflow9 => 20,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipfix => "IPFIX",
            Self::Netflow9 => "NetFlow v9",
        }
    }

    const fn template_set(self) -> u16 {
        match self {
            Self::Ipfix => TEMPLATE_SET,
            Self::Netflow9 => 0,
        }
    }

    const fn options_template_set(self) -> u16 {
        match self {
            Self::Ipfix => OPTIONS_TEMPLATE_SET,
            Self::Netflow9 => 1,
        }
    }
}

pub(crate) enum Transport {
    Udp(UdpOutput),
    File(FileOutput),
}

/// Which templates a sink writes, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateSettings {
    pub elements: ElementChoice,
    /// Time after which templates and type information are retransmitted over UDP.
    pub refresh: Duration,
}

impl TemplateSettings {
    /// Of a file.
    pub const FILE: Self = Self { elements: ElementChoice::FULL, refresh: TEMPLATE_REFRESH };
    /// Of a collector, by default.
    pub const COLLECTOR: Self = Self { elements: ElementChoice::BASIC, refresh: TEMPLATE_REFRESH };
}

/// A sink that writes messages with templates.
pub(crate) struct TemplateSink {
    format: Format,
    encoder: RecordEncoder,
    /// Whether records may have texts of any length.
    has_texts: bool,
    template_refresh: Duration,
    uniflow: bool,
    domain: u32,
    /// The flow key.
    key: KeyOptions,
    transport: Transport,
    message: Message,
    /// IPFIX: number of data records before this message. NetFlow v9: number of messages before it.
    sequence: u32,
    templates: HashMap<ElementSet, Template>,
    /// The template of the last record, if it is marked as used in this interval.
    last_template: Option<(ElementSet, u16)>,
    /// Sets whose templates are sent at the start and do not expire.
    fixed_sets: Vec<ElementSet>,
    /// Number of the refresh interval, and its start.
    interval: u32,
    interval_start: Option<Instant>,
    /// Sets in the order in which their templates were added.
    template_order: Vec<ElementSet>,
    next_template_id: u16,
    /// Templates of the file that is continued: the ID of each, by the rest of its record.
    file_templates: HashMap<Vec<u8>, u16>,
    /// Time of the last transmission of templates and type information.
    all_sent_at: Option<Instant>,
    /// Time of the last transmission of templates.
    templates_sent_at: Option<Instant>,
    messages_since_templates: u32,
    octets_since_templates: usize,
    /// Length of all templates.
    template_octets: usize,
    /// What the options records report.
    status: MeteringStatus,
    /// The status has changed so that collectors have to know it at once.
    status_changed: bool,
    started: Option<Instant>,
    /// A message was lost since the last transmission of templates.
    lost_since_templates: bool,
    uptime: SysUptime,
    /// Records of the current flow.
    buffer: Vec<u8>,
    /// The elements of each record in the buffer, and the offset at which it ends.
    records: Vec<(ElementSet, usize)>,
    counters: SinkCounters,
}

/// What became of the records of a flow, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Written,
    /// The records can have no template.
    NoTemplate,
    /// A record does not fit into a message.
    TooLong,
}

struct Template {
    id: u16,
    /// The last refresh interval with a record of this template.
    last_used: u32,
}

/// A message that is being filled.
#[derive(Default)]
struct Message {
    /// Space for the header, then sets.
    octets: Vec<u8>,
    /// Set ID and offset of the open set.
    set: Option<(u16, usize)>,
    records: u32,
    data_records: u32,
    pending: PendingRecords,
}

impl TemplateSink {
    pub fn new(
        name: &str,
        format: Format,
        templates: TemplateSettings,
        transport: Transport,
        options: &ExportOptions,
    ) -> Self {
        let encoder = RecordEncoder::new(format, &templates.elements, options.applications);
        let mut sink = Self {
            format,
            fixed_sets: encoder.fixed_sets(),
            has_texts: encoder.has_texts(),
            encoder,
            template_refresh: templates.refresh,
            uniflow: options.uniflow || format == Format::Netflow9 || templates.elements.profile.base == Layout::Basic,
            domain: options.observation_domain,
            key: options.key,
            transport,
            message: Message::default(),
            sequence: 0,
            templates: HashMap::new(),
            last_template: None,
            interval: 0,
            interval_start: None,
            template_order: Vec::new(),
            all_sent_at: None,
            next_template_id: FIRST_DATA_TEMPLATE_ID,
            file_templates: HashMap::new(),
            templates_sent_at: None,
            messages_since_templates: 0,
            octets_since_templates: 0,
            template_octets: 0,
            status: MeteringStatus::default(),
            status_changed: false,
            started: None,
            lost_since_templates: false,
            uptime: SysUptime::default(),
            buffer: Vec::new(),
            records: Vec::new(),
            counters: SinkCounters { sink: name.into(), ..SinkCounters::default() },
        };
        sink.begin(FileTemplates::default());
        sink
    }

    /// Begins the output, or a file that has these templates already. All others are added when
    /// records need them.
    pub fn begin(&mut self, templates: FileTemplates) {
        (self.file_templates, self.next_template_id) = (templates.ids, templates.next_id);
        (self.sequence, self.started, self.all_sent_at, self.lost_since_templates) = (0, None, None, false);
        (self.last_template, self.template_octets) = (None, 0);
        self.templates.clear();
        self.template_order.clear();
        for at in 0..self.fixed_sets.len() {
            let id = self.new_template_id();
            self.insert_template(self.fixed_sets[at], id);
        }
    }

    fn is_udp(&self) -> bool {
        matches!(self.transport, Transport::Udp(_))
    }

    /// Whether datagrams can be sent.
    fn is_connected(&self) -> bool {
        matches!(&self.transport, Transport::Udp(udp) if udp.is_connected())
    }

    fn max_message_bytes(&self) -> usize {
        match &self.transport {
            Transport::Udp(udp) => udp.max_payload(),
            Transport::File(_) => MAX_FILE_MESSAGE_BYTES,
        }
    }

    fn file(&mut self) -> Option<&mut FileOutput> {
        if let Transport::File(output) = &mut self.transport { Some(output) } else { None }
    }

    /// Ends the file with the last options records, and begins another one.
    fn rotate(&mut self) {
        self.send();
        if self.started.is_some() {
            self.append_options(false);
            self.send();
        }
        if let Transport::File(output) = &mut self.transport {
            output.rotate(&mut self.counters);
        }
        self.begin(FileTemplates::default());
    }

    /// Appends the records of a flow to the message.
    fn write_flow(&mut self, flow: &FlowRecord) {
        if self.format == Format::Netflow9 {
            if !self.uptime.fits(flow) {
                self.send();
            }
            self.uptime.include(flow, &mut self.counters);
        }
        self.send_templates_if_due();
        let altered = loop {
            let altered = self.encode(flow);
            for at in 0..self.records.len() {
                let (elements, _) = self.records[at];
                if self.template(elements).is_none() {
                    self.add_template(elements);
                }
            }
            // Each record may begin a set after a padded one, and the last set is padded too.
            let needed = self.buffer.len() + self.records.len() * (MAX_PADDING + SET_HEADER_OCTETS);
            if self.message.octets.len() + needed + MAX_PADDING > self.max_message_bytes() {
                self.send();
            }
            // Otherwise the path MTU fell with a message that was sent now.
            if self.format.header_octets() + needed <= self.max_message_bytes() {
                break altered;
            }
        };
        if let Some(key) = altered {
            *self.counters.altered.entry(key).or_default() += 1;
        }
        let records = std::mem::take(&mut self.records);
        let buffer = std::mem::take(&mut self.buffer);
        let mut from = 0;
        for &(elements, end) in &records {
            let template = self.template(elements).expect("the template was added above");
            self.append_record(template, &buffer[from..end]);
            from = end;
        }
        self.message.pending.merge(PendingRecords::of_flow(flow, records.len() as u64));
        (self.records, self.buffer) = (records, buffer);
    }

    /// Fills `buffer` and `records`: one record, or one for each direction. Returns the key in
    /// `altered` if they are not what was asked for.
    fn encode(&mut self, flow: &FlowRecord) -> Option<&'static str> {
        let outcome = self.encode_parts(flow, MAX_TEXT_OCTETS);
        if outcome == Outcome::Written {
            return None;
        }
        if outcome == Outcome::TooLong && self.has_texts {
            let mut flow = flow.clone();
            if let Some(findings) = &mut flow.findings {
                Arc::make_mut(findings).note(Note::Cut);
            }
            if CUT_TEXT_OCTETS.into_iter().any(|octets| self.encode_parts(&flow, octets) == Outcome::Written) {
                return Some(CUT_TEXT);
            }
        }
        Some(BASIC_TEMPLATE)
    }

    /// The same with texts of at most this length. Records that cannot be written are basic ones.
    fn encode_parts(&mut self, flow: &FlowRecord, text_octets: usize) -> Outcome {
        self.buffer.clear();
        self.records.clear();
        let context = Context { boot_ms: self.uptime.boot_ms(), text_octets };
        let is_two_way = flow.forward.packets > 0 && flow.reverse.packets > 0;
        let one_record = !self.uniflow && is_two_way || flow.reverse.packets == 0;
        if one_record && self.encode_record(flow, false, context, 1) == Outcome::Written {
            return Outcome::Written;
        }
        let mut worst = Outcome::Written;
        for (part, from_responder) in unidirectional(flow) {
            let outcome = self.encode_record(&part, from_responder, context, if is_two_way { 2 } else { 1 });
            if outcome != Outcome::Written {
                let elements = self.encoder.encode(&part, from_responder, true, context, &mut self.buffer);
                self.records.push((elements, self.buffer.len()));
            }
            worst = worst.max(outcome);
        }
        worst
    }

    /// Appends a record to `buffer` and `records`, or nothing. It is to fit into a message with
    /// `records` of its length.
    fn encode_record(&mut self, flow: &FlowRecord, from_responder: bool, context: Context, records: usize) -> Outcome {
        let start = self.buffer.len();
        let elements = self.encoder.encode(flow, from_responder, false, context, &mut self.buffer);
        let longest =
            (self.max_message_bytes() - self.format.header_octets()) / records - SET_HEADER_OCTETS - MAX_PADDING;
        let outcome = if self.buffer.len() - start > longest {
            Outcome::TooLong
        } else if self.template(elements).is_some() || self.can_add_template(elements) {
            self.records.push((elements, self.buffer.len()));
            return Outcome::Written;
        } else {
            Outcome::NoTemplate
        };
        self.buffer.truncate(start);
        outcome
    }

    /// Whether a set may get a template: its records can be told from padding, and there are not
    /// too many templates.
    fn can_add_template(&self, elements: ElementSet) -> bool {
        !self.is_full()
            && self.encoder.min_octets(elements) >= MIN_RECORD_OCTETS
            && self.encoder.template(0, elements).len() <= MAX_TEMPLATE_OCTETS
    }

    /// Whether only basic templates are added.
    fn is_full(&self) -> bool {
        match self.transport {
            Transport::Udp(_) => self.templates.len() >= MAX_TEMPLATES,
            Transport::File(_) => self.next_template_id > MAX_FULL_TEMPLATE_ID,
        }
    }

    /// The template ID of a set, for a record. Consecutive records mostly have the same one.
    fn template(&mut self, elements: ElementSet) -> Option<u16> {
        if let Some((last, id)) = self.last_template
            && last == elements
        {
            return Some(id);
        }
        let template = self.templates.get_mut(&elements)?;
        template.last_used = self.interval;
        self.last_template = Some((elements, template.id));
        Some(template.id)
    }

    /// An ID that no template has. Over UDP all others are used before one is used again.
    fn new_template_id(&mut self) -> u16 {
        loop {
            let id = self.next_template_id;
            self.next_template_id = id.checked_add(1).unwrap_or(FIRST_DATA_TEMPLATE_ID);
            // In a file IDs end before 65535.
            if !self.is_udp() || self.templates.values().all(|template| template.id != id) {
                return id;
            }
        }
    }

    fn insert_template(&mut self, elements: ElementSet, id: u16) {
        self.templates.insert(elements, Template { id, last_used: self.interval });
        self.template_order.push(elements);
    }

    /// Begins a refresh interval. Templates that had no record in the last two expire: they are not
    /// retransmitted any more.
    fn begin_interval(&mut self, now: Instant) {
        self.interval_start = Some(now);
        self.interval += 1;
        self.last_template = None;
        let (interval, fixed) = (self.interval, &self.fixed_sets);
        self.templates.retain(|set, template| template.last_used + 2 >= interval || fixed.contains(set));
        self.template_order.retain(|set| self.templates.contains_key(set));
    }

    /// Adds a template for a set and sends it.
    fn add_template(&mut self, elements: ElementSet) {
        let mut template = self.encoder.template(0, elements);
        let known = self.file_templates.get(&template[2..]).copied();
        let id = known.unwrap_or_else(|| self.new_template_id());
        template[..2].copy_from_slice(&id.to_be_bytes());
        self.insert_template(elements, id);
        self.template_octets += template.len();
        self.append_record(self.format.template_set(), &template);
    }

    /// Appends the options records, in front of them their templates. `names`: with the names of
    /// applications, which do not change.
    fn append_options(&mut self, names: bool) {
        let applications = names && self.encoder.has_applications();
        for template in options_templates(self.format, applications) {
            self.append_record(self.format.options_template_set(), &template);
        }
        for (set, record) in options_records(self.format, self.domain, &self.status, &self.counters) {
            self.append_record(set, &record);
        }
        for (set, record) in application_records(self.format, self.domain).filter(|_| applications) {
            self.append_record(set, &record);
        }
        for at in 0..self.template_order.len() {
            let elements = self.template_order[at];
            let keys = self.encoder.flow_keys(elements, self.key);
            let id = self.templates[&elements].id;
            if let Some((set, record)) = keys.and_then(|keys| flow_keys_record(self.format, id, keys)) {
                self.append_record(set, &record);
            }
        }
    }

    /// Sends templates, options records and type information at the start, and regularly over UDP,
    /// where templates have messages of their own.
    fn send_templates_if_due(&mut self) {
        let udp = self.is_udp();
        // The clock is not read for a file.
        let due = |sent_at: Option<Instant>, interval| sent_at.is_none_or(|at| udp && at.elapsed() >= interval);
        let interval = if self.lost_since_templates { TEMPLATE_REFRESH_AFTER_LOSS } else { self.template_refresh };
        let all = due(self.all_sent_at, interval);
        let early = !due(self.started, EARLY) && due(self.templates_sent_at, EARLY_TEMPLATE_REFRESH);
        let after_data = udp
            && self.messages_since_templates >= MIN_MESSAGES_BETWEEN_TEMPLATES
            && self.octets_since_templates >= DATA_PER_TEMPLATE_OCTET * self.template_octets;
        let templates = all || early || after_data;
        let options = all || early || self.status_changed;
        if !(templates || options) {
            return;
        }
        self.send();
        let now = Instant::now();
        self.started.get_or_insert(now);
        if udp && all && self.interval_start.is_none_or(|start| now - start >= self.template_refresh) {
            self.begin_interval(now);
        }
        if all {
            (self.all_sent_at, self.lost_since_templates) = (Some(now), false);
            self.append_type_information();
        }
        if templates {
            self.append_templates();
        }
        if udp {
            // A message of templates is short if they are few. So it passes where one that data
            // fills is too long for the path.
            self.send();
        }
        if templates {
            self.templates_sent_at = Some(now);
            (self.messages_since_templates, self.octets_since_templates) = (0, 0);
        }
        if options {
            self.status_changed = false;
            self.append_options(all || early);
        }
        // Type information and options records have messages of their own, which are no more than
        // needed: nfdump 1.7.1 does not count these records in the sequence number, and reports
        // later data records as lost.
        self.send();
    }

    fn append_templates(&mut self) {
        self.template_octets = 0;
        for at in 0..self.template_order.len() {
            let elements = self.template_order[at];
            let template = self.encoder.template(self.templates[&elements].id, elements);
            self.template_octets += template.len();
            self.append_record(self.format.template_set(), &template);
        }
    }

    /// Appends the type information of the chosen elements of Weir, if any.
    fn append_type_information(&mut self) {
        let types: Vec<Vec<u8>> = self.encoder.type_information().collect();
        if types.is_empty() {
            return;
        }
        self.append_record(OPTIONS_TEMPLATE_SET, &type_information_template());
        for record in types {
            self.append_record(FIRST_TEMPLATE_ID, &record);
        }
    }

    /// Appends a record to the open set or to a new one; to a new message if this one is too full.
    fn append_record(&mut self, set: u16, record: &[u8]) {
        // nfdump 1.7.1 reads one options template per set.
        let opens = self.message.set.is_none_or(|(open, _)| open != set || set == self.format.options_template_set());
        let needed = if opens { MAX_PADDING + SET_HEADER_OCTETS } else { 0 } + record.len() + MAX_PADDING;
        if !self.message.octets.is_empty() && self.message.octets.len() + needed > self.max_message_bytes() {
            self.send();
        }
        let message = &mut self.message;
        if message.octets.is_empty() {
            message.octets.resize(self.format.header_octets(), 0);
        }
        if opens || message.set.is_none() {
            message.close_set();
            message.set = Some((set, message.octets.len()));
            message.octets.extend(set.to_be_bytes());
            message.octets.extend([0, 0]);
        }
        message.octets.extend(record);
        message.records += 1;
        message.data_records += u32::from(set >= FIRST_TEMPLATE_ID);
    }

    /// Sends the message if it is not empty.
    fn send(&mut self) {
        let mut message = std::mem::take(&mut self.message);
        if message.octets.is_empty() {
            return;
        }
        message.close_set();
        debug_assert!(message.octets.len() <= self.max_message_bytes(), "a message is within its limit");
        let octets = &mut message.octets;
        let next_sequence = match self.format {
            Format::Ipfix => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
                let length = u16::try_from(octets.len()).expect("the limit is below 65536");
                write_header(10, length, &[now as u32, self.sequence, self.domain], octets);
                self.sequence.wrapping_add(message.data_records)
            }
            Format::Netflow9 => {
                let (up_ms, seconds) = self.uptime.header();
                let count = u16::try_from(message.records).expect("records are longer than an octet");
                write_header(9, count, &[up_ms, seconds, self.sequence, self.domain], octets);
                self.sequence.wrapping_add(1)
            }
        };
        self.messages_since_templates += 1;
        self.octets_since_templates += octets.len();
        match &mut self.transport {
            Transport::Udp(udp) => {
                self.sequence = next_sequence;
                let sent = udp.send(octets, message.pending, &mut self.counters);
                self.lost_since_templates |= !sent.accepted || sent.lost_before.is_some();
                if sent.path_mtu_fell {
                    // Messages with templates may be lost.
                    self.all_sent_at = None;
                }
            }
            Transport::File(output) => {
                let boundary = RecordBoundary { end: octets.len(), pending: message.pending };
                if output.write(octets, &[boundary], &mut self.counters) {
                    // Records that are not in the file were not sent.
                    self.sequence = next_sequence;
                    self.counters.messages += 1;
                } else {
                    self.lost_since_templates = true;
                }
            }
        }
        // The next message reuses the memory.
        message.octets.clear();
        self.message.octets = message.octets;
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
}

impl Sink for TemplateSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if self.file().is_some_and(FileOutput::is_removed) {
            self.reopen();
        }
        if let Transport::File(output) = &mut self.transport {
            if !output.is_ready() {
                output.lose(flows, &mut self.counters);
                return output.report_end();
            }
            if self.lost_since_templates {
                (self.started, self.all_sent_at) = (None, None);
            }
        }
        for flow in flows {
            if self.file().is_some_and(|file| file.is_due(flow)) {
                self.rotate();
            }
            self.write_flow(flow);
        }
        self.send();
        match &mut self.transport {
            Transport::Udp(_) => Ok(()),
            Transport::File(output) => output.report_end(),
        }
    }

    fn connect(&mut self) -> bool {
        let Transport::Udp(udp) = &mut self.transport else { return false };
        let is_new = udp.connect();
        if is_new {
            (self.started, self.all_sent_at) = (None, None);
        }
        is_new
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        let urgent = |status: &MeteringStatus| (status.sampling_population.max(1), status.interfaces.clone());
        self.status_changed |= urgent(status) != urgent(&self.status);
        self.status.clone_from(status);
    }

    fn tick(&mut self) {
        if self.file().is_some_and(FileOutput::is_over) {
            self.rotate();
        }
        if self.is_connected() {
            self.send_templates_if_due();
        }
    }

    fn reopen(&mut self) {
        self.send();
        let mut templates = FileTemplates::default();
        let mut read = |compression, file: &File, length| templates.read_file(compression, file, length);
        if let Transport::File(output) = &mut self.transport
            && output.reopen(&mut self.counters, &mut read)
        {
            self.begin(templates);
        }
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        if let Transport::Udp(udp) = &mut self.transport {
            udp.drain(flows, until);
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.send();
        if let Transport::Udp(udp) = &mut self.transport {
            // The last options records count its losses.
            udp.finish(&mut self.counters);
        }
        // A file without flow records stays empty.
        if self.started.is_some() || self.is_connected() {
            self.append_options(false);
            self.send();
        }
        match &mut self.transport {
            Transport::Udp(_) => Ok(()),
            Transport::File(output) => output.finish(&mut self.counters),
        }
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        match &self.transport {
            Transport::Udp(udp) => udp.endpoints(),
            Transport::File(_) => None,
        }
    }
}

/// Writes the header of a message: version, length or number of records, and further words.
pub(crate) fn write_header(version: u16, length_or_count: u16, words: &[u32], octets: &mut [u8]) {
    octets[..2].copy_from_slice(&version.to_be_bytes());
    octets[2..4].copy_from_slice(&length_or_count.to_be_bytes());
    for (octets, word) in octets[4..].chunks_exact_mut(4).zip(words) {
        octets.copy_from_slice(&word.to_be_bytes());
    }
}

/// The options template of type information (RFC 5610 section 3): two scope fields and seven
/// others. libfixbuf 2.4.1 ignores the records of a template without range and description.
fn type_information_template() -> Vec<u8> {
    const VARIABLE: u16 = 65_535;
    let fields =
        [(346, 4), (303, 2), (339, 1), (344, 1), (345, 2), (342, 8), (343, 8), (341, VARIABLE), (340, VARIABLE)];
    let mut record = Vec::new();
    record.extend(FIRST_TEMPLATE_ID.to_be_bytes());
    record.extend((fields.len() as u16).to_be_bytes());
    record.extend(2u16.to_be_bytes());
    for (number, octets) in fields {
        record.extend(u16::to_be_bytes(number));
        record.extend(octets.to_be_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::Collector;

    #[test]
    fn template_ids_wrap_and_skip_those_in_use() {
        let collector = Collector { host: "127.0.0.1".into(), port: 9, mtu: 1420, rate: 0 };
        let udp =
            Transport::Udp(UdpOutput::open("udp", collector, 1232, false, ExportOptions::default().attempts).unwrap());
        let options = ExportOptions::default();
        let mut sink = TemplateSink::new("udp", Format::Ipfix, TemplateSettings::COLLECTOR, udp, &options);
        sink.next_template_id = u16::MAX;
        // The five basic templates have the first IDs.
        assert_eq!([sink.new_template_id(), sink.new_template_id()], [65_535, 277]);
    }
}
