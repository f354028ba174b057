//! Checks the profile `lossy`: an independent classification of each frame, by its content and time
//! only, gives the expected counters.

use crate::tests::frame::{ACK, FIN, RST, SYN, Seen, see};
use crate::tests::{packets, recording, run};
use std::collections::HashMap;
use std::net::IpAddr;
use weir_capture::Source;
use weir_trafficgen::{ExpectedTcp, TrafficGenerator};

const MILLISECOND_NS: u64 = 1_000_000;
/// A duplicate follows within this time, after at most `COPY_BEHIND` other frames of its direction.
const COPY_NS: u64 = 100_000;
const COPY_BEHIND: usize = 2;

/// One direction, with the state of each octet.
#[derive(Default)]
struct Direction {
    first: Option<u32>,
    /// Whether each octet was captured, from the first one after the SYN.
    came: Vec<bool>,
    /// For each octet that arrived late or not at all, when a later octet was captured.
    passed_ns: HashMap<u32, u64>,
    fin: Option<u32>,
    highest: u32,
    window: u16,
    /// The highest position acknowledged by the other side.
    acknowledged: u32,
    recent: Vec<Seen>,
    /// End and time of what the other side has not answered, and of what it has not acknowledged.
    asked: Option<(u32, u64)>,
    timed: Option<(u32, u64)>,
    count: ExpectedTcp,
}

#[derive(Default)]
struct Recount {
    places: HashMap<[(IpAddr, u16); 2], usize>,
    flows: Vec<[Direction; 2]>,
    wraps: u64,
}

impl Recount {
    fn enter(&mut self, seen: Seen) {
        let [from, to] = seen.ends;
        let known = |ends, side| self.places.get(&ends).map(|&place| (place, side));
        let (place, side) = known([from, to], 0).or_else(|| known([to, from], 1)).unwrap_or_else(|| {
            self.places.insert([from, to], self.flows.len());
            self.flows.push(Default::default());
            (self.flows.len() - 1, 0)
        });
        let [first, second] = &mut self.flows[place];
        let (from, to) = if side == 0 { (first, second) } else { (second, first) };
        let before = from.count;
        self.wraps += u64::from(classify(from, to, seen.clone()));
        measure(from, to, &seen, &before);
    }
}

/// Measures response times and round trips by the class that a frame was counted in.
fn measure(from: &mut Direction, to: &mut Direction, seen: &Seen, before: &ExpectedTcp) {
    let &Seen { time_ns, flags, payload, .. } = seen;
    let class = |of: fn(&ExpectedTcp) -> u64| of(&from.count) > of(before);
    let (in_order, is_ack) = (class(|e| e.in_order), class(|e| e.acks));
    let is_late = class(|e| e.retransmissions) || class(|e| e.out_of_order) || class(|e| e.unseen);
    if class(|e| e.switched_copies) || class(|e| e.routed_copies) || class(|e| e.rst) {
        return;
    }
    let reached = to.first.filter(|_| flags & ACK != 0).map_or(0, |first| seen.acknowledgment.wrapping_sub(first));
    if let Some((end, since_ns)) = to.timed
        && end <= reached
    {
        to.timed = None;
        let count = &mut from.count;
        let times = [count.round_trip_min_ns, time_ns - since_ns];
        count.round_trip_min_ns = if count.round_trips == 0 { times[1] } else { times[0].min(times[1]) };
        count.round_trip_max_ns = count.round_trip_max_ns.max(times[1]);
        count.round_trip_sum_ns += times[1];
        count.round_trips += 1;
    }
    if !in_order && !is_ack {
        from.timed = None;
    }
    if payload == 0 || !(in_order || is_late) {
        return;
    }
    if let Some((end, since_ns)) = to.asked
        && in_order
        && end <= reached
    {
        to.asked = None;
        let count = &mut from.count;
        count.answer_first_ns = if count.answers == 0 { time_ns - since_ns } else { count.answer_first_ns };
        count.answer_max_ns = count.answer_max_ns.max(time_ns - since_ns);
        count.answer_sum_ns += time_ns - since_ns;
        count.answers += 1;
    }
    let end = seen.sequence.wrapping_sub(from.first.expect("a SYN comes first")) + payload;
    if in_order || end > from.acknowledged {
        from.asked = Some((from.asked.map_or(end, |(known, _)| known.max(end)), time_ns));
    }
    if in_order && from.timed.is_none() {
        from.timed = Some((end, time_ns));
    }
}

