//! Sets the fields of a flow record to values that were read from one: for stored records.

use crate::value::{TCP_FLAG_LETTERS, protocol_name};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use weir_dpi::{Application, Confidence, Fact, Findings, MessageCounts, Note};
use weir_flow::{Direction, FlowRecord};
use weir_packet::{Network, icmp_ports, ipv4_mapped};
use weir_tcp::{ResponseTimes, RoundTripTimes, SegmentClass, SegmentCount, TcpReport};

/// A value as it is stored. Times are nanoseconds since 1970-01-01 UTC; what is neither a number nor a time has its
/// text in CSV.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoredValue<'a> {
    /// An integer or a time.
    Unsigned(u64),
    /// A number.
    Float(f64),
    /// Everything else.
    Text(&'a str),
    /// In place of a text: the number of a word or a protocol, or the bits of words and flags, as in IPFIX.
    Code(u64),
    /// In place of a text: an address.
    Ip(IpAddr),
    /// In place of a text: a MAC address.
    Mac([u8; 6]),
}

impl StoredValue<'_> {
    /// An integer, if it is one and fits.
    pub(crate) fn number<T: TryFrom<u64>>(self) -> Option<T> {
        if let Self::Unsigned(number) = self { number.try_into().ok() } else { None }
    }

    /// The sum of a number of values with this mean.
    fn sum_of(self, count: u64) -> Option<u64> {
        match self {
            Self::Float(mean) if mean.is_finite() && mean >= 0.0 => Some((mean * count as f64).round() as u64),
            _ => None,
        }
    }

    /// A text.
    pub(crate) fn parse<T: FromStr>(self) -> Option<T> {
        if let Self::Text(text) = self { text.parse().ok() } else { None }
    }
}

/// A word of these, by its name or its number.
pub(crate) fn word<T: Copy>(
    value: StoredValue<'_>,
    all: &[T],
    name: fn(T) -> &'static str,
    number: fn(T) -> u8,
) -> Option<T> {
    match value {
        StoredValue::Text(text) => all.iter().copied().find(|one| name(*one) == text),
        StoredValue::Code(code) => all.iter().copied().find(|one| u64::from(number(*one)) == code),
        _ => None,
    }
}

