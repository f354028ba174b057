//! Which parts of all flows go to which meter, so that each has about as much to do.
//!
//! In: packets per part since some time, and who takes each part. Out: a few parts and who is to take them. What is
//! weighed is packets: a meter's work hardly depends on their size.

use weir_flow::BUCKETS;

/// Who takes each part: the number of a meter.
pub(crate) type Table = [u8; BUCKETS];

/// Meters that there may be.
pub(crate) const METERS: usize = u8::MAX as usize;

/// Packets per meter below which chance alone makes one busier than another by some percent.
pub(crate) const ENOUGH: u64 = 5_000;
/// The busiest meter may have so much more than its share before anything is moved: in thousandths.
const TOLERATED: u64 = 40;
/// What a move must at least win, in thousandths of a share.
const WORTH: u64 = 2;

/// Parts in turn to every meter.
pub(crate) fn even(meters: usize) -> Table {
    std::array::from_fn(|part| (part % meters) as u8)
}

/// Packets of each meter.
pub(crate) fn loads(packets: &[u64; BUCKETS], table: &Table, meters: usize) -> Vec<u64> {
    let mut loads = vec![0; meters];
    for (packets, &meter) in packets.iter().zip(table) {
        loads[meter as usize] += packets;
    }
    loads
}

/// By how much the busiest meter has more than its share, in thousandths of the share.
pub(crate) fn imbalance(loads: &[u64]) -> u64 {
    let (most, all) = (loads.iter().max().copied().unwrap_or(0), loads.iter().sum::<u64>());
    (most * loads.len() as u64 * 1000).checked_div(all).unwrap_or(0).saturating_sub(1000)
}

/// Up to `most` parts to move, each with its new meter. Nobody both gives and takes.
pub(crate) fn moves(packets: &[u64; BUCKETS], table: &Table, meters: usize, most: usize) -> Vec<(u16, u8)> {
    let (mut table, mut loads) = (*table, loads(packets, table, meters));
    let share = loads.iter().sum::<u64>() / meters as u64;
    let (mut gives, mut takes) = (vec![false; meters], vec![false; meters]);
    // Meters that have nothing to give that is worth it, as one with little but an elephant.
    let mut keeps = vec![false; meters];
    let mut moves = Vec::new();
    if imbalance(&loads) < TOLERATED {
        return moves;
    }
    while moves.len() < most {
        let find = |may: &dyn Fn(usize) -> bool, better: fn(u64, u64) -> bool| {
            let those = (0..meters).filter(|&meter| may(meter));
            those.reduce(|best, meter| if better(loads[meter], loads[best]) { meter } else { best })
        };
        let from = find(&|meter| !takes[meter] && !keeps[meter], |one, other| one > other);
        let to = find(&|meter| !gives[meter], |one, other| one < other);
        let (Some(from), Some(to)) = (from, to) else { break };
        let gap = loads[from].saturating_sub(loads[to]);
        // The largest that does not turn it round; if none is worth it the smallest that does, which may still win something.
        let of_from = || (0..BUCKETS).filter(|&part| table[part] as usize == from && packets[part] > 0 && from != to);
        let fitting = of_from().filter(|&part| 2 * packets[part] <= gap).max_by_key(|&part| packets[part]);
        let larger = of_from().filter(|&part| 2 * packets[part] > gap).min_by_key(|&part| packets[part]);
        let won = |part: usize| gap.saturating_sub(gap.abs_diff(2 * packets[part]));
        let is_worth_it = |part: &usize| won(*part) * 1000 >= 2 * WORTH * share.max(1);
        let Some(part) = fitting.filter(is_worth_it).or(larger.filter(is_worth_it)) else {
            keeps[from] = true;
            continue;
        };
        (loads[from], loads[to]) = (loads[from] - packets[part], loads[to] + packets[part]);
        table[part] = to as u8;
        (gives[from], takes[to]) = (true, true);
        moves.push((part as u16, to as u8));
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of moves until there are none, and the imbalance then.
    fn settle(packets: &[u64; BUCKETS], meters: usize) -> (usize, u64) {
        let (mut table, mut rounds) = (even(meters), 0);
        loop {
            let moves = moves(packets, &table, meters, 64);
            for &(part, to) in &moves {
                assert_ne!(table[part as usize], to);
                table[part as usize] = to;
            }
            if moves.is_empty() {
                return (rounds, imbalance(&loads(packets, &table, meters)));
            }
            rounds += 1;
            assert!(rounds < 100, "it goes on for ever");
        }
    }

    #[test]
    fn what_is_even_stays_where_it_is() {
        for meters in 1..=16 {
            let mut packets = [1000; BUCKETS];
            assert!(moves(&packets, &even(meters), meters, 64).is_empty());
            packets.iter_mut().enumerate().for_each(|(part, packets)| *packets += part as u64 % 7);
            assert!(moves(&packets, &even(meters), meters, 64).is_empty());
        }
        assert!(moves(&[0; BUCKETS], &even(3), 3, 64).is_empty());
    }

    #[test]
    fn mice_make_room_for_an_elephant() {
        for meters in 2..=8 {
            let mut packets = [200; BUCKETS];
            // An elephant that is nine tenths of a share.
            packets[77] = 0;
            packets[77] = packets.iter().sum::<u64>() * 9 / (10 * meters as u64 - 9);
            let (rounds, imbalance) = settle(&packets, meters);
            assert!(imbalance <= 40, "{meters} meters: {imbalance} thousandths");
            assert!(rounds <= 8, "{rounds} rounds");
        }
    }

    #[test]
    fn an_elephant_is_not_sent_around_while_mice_can_make_room() {
        // A fifth of all, as mice are: to move it would leave things nearly as they are.
        for percent in 15..25 {
            let mut packets = [100; BUCKETS];
            packets[77] = 51_100 * percent / (100 - percent);
            let moves = moves(&packets, &even(4), 4, 256);
            assert!(moves.iter().all(|&(part, _)| part != 77), "{percent} %");
            let mut table = even(4);
            moves.iter().for_each(|&(part, to)| table[part as usize] = to);
            assert!(imbalance(&loads(&packets, &table, 4)) <= 40, "one round is enough: {percent} %");
        }
    }

    #[test]
    fn an_elephant_larger_than_a_share_ends_up_alone() {
        let mut packets = [100; BUCKETS];
        packets[5] = 100_000;
        let mut table = even(4);
        for _ in 0..20 {
            for (part, to) in moves(&packets, &table, 4, 64) {
                table[part as usize] = to;
            }
        }
        let of_elephant = table[5];
        assert!(table.iter().filter(|&&meter| meter == of_elephant).count() < 8);
    }

    #[test]
    fn nobody_gives_and_takes_in_one_round() {
        let mut random = 7_u64;
        for _ in 0..2000 {
            let mut next = || {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                random >> 33
            };
            let meters = 2 + next() as usize % 9;
            let packets = std::array::from_fn(|_| 1 << (next() % 20));
            let table: Table = std::array::from_fn(|_| (next() % meters as u64) as u8);
            let moves = moves(&packets, &table, meters, 64);
            for &(part, _) in &moves {
                let gives = table[part as usize];
                assert!(moves.iter().all(|&(_, takes)| takes != gives));
            }
            let mut after = table;
            moves.iter().for_each(|&(part, to)| after[part as usize] = to);
            let loads = |table| imbalance(&loads(&packets, table, meters));
            assert!(loads(&after) <= loads(&table));
        }
    }
}
