//! A simulated network: two TCP endpoints and a probe between them, which captures a connection
//! with every kind of anomaly.

use weir_packet::{Flags, Network, Packet};
use weir_trafficgen::Random;

/// Random choices.
pub struct Choices(Random);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(Random::new(seed))
    }

    /// A number from 0 to `bound` - 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    /// A number from `from` to `to` - 1.
    pub fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from) as u64) as i64
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// One of both endpoints.
struct Endpoint {
    /// Sequence number of its SYN.
    initial_sequence: u32,
    /// Octets sent, without the SYN.
    sent: u32,
    fin: bool,
    syn: bool,
    window: u16,
    identification: u16,
    ttl: u8,
}

struct Simulation<'a> {
    random: &'a mut Choices,
    now_ns: u64,
    ends: [Endpoint; 2],
    captured: Vec<(u64, usize, Packet)>,
    network: Network,
    /// 0: none; 1: counts up; 2: may repeat; 3: counts up with jumps.
    identification: u8,
    /// Per cent of segments that are lost before the probe, delayed, or duplicated.
    lost: u64,
    delayed: u64,
    duplicated: u64,
}

/// Returns the packets that the probe captures, in order, with their sides.
pub fn capture(random: &mut Choices) -> Vec<(usize, Packet)> {
    let steps = 20 + random.below(120);
    let firsts = [random.pick(&[u32::MAX - 60, 0, 7]), random.below(1 << 32) as u32];
    let end = |initial_sequence, ttl| Endpoint {
        initial_sequence,
        sent: 0,
        fin: false,
        syn: false,
        window: 100,
        identification: 0,
        ttl,
    };
    let mut simulation = Simulation {
        now_ns: (1 << 50) + random.below(1 << 44),
        ends: [end(firsts[0], 64), end(firsts[1], 57)],
        captured: Vec::new(),
        network: if random.one_in(4) { Network::Ipv6 } else { Network::Ipv4 },
        identification: random.pick(&[0, 1, 1, 2, 3]),
        lost: random.pick(&[0, 2, 10, 50]),
        delayed: random.pick(&[0, 5, 25]),
        duplicated: random.pick(&[0, 0, 5, 60]),
        random,
    };
    simulation.handshake();
    for _ in 0..steps {
        simulation.step();
    }
    let mut captured = std::mem::take(&mut simulation.captured);
    captured.sort_by_key(|&(time_ns, ..)| time_ns);
    let mut captured: Vec<_> = captured.into_iter().map(|(_, side, packet)| (side, packet)).collect();
    if random.one_in(3) {
        captured.drain(..(random.below(8) as usize).min(captured.len()));
    }
    if random.one_in(8) {
        captured.retain(|&(side, _)| side == 0);
    }
    captured
}

