//! IPFIX (RFC 7011; RFC 5103 for bidirectional flows, RFC 5655 for files) and NetFlow v9 (RFC
//! 3954): data records that follow templates.
//!
//! ```text
//! for each flow: encode -> set of elements; a new set gets a new template, sent before the record
//!                message too full for all records of the flow -> send the message first
//! ```
//! Invariants: all records of a flow are in one message, so a flow is exported or lost as a whole.
//! No message is longer than its limit.

mod flow_encoder;
mod message;
mod refresh;
mod table;
mod transport;

use crate::ipfix_file::{FIRST_TEMPLATE_ID, FileTemplates, OPTIONS_TEMPLATE_SET};
use crate::message::append_to_context;
use crate::options_records::{
    MeteringStatus, application_records, flow_keys_record, options_records, options_templates,
};
use crate::pending_records::PendingRecords;
use crate::profile::{ElementChoice, Layout};
use crate::record_encoder::RecordEncoder;
use crate::sink::{Error, ExportOptions, Intake, InvalidSink, InvalidSpec, Sink};
use crate::watch::Watch;
use flow_encoder::{FlowEncoder, Limits};
pub(crate) use message::write_header;
use message::{MAX_PADDING, MessageBuilder};
use refresh::RefreshSchedule;
use std::fs::File;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use table::TemplateTable;
use tracing::warn;
pub(crate) use transport::Transport;
use weir_fields::{Format, VARIABLE};
use weir_flow::{FlowRecord, KeyOptions};
use weir_ledger::SinkCounters;

/// Default time after which templates and type information are retransmitted over UDP.
const TEMPLATE_REFRESH: Duration = Duration::from_secs(60);

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
    domain: u32,
    /// The flow key.
    key: KeyOptions,
    flow: FlowEncoder,
    templates: TemplateTable,
    schedule: RefreshSchedule,
    message: MessageBuilder,
    transport: Transport,
    /// What the options records report.
    status: MeteringStatus,
    counters: SinkCounters,
}

impl TemplateSink {
    pub fn new(
        name: &str,
        format: Format,
        templates: TemplateSettings,
        transport: Transport,
        options: &ExportOptions,
    ) -> Result<Self, Error> {
        let elements = match &options.known {
            Some(fields) => templates.elements.of_fields(name, fields, format).ok_or_else(|| {
                let selection = templates.elements.list.join(",");
                InvalidSpec { spec: name.into(), invalid: InvalidSink::NoElement { format: format.name(), selection } }
            })?,
            None => templates.elements.clone(),
        };
        let encoder = RecordEncoder::new(format, &elements, options.applications);
        let uniflow = options.uniflow || format == Format::Netflow9 || templates.elements.profile.base == Layout::Basic;
        let is_udp = matches!(transport, Transport::Udp(_));
        if options.known.is_some() && uniflow {
            warn!(sink = name, "the times of each direction are not stored: records have those of the flow");
        }
        let mut sink = Self {
            format,
            domain: options.observation_domain,
            key: options.key,
            templates: TemplateTable::new(encoder.fixed_sets(), is_udp),
            flow: FlowEncoder::new(encoder, uniflow),
            schedule: RefreshSchedule::new(templates.refresh, is_udp),
            message: MessageBuilder::new(format, options.observation_domain),
            transport,
            status: MeteringStatus::default(),
            counters: SinkCounters { sink: name.into(), ..SinkCounters::default() },
        };
        sink.set_context();
        Ok(sink)
    }

    /// Begins a file that has these templates already. All others are added when records need them.
    pub fn begin(&mut self, templates: FileTemplates) {
        self.templates.restart(templates);
        self.schedule.restart();
        self.schedule.forget_losses();
        self.message.restart_sequence();
    }

    /// Whether there is a connection to a collector.
    fn is_connected(&mut self) -> bool {
        match &self.transport {
            Transport::Udp(udp) => udp.is_connected(),
            Transport::Stream(stream) => stream.is_connected(),
            Transport::File(_) => false,
        }
    }

    /// Begins a new connection with all templates and options, in front of the messages that wait
    /// (RFC 7011 section 8: templates are those of a transport session).
    fn begin_session(&mut self) {
        self.set_context();
        self.transport.stream().into_iter().for_each(|stream| stream.begin_session());
        self.schedule.restart();
        self.send_templates_if_due();
        self.transport.stream().into_iter().for_each(|stream| stream.end_session());
    }

