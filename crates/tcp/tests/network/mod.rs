//! Two senders of TCP, the network between them, and a probe in its middle: histories of a connection as a probe may see
//! it, with everything that goes wrong.

use weir_packet::{Flags, Network, Packet};

/// Random numbers from a seed (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..4).for_each(|_| _ = random.next());
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Below a number.
    pub fn of(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn within(&mut self, from: i64, to: i64) -> i64 {
        from + self.of((to - from) as u64) as i64
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.of(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.of(list.len() as u64) as usize]
    }
}

/// One of both ends.
struct End {
    /// Number of its SYN.
    first: u32,
    /// Octets it sent, the SYN not counted.
    sent: u32,
    fin: bool,
    began: bool,
    window: u16,
    identification: u16,
    ttl: u8,
}

struct Wire<'a> {
    random: &'a mut Random,
    now_ns: u64,
    ends: [End; 2],
    seen: Vec<(u64, usize, Packet)>,
    network: Network,
    /// 0: none; 1: counts up, 2: may come again.
    identification: u8,
    /// Of a hundred.
    lost_before: u64,
    late: u64,
    copied: u64,
}

/// What a probe saw, in order: side and packet.
pub fn history(random: &mut Random) -> Vec<(usize, Packet)> {
    let steps = 20 + random.of(120);
    let firsts = [random.pick(&[u32::MAX - 60, 0, 7]), random.next() as u32];
    let end = |first, ttl| End { first, sent: 0, fin: false, began: false, window: 100, identification: 0, ttl };
    let mut wire = Wire {
        now_ns: (1 << 50) + random.of(1 << 44),
        ends: [end(firsts[0], 64), end(firsts[1], 57)],
        seen: Vec::new(),
        network: if random.one_in(4) { Network::Ipv6 } else { Network::Ipv4 },
        identification: random.pick(&[0, 1, 1, 2]),
        lost_before: random.pick(&[0, 2, 10, 50]),
        late: random.pick(&[0, 5, 25]),
        copied: random.pick(&[0, 0, 5, 60]),
        random,
    };
    wire.handshake();
    for _ in 0..steps {
        wire.step();
    }
    let mut seen = std::mem::take(&mut wire.seen);
    seen.sort_by_key(|&(time_ns, ..)| time_ns);
    let mut seen: Vec<_> = seen.into_iter().map(|(_, side, packet)| (side, packet)).collect();
    if random.one_in(3) {
        seen.drain(..(random.of(8) as usize).min(seen.len()));
    }
    if random.one_in(8) {
        seen.retain(|&(side, _)| side == 0);
    }
    seen
}

