//! Counters of one side of the ledger: packets or octets, flow records, a sink, load shedding.

use crate::reasons::{ExportLossReason, OutputDropReason, ReasonCounters, RefusalReason};
use serde::Serialize;
use std::collections::BTreeMap;

/// Whether a value is left out of JSON.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Packets by outcome, or their octets on the wire (layer 2; no preamble, no FCS unless captured).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrafficCounters {
    /// Delivered by the source, or reported by it as lost.
    pub received: u64,
    /// Lost by the NIC.
    pub dropped_nic: u64,
    /// Lost by the kernel.
    pub dropped_kernel: u64,
    /// Lost by Weir: between two threads, without a packet buffer (DPDK) or a length (AF_XDP), or
    /// after a panic.
    pub dropped_queue: u64,
    /// Not metered because the flow cache was full (policy `drop`).
    pub dropped_cache_full: u64,
    /// Refused by the decoder, by reason.
    pub refused: ReasonCounters<RefusalReason, { RefusalReason::ALL.len() }>,
    /// Rejected by a filter.
    pub filtered: u64,
    /// Not selected by sampling, which is configured or caused by overload.
    pub sampled_out: u64,
    /// Counted in a flow record.
    pub metered: u64,
}

impl TrafficCounters {
    /// Neither metered nor left out on purpose: dropped, or refused for another reason than that the
    /// frame carries no IP packet.
    pub fn ignored(&self) -> u64 {
        self.dropped() + self.refused.total() - self.refused.get(RefusalReason::NonIp)
    }

    /// Dropped for want of time or memory.
    pub fn dropped(&self) -> u64 {
        self.dropped_nic + self.dropped_kernel + self.dropped_queue + self.dropped_cache_full
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.dropped_nic += other.dropped_nic;
        self.dropped_kernel += other.dropped_kernel;
        self.dropped_queue += other.dropped_queue;
        self.dropped_cache_full += other.dropped_cache_full;
        self.refused.merge(&other.refused);
        self.filtered += other.filtered;
        self.sampled_out += other.sampled_out;
        self.metered += other.metered;
    }

    /// The sum of all outcomes. Equals `received` if the ledger balances.
    pub(crate) fn outcomes(&self) -> u64 {
        self.dropped() + self.refused.total() + self.filtered + self.sampled_out + self.metered
    }
}

/// Load shedding under overload (docs/overload.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverloadCounters {
    /// Current level; the highest one of several pipelines. 0 without overload.
    pub level: u8,
    /// Time of the last change of level, ns since 1970-01-01 UTC; 0 if the level never changed.
    pub since_ns: u64,
    /// Highest level of the run.
    pub highest: u8,
    /// Number of level changes, up and down.
    pub level_changes: u64,
    /// Flow records without an application, whose payload was not inspected when the flow began.
    pub uninspected_flows: u64,
    /// Flow records without fingerprints (JA3, JA4, JA3S, HASSH), which were left out.
    pub unfingerprinted_flows: u64,
    /// Exported flow records of which not all packets had TCP analysis.
    pub unanalysed_flows: u64,
    /// Flow records of which packets were sampled.
    pub sampled_flows: u64,
}

impl OverloadCounters {
    pub(crate) fn merge(&mut self, other: Self) {
        // The highest level, and the latest time at which a pipeline reached it.
        (self.level, self.since_ns) = (self.level, self.since_ns).max((other.level, other.since_ns));
        self.highest = self.highest.max(other.highest);
        self.level_changes += other.level_changes;
        self.uninspected_flows += other.uninspected_flows;
        self.unfingerprinted_flows += other.unfingerprinted_flows;
        self.unanalysed_flows += other.unanalysed_flows;
        self.sampled_flows += other.sampled_flows;
    }
}

/// Inspection of payload (docs/applications.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InspectionCounters {
    /// Flows with payload that was inspected.
    pub flows: u64,
    /// Flows whose application was recognised.
    pub recognised: u64,
    /// These flows by the number of their packet with payload that decided, 1 to 8. The last one also
    /// counts later packets.
    pub recognised_by_packet: [u64; 8],
    /// Flows that were evicted from inspection because too many were undecided.
    pub evicted: u64,
    /// Flows whose facts were left out because the memory for facts was full.
    pub facts_left_out: u64,
    /// Flows whose messages were not counted because too many were counted at the same time.
    pub transactions_left_out: u64,
    /// Packets of which a part was not inspected because that takes too long.
    pub work_limited: u64,
}

