//! Sinks that write at the end of the run: the largest flows for people (`table:PATH`), and views.
//!
//! Input: all records of a run. Output: the `--top` N records with the most IP bytes of both
//! directions, or with the most of what `--sort` names, largest first; or a view. N records are in
//! memory (all if N is 0). When the table is written, all records count as exported: the last line
//! has the number of all flows. [`LiveTable`] also shows them before, on a terminal.

mod live;
mod render;
mod view;

pub use live::{LiveTable, LiveTraffic, Selection};
pub use render::Layout;
pub use view::ViewTable;

use crate::names::SharedNames;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use weir_export::{Compression, Error, Sink, UnusedFile};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals, SinkCounters};
use weir_query::{RecordOrder, View};

/// A table or a view of nothing.
const NO_FLOWS: &str = "no flows\n";

pub struct Table {
    content: Content,
    /// All records so far.
    received: RecordTotals,
    output: Box<dyn Write + Send>,
    /// The view of stored flows, if it is computed without their records.
    pub summed: SummedView,
    /// The new file, until the table is written.
    pub unused: Option<UnusedFile>,
    /// Compresses the text.
    pub compression: Option<Compression>,
    /// Width of the terminal, if the table goes to one.
    columns: Option<usize>,
    /// Names of hosts: with `--names`.
    pub names: Option<SharedNames>,
    counters: SinkCounters,
}

/// A view that is computed while the sink gets no records, and the flows in it.
pub type SummedView = Arc<Mutex<Option<(View, RecordTotals)>>>;

pub enum Content {
    Largest(LargestFlows),
    View(Box<ViewTable>),
}

/// The first flows in the order of the table.
pub struct LargestFlows {
    flows: BTreeMap<Rank, FlowRecord>,
    limit: usize,
    layout: Layout,
}

/// Order of the table: what `--sort` names, IP bytes, bytes on the wire, earlier start, earlier
/// record.
type Rank = ((bool, u64), u64, u64, Reverse<u64>, Reverse<u64>);

impl LargestFlows {
    /// The first `top` flows (0: all).
    pub fn new(top: usize, layout: Layout) -> Self {
        let limit = if top == 0 { usize::MAX } else { top };
        Self { flows: BTreeMap::new(), limit, layout }
    }

    /// The first `top` flows in this order.
    pub fn in_order(top: usize, order: RecordOrder) -> Self {
        Self::new(top, Layout { order: Some(order), ..Layout::default() })
    }

    /// The flows, in order.
    pub fn into_flows(self) -> impl Iterator<Item = FlowRecord> {
        self.flows.into_values().rev()
    }

    /// Inserts the record with this number.
    pub fn insert(&mut self, flow: &FlowRecord, number: u64) {
        let first = self.layout.order.map_or((false, 0), |order| order.rank(flow));
        let rank = (first, flow.bytes(), flow.frame_bytes(), Reverse(flow.start_ns()), Reverse(number));
        if self.has_place(&rank) {
            self.flows.insert(rank, flow.clone());
        }
    }

    /// Whether a flow of this rank is one of the first. If so, there is a place for it.
    fn has_place(&mut self, rank: &Rank) -> bool {
        if self.flows.len() < self.limit {
            return true;
        }
        let is_among = self.flows.first_key_value().is_some_and(|(smallest, _)| smallest < rank);
        if is_among {
            self.flows.pop_first();
        }
        is_among
    }

    /// Adds the first flows of others.
    pub fn merge(&mut self, other: Self) {
        for (rank, flow) in other.flows.into_iter().rev() {
            if !self.has_place(&rank) {
                return;
            }
            self.flows.insert(rank, flow);
        }
    }

    /// By the order, the least rank of a further flow that can be one of the first; `None` as long as each one is.
    pub fn least_rank(&self) -> Option<(bool, u64)> {
        let smallest = self.flows.first_key_value().filter(|_| self.flows.len() == self.limit);
        smallest.map(|((first, ..), _)| *first)
    }
}

