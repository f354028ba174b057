//! Selects the queue of a frame: a program that the kernel runs for each frame.
//!
//! ```text
//! from the EtherType on, skip up to 16 VLAN tags, MPLS labels, PPPoE and SNAP headers:
//! queue = symmetric hash of both addresses, modulo queues
//! no IP header: the first queue
//! ```
//! Only the outermost addresses are hashed. So both directions of a flow and its fragments, which
//! have no ports, reach the same queue, whatever headers precede IP; and so do all packets between
//! two tunnel endpoints. Headers are skipped as the decoder in the crate `weir-packet` does it. The
//! hash is keyed, so that no sender can direct all traffic to one queue.

use super::program::{Label, OUTGOING, PACKET_TYPE, PROTOCOL, Program};
use crate::filter::Instruction;
use crate::filter::opcode::*;
use crate::link_type::ETHERNET;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

/// Largest number of VLAN tags, MPLS labels, PPPoE and SNAP headers before IP.
const HEADERS: usize = 16;

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const VLAN: [u32; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];
const MPLS: [u32; 2] = [0x8847, 0x8848];
const PPPOE_SESSION: u32 = 0x8864;
/// Lower values are a length (IEEE 802.3).
const FIRST_ETHERTYPE: u32 = 0x0600;

/// Scratch slots: hash, hash of the source address, start of the header, and saved accumulator.
const HASH: u32 = 0;
const SOURCE: u32 = 1;
const START: u32 = 2;
const SAVED: u32 = 3;

/// Returns the key of the hash: random per process, and the same for all interfaces, so that a flow
/// over the interfaces of a tap stays in one queue.
pub(super) fn secret() -> [u32; 2] {
    static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
    [*SECRET as u32, (*SECRET >> 32) as u32]
}

/// Returns the program for a link type: Ethernet or raw IP.
pub(super) fn by_addresses(link_type: u16, secret: [u32; 2]) -> Vec<Instruction> {
    let mut program = Program::default();
    let ends = Ends { ipv4: program.label(), ipv6: program.label(), other: program.label() };
    if link_type == ETHERNET {
        parse_ethernet(&mut program, &ends);
    } else {
        program.add(INDEX_CONSTANT, 0);
        branch_on_version(&mut program, &ends);
        program.jump(ends.other);
    }
    program.place(ends.ipv4);
    hash_addresses(&mut program, [12, 16], 1, secret);
    program.place(ends.ipv6);
    hash_addresses(&mut program, [8, 24], 4, secret);
    program.place(ends.other);
    program.add(RETURN_CONSTANT, 0);
    program.finish()
}

/// Targets at the end of the headers. The index is the start of the IP header.
struct Ends {
    ipv4: Label,
    ipv6: Label,
    other: Label,
}

fn parse_ethernet(program: &mut Program, ends: &Ends) {
    let steps: Vec<[Label; 2]> = (0..=HEADERS).map(|_| [program.label(), program.label()]).collect();
    // The kernel passes sent frames from the Ethernet header on, and received frames from behind
    // it.
    let outgoing = program.label();
    program.add(LOAD_WORD, PACKET_TYPE);
    program.jump_if(EQUAL, OUTGOING, outgoing);
    program.add(INDEX_CONSTANT, 0);
    program.add(LOAD_WORD, PROTOCOL);
    program.jump(steps[0][0]);
    program.place(outgoing);
    program.add(INDEX_CONSTANT, 14);
    program.add(LOAD_HALF, 12);
    for step in steps.windows(2) {
        let ([typed, labelled], [next_typed, next_labelled]) = (step[0], step[1]);
        program.place(typed);
        branch_on_ethertype(program, ends, next_typed, next_labelled);
        program.place(labelled);
        branch_on_label(program, ends, next_typed, next_labelled);
    }
    // After the last step, IP is still accepted, because it is no header before IP.
    let [typed, labelled] = steps[HEADERS];
    program.place(typed);
    program.jump_if(EQUAL, IPV4, ends.ipv4);
    program.jump_if(EQUAL, IPV6, ends.ipv6);
    program.place(labelled);
    program.jump(ends.other);
}

