//! The index beside a capture file: which flows are in which part of it.
//!
//! ```text
//! index  = "weirIDX1" record(section header block) { record(group) }
//! record = length u32, CRC-32 u32, content            all numbers little-endian
//! group  = start u64, end u64, first_ns u64, last_ns u64, packets u32,
//!          parts u8 { start u32, end u32 }             from the start of the group
//!          interfaces u32 { octet }                    interface description blocks up to here
//!          fragments u32                               bit of each part with fragments
//!          0 u8, flows u32 { flow }                    or, if these take too much:
//!          1 u8, length u32 { octet }                  a Bloom filter of Community IDs by part
//! flow   = flags u8 (1: IPv6, 2: fragments between two addresses), protocol u8, addresses, ports u16, parts u32
//! ```
//! A group has about 1 MiB of the capture file, in up to 32 parts that have packet blocks only. It is
//! written after its packets. Invariant: each packet of an IP flow is in a part that the index names
//! for this flow. What is behind the last whole group has to be scanned.

use crate::block::{self, SECTION_HEADER};
use crate::flow_key::FlowKey;
use ahash::AHashMap;
use std::ops::Range;
use weir_flow::{FlowRecord, FlowTuple};
use weir_packet::{Network, ipv4_mapped};

const MAGIC: &[u8; 8] = b"weirIDX1";
/// Parts of a group: the bits of a `u32`.
pub(crate) const PARTS: usize = 32;
/// A part ends with the packet that reaches this size.
const PART_BYTES: u64 = 32 << 10;
/// The list of flows of a group takes at most one part in this number of its octets.
const LIST_SHARE: u64 = 32;
/// Longest record that is read.
const MAX_RECORD_BYTES: usize = 64 << 20;
/// Bits of the filter for each key, and bits that are set for a key: 0.8 % of other keys are found, too.
const FILTER_BITS: u64 = 10;
const FILTER_HASHES: u64 = 7;

const LIST: u8 = 0;
const FILTER: u8 = 1;
const IPV6: u8 = 1;
const FRAGMENTS: u8 = 2;

/// The Community IDs of a flow: one, or for ICMP messages without a counterpart that of each
/// direction.
pub(crate) fn community_ids(key: &FlowKey, record: &mut FlowRecord) -> impl Iterator<Item = [u8; 30]> {
    let ids = [0, 1].map(|from| {
        key.write_to(record, from);
        weir_fields::community_id(record)
    });
    let second = ids[1].filter(|_| ids[0] != ids[1]);
    ids[0].into_iter().chain(second)
}

/// Where a Community ID is in a filter of `bits` bits, for a part.
fn filter_bits(id: &[u8; 30], part: usize, bits: u64) -> impl Iterator<Item = usize> {
    // FNV-1a over the identifier, which is a cryptographic hash, with two starts.
    let hash =
        |start: u64| id.iter().fold(start, |hash, &octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3));
    let (first, step) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15) | 1);
    let first = first.wrapping_add((part as u64).wrapping_mul(0xff51_afd7_ed55_8ccd));
    (0..FILTER_HASHES).map(move |n| (mix(first.wrapping_add(step.wrapping_mul(n))) % bits) as usize)
}

/// Spreads a hash over all its bits (the end of SplitMix64).
fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The beginning of an index.
pub(crate) fn header(section_header: &[u8]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    append_record(&mut out, section_header);
    out
}

fn append_record(out: &mut Vec<u8>, content: &[u8]) {
    let mut checksum = flate2::Crc::new();
    checksum.update(content);
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&checksum.sum().to_le_bytes());
    out.extend_from_slice(content);
}

fn append_with_length(out: &mut Vec<u8>, octets: &[u8]) {
    out.extend_from_slice(&(octets.len() as u32).to_le_bytes());
    out.extend_from_slice(octets);
}

/// Gathers the flows of a group.
#[derive(Default)]
pub(crate) struct GroupBuilder {
    /// Offsets in the capture file.
    parts: Vec<Range<u64>>,
    /// Packet blocks may be added to the last part.
    is_part_open: bool,
    first_ns: u64,
    last_ns: u64,
    packets: u32,
    interfaces: Vec<u8>,
    fragments: u32,
    /// The parts of each flow.
    flows: AHashMap<FlowKey, u32>,
    record: FlowRecord,
}

impl GroupBuilder {
    /// Adds an interface description block, which is in no part.
    pub fn add_interface(&mut self, block: &[u8]) {
        self.interfaces.extend_from_slice(block);
        self.is_part_open = false;
    }

    /// Adds a packet block at this place. [`GroupBuilder::is_full`] must be false.
    pub fn add(&mut self, place: Range<u64>, time_ns: u64, flow: Option<FlowKey>, is_fragment: bool) {
        if self.packets == 0 {
            (self.first_ns, self.last_ns) = (time_ns, time_ns);
        }
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.packets += 1;
        match self.parts.last_mut().filter(|_| self.is_part_open) {
            Some(part) => part.end = place.end,
            None => self.parts.push(place),
        }
        let part = &self.parts[self.parts.len() - 1];
        self.is_part_open = part.end - part.start < PART_BYTES;
        let bit = 1 << (self.parts.len() - 1);
        if let Some(key) = flow {
            *self.flows.entry(key).or_default() |= bit;
            if is_fragment {
                *self.flows.entry(key.of_fragments()).or_default() |= bit;
                self.fragments |= bit;
            }
        }
    }

