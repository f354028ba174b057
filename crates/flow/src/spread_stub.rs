//! Stub.
#![allow(missing_docs)]
use crate::*;
use weir_packet::Packet;
pub const PARTS: usize = 512;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts([u64; 8]);
impl Parts {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn insert(&mut self, part: u16) {
        self.0[part as usize / 64] |= 1 << (part % 64);
    }
    pub fn contains(&self, part: u16) -> bool {
        self.0[part as usize / 64] >> (part % 64) & 1 == 1
    }
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }
}
#[derive(Debug)]
pub struct Spread(KeyHash, KeyOptions);
impl Spread {
    pub fn new(secret: u64, key: KeyOptions) -> std::io::Result<Self> {
        Ok(Self(KeyHash::new(Some(secret)), key))
    }
    pub fn part(&mut self, packet: &mut Packet) -> u16 {
        ((self.0.of(packet, self.1) >> 16) % 512) as u16
    }
}
#[derive(Debug)]
pub struct Moved(());
impl Meter {
    pub fn seek(&mut self, _: Parts) {}
    pub fn sought(&self) -> bool {
        true
    }
    pub fn forget(&mut self) {}
    pub fn release(&mut self, mut hand_over: impl FnMut(u16, Moved)) {
        let _ = &mut hand_over;
    }
    pub fn adopt(&mut self, _: Moved, _: &mut Vec<Flow>) {}
}
