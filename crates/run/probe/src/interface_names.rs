//! Names of the interfaces that packets come from, as far as sources know them.
//!
//! Reading stages add the names of interfaces before they hand over their first packets, so a name
//! is there when the first record of its interface is exported.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_capture::{Input, Source};
use weir_packet::Packet;

/// Names by interface number. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct InterfaceNames(Arc<Mutex<BTreeMap<u32, Arc<str>>>>);

impl InterfaceNames {
    /// The name of an interface, as far as it is known.
    pub fn name(&self, interface: u32) -> Option<Arc<str>> {
        self.0.lock().get(&interface).cloned()
    }
}

/// The interfaces that a reading stage has seen.
#[derive(Debug)]
pub(crate) struct SeenInterfaces {
    names: InterfaceNames,
    last: Option<u32>,
}

impl SeenInterfaces {
    pub fn new(names: InterfaceNames) -> Self {
        Self { names, last: None }
    }

    /// Asks the source for names if a packet is from another interface than the one before.
    pub fn note(&mut self, packets: &[Packet], source: &Input<'_>) {
        for packet in packets {
            if self.last != Some(packet.interface) {
                self.last = Some(packet.interface);
                let mut known = self.names.0.lock();
                for (number, name) in source.interfaces() {
                    if known.get(&number).is_none_or(|known| **known != *name) {
                        known.insert(number, name.into());
                    }
                }
            }
        }
    }
}
