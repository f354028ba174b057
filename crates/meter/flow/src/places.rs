//! What tables, databases and lists of the user say about the endpoints of a flow, and the name of
//! its interface.
//!
//! Enrichment sets it before records are exported; the meter leaves it out.

use std::sync::Arc;

/// Places and tags of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Of the initiator.
    pub source: Place,
    /// Of the responder.
    pub destination: Place,
    /// Names of the lists that have one of the addresses, or a name or fingerprint of the flow,
    /// separated by spaces.
    pub tags: Option<Box<str>>,
    /// Name of the interface of the record.
    pub interface: Option<Arc<str>>,
    /// Databases were asked for countries and autonomous systems.
    pub has_geo: bool,
}

/// The place of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The network of a table that has its address.
    pub network: Option<Arc<NamedNetwork>>,
    /// Whether that network is local; not without a table of networks.
    pub is_local: Option<bool>,
    /// Country, two letters in ASCII (ISO 3166-1).
    pub country: Option<[u8; 2]>,
    /// The autonomous system that announces its address.
    pub autonomous_system: Option<Arc<AutonomousSystem>>,
    /// Names of the lists that have its address, separated by spaces.
    pub tags: Option<Box<str>>,
}

impl Place {
    /// Country, two letters (ISO 3166-1).
    pub fn country(&self) -> Option<&str> {
        self.country.as_ref().and_then(|letters| str::from_utf8(letters).ok())
    }
}

/// A network of a table of the user. A text that the table does not have is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedNetwork {
    /// Its name.
    pub name: Box<str>,
    /// Where it is.
    pub site: Box<str>,
    /// What it is for.
    pub role: Box<str>,
    /// It is one of the user's own networks.
    pub is_local: bool,
}

/// An autonomous system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AutonomousSystem {
    /// Its number.
    pub number: u32,
    /// Its organization, if that is known.
    pub organization: Option<Box<str>>,
}

impl Places {
    /// The places of the flow in the other direction.
    pub fn reversed(&self) -> Self {
        Self { source: self.destination.clone(), destination: self.source.clone(), ..self.clone() }
    }
}
