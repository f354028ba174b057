//! The indirection table of a worker group: which meter processes the packets of which bucket, and
//! which buckets to move so that the load of the meters is even.
//!
//! It is what the RSS indirection table (RETA) of a NIC is for receive queues. Load is counted in
//! packets: the work of a meter hardly depends on their size.

use weir_flow::BUCKETS;

/// The number of a meter for each bucket.
pub type IndirectionTable = [u8; BUCKETS];

/// Largest number of meters in a group.
pub const MAX_METERS: usize = u8::MAX as usize;

/// With fewer packets per meter, chance alone causes an imbalance of some percent.
pub const SIGNIFICANT_PACKETS: u64 = 5_000;
/// Imbalance below which no bucket is moved, in thousandths.
const TOLERATED_PERMILLE: u64 = 40;
/// Share of the mean load by which a move has to relieve the busier meter, in thousandths.
const WORTHWHILE_PERMILLE: u64 = 2;

/// A table that assigns the buckets evenly, one after the other.
pub fn even_table(meters: usize) -> IndirectionTable {
    std::array::from_fn(|bucket| (bucket % meters) as u8)
}

/// Packets of each meter.
pub fn loads(packets: &[u64; BUCKETS], table: &IndirectionTable, meters: usize) -> Vec<u64> {
    let mut loads = vec![0; meters];
    for (packets, &meter) in packets.iter().zip(table) {
        loads[meter as usize] += packets;
    }
    loads
}

/// By how much the highest load exceeds the mean, in thousandths of the mean.
pub fn imbalance_permille(loads: &[u64]) -> u64 {
    let (highest, sum) = (loads.iter().max().copied().unwrap_or(0), loads.iter().sum::<u64>());
    (highest * loads.len() as u64 * 1000).checked_div(sum).unwrap_or(0).saturating_sub(1000)
}

