use super::*;
use proptest::prelude::*;

/// Counts a packet. Returns false if it does not fit.
fn add(counters: &mut CompactCounters, packet: &Packet) -> bool {
    match counters.fast_iat_ns(packet) {
        Some(iat_ns) => {
            counters.add_fast(iat_ns, packet);
            true
        }
        None if counters.packets() == 0 => counters.start(packet),
        None => counters.add_slow(packet),
    }
}

/// A packet: time since the previous one, IP octets, octets of the frame beyond them.
fn step() -> impl Strategy<Value = (i64, u32, i64)> {
    let time = prop_oneof![
        8 => 0..2_000_000_000_i64,
        2 => -3_000_000_000_i64..10_000_000_000,
        1 => -1_000_000..1_000_000_i64,
        1 => prop::sample::select(vec![1 << 32, (1 << 32) - 1, 1 << 43, 1 << 44, -(1 << 44), 1 << 50]),
        1 => prop::sample::select(vec![i64::MIN, i64::MAX]),
    ];
    let size = prop_oneof![8 => 20..1500_u32, 1 => 65_530..65_540_u32, 1 => any::<u32>()];
    let beyond = prop_oneof![8 => 14..60_i64, 1 => -70_000..70_000_i64, 1 => 0..1_i64 << 32];
    (time, size, beyond)
}

proptest! {
    #[test]
    fn compact_counters_equal_full_ones_and_refused_packets_change_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let (mut counters, mut direction, mut time_ns) = (CompactCounters::zeroed(), Direction::default(), 1_u64 << 60);
        for (time, size, beyond) in steps {
            time_ns = time_ns.saturating_add_signed(time);
            let frame_bytes = (i64::from(size) + beyond).clamp(0, i64::from(u32::MAX)) as u32;
            let packet = Packet { time_ns, ip_bytes: size, frame_bytes, tos: size as u8, ..Packet::default() };
            let before = counters.to_direction();
            let fits = add(&mut counters, &packet);
            if fits {
                crate::record::add(&mut direction, &packet);
                prop_assert_eq!(counters.to_direction(), Direction { ttl_min: 0, ttl_max: 0, ..direction });
            } else {
                prop_assert_eq!(counters.to_direction(), before);
                let mut refused = direction;
                crate::record::add(&mut refused, &packet);
                prop_assert!(CompactCounters::from_direction(&refused).is_none());
            }
        }
    }
}

#[test]
fn time_that_wraps_is_not_a_short_inter_arrival_time() {
    for first_ns in [u64::MAX, u64::MAX - 5, u64::MAX - (1 << 32)] {
        let (mut counters, mut direction) = (CompactCounters::zeroed(), Direction::default());
        // The last packet has the earliest time.
        for time_ns in [first_ns, first_ns, u64::MAX, first_ns + (u64::MAX - first_ns) / 2, 3] {
            let packet = Packet { time_ns, ..Packet::default() };
            if !add(&mut counters, &packet) {
                break;
            }
            crate::record::add(&mut direction, &packet);
        }
        assert_eq!((direction.packets, direction.last_ns), (4, u64::MAX));
        assert_eq!(counters.to_direction(), direction, "{first_ns}");
    }
}

#[test]
fn long_inter_arrival_times_are_refused_before_they_overflow() {
    let (mut counters, mut direction) = (CompactCounters::zeroed(), Direction::default());
    // The longest times of the fast path, for twice the number of packets between two checks.
    for time_ns in (7..).step_by((1 << 32) - 1).take(2 * CHECK_INTERVAL as usize) {
        let packet = Packet { time_ns, ip_bytes: 65_535, frame_bytes: 65_535, ..Packet::default() };
        if !add(&mut counters, &packet) {
            break;
        }
        crate::record::add(&mut direction, &packet);
    }
    assert_eq!(direction.packets, CHECK_INTERVAL);
    assert_eq!(counters.to_direction(), direction);
}

