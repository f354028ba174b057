//! The first reading of a file: which fields are known of all its records.
//!
//! Input: the data records of a file. Output: the fields that each record has, or that do not apply to it. Whether a
//! field applies follows from the protocols of the records of a template and from its directions. Records of Weir with
//! all elements (`full`) omit what does not apply and what follows from other fields; those with a list of elements
//! omit what does not apply.

use crate::elements::{ElementId, TCP_CONTROL_BITS, UDP_RESPONSE_TIME, is_ambiguous, targets};
use crate::layout::{Layout, Reject, SetContext};
use crate::source::Handler;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use weir_fields::{Column, Format, Origin, REVERSE_ENTERPRISE, WEIR_ENTERPRISE, columns, elements_of};
use weir_flow::FlowRecord;
use weir_packet::Network;

/// packetDeltaCount of the reverse direction.
const REVERSE_PACKETS: ElementId = (REVERSE_ENTERPRISE, 2);
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Protocols with ports, as in [`FlowRecord::has_ports`].
const WITH_PORTS: [u8; 5] = [TCP, UDP, 33, 132, 136];

/// Counts the runs of Weir that wrote a file one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Runs(u32);

impl Runs {
    /// More are read as files of other exporters.
    const MOST: u32 = 256;

    pub fn begin(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// The number of the run; `None` if the records are not known to be of Weir.
    fn number(self) -> Option<u32> {
        Some(self.0).filter(|run| (1..=Self::MOST).contains(run))
    }

    /// Whether records of the template are full ones of Weir.
    pub fn has_full_records(self, layout: &Layout) -> bool {
        self.number().is_some() && layout.has_full_elements
    }
}

/// The records of a template in one run.
struct Usage {
    layout: Rc<Layout>,
    run: Option<u32>,
    is_full: bool,
    /// A bit for each protocol, of IPv4, IPv6 and layer 2.
    protocols: [[u64; 4]; 3],
    /// The source of a record is the responder.
    from_responder: bool,
}

/// What is known of a file.
#[derive(Default)]
pub struct Survey {
    runs: Runs,
    usages: BTreeMap<(usize, Option<u32>), Usage>,
    /// Elements of Weir that each run selected.
    selected: HashMap<u32, BTreeSet<u16>>,
    /// Fields of which a record has a value that is none.
    pub invalid: Vec<&'static Column>,
    /// Elements that the format has in every record, and that had no value in any.
    pub unused: Vec<ElementId>,
}

impl Handler for Survey {
    fn begin_weir_run(&mut self) {
        self.runs.begin();
    }

    fn weir_element(&mut self, number: u16) {
        if let Some(run) = self.runs.number().filter(|_| !targets(WEIR_ENTERPRISE, number).is_empty()) {
            self.selected.entry(run).or_default().insert(number);
        }
    }

    fn record(&mut self, layout: &Rc<Layout>, set: &SetContext, values: &[&[u8]]) -> Result<(), Reject> {
        let (run, is_full) = (self.runs.number(), self.runs.has_full_records(layout));
        let invalid = |column| {
            if !self.invalid.contains(&column) {
                self.invalid.push(column);
            }
        };
        let flow = layout.restore(values, set, is_full, |_| true, invalid)?;
        let usage = self.usages.entry((layout.number, run)).or_insert_with(|| Usage {
            layout: layout.clone(),
            run,
            is_full,
            protocols: [[0; 4]; 3],
            from_responder: false,
        });
        usage.protocols[place(flow.network)][usize::from(flow.protocol / 64)] |= 1 << (flow.protocol % 64);
        usage.from_responder |= layout.is_from_responder(values);
        Ok(())
    }
}

impl Survey {
    /// Whether there is no flow record.
    pub fn is_empty(&self) -> bool {
        self.usages.is_empty()
    }

    /// Whether some records are directions of flows, also beside flows. One-way flows of a run of Weir have no other
    /// direction.
    pub fn is_uniflow(&self) -> bool {
        let is_direction = |usage: &Usage| !self.has_reverse(usage) && (!usage.is_full || usage.from_responder);
        self.usages.values().any(is_direction)
    }

    /// Whether records of the template are flows of both directions.
    fn has_reverse(&self, usage: &Usage) -> bool {
        usage.layout.has_reverse && !self.unused.contains(&REVERSE_PACKETS)
    }