    /// Whether no part can follow the last one.
    pub fn has_all_parts(&self) -> bool {
        self.parts.len() == PARTS
    }

    /// Whether the next packet belongs to another group.
    pub fn is_full(&self) -> bool {
        self.parts.len() == PARTS && !self.is_part_open
    }

    /// The record of the group, and an empty group. `None` if it has no packets.
    pub fn take_record(&mut self) -> Option<Vec<u8>> {
        let (start, end) = (self.parts.first()?.start, self.parts.last()?.end);
        let mut content = Vec::new();
        for number in [start, end, self.first_ns, self.last_ns] {
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.extend_from_slice(&self.packets.to_le_bytes());
        content.push(self.parts.len() as u8);
        for number in self.parts.iter().flat_map(|part| [part.start, part.end]) {
            content.extend_from_slice(&((number - start) as u32).to_le_bytes());
        }
        append_with_length(&mut content, &self.interfaces);
        content.extend_from_slice(&self.fragments.to_le_bytes());
        let list = self.flow_list();
        if list.len() as u64 <= (end - start) / LIST_SHARE {
            content.push(LIST);
            content.extend_from_slice(&(self.flows.len() as u32).to_le_bytes());
            content.extend_from_slice(&list);
        } else {
            let filter = self.filter();
            content.push(FILTER);
            append_with_length(&mut content, &filter);
        }
        let mut record = Vec::new();
        append_record(&mut record, &content);
        self.parts.clear();
        self.flows.clear();
        self.interfaces.clear();
        (self.is_part_open, self.packets, self.fragments) = (false, 0, 0);
        Some(record)
    }

    fn flow_list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for (key, parts) in &self.flows {
            let is_ipv6 = key.tuple.network == Network::Ipv6;
            let flags = if is_ipv6 { IPV6 } else { 0 } | if key.is_of_fragments { FRAGMENTS } else { 0 };
            list.extend_from_slice(&[flags, key.tuple.protocol]);
            let ends = key.tuple.ends();
            ends.iter().for_each(|(address, _)| list.extend_from_slice(if is_ipv6 { address } else { &address[12..] }));
            ends.iter().for_each(|(_, port)| list.extend_from_slice(&port.to_le_bytes()));
            list.extend_from_slice(&parts.to_le_bytes());
        }
        list
    }

    fn filter(&mut self) -> Vec<u8> {
        let keys: u64 = self.flows.values().map(|parts| u64::from(parts.count_ones())).sum();
        let mut filter = vec![0; (keys * FILTER_BITS).div_ceil(8).max(8) as usize];
        let bits = 8 * filter.len() as u64;
        for (key, &parts) in self.flows.iter().filter(|(key, _)| !key.is_of_fragments) {
            for id in community_ids(key, &mut self.record) {
                for bit in set_bits(parts).flat_map(|part| filter_bits(&id, part, bits)) {
                    filter[bit / 8] |= 1 << (bit % 8);
                }
            }
        }
        filter
    }
}

fn set_bits(parts: u32) -> impl Iterator<Item = usize> {
    (0..PARTS).filter(move |part| parts >> part & 1 != 0)
}

/// The flows of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupFlows {
    List(Vec<(FlowKey, u32)>),
    Filter(Vec<u8>),
}

/// A group of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Offsets in the capture file.
    pub parts: Vec<Range<u64>>,
    pub first_ns: u64,
    pub last_ns: u64,
    /// Bit of each part with fragments.
    pub fragments: u32,
    pub flows: GroupFlows,
}

/// The parts in which a filter has a Community ID.
pub(crate) fn parts_of_id(filter: &[u8], parts: usize, id: &[u8; 30]) -> u32 {
    let bits = 8 * filter.len() as u64;
    let has = |part: &usize| filter_bits(id, *part, bits).all(|bit| filter[bit / 8] >> (bit % 8) & 1 != 0);
    (0..parts).filter(has).fold(0, |found, part| found | 1 << part)
}

/// An index, as far as it is whole.
#[derive(Debug)]
pub(crate) struct Index {
    pub section_header: Vec<u8>,
    /// All interface description blocks of the groups.
    pub interfaces: Vec<u8>,
    pub groups: Vec<Group>,
    /// The rest is cut or damaged.
    pub is_torn: bool,
}

