//! A line per pipeline, again and again: what came, what left, what was lost, how busy it is.

use super::overload;
use crate::units;
use std::fmt::Write;
use weir_ledger::Ledger;
use weir_probe::PipelineStatus;

/// What was said the time before, to tell what is new.
#[derive(Default)]
pub struct Lines {
    before: Vec<Before>,
    /// Processor time of the outputs, ns.
    sinks_ns: Vec<u64>,
}

#[derive(Clone, Default)]
struct Before {
    packets: u64,
    bytes: u64,
    ended: u64,
    /// Of each thread.
    busy_ns: Vec<u64>,
}

impl Lines {
    /// The lines of this moment, `seconds` after the ones before. With several pipelines a last line adds them up. The last line has
    /// the load of the outputs, whose processor time is given.
    pub fn at(
        &mut self,
        now_ns: u64,
        seconds: f64,
        ledger: &Ledger,
        (pipelines, sinks_ns): (&[PipelineStatus], Vec<u64>),
    ) -> String {
        let (_, time) = units::utc(now_ns);
        let time = &time[..8];
        let name_width = pipelines.iter().map(|pipeline| pipeline.name.len()).max().unwrap_or(0).max(3);
        self.before.resize(pipelines.len(), Before::default());
        let (mut text, mut sum) = (String::new(), Before::default());
        // Others, in their place, begin anew.
        self.sinks_ns.resize(sinks_ns.len(), 0);
        let since = sinks_ns.iter().zip(&self.sinks_ns).map(|(now, before)| now.saturating_sub(*before));
        let outputs = shares(&since.collect::<Vec<_>>(), seconds);
        self.sinks_ns = sinks_ns;
        for (pipeline, before) in pipelines.iter().zip(&mut self.before) {
            let of = &pipeline.account.ledger;
            let now = Before {
                packets: of.packets.received,
                bytes: of.bytes.received,
                ended: pipeline.account.sent.flows + pipeline.account.lost.flows,
                busy_ns: pipeline.cpu_time_ns.clone(),
            };
            let new = now.since(before);
            *before = now;
            sum.add(&new);
            let load = shares(&new.busy_ns, seconds);
            let mut state = match (pipeline.finished, pipeline.timed_out) {
                (true, _) => "ended".into(),
                (_, true) => "no answer: waits for a pipe, or is stuck".into(),
                _ => format!("load {load}"),
            };
            if let (Some(balance), false) = (pipeline.balance, pipeline.finished) {
                let (percent, moved) = (balance.imbalance_permille as f64 / 10.0, balance.moved_buckets);
                state.push_str(&format!(", busiest meter {percent:.1} % above its share, {moved} parts moved"));
            }
            if pipelines.len() == 1 {
                state = format!("{state}, outputs {outputs}");
            }
            line(
                &mut text,
                time,
                (&pipeline.name, name_width),
                (&new, seconds),
                (of, pipeline.account.lost.flows),
                &state,
            );
        }
        if pipelines.len() > 1 {
            let lost = pipelines.iter().map(|pipeline| pipeline.account.lost.flows).sum();
            line(&mut text, time, ("all", name_width), (&sum, seconds), (ledger, lost), &format!("outputs {outputs}"));
        }
        text
    }
}

/// What it has come to, in a line for whoever looks after the program.
pub fn status(ledger: &Ledger) -> String {
    let line = &ledger.packets;
    let dropped = line.dropped_nic + line.dropped_kernel + line.dropped_ring + line.dropped_table_full;
    let lost = ledger.sinks.iter().flat_map(|sink| sink.lost.values()).map(|lost| lost.flows).sum::<u64>();
    let live = ledger.live.flows;
    format!("{} packets received, {dropped} of them dropped; {live} flows active, {lost} records lost", line.received)
}

/// Shares of an interval: `43 % and 2 %`.
fn shares(busy_ns: &[u64], seconds: f64) -> String {
    let share = |ns: &u64| format!("{:.0} %", 100.0 * *ns as f64 / 1e9 / seconds);
    busy_ns.iter().map(share).collect::<Vec<_>>().join(" and ")
}

impl Before {
    fn since(&self, before: &Self) -> Self {
        let busy_before = |thread: usize| before.busy_ns.get(thread).copied().unwrap_or(0);
        let busy_ns = self.busy_ns.iter().enumerate();
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            ended: self.ended.saturating_sub(before.ended),
            busy_ns: busy_ns.map(|(thread, ns)| ns.saturating_sub(busy_before(thread))).collect(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.ended += other.ended;
    }
}

/// `12:00:00 af_packet:eth0@0  1.20 Mpackets/s  7.21 Gbit/s | flows 12034 active 310 ended 0 lost | drops 0 card 0 kernel 0 ring 0 table | load 43 %, outputs 2 %`
fn line(
    text: &mut String,
    time: &str,
    (name, width): (&str, usize),
    (new, seconds): (&Before, f64),
    (ledger, lost): (&Ledger, u64),
    state: &str,
) {
    let packets = units::rate(new.packets as f64 / seconds, "packets/s");
    let bits = units::rate(8.0 * new.bytes as f64 / seconds, "bit/s");
    let line = &ledger.packets;
    let _ = write!(
        text,
        "{time} {name:width$} {packets:>15} {bits:>12} | flows {} active {} ended {lost} lost | drops {} card {} kernel {} \
         ring {} table",
        ledger.live.flows, new.ended, line.dropped_nic, line.dropped_kernel, line.dropped_ring, line.dropped_table_full,
    );
    if ledger.overload.level > 0 {
        let _ = write!(text, " | {}", overload::short(&ledger.overload));
    }
    let _ = writeln!(text, " | {state}");
}