/// The bits of words that are separated by spaces. Other bits than theirs are no value.
pub(crate) fn words<T: Copy + Default + PartialEq + TryFrom<u64> + std::ops::BitOr<Output = T>>(
    value: StoredValue<'_>,
    names: &[(T, &'static str)],
) -> Option<T> {
    match value {
        StoredValue::Text(text) => text
            .split(' ')
            .try_fold(T::default(), |bits, word| Some(bits | names.iter().find(|(_, name)| *name == word)?.0)),
        StoredValue::Code(code) => {
            let all = names.iter().fold(T::default(), |bits, (bit, _)| bits | *bit);
            T::try_from(code).ok().filter(|bits| *bits | all == all)
        }
        _ => None,
    }
}

/// A function of an entry: sets a field of a record. `None`: this is no value of the field.
pub(crate) type Restore = fn(&mut FlowRecord, StoredValue<'_>) -> Option<()>;

/// Sets a number.
pub(crate) fn set<T: TryFrom<u64>>(field: &mut T, value: StoredValue<'_>) -> Option<()> {
    assign(field, value.number())
}

/// Sets a number that a record need not have.
pub(crate) fn set_some<T: TryFrom<u64>>(field: &mut Option<T>, value: StoredValue<'_>) -> Option<()> {
    assign(field, value.number().map(Some))
}

/// Sets a field, if there is a value of it.
pub(crate) fn assign<T>(field: &mut T, value: Option<T>) -> Option<()> {
    *field = value?;
    Some(())
}

/// A record that gets the values of its columns, or those of one direction.
pub(crate) struct RestoredSide<'a> {
    pub flow: &'a mut FlowRecord,
    is_reverse: bool,
}

/// The response time is not known, or there is none.
pub(crate) const NO_TIME: u64 = u64::MAX;

impl<'a> RestoredSide<'a> {
    pub fn new(flow: &'a mut FlowRecord, is_reverse: bool) -> Self {
        Self { flow, is_reverse }
    }

    pub fn direction(&mut self) -> &mut Direction {
        if self.is_reverse { &mut self.flow.reverse } else { &mut self.flow.forward }
    }

    pub fn tcp(&mut self) -> &mut TcpReport {
        &mut self.flow.tcp.get_or_insert([TcpReport::EMPTY; 2])[usize::from(self.is_reverse)]
    }

    pub fn class(&mut self, class: SegmentClass) -> &mut SegmentCount {
        &mut self.tcp().classes[class as usize]
    }

    /// SYN were counted with their retransmissions.
    pub fn set_syn_retransmissions(&mut self, value: StoredValue<'_>) -> Option<()> {
        let retransmissions: u64 = value.number()?;
        self.class(SegmentClass::SynRetransmission).segments = retransmissions;
        let syns = &mut self.class(SegmentClass::Syn).segments;
        *syns = syns.saturating_sub(retransmissions);
        Some(())
    }

    fn findings(&mut self) -> Option<&mut Findings> {
        // Only this record has them.
        Arc::get_mut(self.flow.findings.get_or_insert_with(|| Arc::new(Findings::new(true))))
    }

    pub fn set_start(&mut self, value: StoredValue<'_>) -> Option<()> {
        self.flow.reverse.first_ns = NO_TIME;
        set(&mut self.flow.forward.first_ns, value)
    }

    pub fn set_end(&mut self, value: StoredValue<'_>) -> Option<()> {
        set(&mut self.flow.forward.last_ns, value)?;
        set(&mut self.flow.reverse.last_ns, value)
    }

    pub fn set_udp_response(&mut self, value: StoredValue<'_>) -> Option<()> {
        let first_ns = self.flow.forward.first_ns.checked_add(value.number()?);
        assign(&mut self.flow.reverse.first_ns, first_ns)
    }

    pub fn set_address(&mut self, value: StoredValue<'_>, field: fn(&mut FlowRecord) -> &mut [u8; 16]) -> Option<()> {
        let address = if let StoredValue::Ip(address) = value { address } else { value.parse()? };
        (self.flow.network, *field(self.flow)) = match address {
            IpAddr::V4(address) => (Network::Ipv4, ipv4_mapped(address.octets())),
            IpAddr::V6(address) => (Network::Ipv6, address.octets()),
        };
        Some(())
    }

    pub fn set_protocol(&mut self, value: StoredValue<'_>) -> Option<()> {
        // Most flows have one of the first two.
        let named = |text| [6, 17].into_iter().chain(0..=u8::MAX).find(|number| protocol_name(*number) == Some(text));
        let number = match value {
            StoredValue::Text(text) => named(text).or_else(|| text.parse().ok()),
            StoredValue::Code(number) => number.try_into().ok(),
            _ => None,
        };
        assign(&mut self.flow.protocol, number)
    }

    pub fn set_tcp_flags(&mut self, value: StoredValue<'_>) -> Option<()> {
        let bit = |letter: u8| Some(TCP_FLAG_LETTERS.iter().find(|(known, _)| *known == letter)?.1);
        let bits = match value {
            StoredValue::Text(text) => text.bytes().try_fold(0, |bits, letter| Some(bits | bit(letter)?)),
            // The upper four bits of the octets are the length of the header.
            StoredValue::Code(bits) => u16::try_from(bits).ok().map(|bits| bits & 0xfff),
            _ => None,
        };
        assign(&mut self.direction().tcp_flags, bits)
    }

    pub fn set_sampling_min(&mut self, value: StoredValue<'_>) -> Option<()> {
        self.flow.sampling = Some([value.number()?; 2]);
        Some(())
    }

    /// 1 stands for no sampling.
    pub fn set_sampling(&mut self, value: StoredValue<'_>) -> Option<()> {
        let most: u32 = value.number().filter(|most| *most > 0)?;
        let least = self.flow.sampling.map_or(most, |[least, _]| least);
        self.flow.sampling = (most > 1).then_some([least, most]);
        Some(())
    }

    /// Of frames without IP; otherwise 0.
    pub fn set_ethertype(&mut self, value: StoredValue<'_>) -> Option<()> {
        let ethertype = value.number()?;
        if self.flow.network == Network::Layer2 {
            (self.flow.source_port, self.flow.destination_port) = (ethertype, ethertype);
        }
        Some(())
    }

    /// The MAC address of the source (0) or the destination (1).
    pub fn set_mac(&mut self, value: StoredValue<'_>, side: usize) -> Option<()> {
        let mac = match value {
            StoredValue::Mac(mac) => mac,
            StoredValue::Text(text) => parse_mac(text)?,
            _ => return None,
        };
        let FlowRecord { network, source, destination, forward, reverse, .. } = &mut *self.flow;
        if *network == Network::Layer2 {
            [source, destination][side][10..].copy_from_slice(&mac);
        } else if forward.packets > 0 {
            *[&mut forward.source_mac, &mut forward.destination_mac][side] = mac;
        } else {
            *[&mut reverse.destination_mac, &mut reverse.source_mac][side] = mac;
        }
        Some(())
    }

    pub fn set_icmp_type(&mut self, value: StoredValue<'_>) -> Option<()> {
        let kind = value.number()?;
        self.set_icmp([kind, 0]);
        Some(())
    }

    pub fn set_icmp_code(&mut self, value: StoredValue<'_>) -> Option<()> {
        let [kind, _] = self.direction().icmp;
        let code = value.number()?;
        self.set_icmp([kind, code]);
        Some(())
    }

    /// In place of ports, the record has types and codes.
    fn set_icmp(&mut self, [kind, code]: [u8; 2]) {
        self.direction().icmp = [kind, code];
        if !self.is_reverse || self.flow.forward.packets == 0 {
            let [sender, receiver] = icmp_ports(self.flow.protocol, kind, code);
            let ports = if self.is_reverse { [receiver, sender] } else { [sender, receiver] };
            [self.flow.source_port, self.flow.destination_port] = ports;
        }
    }

    /// A time of answers, of which there is one at least.
    pub fn set_response(&mut self, value: StoredValue<'_>, field: fn(&mut ResponseTimes) -> &mut u64) -> Option<()> {
        let times = &mut self.tcp().responses;
        times.count = times.count.max(1);
        set(field(times), value)
    }

    pub fn set_response_mean(&mut self, value: StoredValue<'_>) -> Option<()> {
        let times = &mut self.tcp().responses;
        assign(&mut times.sum_ns, value.sum_of(times.count))
    }

    pub fn set_round_trip_mean(&mut self, value: StoredValue<'_>) -> Option<()> {
        let times = &mut self.tcp().round_trips;
        assign(&mut times.sum_ns, value.sum_of(times.count))
    }

    /// A time of round trips, of which there is one at least.
    pub fn set_round_trip(&mut self, value: StoredValue<'_>, field: fn(&mut RoundTripTimes) -> &mut u64) -> Option<()> {
        let times = &mut self.tcp().round_trips;
        times.count = times.count.max(1);
        set(field(times), value)
    }

    pub fn set_application(&mut self, value: StoredValue<'_>) -> Option<()> {
        let application = word(value, Application::ALL, Application::name, |one| one as u8)?;
        self.findings()?.recognise(application, Confidence::Port);
        Some(())
    }

    pub fn set_confidence(&mut self, value: StoredValue<'_>) -> Option<()> {
        let confidence = word(value, &Confidence::ALL, Confidence::name, |one| one as u8)?;
        let findings = self.findings()?;
        let (application, _) = findings.application()?;
        findings.recognise(application, confidence);
        Some(())
    }

    pub fn set_fact(&mut self, fact: Fact, value: StoredValue<'_>) -> Option<()> {
        let StoredValue::Text(text) = value else { return None };
        let findings = self.findings()?;
        findings.set_octets(fact, text.as_bytes());
        findings.has(fact).then_some(())
    }

    /// A time that is kept in seconds.
    pub fn set_fact_time(&mut self, fact: Fact, value: StoredValue<'_>) -> Option<()> {
        let ns: u64 = value.number()?;
        self.findings()?.set_number(fact, ns / 1_000_000_000);
        Some(())
    }

    pub fn set_notes(&mut self, value: StoredValue<'_>) -> Option<()> {
        let bits = words(value, &Note::NAMES.map(|(note, name)| (note as u8, name)))?;
        let findings = self.findings()?;
        Note::NAMES.iter().filter(|(note, _)| bits & *note as u8 != 0).for_each(|(note, _)| findings.note(*note));
        Some(())
    }

    pub fn set_fact_number(&mut self, fact: Fact, value: StoredValue<'_>) -> Option<()> {
        let number = value.number()?;
        self.findings()?.set_number(fact, number);
        Some(())
    }

    /// A number whose column has a text.
    pub fn set_number_of(&mut self, fact: Fact, value: StoredValue<'_>, number: fn(&str) -> Option<u64>) -> Option<()> {
        let StoredValue::Text(text) = value else { return None };
        let number = number(text)?;
        self.findings()?.set_number(fact, number);
        Some(())
    }

    /// Counts of the messages of one protocol.
    pub fn messages(&mut self, is_http: bool) -> Option<&mut MessageCounts> {
        Some(self.findings()?.messages_of(is_http))
    }

    /// The number of timed answers is not a field: as if there were one.
    pub fn set_mean_response(&mut self, is_http: bool, value: StoredValue<'_>) -> Option<()> {
        let messages = self.messages(is_http)?;
        messages.timed = 1;
        set(&mut messages.response_sum_ns, value)
    }

    pub fn set_longest_response(&mut self, is_http: bool, value: StoredValue<'_>) -> Option<()> {
        let messages = self.messages(is_http)?;
        messages.timed = 1;
        set(&mut messages.response_max_ns, value)
    }
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut mac {
        *octet = u8::from_str_radix(parts.next().filter(|part| part.len() == 2)?, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}
