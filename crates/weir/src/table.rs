//! The table for people: the largest flows, aligned.
//!
//! In: every record of a run. Out: at the end, up to N lines, the largest first by IP bytes of both directions.
//! Memory is that of the N largest (all of them for N = 0). A record counts as exported when the table was
//! written, whether or not it is among the largest: the line below the table says how many are not.

use crate::protocols;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use weir_export::{Error, Sink};
use weir_flow::{Direction, FlowRecord};
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};
use weir_packet::{NO_VLAN, Network};
use weir_text::columns::{Column, lines};
use weir_text::units;

/// The sink behind `table:PATH`.
pub struct Table {
    largest: BinaryHeap<Reverse<Ranked>>,
    /// How many to keep; `usize::MAX` for all.
    keep: usize,
    /// Records taken so far.
    taken: RecordTotals,
    output: Box<dyn Write + Send>,
    /// Width of the terminal, if the table goes to one.
    columns: Option<usize>,
    line: SinkCounters,
}

/// Larger is shown first: more IP bytes, more bytes on the wire, earlier start, earlier end of the record.
type Rank = (u64, u64, Reverse<u64>, Reverse<u64>);

struct Ranked {
    rank: Rank,
    flow: FlowRecord,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Ranked {}

impl Table {
    /// A table of the `top` largest flows, 0 for all, in at most `columns` columns where that is possible.
    pub fn new(sink: &str, top: usize, output: Box<dyn Write + Send>, columns: Option<usize>) -> Self {
        Self {
            largest: BinaryHeap::new(),
            keep: if top == 0 { usize::MAX } else { top },
            taken: RecordTotals::default(),
            output,
            columns,
            line: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    fn take(&mut self, flow: &FlowRecord) {
        let bytes = flow.forward.bytes + flow.reverse.bytes;
        let rank = (bytes, flow.frame_bytes(), Reverse(flow.start_ns()), Reverse(self.taken.flows));
        self.taken.add(flow.packets(), flow.frame_bytes());
        if self.largest.len() < self.keep {
            self.largest.push(Reverse(Ranked { rank, flow: *flow }));
        } else if let Some(mut smallest) = self.largest.peek_mut()
            && smallest.0.rank < rank
        {
            *smallest = Reverse(Ranked { rank, flow: *flow });
        }
    }
}

impl Sink for Table {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        flows.iter().for_each(|flow| self.take(flow));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        let taken = std::mem::take(&mut self.taken);
        if taken.flows == 0 {
            return Ok(());
        }
        let shown = std::mem::take(&mut self.largest).into_sorted_vec();
        let shown: Vec<FlowRecord> = shown.into_iter().map(|Reverse(ranked)| ranked.flow).collect();
        let text = render(&shown, taken.flows, self.columns);
        match self.output.write_all(text.as_bytes()).and_then(|()| self.output.flush()) {
            Ok(()) => {
                self.line.exported.merge(taken);
                self.line.wire_records += shown.len() as u64;
                self.line.octets += text.len() as u64;
                Ok(())
            }
            Err(error) => {
                let closed = error.kind() == io::ErrorKind::BrokenPipe;
                self.line.add_lost(
                    if closed { ExportLossReason::OutputClosed } else { ExportLossReason::WriteFailed },
                    taken,
                );
                Err(Error::Io { sink: self.line.sink.clone(), error })
            }
        }
    }

    fn counters(&self) -> &SinkCounters {
        &self.line
    }
}

/// Columns that say who, before those that say how much.
const WHO: usize = 6;

/// The whole table as text.
fn render(flows: &[FlowRecord], of_flows: u64, terminal_columns: Option<usize>) -> String {
    let mut text = lines(&columns(flows), WHO, terminal_columns);
    let hidden = of_flows - flows.len() as u64;
    text += &match hidden {
        0 => units::count(of_flows, "flow"),
        _ => format!("{} of {of_flows} flows (--top 0 for all)", flows.len()),
    };
    text += ", by IP bytes of both directions; k, M and G are decimal\n";
    text
}

fn columns(flows: &[FlowRecord]) -> Vec<Column> {
    let each = |cell: fn(&FlowRecord) -> String| flows.iter().map(cell);
    let count = |heading, figure: fn(&FlowRecord) -> u64| {
        Column::new(heading, true, flows.iter().map(|flow| units::short(figure(flow))))
    };
    let octets = |heading, figure: fn(&FlowRecord) -> u64| {
        Column::new(heading, true, flows.iter().map(|flow| units::short(figure(flow)) + "B"))
    };
    let mut columns = vec![
        start(flows),
        Column::new("lasted", true, each(|flow| units::span(flow.end_ns().saturating_sub(flow.start_ns())))),
        Column::new("proto", false, each(protocol)),
        Column::new("source", true, each(|flow| endpoint(flow, flow.source, flow.source_port))),
        Column::new("→", false, each(|_| "→".into())),
        Column::new("destination", false, each(|flow| endpoint(flow, flow.destination, flow.destination_port))),
        count("pkts→", |flow| flow.forward.packets),
        count("←pkts", |flow| flow.reverse.packets),
        octets("bytes→", |flow| flow.forward.bytes),
        octets("←bytes", |flow| flow.reverse.bytes),
    ];
    debug_assert_eq!(columns[WHO].heading, "pkts→");
    let optional = [
        Column::new("flags", false, each(flags)),
        Column::new("end", false, each(|flow| flow.end_reason.name().into())),
        Column::new("vlan", false, each(vlan)),
        Column::new("tunnel", false, each(tunnel)),
        Column::new("approximate", false, each(|flow| flow.approximate.names().collect::<Vec<_>>().join(","))),
    ];
    columns.extend(optional.into_iter().filter(Column::has_content));
    columns
}

/// Times of day if all flows began on one day, which then is the heading.
fn start(flows: &[FlowRecord]) -> Column {
    let times: Vec<(String, String)> = flows.iter().map(|flow| units::utc(flow.start_ns())).collect();
    match times.first() {
        Some((day, _)) if times.iter().all(|(other, _)| other == day) => {
            let heading = format!("{day} UTC");
            Column::new(heading, true, times.into_iter().map(|(_, time)| time))
        }
        _ => Column::new("start (UTC)", true, times.into_iter().map(|(day, time)| format!("{day} {time}"))),
    }
}

/// The direction whose packet came first, of those that have packets.
fn leading(flow: &FlowRecord) -> &Direction {
    if flow.forward.packets > 0 { &flow.forward } else { &flow.reverse }
}

fn protocol(flow: &FlowRecord) -> String {
    let [kind, code] = leading(flow).icmp;
    match flow.ethertype() {
        Some(ethertype) => protocols::ethertype(ethertype),
        None if flow.is_icmp() => format!("{} {kind}/{code}", protocols::ip_protocol(flow.protocol)),
        None => protocols::ip_protocol(flow.protocol),
    }
}

fn endpoint(flow: &FlowRecord, octets: [u8; 16], port: u16) -> String {
    match weir_packet::ip_address(flow.network, octets) {
        Some(address) if flow.has_ports() => std::net::SocketAddr::new(address, port).to_string(),
        Some(address) => address.to_string(),
        None => {
            let hexadecimal: Vec<String> = octets[10..].iter().map(|octet| format!("{octet:02x}")).collect();
            hexadecimal.join(":")
        }
    }
}

/// TCP control bits of both directions as letters, in the order in which a connection usually shows them.
fn flags(flow: &FlowRecord) -> String {
    if flow.protocol != 6 || flow.network == Network::Layer2 {
        return String::new();
    }
    let bits = flow.forward.tcp_flags | flow.reverse.tcp_flags;
    let letters =
        [(0x02, 'S'), (0x10, 'A'), (0x08, 'P'), (0x01, 'F'), (0x04, 'R'), (0x20, 'U'), (0x40, 'E'), (0x80, 'C')];
    letters.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, letter)| letter).collect()
}