impl InspectionCounters {
    pub(crate) fn merge(&mut self, other: Self) {
        self.flows += other.flows;
        self.recognised += other.recognised;
        for (sum, flows) in self.recognised_by_packet.iter_mut().zip(other.recognised_by_packet) {
            *sum += flows;
        }
        self.evicted += other.evicted;
        self.facts_left_out += other.facts_left_out;
        self.transactions_left_out += other.transactions_left_out;
        self.work_limited += other.work_limited;
    }
}

/// Transactions (`--transactions`): questions of DNS and requests of HTTP/1, a record each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransactionCounters {
    /// Questions and requests.
    pub begun: u64,
    /// Neither answered nor at the end of their flow, or on the way to the sinks. 0 at the end of a run.
    pub open: u64,
    /// Left out because the memory for transactions was full.
    pub left_out: u64,
    /// Records by outcome, one entry per sink: `flows` are transactions.
    pub sinks: Vec<SinkCounters>,
}

impl TransactionCounters {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.begun += other.begun;
        self.open += other.open;
        self.left_out += other.left_out;
    }
}

/// Steps of the system's clock during live capture (docs/metering.md, *Clock*).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockCounters {
    /// Steps forward.
    pub steps_forward: u64,
    /// Steps back.
    pub steps_backward: u64,
    /// Sum of all steps, ns.
    pub offset_ns: i64,
}

impl ClockCounters {
    /// All live sources have the same clock; the one that read it last knows most steps.
    pub(crate) fn merge(&mut self, other: Self) {
        if other.steps_forward + other.steps_backward > self.steps_forward + self.steps_backward {
            *self = other;
        }
    }
}

/// A number of flow records, with the packets and octets that they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordTotals {
    /// Number of flow records; a bidirectional record counts once.
    pub flows: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// Octets on the wire of both directions, layer 2.
    pub bytes: u64,
}

impl RecordTotals {
    /// Adds one flow record.
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.flows += 1;
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Adds other totals.
    pub fn merge(&mut self, other: RecordTotals) {
        self.flows += other.flows;
        self.packets += other.packets;
        self.bytes += other.bytes;
    }

    /// Subtracts other totals. A counter that would be negative becomes 0.
    #[must_use]
    pub fn saturating_sub(self, other: RecordTotals) -> RecordTotals {
        RecordTotals {
            flows: self.flows.saturating_sub(other.flows),
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Packets, and the octets of them that were forwarded: a packet may have been cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketTotals {
    /// Packets.
    pub packets: u64,
    /// Their octets from the link layer on, after cutting.
    pub octets: u64,
}

impl PacketTotals {
    /// Counts a packet.
    #[inline]
    pub fn add(&mut self, octets: usize) {
        self.packets += 1;
        self.octets += octets as u64;
    }

    /// Adds other packets.
    pub fn merge(&mut self, other: Self) {
        self.packets += other.packets;
        self.octets += other.octets;
    }
}

/// What became of the packets that were handed to one output: they are sent, waiting or dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputCounters {
    /// The output as the user wrote it.
    pub output: String,
    /// Accepted by the operating system, the NIC or the file system.
    pub sent: PacketTotals,
    /// In the queue of the output. 0 at the end of a run.
    pub waiting: PacketTotals,
    /// By key of the [`OutputDropReason`].
    pub dropped: BTreeMap<&'static str, PacketTotals>,
    /// Files of a folder in which packets are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder: Option<RecorderCounters>,
}

/// The files of a recorder, which all pipelines share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecorderCounters {
    /// Capture files that were begun.
    pub files: u64,
    /// Oldest capture files that were removed.
    pub files_removed: u64,
    /// Octets of these files and their indexes.
    pub octets_removed: u64,
    /// Nothing is written at present, because a write failed.
    pub is_stopped: bool,
}

impl RecorderCounters {
    /// The later one of two reports of the same recorder.
    fn latest(self, other: Self) -> Self {
        let key = |counters: &Self| (counters.files, counters.files_removed, counters.is_stopped);
        std::cmp::max_by_key(self, other, key)
    }
}

impl OutputCounters {
    /// Counts packets as dropped.
    pub fn add_dropped(&mut self, reason: OutputDropReason, packets: PacketTotals) {
        self.dropped.entry(reason.key()).or_default().merge(packets);
    }

    /// Packets that were handed to the output.
    pub fn total(&self) -> PacketTotals {
        let mut total = self.sent;
        total.merge(self.waiting);
        self.dropped.values().for_each(|&dropped| total.merge(dropped));
        total
    }

