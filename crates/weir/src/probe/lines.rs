//! A line per pipeline, again and again: what came, what left, what was lost, how busy it is.

use super::overload;
use crate::units;
use std::fmt::Write;
use weir_ledger::Ledger;
use weir_probe::Answer;

/// What was said the time before, to tell what is new.
#[derive(Default)]
pub struct Lines {
    before: Vec<Before>,
}

#[derive(Clone, Copy, Default)]
struct Before {
    packets: u64,
    bytes: u64,
    ended: u64,
    /// Of two threads at most.
    busy_ns: [u64; 2],
}

impl Lines {
    /// The lines of this moment, `seconds` after the ones before. With several pipelines a last line adds them up.
    pub fn at(&mut self, now_ns: u64, seconds: f64, ledger: &Ledger, answers: &[Answer]) -> String {
        let (_, time) = units::utc(now_ns);
        let time = &time[..8];
        let name_width = answers.iter().map(|answer| answer.name.len()).max().unwrap_or(0).max(3);
        self.before.resize(answers.len(), Before::default());
        let (mut text, mut sum) = (String::new(), Before::default());
        for (answer, before) in answers.iter().zip(&mut self.before) {
            let of = &answer.account.ledger;
            let now = Before {
                packets: of.packets.received,
                bytes: of.bytes.received,
                ended: answer.account.sent.flows + answer.account.lost.flows,
                busy_ns: [0, 1].map(|thread| answer.busy_ns.get(thread).copied().unwrap_or(0)),
            };
            let new = now.since(*before);
            *before = now;
            sum = sum.plus(new);
            let load = new.busy_ns.map(|ns| format!("{:.0} %", 100.0 * ns as f64 / 1e9 / seconds));
            let load = load[..answer.busy_ns.len().min(2)].join(" and ");
            let state = match (answer.ended, answer.silent) {
                (true, _) => "ended".into(),
                (_, true) => "no answer: waits for a pipe, or is stuck".into(),
                _ => format!("load {load}"),
            };
            line(&mut text, time, (&answer.name, name_width), (new, seconds), (of, answer.account.lost.flows), &state);
        }
        if answers.len() > 1 {
            let lost = answers.iter().map(|answer| answer.account.lost.flows).sum();
            line(&mut text, time, ("all", name_width), (sum, seconds), (ledger, lost), "");
        }
        text
    }
}

impl Before {
    fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            ended: self.ended.saturating_sub(before.ended),
            busy_ns: [0, 1].map(|thread| self.busy_ns[thread].saturating_sub(before.busy_ns[thread])),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            ended: self.ended + other.ended,
            busy_ns: [0, 1].map(|thread| self.busy_ns[thread] + other.busy_ns[thread]),
        }
    }
}

/// `12:00:00 af_packet:eth0@0  1.20 Mpackets/s  7.21 Gbit/s | flows 12034 active 310 ended 0 lost | drops 0 card 0 kernel 0 ring 0 table | load 43 %`
fn line(
    text: &mut String,
    time: &str,
    (name, width): (&str, usize),
    (new, seconds): (Before, f64),
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
        ledger.live.flows,
        new.ended,
        line.dropped_card,
        line.dropped_kernel,
        line.dropped_ring,
        line.dropped_table_full,
    );
    if ledger.overload.rung > 0 {
        let _ = write!(text, " | {}", overload::short(&ledger.overload));
    }
    let _ = if state.is_empty() { writeln!(text) } else { writeln!(text, " | {state}") };
}