fn vlan(flow: &FlowRecord) -> String {
    let direction = leading(flow);
    match (direction.vlan, direction.inner_vlan) {
        (NO_VLAN, _) => String::new(),
        (outer, NO_VLAN) => outer.to_string(),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}

fn tunnel(flow: &FlowRecord) -> String {
    let direction = leading(flow);
    match (direction.tunnel_type.name(), direction.tunnel_id) {
        (None, _) => String::new(),
        (Some(name), None) => name.into(),
        (Some(name), Some(identifier)) => format!("{name} {identifier}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use weir_flow::EndReason;
    use weir_packet::ipv4_mapped;

    fn udp(bytes: u64) -> FlowRecord {
        FlowRecord {
            source: ipv4_mapped([192, 0, 2, 1]),
            destination: ipv4_mapped([198, 51, 100, 20]),
            source_port: 5000,
            destination_port: 53,
            protocol: 17,
            forward: Direction { packets: 1, bytes, frame_bytes: bytes + 14, ..Direction::default() },
            ..FlowRecord::default()
        }
    }

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(flows: &[FlowRecord], top: usize) -> (String, SinkCounters) {
        let page = Page::default();
        let mut table = Table::new("table:-", top, Box::new(page.clone()), None);
        table.write(flows).unwrap();
        table.finish().unwrap();
        (String::from_utf8(page.0.lock().unwrap().clone()).unwrap(), table.counters().clone())
    }

    #[test]
    fn the_largest_are_shown_and_all_are_counted() {
        let flows: Vec<FlowRecord> = (1..=50).map(|n| udp((n * 7919) % 1000)).collect();
        let (text, line) = written(&flows, 3);
        let mut sizes: Vec<u64> = flows.iter().map(|flow| flow.forward.bytes).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        for (shown, size) in text.lines().skip(1).zip(&sizes[..3]) {
            assert!(shown.contains(&format!(" {size}B ")), "{text}");
        }
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("3 of 50 flows"));
        assert_eq!(line.exported.flows, 50);
        assert_eq!(line.wire_records, 3);
    }

    #[test]
    fn zero_shows_all() {
        let flows = vec![udp(100); 30];
        assert_eq!(written(&flows, 0).0.lines().count(), 32);
    }

    #[test]
    fn no_flows_are_no_table() {
        assert_eq!(written(&[], 5).0, "");
    }

    #[test]
    fn addresses_are_never_cut() {
        let mut flow = udp(100);
        flow.network = Network::Ipv6;
        flow.source = [0xab; 16];
        let (text, _) = written(&[flow], 0);
        assert!(text.contains("[abab:abab:abab:abab:abab:abab:abab:abab]:5000"), "{text}");
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        let (text, _) = written(&[udp(100)], 0);
        for heading in ["flags", "vlan", "tunnel", "approximate"] {
            assert!(!text.contains(heading), "{text}");
        }
        let mut flow = udp(100);
        (flow.forward.vlan, flow.forward.inner_vlan) = (10, 20);
        flow.forward.tunnel_type = weir_packet::TunnelType::Vxlan;
        flow.forward.tunnel_id = Some(42);
        flow.approximate = weir_flow::Approximate(weir_flow::Approximate::OVERFLOW);
        let (text, _) = written(&[flow, udp(50)], 0);
        for part in ["vlan", "10.20", "tunnel", "vxlan 42", "approximate", "overflow"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_narrow_terminal_gets_two_lines_per_flow() {
        let wide = render(&[udp(100), udp(99)], 2, Some(200));
        assert_eq!(wide, render(&[udp(100), udp(99)], 2, None));
        assert_eq!(wide.lines().count(), 4);
        let narrow = render(&[udp(100), udp(99)], 2, Some(70));
        assert_eq!(narrow.lines().count(), 7);
        assert!(narrow.lines().all(|line| line.chars().count() <= 70), "{narrow}");
    }

    #[test]
    fn a_two_way_tcp_flow_of_short_addresses_fits_100_columns() {
        let mut flow = udp(9_999_999);
        flow.protocol = 6;
        flow.reverse = flow.forward;
        flow.forward.tcp_flags = 0x1b;
        flow.end_reason = EndReason::EndOfFlow;
        let text = render(&[flow], 1, None);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains(" SAPF ") && text.contains(" end\n"), "{text}");
    }

    #[test]
    fn a_reverse_only_record_shows_what_its_reverse_direction_has() {
        let mut flow = udp(0);
        flow.protocol = 1;
        flow.reverse = Direction { packets: 1, icmp: [3, 1], vlan: 7, ..flow.forward };
        flow.forward = Direction::default();
        let text = render(&[flow], 1, None);
        assert!(text.contains("icmp 3/1") && text.contains(" 7\n"), "{text}");
    }

    #[test]
    fn a_table_that_cannot_be_written_is_lost_as_a_whole() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut table = Table::new("table:-", 1, Box::new(Full), None);
        table.write(&[udp(1), udp(2)]).unwrap();
        assert!(table.finish().is_err());
        assert_eq!(table.counters().exported, RecordTotals::default());
        assert_eq!(table.counters().lost["write_failed"], RecordTotals { flows: 2, packets: 2, bytes: 31 });
    }
}