impl Simulation<'_> {
    fn handshake(&mut self) {
        let round_trip_ns = self.random.pick(&[300_000, 5_000_000, 40_000_000]);
        self.synchronize(0, Packet::SYN);
        self.wait(round_trip_ns / 2);
        self.synchronize(1, Packet::SYN | Packet::ACK);
        self.wait(round_trip_ns / 2);
        self.send(0, 0, 0, Packet::ACK);
    }

    fn synchronize(&mut self, side: usize, control: u16) {
        self.ends[side].syn = true;
        let payload = if self.random.one_in(12) { self.random.below(9) as u32 } else { 0 };
        let control = if self.random.one_in(60) { control | Packet::FIN } else { control };
        self.send(side, -1, payload, control);
        while self.random.one_in(5) {
            self.wait(1_000_000_000);
            self.send(side, -1, payload, control);
        }
        self.ends[side].sent = self.ends[side].sent.max(payload);
    }

    fn wait(&mut self, about_ns: u64) {
        self.now_ns += self.random.below(2 * about_ns);
    }

    /// The next sequence number of a side.
    fn next(&self, side: usize) -> u32 {
        let end = &self.ends[side];
        end.initial_sequence.wrapping_add(u32::from(end.syn)).wrapping_add(end.sent).wrapping_add(u32::from(end.fin))
    }

    /// Sends a segment, which may be lost, delayed or duplicated. Its offset is relative to the
    /// first octet after the SYN.
    fn send(&mut self, side: usize, offset: i64, payload: u32, control: u16) {
        let acknowledged = if self.random.one_in(4) { self.random.below(12) as u32 } else { 0 };
        let acknowledgment = self.next(1 - side).wrapping_sub(acknowledged);
        let end = &mut self.ends[side];
        let sequence = end.initial_sequence.wrapping_add(1).wrapping_add(offset as u32);
        end.identification = match self.identification {
            0 => 0,
            1 => end.identification % 60_000 + 1,
            3 => end.identification.wrapping_add(self.random.pick(&[1, 1, 1, 1, 1, 3, 900, 20_000])),
            _ => self.random.below(3) as u16,
        };
        let control = if payload > 0 && self.random.one_in(3) { control | 8 } else { control };
        let options = if control & Packet::SYN == 0 { 0 } else { end.initial_sequence % 12 };
        let sum = [sequence, acknowledgment, payload, control.into(), end.window.into()];
        let sum = sum.into_iter().fold(7_u32, |sum, word| sum.wrapping_mul(31).wrapping_add(word));
        let packet = Packet {
            time_ns: self.now_ns,
            network: self.network,
            protocol: 6,
            flags: Flags(Flags::TCP | Flags::PORTS),
            sequence,
            acknowledgment: if control & Packet::ACK != 0 { acknowledgment } else { 0 },
            payload_bytes: payload,
            control: control | (options as u16) << 12,
            window: end.window,
            identification: u32::from(end.identification) | (options * 100) << 16,
            icmp_or_checksum: [sum as u8, (sum >> 8) as u8],
            ttl: end.ttl,
            ..Packet::default()
        };
        if self.random.below(100) < self.lost {
            return;
        }
        let is_delayed = self.random.below(100) < self.delayed;
        let time_ns =
            self.now_ns + if is_delayed { self.random.pick(&[300_000, 3_000_000, 40_000_000, 250_000_000]) } else { 0 };
        self.capture(time_ns, side, packet);
        while self.random.below(100) < self.duplicated {
            let after_ns = self.random.pick(&[
                0,
                1,
                900_000,
                2_500_000,
                10_000_000,
                40_000_000,
                700_000_000,
                990_000_000,
                1_010_000_000,
            ]);
            let ttl = packet.ttl - self.random.pick(&[0, 0, 1]);
            self.capture(time_ns + after_ns, side, Packet { ttl, ..packet });
        }
    }

    fn capture(&mut self, time_ns: u64, side: usize, packet: Packet) {
        self.captured.push((time_ns, side, Packet { time_ns, ..packet }));
    }

    fn step(&mut self) {
        let pause = self.random.pick(&[20_000, 20_000, 200_000, 2_000_000]);
        let pause = if self.random.one_in(30) { 2_000_000_000 } else { pause };
        self.wait(pause);
        let side = self.random.below(2) as usize;
        let sent = i64::from(self.ends[side].sent);
        match self.random.below(100) {
            0..=34 => self.send_more(side),
            35..=49 => self.retransmit(side),
            50..=64 => self.send(side, sent + i64::from(self.ends[side].fin), 0, Packet::ACK),
            65..=69 => (0..3).for_each(|_| self.send(side, sent, 0, Packet::ACK)),
            70..=73 => {
                let payload = self.random.below(2) as u32;
                self.send(side, sent - 1, payload, Packet::ACK);
            }
            74..=77 => self.close_window(side),
            78..=80 => self.finish(side),
            81 => {
                let control = self.random.pick(&[Packet::RST, Packet::RST | Packet::ACK]);
                self.send(side, sent, 0, control);
            }
            82 => self.send(side, -1, 0, Packet::SYN | if side == 1 { Packet::ACK } else { 0 }),
            83 => self.reuse(),
            84 => self.lose_alternate(side),
            85 => self.burst(side),
            86 => self.fragment(side),
            87 => self.miss(side),
            88 => self.stray(side),
            89..=91 => {
                self.ends[side].window = self.random.pick(&[0, 100, 100, 200]);
                self.send(side, sent, 0, Packet::ACK);
            }
            92 => self.send(side, sent - 1, 0, Packet::FIN | Packet::ACK),
            93 => self.send(side, sent, 0, 0),
            94 => self.jump_acknowledgment(side),
            _ => (0..4).for_each(|_| self.send_more(side)),
        }
    }

    fn send_more(&mut self, side: usize) {
        let payload = self.random.within(1, 9) as u32;
        let sent = self.ends[side].sent;
        self.send(side, sent.into(), payload, Packet::ACK);
        self.ends[side].sent = sent.wrapping_add(payload);
    }

    /// Retransmits a range that need not be one of the segments sent before.
    fn retransmit(&mut self, side: usize) {
        let sent = i64::from(self.ends[side].sent);
        let start = (sent - self.random.within(1, 60)).max(-1);
        let payload = self.random.within(1, 30);
        self.send(side, start, payload as u32, Packet::ACK);
        self.ends[side].sent = (start + payload).max(sent) as u32;
    }

    fn close_window(&mut self, side: usize) {
        let sent = self.ends[side].sent;
        self.ends[side].window = 0;
        self.send(side, sent.into(), 0, Packet::ACK);
        if self.random.one_in(2) {
            self.wait(200_000_000);
            let others = self.ends[1 - side].sent;
            self.send(1 - side, others.into(), 1, Packet::ACK);
            self.ends[1 - side].sent = others.wrapping_add(1);
        }
        self.ends[side].window = self.random.pick(&[0, 100]);
    }

    fn finish(&mut self, side: usize) {
        let sent = self.ends[side].sent;
        let payload = self.random.pick(&[0, 0, 5]);
        self.ends[side].sent = sent.wrapping_add(payload);
        self.ends[side].fin = true;
        self.send(side, sent.into(), payload, Packet::FIN | Packet::ACK);
        if self.random.one_in(3) {
            self.wait(300_000_000);
            self.send(side, sent.into(), payload, Packet::FIN | Packet::ACK);
        }
    }

    /// Starts another connection between the same ports.
    fn reuse(&mut self) {
        for end in &mut self.ends {
            end.initial_sequence = end.initial_sequence.wrapping_add(self.random.pick(&[1, 500, 1 << 20, 1 << 31]));
            (end.sent, end.fin) = (0, false);
        }
        self.handshake();
    }

    /// Every other segment is lost.
    fn lose_alternate(&mut self, side: usize) {
        for _ in 0..self.random.below(50) {
            self.ends[side].sent = self.ends[side].sent.wrapping_add(self.random.within(1, 5) as u32);
            self.send_more(side);
        }
        if self.random.one_in(2) {
            let sent = self.ends[1 - side].sent;
            self.send(1 - side, sent.into(), 0, Packet::ACK);
        }
    }

    /// A burst, as from the queue of a loaded router, and duplicates of most of it from behind the
    /// router.
    fn burst(&mut self, side: usize) {
        let before = self.captured.len();
        for _ in 0..self.random.pick(&[5, 62, 63, 64, 65, 80]) {
            self.send_more(side);
            self.now_ns += 1;
        }
        self.now_ns += 100_000;
        let queued: Vec<Packet> = self.captured[before..].iter().map(|&(.., packet)| packet).collect();
        for packet in queued {
            self.now_ns += 1;
            if !self.random.one_in(4) {
                self.capture(self.now_ns, side, Packet { ttl: packet.ttl - 1, ..packet });
            }
        }
    }

    /// Sends a first fragment, or a later one.
    fn fragment(&mut self, side: usize) {
        if self.random.one_in(3) {
            let payload = self.random.below(9) as u32;
            let sent = self.ends[side].sent;
            let before = self.captured.len();
            self.send(side, sent.into(), payload, Packet::ACK);
            self.captured[before..].iter_mut().for_each(|(.., packet)| packet.flags.0 |= Flags::FRAGMENT_FIRST);
            self.ends[side].sent = sent.wrapping_add(payload);
            return;
        }
        let packet = Packet { protocol: 6, flags: Flags(Flags::FRAGMENT_LATER), payload_bytes: 9, ..Packet::default() };
        self.capture(self.now_ns, side, packet);
    }

    /// The capture misses many octets.
    fn miss(&mut self, side: usize) {
        let far = self.random.pick(&[1 << 29, 1 << 30, 3 << 30, (1 << 30) - 20, 1 << 31]);
        self.ends[side].initial_sequence = self.ends[side].initial_sequence.wrapping_add(far);
        self.send_more(side);
        self.send_more(side);
    }

    /// Sends one segment far away from the stream.
    fn stray(&mut self, side: usize) {
        let sent = i64::from(self.ends[side].sent);
        let far = self.random.pick(&[1 << 30, -(1 << 30), 1 << 31, -(1 << 20), (1 << 30) - 3, 3 - (1 << 30)]);
        let payload = self.random.below(6) as u32;
        self.send(side, sent + far, payload, Packet::ACK);
    }

    /// Acknowledges octets that were not captured.
    fn jump_acknowledgment(&mut self, side: usize) {
        let sent = self.ends[side].sent;
        let far = self.random.pick(&[1 << 28, (1 << 28) - 1, 1 << 27]);
        self.ends[1 - side].initial_sequence = self.ends[1 - side].initial_sequence.wrapping_add(far);
        self.send(side, sent.into(), 0, Packet::ACK);
        self.retransmit(side);
    }
}