/// The accumulator is an EtherType or a length, the index the start of what follows it.
fn branch_on_ethertype(program: &mut Program, ends: &Ends, next_typed: Label, next_labelled: Label) {
    let [tagged, session, long, compressed, protocol] = std::array::from_fn(|_| program.label());
    program.jump_if(EQUAL, IPV4, ends.ipv4);
    program.jump_if(EQUAL, IPV6, ends.ipv6);
    VLAN.iter().for_each(|&tag| program.jump_if(EQUAL, tag, tagged));
    MPLS.iter().for_each(|&mpls| program.jump_if(EQUAL, mpls, next_labelled));
    program.jump_if(EQUAL, PPPOE_SESSION, session);
    program.jump_if(GREATER_OR_EQUAL, FIRST_ETHERTYPE, ends.other);
    // A length: a SNAP header has an EtherType again.
    let [snap_header, ethertype] = [program.label(), program.label()];
    program.add(LOAD_WORD_AT, 0);
    program.jump_if(EQUAL, 0xaaaa_0300, snap_header);
    program.jump(ends.other);
    program.place(snap_header);
    program.add(LOAD_HALF_AT, 4);
    program.jump_if(EQUAL, 0, ethertype);
    program.jump_if(EQUAL, 0x00f8, ethertype);
    program.jump(ends.other);
    program.place(ethertype);
    program.add(LOAD_HALF_AT, 6);
    advance(program, 8);
    program.jump(next_typed);
    program.place(tagged);
    program.add(LOAD_HALF_AT, 2);
    advance(program, 4);
    program.jump(next_typed);
    // Version and type 1, code 0; then PPP, whose protocol has one byte if that is odd.
    program.place(session);
    program.add(LOAD_HALF_AT, 0);
    program.jump_if(EQUAL, 0x1100, long);
    program.jump(ends.other);
    program.place(long);
    program.add(LOAD_BYTE_AT, 6);
    program.jump_if(ANY_BIT, 1, compressed);
    program.add(LOAD_HALF_AT, 6);
    advance(program, 8);
    program.jump(protocol);
    program.place(compressed);
    advance(program, 7);
    program.place(protocol);
    program.jump_if(EQUAL, 0x0021, ends.ipv4);
    program.jump_if(EQUAL, 0x0057, ends.ipv6);
    program.jump_if(EQUAL, 0x0281, next_labelled);
    program.jump(ends.other);
}

/// The index is the start of an MPLS label.
fn branch_on_label(program: &mut Program, ends: &Ends, next_typed: Label, next_labelled: Label) {
    let [bottom, control_word, ethernet] = std::array::from_fn(|_| program.label());
    program.add(LOAD_WORD_AT, 0);
    advance(program, 4);
    program.jump_if(ANY_BIT, 0x100, bottom);
    program.jump(next_labelled);
    program.place(bottom);
    branch_on_version(program, ends);
    // A pseudowire: Ethernet with or without a control word.
    program.jump_if(EQUAL, 0, control_word);
    program.jump(ethernet);
    program.place(control_word);
    advance(program, 4);
    program.place(ethernet);
    program.add(LOAD_HALF_AT, 12);
    advance(program, 14);
    program.jump(next_typed);
}

/// Jumps by the IP version in the first four bits. For another value, the accumulator holds these
/// bits in the upper half of a byte.
fn branch_on_version(program: &mut Program, ends: &Ends) {
    program.add(LOAD_BYTE_AT, 0);
    program.add(COMPUTE | AND, 0xf0);
    program.jump_if(EQUAL, 0x40, ends.ipv4);
    program.jump_if(EQUAL, 0x60, ends.ipv6);
}

/// Advances the index by a number of bytes; the accumulator does not change.
fn advance(program: &mut Program, bytes: u32) {
    program.add(STORE, SAVED);
    program.add(FROM_INDEX, 0);
    program.add(COMPUTE | ADD, bytes);
    program.add(TO_INDEX, 0);
    program.add(LOAD_SCRATCH, SAVED);
}

/// Returns the hash of two addresses of `words` words: each is hashed alone, and the sum does not
/// depend on their order.
fn hash_addresses(program: &mut Program, [source, destination]: [u32; 2], words: u32, secret: [u32; 2]) {
    hash_address(program, source, words, secret);
    program.add(STORE, SOURCE);
    hash_address(program, destination, words, secret);
    program.add(INDEX_SCRATCH, SOURCE);
    program.add(COMPUTE | ADD | WITH_INDEX, 0);
    mix(program, 16);
    program.add(RETURN_ACCUMULATOR, 0);
}

