//! Names of hosts and services (`/names`): the addresses and ports of a request, and what is known of each.

use crate::parameters::InvalidQuery;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::{IntoParams, ToSchema};

/// Addresses and ports of a request, at most.
const MAX_ITEMS: usize = 256;

/// The parameters of a question for names.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// Addresses, and ports with or without a protocol, joined by commas: up to 256
    #[param(required = true, example = "192.0.2.1,443/tcp")]
    of: Option<String>,
}

/// What may have a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedItem {
    /// A host.
    Host(IpAddr),
    /// A port, and the protocol if it is known.
    Service(u16, Option<String>),
}

/// The names.
#[derive(Serialize, ToSchema)]
pub struct Names {
    /// By address or port as in the request.
    names: BTreeMap<String, String>,
    /// False while a view still reads its stores: some names may be missing.
    complete: bool,
}

/// Finds a name.
pub type FindName = dyn Fn(&NamedItem) -> Option<String> + Send + Sync;

/// What knows names; nothing does without `--names`.
#[derive(Clone, Default)]
pub struct AskNames {
    /// Finds the name of an item.
    pub find: Option<Arc<FindName>>,
    /// Stores are still read for names.
    pub is_learning: Arc<AtomicBool>,
}

impl Query {
    /// The items by their texts.
    ///
    /// # Errors
    /// There are none or too many, or one is neither an address nor a port.
    pub fn items(self) -> Result<BTreeMap<String, NamedItem>, InvalidQuery> {
        let of = self.of.filter(|of| !of.is_empty()).ok_or(InvalidQuery::Named(MAX_ITEMS))?;
        if of.split(',').count() > MAX_ITEMS {
            return Err(InvalidQuery::Named(MAX_ITEMS));
        }
        let item = |text: &str| Some((text.to_owned(), NamedItem::parse(text)?));
        of.split(',').map(|text| item(text).ok_or(InvalidQuery::Named(MAX_ITEMS))).collect()
    }
}

impl NamedItem {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Host(address));
        }
        let (port, protocol) = text.split_once('/').map_or((text, None), |(port, protocol)| (port, Some(protocol)));
        Some(Self::Service(port.parse().ok()?, protocol.map(str::to_lowercase)))
    }
}

impl AskNames {
    /// Whether names are known.
    pub fn are_known(&self) -> bool {
        self.find.is_some()
    }

    /// The names of items; `None` if none are known.
    pub fn of(&self, items: BTreeMap<String, NamedItem>) -> Option<Names> {
        let find = self.find.as_ref()?;
        // Before the names are looked at, so that none is missing if it says so.
        let complete = !self.is_learning.load(Ordering::Acquire);
        Some(Names {
            names: items.into_iter().filter_map(|(text, item)| Some((text, find(&item)?))).collect(),
            complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_addresses_and_ports() {
        let items = |of: &str| Query { of: Some(of.into()) }.items();
        let found = items("192.0.2.1,2001:db8::1,443,53/UDP").unwrap();
        assert_eq!(found["53/UDP"], NamedItem::Service(53, Some("udp".into())));
        assert_eq!(found["443"], NamedItem::Service(443, None));
        assert_eq!(found["2001:db8::1"], NamedItem::Host("2001:db8::1".parse().unwrap()));
        for wrong in ["", "x", "192.0.2.1,", "65536", "1,,2"] {
            assert!(matches!(items(wrong), Err(InvalidQuery::Named(_))), "{wrong}");
        }
        assert!(items(&["1"; MAX_ITEMS].join(",")).is_ok() && items(&["1"; MAX_ITEMS + 1].join(",")).is_err());
        assert!(Query::default().items().is_err());
    }
}
