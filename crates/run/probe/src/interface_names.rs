//! Names of the interfaces that packets come from, as far as sources know them.
//!
//! Reading stages add the names of interfaces before they hand over their first packets, so a name
//! is there when the first record of its interface is exported.

use parking_lot::Mutex;
use std::sync::Arc;
use weir_capture::{Input, Source};
use weir_packet::Packet;

type NamesByNumber = Vec<(u32, Arc<str>)>;

/// Names by interface number. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct InterfaceNames(Arc<Mutex<NamesByNumber>>);

impl InterfaceNames {
    /// The name of an interface, as far as it is known.
    pub fn name(&self, interface: u32) -> Option<Arc<str>> {
        self.0.lock().iter().find(|(number, _)| *number == interface).map(|(_, name)| name.clone())
    }

    fn add(&self, names: Vec<(u32, String)>) {
        let mut known = self.0.lock();
        for (number, name) in names {
            match known.iter_mut().find(|(of, _)| *of == number) {
                Some((_, old)) if **old != *name => *old = name.into(),
                Some(_) => {}
                None => known.push((number, name.into())),
            }
        }
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
                self.names.add(source.interfaces());
            }
        }
    }
}