    /// The fields that all records have, or that do not apply to them.
    pub fn known(&self) -> Vec<&'static Column> {
        let is_uniflow = self.is_uniflow();
        let is_known = |column: &&'static Column| {
            let has = |usage: &Usage| {
                let sibling = sibling(column).filter(|_| self.has_reverse(usage) || !is_uniflow);
                self.has(usage, column)
                    && sibling.filter(|_| usage.from_responder).is_none_or(|sibling| self.has(usage, sibling))
            };
            column.is_restored() && !self.invalid.contains(column) && self.usages.values().all(has)
        };
        columns().iter().filter(is_known).collect()
    }

    /// Whether the records of a template have a field, or it does not apply to them.
    fn has(&self, usage: &Usage, column: &'static Column) -> bool {
        let has_reverse = self.has_reverse(usage);
        if usage.layout.sets(column) && !self.is_unused(column) || !usage.applies(column, has_reverse) {
            return true;
        }
        if usage.is_full {
            return elements_of(column).any(|element| element.is_full() && element.is_in(Format::Ipfix))
                && !is_ambiguous(column);
        }
        // It was selected, because the type information or other records of the run have it.
        let is_of_run = |of: &&Usage| of.run == usage.run && of.is_list();
        let is_column = |number: &u16| targets(WEIR_ENTERPRISE, *number).iter().any(|target| target.column == column);
        let selected = usage.run.and_then(|run| self.selected.get(&run));
        usage.is_list()
            && (selected.is_some_and(|selected| selected.iter().any(is_column))
                || self.usages.values().filter(is_of_run).any(|of| of.layout.sets(column)))
    }

    fn is_unused(&self, column: &Column) -> bool {
        let is_of = |element: &ElementId| targets(element.0, element.1).iter().any(|target| target.column == column);
        self.unused.iter().any(is_of)
    }
}

impl Usage {
    /// Whether these are records of Weir with a list of elements.
    fn is_list(&self) -> bool {
        self.run.is_some() && !self.is_full && self.layout.has_weir_elements
    }

    fn has_protocol(&self, network: Network, protocol: u8) -> bool {
        self.protocols[place(network)][usize::from(protocol / 64)] >> (protocol % 64) & 1 == 1
    }

    /// Whether a field may apply to records.
    fn applies(&self, column: &Column, has_reverse: bool) -> bool {
        let is_reverse = column.name.starts_with("rev_");
        let is_of_ip = |protocols: &[u8]| {
            let has = |protocol: &u8| {
                self.has_protocol(Network::Ipv4, *protocol) || self.has_protocol(Network::Ipv6, *protocol)
            };
            protocols.iter().any(has)
        };
        let of_network = |network: Network| self.protocols[place(network)] != [0; 4];
        if is_reverse && !has_reverse {
            return false;
        }
        let mut elements = elements_of(column).map(|element| element.number);
        let applies = elements.find_map(|number| {
            Some(match number {
                // Ports, EtherType, type and code of ICMP.
                7 | 11 => is_of_ip(&WITH_PORTS),
                256 => of_network(Network::Layer2),
                176..=179 => self.has_protocol(Network::Ipv4, 1) || self.has_protocol(Network::Ipv6, 58),
                TCP_CONTROL_BITS => is_of_ip(&[TCP]),
                // Addresses, protocol, type of service, TTL, lengths of packets.
                8 | 12 | 27 | 28 | 4 | 5 | 52 | 53 | 25 | 26 => of_network(Network::Ipv4) || of_network(Network::Ipv6),
                _ if number == UDP_RESPONSE_TIME.1 => is_of_ip(&[UDP]) && has_reverse,
                _ => return None,
            })
        });
        applies.unwrap_or_else(|| !column.is_of(Origin::TcpAnalysis) || is_of_ip(&[TCP]))
    }
}

fn place(network: Network) -> usize {
    match network {
        Network::Ipv4 => 0,
        Network::Ipv6 => 1,
        Network::Layer2 => 2,
    }
}

/// The column of the other direction.
fn sibling(column: &Column) -> Option<&'static Column> {
    let other = |from, to: &str| Some(format!("{to}{}", column.name.strip_prefix(from)?));
    let name = other("fwd_", "rev_").or_else(|| other("rev_", "fwd_"))?;
    columns().iter().find(|of| of.name == name)
}

/// Makes the source of a record the initiator of its flow.
pub fn swap(flow: &mut FlowRecord) {
    std::mem::swap(&mut flow.source, &mut flow.destination);
    std::mem::swap(&mut flow.source_port, &mut flow.destination_port);
    std::mem::swap(&mut flow.forward, &mut flow.reverse);
    flow.tcp.iter_mut().for_each(|reports| reports.reverse());
}
