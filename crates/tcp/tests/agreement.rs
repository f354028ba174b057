//! [`Connection`] says what [`Reference`] says, of whatever comes.

mod history;

use history::{packets, step};
use proptest::prelude::*;
use weir_packet::Packet;
use weir_tcp::{Connection, Reference, Room};

fn agree(history: &[(usize, Packet, bool, bool)]) {
    let mut room = Room::new(2).unwrap();
    let (mut connection, mut reference) = (Connection::NEW, Reference::default());
    let mut entered = [0; 2];
    for (number, &(side, packet, usual, next_record)) in history.iter().enumerate() {
        if next_record {
            connection.next_record(&mut room);
            reference.next_record();
            entered = [0; 2];
        }
        let class = reference.enter(side, &packet);
        entered[side] += 1;
        if !usual || !connection.usual(side, &packet) {
            assert_eq!(connection.enter(side, &packet, &mut room), class, "packet {number}: {packet:?}");
        }
        for side in 0..2 {
            let report = reference.report(side);
            assert_eq!(
                connection.report(side, entered[side], &room),
                report,
                "packet {number}, side {side}: {packet:?}"
            );
            assert_eq!(report.segments(), entered[side]);
        }
    }
    connection.end(&mut room);
    assert_eq!(room.used(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn of_whatever_comes(
        base in any::<[u32; 2]>(),
        wraps in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let base = if wraps { [u32::MAX - 20, 5] } else { base };
        agree(&packets(base, &steps));
    }
}