/// Sets the accumulator to the hash of the address at offset `at` from the index: each word is
/// mixed in twice, once per half of the secret. The index does not change.
fn hash_address(program: &mut Program, at: u32, words: u32, secret: [u32; 2]) {
    program.add(STORE_INDEX, START);
    program.add(LOAD_CONSTANT, secret[0]);
    program.add(STORE, HASH);
    for word in 0..words {
        program.add(INDEX_SCRATCH, START);
        program.add(LOAD_WORD_AT, at + 4 * word);
        program.add(INDEX_SCRATCH, HASH);
        program.add(COMPUTE | EXCLUSIVE_OR | WITH_INDEX, 0);
        mix(program, 15);
        program.add(COMPUTE | ADD, secret[1]);
        mix(program, 13);
    }
    program.add(INDEX_SCRATCH, START);
}

/// Multiplies the accumulator and folds the upper bits of the product, which are mixed best, into
/// the lower ones. Stores the result in HASH, too, and overwrites the index.
fn mix(program: &mut Program, bits: u32) {
    // The fraction of the golden ratio.
    program.add(COMPUTE | MULTIPLY, 0x9e37_79b1);
    program.add(STORE, HASH);
    program.add(COMPUTE | SHIFT_RIGHT, bits);
    program.add(INDEX_SCRATCH, HASH);
    program.add(COMPUTE | EXCLUSIVE_OR | WITH_INDEX, 0);
    program.add(STORE, HASH);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;

    const SECRET: [u32; 2] = [0x9e37_79b1, 0x85eb_ca77];
    const EITHER_WAY: [bool; 2] = [false, true];

    /// Runs a program as the kernel does, which gives it the packet type and the protocol.
    fn run(program: &[Instruction], data: &[u8], outgoing: bool, protocol: u16) -> u32 {
        let given = |instruction: &Instruction| match (instruction.code, instruction.constant) {
            (LOAD_WORD, PACKET_TYPE) => Some(if outgoing { OUTGOING } else { 0 }),
            (LOAD_WORD, PROTOCOL) => Some(protocol.into()),
            _ => None,
        };
        let instructions: Vec<_> = program
            .iter()
            .map(|instruction| match given(instruction) {
                Some(constant) => Instruction { code: LOAD_CONSTANT, constant, ..*instruction },
                None => *instruction,
            })
            .collect();
        let program = filter::Program::new(&instructions).expect("the kernel accepts it");
        program.run(data, data.len() as u32)
    }

    /// Returns the hash of an Ethernet frame, which is the same whether it is sent or received.
    fn queue(frame: &[u8]) -> u32 {
        let program = by_addresses(1, SECRET);
        let [sent, received] = EITHER_WAY.map(|outgoing| {
            let data = if outgoing { frame } else { &frame[14..] };
            let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
            // For frames with a length, the kernel has its own protocol numbers.
            let protocol = if ethertype < 0x600 { 4 } else { ethertype };
            run(&program, data, outgoing, protocol)
        });
        assert_eq!(sent, received);
        sent
    }

    fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &ethertype.to_be_bytes()[..], payload].concat()
    }

    fn ipv4(source: [u8; 4], destination: [u8; 4], rest: &[u8]) -> Vec<u8> {
        [&[0x45, 0, 0, 40, 0, 1, 0, 0, 64, 17, 0, 0], &source[..], &destination, rest].concat()
    }

    fn ipv6(source: u8, destination: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, source]);
        packet.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, destination]);
        packet
    }

    const A: [u8; 4] = [192, 0, 2, 1];
    const B: [u8; 4] = [198, 51, 100, 77];

    #[test]
    fn both_directions_have_one_hash_independent_of_ports() {
        let there = queue(&ethernet(0x0800, &ipv4(A, B, &[1, 2, 3, 4])));
        let back = queue(&ethernet(0x0800, &ipv4(B, A, &[])));
        assert_eq!(there, back);
        assert_ne!(there, 0);
        assert_eq!(queue(&ethernet(0x86dd, &ipv6(1, 2))), queue(&ethernet(0x86dd, &ipv6(2, 1))));
        assert_ne!(queue(&ethernet(0x86dd, &ipv6(1, 2))), queue(&ethernet(0x86dd, &ipv6(1, 3))));
    }

    #[test]
    fn headers_before_ip_do_not_change_the_hash() {
        let packet = ipv4(A, B, &[]);
        let plain = queue(&ethernet(0x0800, &packet));
        let behind = |ethertype, before: &[u8]| queue(&ethernet(ethertype, &[before, &packet[..]].concat()));
        assert_eq!(behind(0x8100, &[0, 7, 8, 0]), plain);
        assert_eq!(behind(0x88a8, &[0, 7, 0x91, 0, 0, 8, 8, 0]), plain);
        assert_eq!(behind(0x8847, &[0, 1, 0, 64, 0, 1, 1, 64]), plain);
        assert_eq!(behind(0x8100, &[0, 7, 0x88, 0x48, 0, 1, 1, 64]), plain);
        assert_eq!(behind(0x8864, &[0x11, 0, 0, 1, 0, 42, 0, 0x21]), plain);
        assert_eq!(behind(0x8864, &[0x11, 0, 0, 1, 0, 41, 0x21]), plain);
        assert_eq!(behind(0x8864, &[0x11, 0, 0, 1, 0, 41, 2, 0x81, 0, 1, 1, 64]), plain);
        assert_eq!(behind(48, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]), plain);
        assert_eq!(behind(48, &[0xaa, 0xaa, 3, 0, 0, 0xf8, 8, 0]), plain);
        // Pseudowires, with a control word and without.
        let inside = ethernet(0x0800, &packet);
        let wire = |before: &[u8]| queue(&ethernet(0x8847, &[before, &inside[..]].concat()));
        assert_eq!(wire(&[0, 1, 1, 64, 0, 0, 0, 0]), plain);
        let mut without = inside.clone();
        without[0] = 0x22;
        assert_eq!(queue(&ethernet(0x8847, &[&[0, 1, 1, 64], &without[..]].concat())), plain);
        // The largest number of tags, and one more.
        let tags = |count: usize| [&[0, 7, 0x81, 0].repeat(count - 1)[..], &[0, 7, 8, 0]].concat();
        assert_eq!(behind(0x8100, &tags(HEADERS)), plain);
        assert_eq!(behind(0x8100, &tags(HEADERS + 1)), 0);
    }

    #[test]
    fn raw_ip_has_the_hash_of_ip_in_ethernet() {
        let program = by_addresses(101, SECRET);
        for outgoing in EITHER_WAY {
            let raw = run(&program, &ipv4(A, B, &[]), outgoing, 0);
            assert_eq!(raw, queue(&ethernet(0x0800, &ipv4(A, B, &[]))));
            assert_eq!(run(&program, &ipv6(1, 2), outgoing, 0), queue(&ethernet(0x86dd, &ipv6(2, 1))));
            assert_eq!(run(&program, &[0x12; 60], outgoing, 0), 0);
        }
    }

    #[test]
    fn frames_without_ip_or_cut_before_the_addresses_go_to_the_first_queue() {
        assert_eq!(queue(&ethernet(0x0806, &[1; 46])), 0);
        assert_eq!(queue(&ethernet(38, &[0x42, 0x42, 3, 0, 0, 0])), 0);
        assert_eq!(queue(&ethernet(46, &[0xaa, 0xaa, 3, 0, 0, 9, 8, 0])), 0);
        assert_eq!(queue(&ethernet(0x8864, &[0x11, 9, 0, 0, 0, 0, 0, 0x21])), 0);
        assert_eq!(queue(&ethernet(0x8864, &[0x11, 0, 0, 0, 0, 0, 0xc0, 0x21])), 0);
        let whole = ethernet(0x8100, &[&[0, 7, 8, 0][..], &ipv4(A, B, &[])].concat());
        for cut in 14..whole.len() {
            assert_eq!(queue(&whole[..cut]), 0, "cut at {cut}");
        }
    }

    #[test]
    fn neighbouring_addresses_are_distributed_evenly_for_every_secret() {
        for number in 0..40 {
            let secret = [number, number << 20 | 0xff];
            let program = by_addresses(101, secret);
            for queues in [2, 4, 7] {
                // In the second kind all sums and differences are equal, in the third all
                // differences.
                let ends = |kind, client: u8, server: u8| match kind {
                    1 => [[10, 0, 0, client], [10, 0, 1, server]],
                    2 => [[10, 0, server, client], [192, 0, 255 - server, 255 - client]],
                    _ => [[10, 0, server, client], [10, 1, server, client]],
                };
                for kind in 1..=3 {
                    let mut packets = vec![0; queues];
                    for client in 0..=255 {
                        for server in 0..16 {
                            let [source, destination] = ends(kind, client, server);
                            let hash = run(&program, &ipv4(source, destination, &[]), false, 0);
                            packets[hash as usize % queues] += 1;
                        }
                    }
                    let fair = 4096 / queues;
                    let even = packets.iter().all(|n| (fair * 7 / 10..fair * 13 / 10).contains(n));
                    assert!(even, "{packets:?} with {secret:x?}");
                }
            }
        }
    }

    #[test]
    fn secret_is_the_same_for_all_interfaces() {
        assert_eq!(secret(), secret());
    }
}