    /// Adds the counters of the same output in another pipeline.
    pub fn merge(&mut self, other: &Self) {
        self.sent.merge(other.sent);
        self.waiting.merge(other.waiting);
        for (&reason, &dropped) in &other.dropped {
            self.dropped.entry(reason).or_default().merge(dropped);
        }
        self.recorder = match (self.recorder, other.recorder) {
            (Some(mine), Some(theirs)) => Some(mine.latest(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
    }
}

/// What rules did with packets. Octets are those on the wire, before cutting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ActionCounters {
    /// Handed to at least one output.
    pub forwarded: PacketTotals,
    /// By a rule, or because no rule sends them anywhere.
    pub dropped: PacketTotals,
    /// Behind the first packets of a flow that a rule forwards.
    pub shunted: PacketTotals,
    /// Held back until the application of their flow is known. 0 at the end of a run.
    pub held: PacketTotals,
    /// Forwarded packets that were cut.
    pub cut: u64,
    /// Flows that were decided without their application: it was not known in time.
    pub decided_late: u64,
    /// Flows that were decided without their application: there was no memory for their packets.
    pub decided_full: u64,
    /// Flows that were decided without their application: payload was not inspected, under overload.
    pub decided_uninspected: u64,
    /// One entry per rule, and one for the packets that no rule matched.
    pub rules: Vec<RuleCounters>,
    /// One entry per output.
    pub outputs: Vec<OutputCounters>,
}

/// Packets that a rule matched. Octets are those on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCounters {
    /// Level of the rule.
    pub level: &'static str,
    /// Its name.
    pub rule: String,
    /// Packets that it matched, whatever other rules did with them.
    pub matched: PacketTotals,
    /// Those of them that were forwarded.
    pub forwarded: PacketTotals,
}

impl ActionCounters {
    /// Adds the counters of another pipeline with the same rules and outputs. Rules and outputs that
    /// only one of them has are kept.
    pub fn merge(&mut self, other: &Self) {
        self.forwarded.merge(other.forwarded);
        self.dropped.merge(other.dropped);
        self.shunted.merge(other.shunted);
        self.held.merge(other.held);
        self.cut += other.cut;
        self.decided_late += other.decided_late;
        self.decided_full += other.decided_full;
        self.decided_uninspected += other.decided_uninspected;
        for theirs in &other.rules {
            let same = |mine: &&mut RuleCounters| (mine.level, &mine.rule) == (theirs.level, &theirs.rule);
            match self.rules.iter_mut().find(same) {
                Some(mine) => {
                    mine.matched.merge(theirs.matched);
                    mine.forwarded.merge(theirs.forwarded);
                }
                None => self.rules.push(theirs.clone()),
            }
        }
        for theirs in &other.outputs {
            match self.outputs.iter_mut().find(|mine| mine.output == theirs.output) {
                Some(mine) => mine.merge(theirs),
                None => self.outputs.push(theirs.clone()),
            }
        }
    }

    /// Packets that rules were asked about.
    pub fn total(&self) -> PacketTotals {
        let mut total = self.forwarded;
        [self.dropped, self.shunted, self.held].into_iter().for_each(|packets| total.merge(packets));
        total
    }
}

/// Flow records by outcome at one sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkCounters {
    /// The sink as the user wrote it.
    pub sink: String,
    /// Accepted by the operating system. Over UDP this does not mean delivered.
    pub exported: RecordTotals,
    /// Not selected by the expression of the sink (`where`), or in the share of another one (`balance:`).
    #[serde(skip_serializing_if = "is_default")]
    pub filtered: RecordTotals,
    /// Ended before this sink was opened or after it was closed, while the program ran.
    #[serde(skip_serializing_if = "is_default")]
    pub not_open: RecordTotals,
    /// Queued for this sink, or collected by it until it is finished, as by a table. 0 at the end
    /// of a run.
    #[serde(skip_serializing_if = "is_default")]
    pub waiting: RecordTotals,
    /// Waits on disk for the collector (`spool=`): the next run with this spool delivers it.
    #[serde(skip_serializing_if = "is_default")]
    pub spooled: RecordTotals,
    /// Octets of the spool on the disk.
    #[serde(skip_serializing_if = "is_default")]
    pub spool_octets: u64,
    /// When the oldest segment of the spool with records that wait was begun, Unix seconds: none of them is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spool_oldest: Option<u64>,
    /// Records of earlier runs that waited in the spool when it was opened; none of them is in the other totals.
    #[serde(skip_serializing_if = "is_default")]
    pub earlier: EarlierCounters,
    /// Not delivered, by key of the [`ExportLossReason`].
    pub lost: BTreeMap<&'static str, RecordTotals>,
    /// Exported records of which the format cannot represent a value, by kind of change.
    pub altered: BTreeMap<&'static str, u64>,
    /// Records as the format counts them: two for a bidirectional flow in a unidirectional format.
    pub wire_records: u64,
    /// Messages or datagrams written; 0 for formats without messages.
    pub messages: u64,
    /// Octets written.
    pub octets: u64,
    /// The sinks of `failover:`, of which all other totals are the sum; empty for any other sink.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberCounters>,
}

/// What became of the records of `failover:` that one of its sinks got. What was moved to another one counts there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemberCounters {
    /// As the user wrote it.
    pub sink: String,
    /// New records go to it.
    pub is_active: bool,
    /// How often they began to go to it because another one took none, or because it takes them again.
    pub takeovers: u64,
    /// Accepted by the operating system.
    pub exported: RecordTotals,
    /// Waits on disk.
    #[serde(skip_serializing_if = "is_default")]
    pub spooled: RecordTotals,
    /// Not delivered, by key of the [`ExportLossReason`].
    pub lost: BTreeMap<&'static str, RecordTotals>,
}

