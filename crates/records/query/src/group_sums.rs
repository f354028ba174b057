//! Sums of the rows of groups, which have numbers, column by column. Each number has an array of its own: a loop adds one
//! column, and its sums stay in the cache of a core.
//!
//! Input: columns of rows, and the number of each row. Output: [`Sums`] of each number: those of its rows one by one.

use crate::sums::Sums;
use weir_fields::{FigureColumns, Figures, StoredFigures, StoredRows};

/// Sums of each group.
#[derive(Default)]
pub(crate) struct GroupSums {
    flows: Vec<u64>,
    packets: [Vec<u64>; 2],
    bytes: [Vec<u64>; 2],
    l2_bytes: Vec<u64>,
    first_ns: Vec<u64>,
    last_ns: Vec<u64>,
    segments: Vec<u64>,
    retransmitted: Vec<u64>,
    /// Number, sum and longest of round trips.
    rtts: [Vec<u64>; 3],
    /// The same of responses.
    responses: [Vec<u64>; 3],
}

impl GroupSums {
    /// Adds some rows of those that are prepared: `groups` has the group of each.
    pub fn add(
        &mut self,
        (stored, figures): (&StoredFigures, &Figures),
        rows: &StoredRows,
        of: &[u32],
        groups: &[u32],
        number_of_groups: usize,
    ) {
        let columns = stored.columns(figures, rows);
        self.flows.resize(number_of_groups, 0);
        groups.iter().for_each(|group| self.flows[*group as usize] += 1);
        self.add_columns(&columns, of, groups, number_of_groups);
        let add_times = |[count, sum, longest]: &mut [Vec<u64>; 3], group: u32, [more, ns, max]: [u64; 3]| {
            let group = group as usize;
            count[group] = count[group].wrapping_add(more);
            sum[group] = sum[group].saturating_add(ns);
            longest[group] = longest[group].max(max);
        };
        if columns.has_rtts {
            self.rtts.iter_mut().for_each(|sums| sums.resize(number_of_groups, 0));
            for (row, group) in of.iter().zip(groups) {
                if let Some(rtt_ns) = stored.rtt_ns(figures, rows, *row as usize) {
                    add_times(&mut self.rtts, *group, [1, rtt_ns, rtt_ns]);
                }
            }
        }
        if columns.has_responses {
            self.responses.iter_mut().for_each(|sums| sums.resize(number_of_groups, 0));
            for (row, group) in of.iter().zip(groups) {
                add_times(&mut self.responses, *group, stored.responses(figures, rows, *row as usize));
            }
        }
    }

    fn add_columns(&mut self, columns: &FigureColumns<'_>, of: &[u32], groups: &[u32], number_of_groups: usize) {
        let places = (of, groups, number_of_groups);
        for side in 0..2 {
            add(&mut self.packets[side], 0, columns.packets[side], places, u64::wrapping_add);
            add(&mut self.bytes[side], 0, columns.bytes[side], places, u64::wrapping_add);
            add(&mut self.l2_bytes, 0, columns.l2_bytes[side], places, u64::wrapping_add);
        }
        add(&mut self.first_ns, u64::MAX, columns.first_ns, places, u64::min);
        add(&mut self.last_ns, 0, columns.last_ns, places, u64::max);
        add(&mut self.segments, 0, columns.segments, places, u64::wrapping_add);
        add(&mut self.retransmitted, 0, columns.retransmitted, places, u64::wrapping_add);
    }

    /// The sums of all groups, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = Sums> {
        (0..self.flows.len()).map(|group| {
            let of = |sums: &Vec<u64>| sums.get(group).copied().unwrap_or_default();
            let [rtts, rtt_sum_ns, rtt_max_ns] = self.rtts.each_ref().map(of);
            let [responses, response_sum_ns, response_max_ns] = self.responses.each_ref().map(of);
            Sums {
                flows: self.flows[group],
                packets: self.packets.each_ref().map(of),
                bytes: self.bytes.each_ref().map(of),
                l2_bytes: of(&self.l2_bytes),
                first_ns: self.first_ns.get(group).copied().unwrap_or(u64::MAX),
                last_ns: of(&self.last_ns),
                segments: of(&self.segments),
                retransmitted: of(&self.retransmitted),
                rtts,
                rtt_sum_ns,
                rtt_max_ns,
                responses,
                response_sum_ns,
                response_max_ns,
                ..Sums::NONE
            }
        })
    }
}

/// Merges the numbers of some rows into the sums of their groups.
fn add(
    sums: &mut Vec<u64>,
    start: u64,
    numbers: &[u64],
    (of, groups, number_of_groups): (&[u32], &[u32], usize),
    merge: impl Fn(u64, u64) -> u64,
) {
    if numbers.is_empty() {
        return;
    }
    sums.resize(number_of_groups, start);
    for (row, group) in of.iter().zip(groups) {
        let sum = &mut sums[*group as usize];
        *sum = merge(*sum, numbers[*row as usize]);
    }
}