impl Index {
    /// Reads an index. `None` if not even its beginning is whole.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut rest = octets.strip_prefix(MAGIC)?;
        let section_header = record(&mut rest)?.to_vec();
        block::split_block(&section_header).filter(|(kind, _, rest)| *kind == SECTION_HEADER && rest.is_empty())?;
        let (mut interfaces, mut groups) = (Vec::new(), Vec::new());
        let mut end = section_header.len() as u64;
        let is_torn = loop {
            if rest.is_empty() {
                break false;
            }
            let group = record(&mut rest).and_then(|content| parse_group(content, end, &mut interfaces));
            let Some(group) = group else { break true };
            end = group.parts.last().map_or(end, |part| part.end);
            groups.push(group);
        };
        Some(Self { section_header, interfaces, groups, is_torn })
    }

    /// Where the part of the capture file begins that has to be scanned.
    pub fn end(&self) -> u64 {
        let last = self.groups.iter().rev().find_map(|group| group.parts.last());
        last.map_or(self.section_header.len() as u64, |part| part.end)
    }

    /// What a reader needs before the packets of a group: section and interfaces.
    pub fn prologue(&self) -> Vec<u8> {
        [&self.section_header[..], &self.interfaces].concat()
    }
}

/// Takes a whole record off.
fn record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, expected) = (number(rest)? as usize, number(rest)?);
    let content = rest.split_off(..length).filter(|content| content.len() <= MAX_RECORD_BYTES)?;
    let mut checksum = flate2::Crc::new();
    checksum.update(content);
    (checksum.sum() == expected).then_some(content)
}

/// Takes octets off.
fn octets<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    octets(rest).map(u32::from_le_bytes)
}

fn with_length<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)? as usize;
    rest.split_off(..length)
}

/// Reads a group that begins at `after` or later, and appends its interfaces.
fn parse_group(mut content: &[u8], after: u64, interfaces: &mut Vec<u8>) -> Option<Group> {
    let rest = &mut content;
    let times_and_place = [octets(rest)?, octets(rest)?, octets(rest)?, octets(rest)?];
    let [start, end, first_ns, last_ns] = times_and_place.map(u64::from_le_bytes);
    let _packets = number(rest)?;
    let [count] = octets(rest)?;
    let mut parts = Vec::with_capacity(count.into());
    let mut place = start;
    for _ in 0..count {
        let (from, to) = (u64::from(number(rest)?), u64::from(number(rest)?));
        let part = start.checked_add(from)?..start.checked_add(to)?;
        if part.start < place || part.end <= part.start {
            return None;
        }
        place = part.end;
        parts.push(part);
    }
    if start < after || place != end || parts.is_empty() || parts.len() > PARTS {
        return None;
    }
    let blocks = with_length(rest)?;
    let fragments = number(rest)?;
    let flows = match octets(rest)? {
        [LIST] => {
            let count = number(rest)? as usize;
            let mut flows = Vec::with_capacity(count.min(rest.len()));
            for _ in 0..count {
                flows.push(parse_flow(rest)?);
            }
            GroupFlows::List(flows)
        }
        [FILTER] => GroupFlows::Filter(with_length(rest).filter(|filter| !filter.is_empty())?.to_vec()),
        _ => return None,
    };
    interfaces.extend_from_slice(blocks);
    rest.is_empty().then_some(Group { parts, first_ns, last_ns, fragments, flows })
}

fn parse_flow(rest: &mut &[u8]) -> Option<(FlowKey, u32)> {
    let [flags, protocol] = octets(rest)?;
    let network = if flags & IPV6 != 0 { Network::Ipv6 } else { Network::Ipv4 };
    let mut address = || match network {
        Network::Ipv6 => octets(rest),
        _ => octets(rest).map(ipv4_mapped),
    };
    let (one, other) = (address()?, address()?);
    let [one_port, other_port] = [octets(rest)?, octets(rest)?].map(u16::from_le_bytes);
    let tuple = FlowTuple::new([(one, one_port), (other, other_port)], protocol, network);
    Some((FlowKey { tuple, is_of_fragments: flags & FRAGMENTS != 0 }, number(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(flows: u16, packets: u64) -> Vec<u8> {
        let mut builder = GroupBuilder::default();
        builder.add_interface(&[1, 2, 3, 4]);
        for number in 0..packets {
            let port = (number % u64::from(flows)) as u16;
            let endpoints = [(ipv4_mapped([192, 0, 2, 1]), port), (ipv4_mapped([192, 0, 2, 2]), 80)];
            let key = FlowKey { tuple: FlowTuple::new(endpoints, 6, Network::Ipv4), is_of_fragments: false };
            builder.add(1000 * number..1000 * (number + 1), number, Some(key), number == 3);
        }
        builder.take_record().unwrap()[8..].to_vec()
    }

    #[test]
    fn changed_and_cut_groups_are_refused_or_read_without_panic() {
        for content in [group(3, 200), group(200, 200)] {
            assert!(parse_group(&content, 0, &mut Vec::new()).is_some());
            for at in 0..content.len() {
                assert!(parse_group(&content[..at], 0, &mut Vec::new()).is_none(), "cut at {at}");
                for value in [0, 1, 2, 0x7f, 0x80, 0xff] {
                    let mut changed = content.clone();
                    changed[at] = value;
                    if let Some(group) = parse_group(&changed, 0, &mut Vec::new()) {
                        assert!(group.parts.windows(2).all(|pair| pair[0].end <= pair[1].start), "octet {at}: {value}");
                    }
                }
            }
        }
    }
}
