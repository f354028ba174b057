//! One device, or the processor in its place: batches in, connections out.

use crate::batch::{Batch, LARGEST};
use crate::buffer::Buffer;
use crate::card::{Card, Device, Failure, Returned};
use crate::conversation::ConnectionRecord;
use crate::cpu::Walker;
use crate::key::Secret;
use crate::record::{Ipv4, Ipv6};
use crate::table::Table;
use weir_packet::{Network, Packet};

/// A table, and what walks through the batches that change it.
pub(crate) struct Lane {
    table: Table,
    walker: Walker,
    /// Records of a batch, at most.
    limit: usize,
    /// Until it fails.
    card: Option<Card>,
    /// Of IPv4 and of IPv6.
    filling: [Batch; 2],
    spare: Vec<Buffer>,
    pub batches: u64,
    /// Batches that a card did not finish and the processor did.
    pub redone: u64,
    /// What the card said when it failed.
    pub failure: Option<Failure>,
}

impl Lane {
    /// On the processor, with batches of so many records.
    pub fn new(secret: Secret, limit: usize) -> Self {
        let filling = [Network::Ipv4, Network::Ipv6].map(|network| Batch::new(network, Buffer::plain(0)));
        Self {
            table: Table::new(secret),
            walker: Walker::default(),
            limit,
            card: None,
            filling,
            spare: Vec::new(),
            batches: 0,
            redone: 0,
            failure: None,
        }
    }

    /// On a device.
    pub fn on(device: Box<dyn Device>, secret: Secret, limit: usize) -> Result<Self, Failure> {
        let mut lane = Self::new(secret, limit);
        lane.card = Some(Card::new(device, limit, &lane.table)?);
        Ok(lane)
    }

    /// Makes room for so many directions in trouble, at most.
    pub fn limit_trouble(&mut self, in_trouble: usize) {
        self.table.in_trouble = in_trouble;
    }

    /// Takes a packet of TCP that has ports.
    #[inline]
    pub fn enter(&mut self, packet: &Packet, done: &mut Vec<ConnectionRecord>) {
        if !self.push(packet) {
            self.flush(usize::from(packet.network == Network::Ipv6), done);
            assert!(self.push(packet), "a batch has room for one packet");
        }
    }

    #[inline]
    fn push(&mut self, packet: &Packet) -> bool {
        let secret = self.table.room.digest_key();
        match packet.network {
            Network::Ipv4 => self.filling[0].push::<Ipv4>(packet, secret, self.limit),
            _ => self.filling[1].push::<Ipv6>(packet, secret, self.limit),
        }
    }

    /// Hands over what was packed, and begins another batch.
    fn flush(&mut self, which: usize, done: &mut Vec<ConnectionRecord>) {
        let buffer = self.buffer();
        let network = self.filling[which].network;
        let batch = std::mem::replace(&mut self.filling[which], Batch::new(network, buffer));
        if batch.count == 0 {
            return;
        }
        self.batches += 1;
        match &mut self.card {
            None => self.walk(batch, done),
            Some(card) => match card.submit(batch, &mut self.table, done) {
                Ok(before) => before.into_iter().for_each(|batch| self.spare.push(batch.buffer)),
                Err(returned) => self.redo(returned, done),
            },
        }
    }

    /// Memory to pack into.
    fn buffer(&mut self) -> Buffer {
        let spare = self.spare.pop();
        let pinned = || self.card.as_mut().and_then(|card| card.buffer().ok());
        spare.or_else(pinned).unwrap_or_else(|| Buffer::plain(self.limit * LARGEST))
    }

    fn walk(&mut self, batch: Batch, done: &mut Vec<ConnectionRecord>) {
        self.walker.walk(&mut self.table, &batch, done);
        self.spare.push(batch.buffer);
    }

    /// Goes on without the card, from the last batch that it finished.
    fn redo(&mut self, returned: Returned, done: &mut Vec<ConnectionRecord>) {
        self.card = None;
        self.failure = Some(returned.why);
        for batch in returned.batches {
            self.redone += 1;
            self.walk(batch, done);
        }
    }

    /// Ends the capture: what is known of every connection that is left.
    pub fn finish(&mut self, done: &mut Vec<ConnectionRecord>) {
        for which in 0..2 {
            if self.filling[which].count > 0 {
                self.flush(which, done);
            }
        }
        if let Some(card) = &mut self.card {
            match card.finish(&mut self.table, done) {
                Ok(before) => before.into_iter().for_each(|batch| self.spare.push(batch.buffer)),
                Err(returned) => self.redo(returned, done),
            }
        }
        // What was an entry gives its memory back for what is said of it.
        self.table.index = Vec::new();
        while let Some(entry) = self.table.entries.pop() {
            done.push(entry.conversation(&self.table.room));
        }
    }
}

#[cfg(test)]
impl Lane {
    /// What is kept of every connection, but for the numbers in the room, which are chance.
    pub fn octets(&self) -> std::collections::BTreeMap<String, Vec<u8>> {
        const TROUBLE: [usize; 2] = [28, 64 + 28];
        let entries = self.table.entries.iter().map(|entry| {
            let mut octets = bytemuck::bytes_of(entry).to_vec();
            let connection = size_of_val(entry) - size_of_val(&entry.connection);
            TROUBLE.iter().for_each(|at| octets[connection + at..][..4].fill(0));
            (format!("{:?}", entry.key), octets)
        });
        entries.collect()
    }
}
