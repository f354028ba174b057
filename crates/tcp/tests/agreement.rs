//! [`Connection`] says what [`Reference`] says, of whatever comes.

mod history;

use history::{packets, step};
use proptest::prelude::*;
use weir_packet::{Flags, Packet};
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
        for (side, &packets) in entered.iter().enumerate() {
            let report = reference.report(side);
            assert_eq!(connection.report(side, packets, &room), report, "packet {number}, side {side}: {packet:?}");
            assert_eq!(report.segments(), packets);
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

#[test]
fn an_acknowledgment_half_a_turn_away_answers_no_syn() {
    let segment = Packet { protocol: 6, flags: Flags(Flags::TCP | Flags::PORTS), window: 100, ..Packet::default() };
    let syn = Packet { control: Packet::SYN, ..segment };
    let answer = Packet { control: Packet::SYN | Packet::ACK, acknowledgment: 1 + (1 << 31), ..segment };
    agree(&[(0, syn, false, false), (1, answer, false, false)]);
}