    /// Gives the templates to the spool of the connection, for the batches in it: type information, and all
    /// templates.
    fn set_context(&mut self) {
        if !self.transport.stream().is_some_and(|stream| stream.has_spool()) {
            return;
        }
        let mut records = Vec::new();
        let types: Vec<_> = self.flow.encoder.type_information().collect();
        if !types.is_empty() {
            records.push((OPTIONS_TEMPLATE_SET, type_information_template()));
            records.extend(types.into_iter().map(|record| (FIRST_TEMPLATE_ID, record)));
        }
        let set = self.format.template_set();
        records.extend(self.templates.records(&self.flow.encoder).into_iter().map(|template| (set, template)));
        let applications = self.flow.encoder.has_applications();
        let of_options = options_templates(self.format, applications);
        records.extend(of_options.map(|template| (self.format.options_template_set(), template)));
        let (mut message, mut context) = (MessageBuilder::new(self.format, self.domain), Vec::new());
        let limit = self.transport.max_message_bytes();
        let mut end = |message: &mut MessageBuilder| {
            message.close();
            append_to_context(&mut context, message.octets(), message.data_records);
            message.start_next(false);
        };
        for (set, record) in records {
            if message.is_too_full_for(set, &record, limit) {
                end(&mut message);
            }
            message.append(set, &record);
        }
        end(&mut message);
        self.transport.stream().into_iter().for_each(|stream| stream.set_context(&context));
    }

    /// Sends over a connection what waits beyond its limit, or `all`.
    fn settle(&mut self, all: bool) {
        while self.transport.stream().is_some_and(|stream| stream.settle(all, &mut self.counters)) {
            self.begin_session();
        }
    }

    /// Ends the file with the last options records, and begins another one.
    fn rotate(&mut self) {
        self.send();
        if self.schedule.has_started() {
            self.append_options(false);
            self.send();
        }
        if let Some(file) = self.transport.file() {
            file.rotate(&mut self.counters);
        }
        self.begin(FileTemplates::default());
    }

    /// Appends the records of a flow to the message.
    fn write_flow(&mut self, flow: &FlowRecord) {
        if self.format == Format::Netflow9 {
            if !self.message.uptime.fits(flow) {
                self.send();
            }
            self.message.uptime.include(flow, &mut self.counters);
        }
        self.send_templates_if_due();
        let header_octets = self.format.header_octets();
        let altered = loop {
            let content_octets = self.transport.max_message_bytes() - header_octets;
            let limits = Limits { boot_ms: self.message.uptime.boot_ms(), content_octets };
            let altered = self.flow.encode(flow, limits, &mut self.templates);
            for at in 0..self.flow.records.len() {
                let (elements, _) = self.flow.records[at];
                if self.templates.id(elements).is_none() {
                    let template = self.templates.add(elements, &self.flow.encoder);
                    self.append_template(&template);
                }
            }
            // The last set is padded too.
            let needed = self.flow.needed_octets();
            if self.message.octets().len() + needed + MAX_PADDING > self.transport.max_message_bytes() {
                self.send();
            }
            // Otherwise the path MTU fell with a message that was sent now.
            if header_octets + needed <= self.transport.max_message_bytes() {
                break altered;
            }
        };
        if let Some(key) = altered {
            *self.counters.altered.entry(key).or_default() += 1;
        }
        let mut from = 0;
        for &(elements, end) in &self.flow.records {
            let template = self.templates.id(elements).expect("the template was added above");
            self.message.append(template, &self.flow.octets[from..end]);
            from = end;
        }
        self.message.pending.merge(PendingRecords::of_flow(flow, self.flow.records.len() as u64));
    }

    /// Appends the options records, in front of them their templates. `names`: with the names of
    /// applications, which do not change.
    fn append_options(&mut self, names: bool) {
        let applications = names && self.flow.encoder.has_applications();
        for template in options_templates(self.format, applications) {
            self.append_record(self.format.options_template_set(), &template);
        }
        for (set, record) in options_records(self.format, self.domain, &self.status, &self.counters) {
            self.append_record(set, &record);
        }
        for (set, record) in application_records(self.format, self.domain).filter(|_| applications) {
            self.append_record(set, &record);
        }
        let flow_keys = |(elements, id)| {
            let keys = self.flow.encoder.flow_keys(elements, self.key)?;
            flow_keys_record(self.format, id, keys)
        };
        for (set, record) in self.templates.iter().filter_map(flow_keys).collect::<Vec<_>>() {
            self.append_record(set, &record);
        }
    }

    /// Sends templates, options records and type information at the start, and regularly over UDP,
    /// where templates have messages of their own.
    fn send_templates_if_due(&mut self) {
        let Some(due) = self.schedule.due(self.templates.octets) else { return };
        self.send();
        let now = Instant::now();
        if self.schedule.begin(due, now) {
            self.templates.begin_interval();
        }
        if due.type_information {
            self.append_type_information();
        }
        if due.templates {
            for template in self.templates.records(&self.flow.encoder) {
                self.append_record(self.format.template_set(), &template);
            }
        }
        if self.transport.udp().is_some() {
            // A message of templates is short if they are few. So it passes where one that data
            // fills is too long for the path.
            self.send();
        }
        if due.templates {
            self.schedule.note_templates(now);
        }
        if due.options {
            self.append_options(due.names);
        }
        // Type information and options records have messages of their own, which are no more than
        // needed: nfdump 1.7.1 does not count these records in the sequence number, and reports
        // later data records as lost.
        self.send();
    }

    /// Appends the type information of the chosen elements of Weir, if any.
    fn append_type_information(&mut self) {
        let types: Vec<Vec<u8>> = self.flow.encoder.type_information().collect();
        if types.is_empty() {
            return;
        }
        self.append_record(OPTIONS_TEMPLATE_SET, &type_information_template());
        for record in types {
            self.append_record(FIRST_TEMPLATE_ID, &record);
        }
    }