impl Wire<'_> {
    fn handshake(&mut self) {
        let round_trip_ns = self.random.pick(&[300_000, 5_000_000, 40_000_000]);
        self.synchronize(0, Packet::SYN);
        self.wait(round_trip_ns / 2);
        self.synchronize(1, Packet::SYN | Packet::ACK);
        self.wait(round_trip_ns / 2);
        self.send(0, 0, 0, Packet::ACK);
    }

    fn synchronize(&mut self, side: usize, control: u16) {
        self.ends[side].began = true;
        let payload = if self.random.one_in(12) { self.random.of(9) as u32 } else { 0 };
        let control = if self.random.one_in(60) { control | Packet::FIN } else { control };
        self.send(side, -1, payload, control);
        while self.random.one_in(5) {
            self.wait(1_000_000_000);
            self.send(side, -1, payload, control);
        }
        self.ends[side].sent = self.ends[side].sent.max(payload);
    }

    fn wait(&mut self, about_ns: u64) {
        self.now_ns += self.random.of(2 * about_ns);
    }

    /// The number behind all that a side sent.
    fn next(&self, side: usize) -> u32 {
        let end = &self.ends[side];
        end.first.wrapping_add(u32::from(end.began)).wrapping_add(end.sent).wrapping_add(u32::from(end.fin))
    }

    /// Sends something at a distance from the first octet behind the SYN, which may be lost, late or copied.
    fn send(&mut self, side: usize, offset: i64, payload: u32, control: u16) {
        let acknowledged = if self.random.one_in(4) { self.random.of(12) as u32 } else { 0 };
        let acknowledgment = self.next(1 - side).wrapping_sub(acknowledged);
        let end = &mut self.ends[side];
        let sequence = end.first.wrapping_add(1).wrapping_add(offset as u32);
        end.identification = match self.identification {
            0 => 0,
            1 => end.identification % 60_000 + 1,
            _ => self.random.of(3) as u16,
        };
        let control = if payload > 0 && self.random.one_in(3) { control | 8 } else { control };
        let options = if control & Packet::SYN == 0 { 0 } else { end.first % 12 };
        // What the checksum tells apart.
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
        if self.random.of(100) < self.lost_before {
            return;
        }
        let late = self.random.of(100) < self.late;
        let time_ns = self.now_ns + if late { self.random.pick(&[300_000, 3_000_000, 40_000_000]) } else { 0 };
        self.seen(time_ns, side, packet);
        while self.random.of(100) < self.copied {
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
            self.seen(time_ns + after_ns, side, Packet { ttl, ..packet });
        }
    }

    fn seen(&mut self, time_ns: u64, side: usize, packet: Packet) {
        self.seen.push((time_ns, side, Packet { time_ns, ..packet }));
    }

    fn step(&mut self) {
        let pause = self.random.pick(&[20_000, 20_000, 200_000, 2_000_000]);
        let pause = if self.random.one_in(30) { 2_000_000_000 } else { pause };
        self.wait(pause);
        let side = self.random.of(2) as usize;
        let sent = i64::from(self.ends[side].sent);
        match self.random.of(100) {
            0..=34 => self.send_more(side),
            35..=49 => self.send_again(side),
            50..=64 => self.send(side, sent + i64::from(self.ends[side].fin), 0, Packet::ACK),
            65..=69 => (0..3).for_each(|_| self.send(side, sent, 0, Packet::ACK)),
            70..=73 => {
                let payload = self.random.of(2) as u32;
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
            84 => self.scatter(side),
            85 => self.burst(side),
            86 => self.be_unread(side),
            87 => self.jump(side),
            88 => self.stray(side),
            89..=91 => {
                self.ends[side].window = self.random.pick(&[0, 100, 100, 200]);
                self.send(side, sent, 0, Packet::ACK);
            }
            92 => self.send(side, sent - 1, 0, Packet::FIN | Packet::ACK),
            93 => self.send(side, sent, 0, 0),
            94 => self.leap(side),
            _ => (0..4).for_each(|_| self.send_more(side)),
        }
    }

    fn send_more(&mut self, side: usize) {
        let payload = self.random.within(1, 9) as u32;
        let sent = self.ends[side].sent;
        self.send(side, sent.into(), payload, Packet::ACK);
        self.ends[side].sent = sent.wrapping_add(payload);
    }

    /// From anywhere below to anywhere, as cut or joined anew.
    fn send_again(&mut self, side: usize) {
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

    /// Another connection between the same ports.
    fn reuse(&mut self) {
        for end in &mut self.ends {
            end.first = end.first.wrapping_add(self.random.pick(&[1, 500, 1 << 20, 1 << 31]));
            (end.sent, end.fin) = (0, false);
        }
        self.handshake();
    }

    /// Every other segment does not come by.
    fn scatter(&mut self, side: usize) {
        for _ in 0..self.random.of(50) {
            self.ends[side].sent = self.ends[side].sent.wrapping_add(self.random.within(1, 5) as u32);
            self.send_more(side);
        }
        if self.random.one_in(2) {
            let sent = self.ends[1 - side].sent;
            self.send(1 - side, sent.into(), 0, Packet::ACK);
        }
    }

    /// Much at once, as a loaded router passes on what it queued; then all of it, or some, again from behind the router.
    fn burst(&mut self, side: usize) {
        let before = self.seen.len();
        for _ in 0..self.random.pick(&[5, 62, 63, 64, 65, 80]) {
            self.send_more(side);
            self.now_ns += 1;
        }
        self.now_ns += 100_000;
        let queued: Vec<Packet> = self.seen[before..].iter().map(|&(.., packet)| packet).collect();
        for packet in queued {
            self.now_ns += 1;
            if !self.random.one_in(4) {
                self.seen(self.now_ns, side, Packet { ttl: packet.ttl - 1, ..packet });
            }
        }
    }

    /// A later fragment, or the first one, perhaps twice.
    fn be_unread(&mut self, side: usize) {
        if self.random.one_in(3) {
            let payload = self.random.of(9) as u32;
            let sent = self.ends[side].sent;
            let before = self.seen.len();
            self.send(side, sent.into(), payload, Packet::ACK);
            self.seen[before..].iter_mut().for_each(|(.., packet)| packet.flags.0 |= Flags::FRAGMENT_FIRST);
            self.ends[side].sent = sent.wrapping_add(payload);
            return;
        }
        let packet = Packet { protocol: 6, flags: Flags(Flags::FRAGMENT_LATER), payload_bytes: 9, ..Packet::default() };
        self.seen(self.now_ns, side, packet);
    }

    /// The capture has a gap.
    fn jump(&mut self, side: usize) {
        let far = self.random.pick(&[1 << 29, 1 << 30, 3 << 30, (1 << 30) - 20, 1 << 31]);
        self.ends[side].first = self.ends[side].first.wrapping_add(far);
        self.send_more(side);
        self.send_more(side);
    }

    /// Something of another time, once.
    fn stray(&mut self, side: usize) {
        let sent = i64::from(self.ends[side].sent);
        let far = self.random.pick(&[1 << 30, -(1 << 30), 1 << 31, -(1 << 20), (1 << 30) - 3, 3 - (1 << 30)]);
        let payload = self.random.of(6) as u32;
        self.send(side, sent + far, payload, Packet::ACK);
    }

    /// An acknowledgment of what did not come by.
    fn leap(&mut self, side: usize) {
        let sent = self.ends[side].sent;
        let far = self.random.pick(&[1 << 28, (1 << 28) - 1, 1 << 27]);
        self.ends[1 - side].first = self.ends[1 - side].first.wrapping_add(far);
        self.send(side, sent.into(), 0, Packet::ACK);
        self.send_again(side);
    }
}