impl Table {
    /// Writes the content, folded to `columns` columns where possible.
    pub fn new(sink: &str, content: Content, output: Box<dyn Write + Send>, columns: Option<usize>) -> Self {
        Self {
            content,
            received: RecordTotals::default(),
            output,
            summed: SummedView::default(),
            unused: None,
            compression: None,
            columns,
            names: None,
            counters: SinkCounters { sink: sink.into(), ..SinkCounters::default() },
        }
    }

    /// The text and the number of its rows.
    fn text(&mut self, flows: u64) -> (Vec<u8>, u64) {
        let names = self.names.as_ref().map(SharedNames::lock);
        match &mut self.content {
            Content::Largest(_) if flows == 0 => (NO_FLOWS.into(), 0),
            Content::Largest(largest) => {
                let shown: Vec<FlowRecord> = std::mem::take(&mut largest.flows).into_values().rev().collect();
                let text = render::table(&shown, flows, &largest.layout, names.as_deref(), self.columns);
                (text.into_bytes(), shown.len() as u64)
            }
            Content::View(view) => view.text(names.as_deref(), self.columns),
        }
    }
}

impl Sink for Table {
    fn write(&mut self, flows: &[FlowRecord]) -> Result<(), Error> {
        if let Content::View(view) = &mut self.content {
            view.add(flows);
        }
        for flow in flows {
            if let Content::Largest(largest) = &mut self.content {
                largest.insert(flow, self.received.flows);
            }
            self.received.add(flow.packets(), flow.frame_bytes());
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.unused.take().into_iter().for_each(UnusedFile::keep);
        let summed = self.summed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Content::View(table), Some((view, flows))) = (&mut self.content, summed) {
            table.view = view;
            self.received.merge(flows);
        }
        let received = std::mem::take(&mut self.received);
        let (mut text, rows) = self.text(received.flows);
        if let Some(compression) = self.compression {
            text = compression.compress(&text);
        }
        match self.output.write_all(&text).and_then(|()| self.output.flush()) {
            Ok(()) => {
                self.counters.exported.merge(received);
                self.counters.wire_records += rows;
                self.counters.octets += text.len() as u64;
                Ok(())
            }
            Err(error) => {
                let closed = error.kind() == io::ErrorKind::BrokenPipe;
                self.counters.add_lost(
                    if closed { ExportLossReason::OutputClosed } else { ExportLossReason::WriteFailed },
                    received,
                );
                Err(Error::Io { sink: self.counters.sink.clone(), error })
            }
        }
    }

    fn counters(&self) -> &SinkCounters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::render::tests::udp;
    use super::*;
    use weir_packet::Network;

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
        let mut table = Table::new(
            "table:-",
            Content::Largest(LargestFlows::new(top, Layout::default())),
            Box::new(page.clone()),
            None,
        );
        table.write(flows).unwrap();
        table.finish().unwrap();
        (String::from_utf8(page.0.lock().unwrap().clone()).unwrap(), table.counters().clone())
    }

    #[test]
    fn table_lists_the_largest_flows_and_counts_all() {
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
    fn top_0_lists_all_flows() {
        let flows = vec![udp(100); 30];
        assert_eq!(written(&flows, 0).0.lines().count(), 32);
    }

    #[test]
    fn a_table_of_nothing_says_so() {
        assert_eq!(written(&[], 5).0, NO_FLOWS);
    }

    #[test]
    fn addresses_are_never_truncated() {
        let mut flow = udp(100);
        flow.network = Network::Ipv6;
        flow.source = [0xab; 16];
        let (text, _) = written(&[flow], 0);
        assert!(text.contains("[abab:abab:abab:abab:abab:abab:abab:abab]:5000"), "{text}");
    }

    #[test]
    fn empty_columns_are_left_out() {
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
    fn records_are_lost_if_the_table_cannot_be_written() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut table =
            Table::new("table:-", Content::Largest(LargestFlows::new(1, Layout::default())), Box::new(Full), None);
        table.write(&[udp(1), udp(2)]).unwrap();
        assert!(table.finish().is_err());
        assert_eq!(table.counters().exported, RecordTotals::default());
        assert_eq!(table.counters().lost["write_failed"], RecordTotals { flows: 2, packets: 2, bytes: 31 });
    }
}