/// Enters a frame; whether it is the one whose octets wrap around.
fn classify(from: &mut Direction, to: &mut Direction, seen: Seen) -> bool {
    let Seen { time_ns, flags, payload, .. } = seen;
    from.count.segments += 1;
    from.count.payload_octets += u64::from(payload);
    let fin = flags & FIN != 0;
    let alone = payload == 0 && flags & (SYN | FIN) == 0;
    if let Some(earlier) = from.recent.iter().rev().take(COPY_BEHIND + 1).find(|earlier| {
        time_ns - earlier.time_ns <= COPY_NS
            && earlier.constant == seen.constant
            && (seen.identification != 0 || !alone)
    }) {
        assert!(earlier.ttl == seen.ttl || earlier.ttl == seen.ttl + 1);
        *if earlier.ttl == seen.ttl { &mut from.count.switched_copies } else { &mut from.count.routed_copies } += 1;
        from.count.copied_octets += u64::from(payload);
        from.recent.push(seen);
        return false;
    }
    from.recent.push(seen.clone());
    if flags & RST != 0 {
        from.count.rst += 1;
        return false;
    }
    from.count.fin += u64::from(fin);
    from.count.zero_windows += u64::from(seen.window == 0);
    from.window = seen.window;
    if let (true, Some(first)) = (flags & ACK != 0, to.first) {
        to.acknowledged = to.acknowledged.max(seen.acknowledgment.wrapping_sub(first));
    }
    if flags & SYN != 0 {
        assert!(from.first.is_none_or(|first| first == seen.sequence), "the same SYN");
        *if from.first.is_some() { &mut from.count.syn_again } else { &mut from.count.syn } += 1;
        from.first = Some(seen.sequence);
        from.highest = from.highest.max(1);
        return false;
    }
    let first = from.first.expect("a SYN comes first");
    let start = seen.sequence.wrapping_sub(first);
    if payload <= 1 && !fin && start + 1 == from.highest {
        if payload == 1 && to.window == 0 {
            from.count.window_probes += 1;
            from.count.retransmitted_octets += u64::from(payload);
        } else {
            from.count.keep_alives += 1;
            from.count.keep_alive_octets += u64::from(payload);
        }
        return false;
    }
    if alone {
        from.count.acks += 1;
        return false;
    }
    let end = start + payload;
    if from.came.len() < end as usize {
        from.came.resize(end as usize, false);
    }
    let octets = &mut from.came[start as usize..end as usize];
    let repeated = octets.iter().filter(|&&came| came).count() as u64;
    octets.fill(true);
    from.count.unique_octets += u64::from(payload) - repeated;
    let fin_again = fin && from.fin.is_some();
    if fin {
        assert!(from.fin.is_none_or(|fin| fin == end), "a FIN has one place");
        from.fin = Some(end);
    }
    if payload == 1 && start == from.highest && to.window == 0 {
        from.count.window_probes += 1;
    } else if start >= from.highest {
        from.count.in_order += 1;
        (from.highest..start).for_each(|position| _ = from.passed_ns.insert(position, time_ns));
    } else if repeated > 0 || fin_again {
        from.count.retransmissions += 1;
        from.count.retransmitted_octets += repeated;
        from.count.spurious += u64::from(end + u32::from(fin) <= from.acknowledged);
    } else {
        match time_ns - from.passed_ns[&start] {
            0..MILLISECOND_NS => from.count.out_of_order += 1,
            late_ns => {
                assert!(
                    late_ns >= 10 * MILLISECOND_NS,
                    "{late_ns} ns behind its hole a segment is neither late nor again"
                );
                from.count.unseen += 1;
            }
        }
    }
    from.highest = from.highest.max(end + u32::from(fin));
    first.wrapping_add(start) > first.wrapping_add(end)
}

fn classes(counters: &ExpectedTcp) -> u64 {
    let copies = counters.switched_copies + counters.routed_copies;
    let handshake = counters.rst + counters.syn + counters.syn_again;
    let special = counters.keep_alives + counters.window_probes + counters.acks;
    copies
        + handshake
        + special
        + counters.in_order
        + counters.retransmissions
        + counters.out_of_order
        + counters.unseen
}

/// The truth of a load, held against another count; all of it added up, and how often numbers
/// wrapped.
fn judge(spec: &str) -> (ExpectedTcp, u64) {
    let mut source = recording(spec);
    let mut recount = Recount::default();
    while let Some(burst) = source.burst().unwrap() {
        burst.iter().for_each(|frame| recount.enter(see(frame)));
    }
    assert_eq!(source.expected_tcp().len(), source.expected_flows().len());
    assert_eq!(source.expected_tcp().len(), recount.flows.len());
    let mut sum = [0; ExpectedTcp::NAMES.len()];
    for ((truth, flow), counted) in source.expected_tcp().iter().zip(source.expected_flows()).zip(&recount.flows) {
        for (truth, counted) in truth.iter().zip(counted) {
            for ((name, truth), counted) in ExpectedTcp::NAMES.iter().zip(truth.values()).zip(counted.count.values()) {
                // Only the generator knows how long a side thought.
                assert!(truth == counted || *name == "thought_ns", "{spec}: {name} of {flow:?}: {truth}, {counted}");
            }
            assert_eq!(classes(truth), truth.segments);
            let not_new = truth.payload_octets - truth.unique_octets;
            assert_eq!(not_new - truth.copied_octets - truth.keep_alive_octets, truth.retransmitted_octets);
            sum.iter_mut().zip(truth.values()).for_each(|(sum, value)| *sum += value);
        }
        assert_eq!([flow.forward.packets, flow.reverse.packets], truth.map(|truth| truth.segments));
    }
    assert_eq!(source.expected_flows().iter().map(packets).sum::<u64>(), sum[0]);
    (ExpectedTcp::from_values(sum), recount.wraps)
}