#[test]
fn sum_of_squared_inter_arrival_times_is_refused_before_it_overflows() {
    let limit = (1_u128 << 88) - (u128::from(CHECK_INTERVAL - 1) << 64);
    for (squares, fits) in [(limit - 1, true), (limit, false)] {
        let direction = Direction { packets: 3, iat_squares: squares, ..Direction::default() };
        let counters = CompactCounters::from_direction(&direction);
        assert_eq!(counters.map(|counters| counters.to_direction().iat_squares), fits.then_some(squares));
    }
}

#[test]
fn counters_are_refused_before_they_overflow() {
    let mut counters = CompactCounters::zeroed();
    let packet = Packet { ip_bytes: 65_535, frame_bytes: 0, ..Packet::default() };
    let mut packets = 0_u64;
    while add(&mut counters, &packet) {
        packets += 1;
    }
    let direction = counters.to_direction();
    assert_eq!((direction.packets, direction.bytes, direction.frame_bytes), (packets, packets * 65_535, 0));
    assert_eq!({ direction.size_squares }, u128::from(packets) * 65_535 * 65_535);
    // Frames have 32 GiB less than their IP headers claim.
    assert!((1 << 34..1_u64 << 35).contains(&(packets * 65_535)), "{packets}");
}

/// Counts equal packets up to the next check, in compact and in full counters.
fn assert_equal_up_to_check(mut direction: Direction, packet: Packet, step_ns: u64) {
    let mut counters = CompactCounters::from_direction(&direction).unwrap();
    for number in 1..CHECK_INTERVAL {
        let packet = Packet { time_ns: direction.last_ns + step_ns, ..packet };
        assert!(counters.fast_iat_ns(&packet).is_some() && add(&mut counters, &packet), "{number}");
        crate::record::add(&mut direction, &packet);
    }
    assert_eq!(counters.to_direction(), Direction { ttl_min: 0, ttl_max: 0, ..direction });
}

#[test]
fn counters_that_pass_a_check_do_not_overflow_before_the_next() {
    let start = Direction {
        packets: CHECK_INTERVAL + 1,
        size_max: 1,
        bytes: CHECK_INTERVAL + 1,
        frame_bytes: CHECK_INTERVAL + 1,
        ..Direction::default()
    };
    let packet = Packet { ip_bytes: 1, frame_bytes: 1, ..Packet::default() };
    // The longest span.
    assert_equal_up_to_check(Direction { last_ns: (1 << SPAN_BITS) - 1, ..start }, packet, (1 << 32) - 1);
    // Most packets.
    let most = (PACKETS_MAX + 1) - 2 * CHECK_INTERVAL + 1;
    assert_equal_up_to_check(Direction { packets: most, bytes: most, frame_bytes: most, ..start }, packet, 0);
    let more = Direction { packets: PACKETS_MAX + 1 - CHECK_INTERVAL, ..start };
    assert!(CompactCounters::from_direction(&more).is_none());
    // Most octets of frames, and fewest.
    let edge = OVERHEAD_MAX as u64 - 1;
    assert_equal_up_to_check(
        Direction { frame_bytes: start.bytes + edge, ..start },
        Packet { ip_bytes: 0, frame_bytes: 65_535, ..packet },
        0,
    );
    assert_equal_up_to_check(
        Direction { bytes: start.bytes + edge, ..start },
        Packet { ip_bytes: 65_535, frame_bytes: 0, ..packet },
        0,
    );
}

#[test]
fn oversized_frame_does_not_take_the_fast_path() {
    let (mut counters, mut direction) = (CompactCounters::zeroed(), Direction::default());
    let packet = Packet { ip_bytes: 40, frame_bytes: u32::MAX, ..Packet::default() };
    while add(&mut counters, &packet) {
        crate::record::add(&mut direction, &packet);
        assert_eq!(counters.to_direction().frame_bytes, direction.frame_bytes);
    }
    assert!(direction.packets >= 7);
}