    /// Appends a new template. Over a connection it has a message of its own, because a new connection
    /// gets all templates first, and the waiting messages have records only.
    fn append_template(&mut self, template: &[u8]) {
        let is_stream = self.transport.stream().is_some();
        if is_stream {
            self.send();
        }
        self.append_record(self.format.template_set(), template);
        if is_stream {
            self.send();
            self.set_context();
        }
    }

    /// Appends a record to the message; to a new one if this one is too full.
    fn append_record(&mut self, set: u16, record: &[u8]) {
        if self.message.is_too_full_for(set, record, self.transport.max_message_bytes()) {
            self.send();
        }
        self.message.append(set, record);
    }

    /// Sends the message if it is not empty.
    fn send(&mut self) {
        if self.message.octets().is_empty() {
            return;
        }
        self.message.close();
        let octets = self.message.octets();
        debug_assert!(octets.len() <= self.transport.max_message_bytes(), "a message is within its limit");
        self.schedule.note_message(octets.len());
        let (pending, data_records) = (self.message.pending, self.message.data_records);
        let sent = self.transport.send(octets, pending, data_records, &mut self.counters);
        if sent.is_lost {
            self.schedule.note_loss();
        }
        if sent.path_mtu_fell {
            self.schedule.note_smaller_path_mtu();
        }
        self.message.start_next(sent.counts);
    }
}

impl Sink for TemplateSink {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if self.transport.file().is_some_and(|file| file.is_removed()) {
            self.reopen();
        }
        if let Some(file) = self.transport.file() {
            if !file.is_ready() {
                file.lose(flows, &mut self.counters);
                return file.report_end();
            }
            self.schedule.restart_after_loss();
        }
        for flow in flows {
            if self.transport.file().is_some_and(|file| file.is_due(flow)) {
                self.rotate();
            }
            self.write_flow(flow);
        }
        self.send();
        self.settle(false);
        self.transport.file().map_or(Ok(()), |file| file.report_end())
    }

    fn connect(&mut self) -> bool {
        if let Some(stream) = self.transport.stream() {
            if stream.connect(&mut self.counters) {
                self.begin_session();
            }
            return false;
        }
        let is_new = self.transport.udp().is_some_and(|udp| udp.connect());
        if is_new {
            self.schedule.restart();
        }
        is_new
    }

    fn set_metering_status(&mut self, status: &MeteringStatus) {
        let is_urgent = status.sampling_population.max(1) != self.status.sampling_population.max(1)
            || status.interfaces != self.status.interfaces;
        if is_urgent {
            self.schedule.note_status_change();
        }
        self.status.clone_from(status);
    }

    fn tick(&mut self) {
        if self.transport.file().is_some_and(|file| file.is_over()) {
            self.rotate();
        }
        if self.is_connected() {
            self.send_templates_if_due();
        }
        if self.transport.stream().is_some_and(|stream| stream.tick(&mut self.counters)) {
            self.begin_session();
        }
    }

    fn wakes_at(&self) -> Option<Instant> {
        if let Transport::Stream(stream) = &self.transport { stream.wakes_at() } else { None }
    }

    fn reopen(&mut self) {
        self.send();
        let mut templates = FileTemplates::default();
        let mut read = |compression, file: &File, length| templates.read_file(compression, file, length);
        if self.transport.file().is_some_and(|file| file.reopen(&mut self.counters, &mut read)) {
            self.begin(templates);
        }
    }

    fn drain(&mut self, flows: u64, until: Instant) {
        if let Some(udp) = self.transport.udp() {
            udp.drain(flows, until);
        }
        self.transport.stream().into_iter().for_each(|stream| stream.drain(until));
    }

    fn watch(&mut self, watch: &Watch) {
        self.transport.stream().into_iter().for_each(|stream| stream.watch(watch));
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.send();
        if let Some(udp) = self.transport.udp() {
            // The last options records count its losses.
            udp.finish(&mut self.counters);
        }
        self.settle(true);
        // A file without flow records stays empty.
        if self.schedule.has_started() || self.is_connected() {
            self.append_options(false);
            self.send();
        }
        self.settle(true);
        self.transport.stream().into_iter().for_each(|stream| stream.close(&mut self.counters));
        self.transport.file().map_or(Ok(()), |file| file.finish(&mut self.counters))
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }

    fn udp_endpoints(&self) -> Option<[SocketAddr; 2]> {
        self.transport.endpoints()
    }

    fn intake(&self) -> Option<Intake> {
        if let Transport::Stream(stream) = &self.transport { Some(stream.intake()) } else { None }
    }

    fn take_back(&mut self, most: u64, all: bool) -> u64 {
        self.transport.stream().map_or(0, |stream| stream.take_back(most, all))
    }
}

/// The options template of type information (RFC 5610 section 3): two scope fields and seven
/// others. libfixbuf 2.4.1 ignores the records of a template without range and description.
fn type_information_template() -> Vec<u8> {
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
