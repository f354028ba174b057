//! The comparison of two lists of flow records.

use weir_flow::{Direction, FlowRecord};
use weir_testkit::compare::flows;

fn flow(port: u16, packets: u64) -> FlowRecord {
    FlowRecord { source_port: port, forward: Direction { packets, ..Direction::default() }, ..FlowRecord::default() }
}

#[test]
fn order_is_ignored_and_number_is_not() {
    assert_eq!(flows(&[flow(1, 1), flow(2, 1)], &[flow(2, 1), flow(1, 1)]), Ok(()));
    assert!(flows(&[flow(1, 1), flow(1, 1)], &[flow(1, 1)]).unwrap_err().contains("only in the first list"));
}

#[test]
fn fields_without_meaning_are_ignored() {
    let mut other = flow(1, 1);
    other.reverse.bytes = 7;
    other.forward.iat_max_ns = 7;
    assert_eq!(flows(&[flow(1, 1)], &[other]), Ok(()));
}

#[test]
fn most_similar_pair_is_reported_by_field() {
    let mut other = flow(1, 2);
    other.forward.ttl_max = 9;
    let text = flows(&[flow(1, 2), flow(5, 3)], &[flow(7, 9), other]).unwrap_err();
    assert!(text.contains("forward largest ttl: 0 against 9"), "{text}");
    assert!(!text.contains("packets"), "{text}");
}