#[test]
fn expected_counters_agree_with_an_independent_count() {
    for spec in [
        "lossy,flows=50,packets=30k,seed=2",
        "lossy,flows=30,new=30,packets=30k,seed=3,loss=10%,recut=1",
        "lossy,flows=30,packets=30k,seed=4,loss=20%,before=1,recut=50%,reorder=10%,spurious=5%",
        "lossy,flows=30,packets=30k,seed=5,loss=5%,before=0,duplicate=30%,routed=50%,noid=50%",
        "lossy,flows=100,new=100,packets=30k,seed=6,keepalive=1,zerowindow=1,reorder=20%,loss=5%,ipv6=1",
        "lossy,flows=1,packets=3k,seed=7,loss=50%",
        "lossy,flows=5,duration=30s,seed=8,loss=1",
        "lossy,flows=50,packets=30k,seed=9,loss=5%,think=300ms",
    ] {
        judge(spec);
    }
}

#[test]
fn all_kinds_of_events_happen_in_a_run_of_200_thousand_packets() {
    let (sum, wraps) = judge("lossy,packets=200k");
    for (name, value) in ExpectedTcp::NAMES.iter().zip(sum.values()) {
        assert!((value > 0) != ["routed_copies", "thought_ns"].contains(name), "{name}: {value}");
    }
    assert!(wraps > 0);
    let segments = (sum.segments - sum.acks) as f64;
    let near = |count: u64, share: f64| (0.5..1.5).contains(&(count as f64 / segments / share));
    // Half of the lost segments are captured twice, half of them once.
    assert!(near(sum.retransmissions, 0.006) && near(sum.unseen, 0.005), "{sum:?}");
    assert!(near(sum.out_of_order, 0.005) && near(sum.switched_copies, 0.006), "{sum:?}");
}

#[test]
fn network_without_losses_has_no_retransmissions() {
    let flawless = "loss=0,reorder=0,spurious=0,duplicate=0,keepalive=0,zerowindow=0";
    let (sum, _) = judge(&format!("lossy,flows=200,packets=100k,{flawless}"));
    assert_eq!(sum.segments, sum.syn + sum.rst + sum.acks + sum.in_order, "{sum:?}");
    // A delayed segment is not retransmitted.
    let (sum, _) = judge(&format!("lossy,flows=200,packets=100k,{}", flawless.replace("reorder=0", "reorder=10%")));
    assert_eq!(sum.segments, sum.syn + sum.rst + sum.acks + sum.in_order + sum.out_of_order, "{sum:?}");
    assert!(sum.out_of_order > 1_000, "{sum:?}");
}

#[test]
fn servers_answer_after_the_time_that_they_think() {
    let mut source =
        recording("lossy,flows=300,packets=100k,think=3s,loss=0,reorder=0,spurious=0,duplicate=0,zerowindow=0");
    while source.burst().unwrap().is_some() {}
    let (mut thought_ns, mut answers) = (0, 0);
    for expected in source.expected_tcp().iter().flatten().filter(|expected| expected.thought_ns > 0) {
        // The rest is the way between capture point and server, below the longest round trip.
        let way_ns = expected.answer_sum_ns.checked_sub(expected.thought_ns).expect("it answers after it thought");
        assert!(way_ns < expected.answers * 201 * MILLISECOND_NS, "{expected:?}");
        thought_ns += expected.thought_ns;
        answers += expected.answers;
    }
    let mean_ms = thought_ns / answers / MILLISECOND_NS;
    // Some answers follow what the client sends during a response, and take no thinking.
    assert!(answers > 500 && (2_000..3_500).contains(&mean_ms), "{answers} answers, {mean_ms} ms");
}

#[test]
fn expected_counters_cover_only_captured_segments_and_do_not_change_the_frames() {
    let spec = "lossy,flows=100,packets=20k,seed=7,loss=30%";
    let (mut without, mut with) = (TrafficGenerator::new(spec).unwrap(), recording(spec));
    while let Some(expected) = without.burst().unwrap() {
        let burst = with.burst().unwrap().unwrap();
        assert!(burst.iter().map(|frame| frame.bytes).eq(expected.iter().map(|frame| frame.bytes)));
    }
    assert!(without.expected_tcp().is_empty() && without.expected_flows().is_empty());
    assert!(with.expected_flows().iter().all(|flow| flow.forward.packets > 0 && flow.protocol == 6));
}

#[test]
fn profile_has_the_requested_flows() {
    let source = run("lossy,flows=500,new=50,duration=60s,seed=9");
    // 500 flows in the first second, then 50 per second; retransmissions prolong conversations, so
    // that fewer begin.
    let flows = source.expected_flows().len();
    assert!((2_500..4_000).contains(&flows), "{flows}");
}