impl MemberCounters {
    /// Adds the counters of the same sink, opened again.
    fn merge(&mut self, other: Self) {
        self.is_active = other.is_active;
        self.takeovers += other.takeovers;
        self.exported.merge(other.exported);
        self.spooled.merge(other.spooled);
        other.lost.into_iter().for_each(|(reason, lost)| self.lost.entry(reason).or_default().merge(lost));
    }
}

/// Records of earlier runs in the spool of a sink. `found = delivered + spooled + lost`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EarlierCounters {
    /// Waited when the spool was opened.
    pub found: RecordTotals,
    /// Accepted by the system for the collector.
    pub delivered: RecordTotals,
    /// Still wait.
    pub spooled: RecordTotals,
    /// Not delivered, by key of the [`ExportLossReason`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<&'static str, RecordTotals>,
}

impl EarlierCounters {
    fn merge(&mut self, other: Self) {
        self.found.merge(other.found);
        self.delivered.merge(other.delivered);
        self.spooled.merge(other.spooled);
        other.lost.into_iter().for_each(|(reason, lost)| self.lost.entry(reason).or_default().merge(lost));
    }

    /// All outcomes. Equals `found` if the ledger balances.
    pub fn outcomes(&self) -> RecordTotals {
        let mut all = self.delivered;
        all.merge(self.spooled);
        self.lost.values().for_each(|&lost| all.merge(lost));
        all
    }
}

impl SinkCounters {
    /// Counts records as lost.
    pub fn add_lost(&mut self, reason: ExportLossReason, records: RecordTotals) {
        self.lost.entry(reason.key()).or_default().merge(records);
    }

    /// Adds the counters of the same sink, opened again.
    pub fn merge(&mut self, other: Self) {
        self.exported.merge(other.exported);
        self.filtered.merge(other.filtered);
        self.not_open.merge(other.not_open);
        self.waiting.merge(other.waiting);
        self.spooled.merge(other.spooled);
        self.spool_octets += other.spool_octets;
        self.spool_oldest = self.spool_oldest.into_iter().chain(other.spool_oldest).min();
        self.earlier.merge(other.earlier);
        other.lost.into_iter().for_each(|(reason, lost)| self.lost.entry(reason).or_default().merge(lost));
        other.altered.into_iter().for_each(|(kind, count)| *self.altered.entry(kind).or_default() += count);
        self.wire_records += other.wire_records;
        self.messages += other.messages;
        self.octets += other.octets;
        for member in other.members {
            match self.members.iter_mut().find(|same| same.sink == member.sink) {
                Some(same) => same.merge(member),
                None => self.members.push(member),
            }
        }
    }

    /// All records of this run: exported, filtered, lost, waiting, spooled, and those that ended while the sink was not
    /// open.
    pub fn total(&self) -> RecordTotals {
        let mut all = self.exported;
        all.merge(self.filtered);
        all.merge(self.not_open);
        all.merge(self.waiting);
        all.merge(self.spooled);
        self.lost.values().for_each(|&lost| all.merge(lost));
        all
    }
}