/// Up to `limit` buckets to move, each with its new meter. A meter either loses or gains buckets.
pub fn plan_moves(packets: &[u64; BUCKETS], table: &IndirectionTable, meters: usize, limit: usize) -> Vec<(u16, u8)> {
    let (mut table, mut loads) = (*table, loads(packets, table, meters));
    let mean = loads.iter().sum::<u64>() / meters as u64;
    let (mut loses_buckets, mut gains_buckets) = (vec![false; meters], vec![false; meters]);
    // Meters without a bucket worth moving: for example with little load but one large flow.
    let mut exhausted = vec![false; meters];
    let mut moves = Vec::new();
    if imbalance_permille(&loads) < TOLERATED_PERMILLE {
        return moves;
    }
    while moves.len() < limit {
        let find = |is_candidate: &dyn Fn(usize) -> bool, is_better: fn(u64, u64) -> bool| {
            let candidates = (0..meters).filter(|&meter| is_candidate(meter));
            candidates.reduce(|best, meter| if is_better(loads[meter], loads[best]) { meter } else { best })
        };
        let from = find(&|meter| !gains_buckets[meter] && !exhausted[meter], |one, other| one > other);
        let to = find(&|meter| !loses_buckets[meter], |one, other| one < other);
        let (Some(from), Some(to)) = (from, to) else { break };
        let gap = loads[from].saturating_sub(loads[to]);
        // Prefer the largest bucket that leaves `from` the busier meter. If that is not worthwhile,
        // the smallest larger bucket may still reduce the gap.
        let buckets =
            || (0..BUCKETS).filter(|&bucket| table[bucket] as usize == from && packets[bucket] > 0 && from != to);
        let fitting = buckets().filter(|&bucket| 2 * packets[bucket] <= gap).max_by_key(|&bucket| packets[bucket]);
        let larger = buckets().filter(|&bucket| 2 * packets[bucket] > gap).min_by_key(|&bucket| packets[bucket]);
        let gap_reduction = |bucket: usize| gap.saturating_sub(gap.abs_diff(2 * packets[bucket]));
        let is_worthwhile = |bucket: &usize| gap_reduction(*bucket) * 1000 >= 2 * WORTHWHILE_PERMILLE * mean.max(1);
        let Some(bucket) = fitting.filter(is_worthwhile).or(larger.filter(is_worthwhile)) else {
            exhausted[from] = true;
            continue;
        };
        (loads[from], loads[to]) = (loads[from] - packets[bucket], loads[to] + packets[bucket]);
        table[bucket] = to as u8;
        (loses_buckets[from], gains_buckets[to]) = (true, true);
        moves.push((bucket as u16, to as u8));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(moves: &[(u16, u8)], table: &mut IndirectionTable) {
        moves.iter().for_each(|&(bucket, to)| table[bucket as usize] = to);
    }

    /// Applies moves until there are none. Returns the number of rounds and the imbalance left.
    fn settle(packets: &[u64; BUCKETS], meters: usize) -> (usize, u64) {
        let (mut table, mut rounds) = (even_table(meters), 0);
        loop {
            let moves = plan_moves(packets, &table, meters, 64);
            assert!(moves.iter().all(|&(bucket, to)| table[bucket as usize] != to));
            apply(&moves, &mut table);
            if moves.is_empty() {
                return (rounds, imbalance_permille(&loads(packets, &table, meters)));
            }
            rounds += 1;
            assert!(rounds < 100, "no end");
        }
    }

    #[test]
    fn nothing_moves_if_the_load_is_even() {
        for meters in 1..=16 {
            let mut packets = [1000; BUCKETS];
            assert!(plan_moves(&packets, &even_table(meters), meters, 64).is_empty());
            packets.iter_mut().enumerate().for_each(|(bucket, packets)| *packets += bucket as u64 % 7);
            assert!(plan_moves(&packets, &even_table(meters), meters, 64).is_empty());
        }
        assert!(plan_moves(&[0; BUCKETS], &even_table(3), 3, 64).is_empty());
    }

    #[test]
    fn a_large_flow_of_nine_tenths_of_the_mean_is_balanced_by_moving_other_buckets() {
        for meters in 2..=8 {
            let mut packets = [200; BUCKETS];
            packets[77] = 0;
            packets[77] = packets.iter().sum::<u64>() * 9 / (10 * meters as u64 - 9);
            let (rounds, imbalance) = settle(&packets, meters);
            assert!(imbalance <= 40, "{meters} meters: {imbalance} thousandths");
            assert!(rounds <= 8, "{rounds} rounds");
        }
    }

    #[test]
    fn a_large_flow_stays_if_moving_other_buckets_is_enough() {
        // The bucket of the large flow has about a fifth of all packets: moving it would leave
        // the imbalance nearly as it is.
        for percent in 15..25 {
            let mut packets = [100; BUCKETS];
            packets[77] = 51_100 * percent / (100 - percent);
            let moves = plan_moves(&packets, &even_table(4), 4, 256);
            assert!(moves.iter().all(|&(bucket, _)| bucket != 77), "{percent} %");
            let mut table = even_table(4);
            apply(&moves, &mut table);
            assert!(imbalance_permille(&loads(&packets, &table, 4)) <= 40, "one round is enough: {percent} %");
        }
    }

    #[test]
    fn a_flow_larger_than_the_mean_ends_up_nearly_alone() {
        let mut packets = [100; BUCKETS];
        packets[5] = 100_000;
        let mut table = even_table(4);
        for _ in 0..20 {
            apply(&plan_moves(&packets, &table, 4, 64), &mut table);
        }
        let with_large_flow = table[5];
        assert!(table.iter().filter(|&&meter| meter == with_large_flow).count() < 8);
    }

    #[test]
    fn no_meter_both_loses_and_gains_buckets_in_one_round() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let meters = random.usize(2..11);
            let packets = std::array::from_fn(|_| 1 << random.u32(..20));
            let table: IndirectionTable = std::array::from_fn(|_| random.u8(..meters as u8));
            let moves = plan_moves(&packets, &table, meters, 64);
            for &(bucket, _) in &moves {
                let old_meter = table[bucket as usize];
                assert!(moves.iter().all(|&(_, new_meter)| new_meter != old_meter));
            }
            let mut after = table;
            apply(&moves, &mut after);
            let imbalance = |table| imbalance_permille(&loads(&packets, table, meters));
            assert!(imbalance(&after) <= imbalance(&table));
        }
    }
}
