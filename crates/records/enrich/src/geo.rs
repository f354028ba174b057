//! Databases of `--geo`: country and autonomous system by address, in the MaxMind DB format.
//!
//! A database is read whole, and only country and autonomous system are kept, in a table of ranges.
//! So a lookup needs no decoding, a damaged database is found when it is loaded, and one of cities
//! takes no more memory than one of countries. Source: MaxMind DB File Format Specification 2.0.

use crate::error::{Error, Problem};
use crate::file::InputFile;
use crate::prefix::Prefix;
use crate::prefix_map::{PrefixMap, PrefixMapBuilder};
use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader, WithinOptions};
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use weir_dpi::printable;
use weir_flow::AutonomousSystem;

/// Longest name of an organization that is kept, octets.
const MAX_ORGANIZATION_OCTETS: usize = 128;
/// A tree of N nodes has at most N + 1 leaves. Beyond this multiple, nodes refer to each other in a
/// circle.
const MAX_LEAVES_PER_NODE: usize = 2;

/// A database in memory.
#[derive(Debug)]
pub(crate) struct GeoDatabase {
    /// Position in `entries`, from 1 on.
    prefixes: PrefixMap<Option<NonZeroU32>>,
    /// Different entries.
    entries: Vec<GeoEntry>,
    /// Type of the database, as it says itself.
    pub kind: String,
    /// Networks with an entry.
    pub networks: u64,
}

/// What a database says of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct GeoEntry {
    /// Two letters in ASCII.
    pub country: Option<[u8; 2]>,
    pub autonomous_system: Option<Arc<AutonomousSystem>>,
}

impl GeoDatabase {
    /// Reads a database.
    ///
    /// # Errors
    /// The file cannot be read, is no database, is damaged, or has neither countries nor autonomous
    /// systems.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = || Self::parse(&InputFile::open(path)?.read_all()?);
        read().map_err(|problem| Error::new("--geo", path, problem))
    }

    /// Reads the octets of a database.
    pub fn parse(octets: &[u8]) -> Result<Self, Problem> {
        let damaged = |error: MaxMindDbError| Problem::Database(error.to_string());
        let reader = Reader::from_source(octets).map_err(damaged)?;
        let kind = reader.metadata().database_type.clone();
        let most = (reader.metadata().node_count as usize + 1) * MAX_LEAVES_PER_NODE;
        let mut builder = PrefixMapBuilder::default();
        let mut entries = Entries::default();
        let mut networks = 0;
        let leaves = reader.networks(WithinOptions::default().include_networks_without_data()).map_err(damaged)?;
        for (number, leaf) in leaves.enumerate() {
            if number > most {
                return Err(Problem::Database("nodes of its tree refer to each other in a circle".into()));
            }
            let leaf = leaf.map_err(damaged)?;
            if let Some(entry) = entries.number_of(&leaf).map_err(damaged)? {
                let network = leaf.network().map_err(damaged)?;
                builder.add(Prefix::new(network.ip(), network.prefix()), Some(entry));
                networks += 1;
            }
        }
        if entries.list.is_empty() {
            return Err(Problem::NoPlaces(kind.chars().take(64).collect()));
        }
        let prefixes = builder.build(|_, longer| longer);
        Ok(Self { prefixes, entries: entries.list, kind, networks })
    }

    /// The entry of an address.
    pub fn get(&self, address: IpAddr) -> Option<&GeoEntry> {
        let number = self.prefixes.get(address)?;
        self.entries.get(number.get() as usize - 1)
    }

    pub fn memory_bytes(&self) -> usize {
        // An organization is shared by all entries of its system.
        let text = |entry: &GeoEntry| entry.autonomous_system.as_ref()?.organization.as_ref().map(|text| text.len());
        let texts: usize = self.entries.iter().filter_map(text).sum();
        self.prefixes.memory_bytes() + self.entries.len() * (size_of::<GeoEntry>() + 64) + texts
    }
}

/// The different entries of a database while it is read.
#[derive(Default)]
struct Entries {
    list: Vec<GeoEntry>,
    numbers: HashMap<GeoEntry, NonZeroU32>,
    /// By the position of the data that networks share. `None`: neither country nor system.
    of_data: HashMap<usize, Option<NonZeroU32>>,
    systems: HashMap<AutonomousSystem, Arc<AutonomousSystem>>,
}

impl Entries {
    /// The number of the entry of a network, from 1 on.
    fn number_of(&mut self, leaf: &LookupResult<'_, &[u8]>) -> Result<Option<NonZeroU32>, MaxMindDbError> {
        let Some(offset) = leaf.offset() else { return Ok(None) };
        if let Some(&known) = self.of_data.get(&offset) {
            return Ok(known);
        }
        let country: Option<&str> = value(leaf, &["country", "iso_code"])?;
        let country = country.and_then(|code| code.as_bytes().try_into().ok());
        let country = country.filter(|letters: &[u8; 2]| letters.iter().all(u8::is_ascii_alphabetic));
        let number: Option<u32> = value(leaf, &["autonomous_system_number"])?;
        let organization: Option<&str> = value(leaf, &["autonomous_system_organization"])?;
        let autonomous_system = number.map(|number| {
            let system = AutonomousSystem { number, organization: organization.and_then(organization_text) };
            self.systems.entry(system.clone()).or_insert_with(|| Arc::new(system)).clone()
        });
        let entry = GeoEntry { country, autonomous_system };
        let number = if entry == GeoEntry::default() {
            None
        } else if let Some(&known) = self.numbers.get(&entry) {
            Some(known)
        } else {
            self.list.push(entry.clone());
            let number = u32::try_from(self.list.len()).ok().and_then(NonZeroU32::new);
            self.numbers.extend(number.map(|number| (entry, number)));
            number
        };
        self.of_data.insert(offset, number);
        Ok(number)
    }
}

/// A value of the data of a network; `None` if it has no such key, or a value of another type.
fn value<'a, T: serde::Deserialize<'a>>(
    leaf: &LookupResult<'a, &'a [u8]>,
    keys: &[&str],
) -> Result<Option<T>, MaxMindDbError> {
    let path: Vec<PathElement<'_>> = keys.iter().map(|key| PathElement::Key(key)).collect();
    match leaf.decode_path(&path) {
        Err(MaxMindDbError::Decoding { .. }) => Ok(None),
        value => value,
    }
}

/// The name of an organization without control characters, cut to the longest that is kept. Invisible
/// characters are escaped.
fn organization_text(text: &str) -> Option<Box<str>> {
    let mut end = text.len().min(MAX_ORGANIZATION_OCTETS);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text: String = text[..end].chars().filter(|character| !character.is_control()).collect();
    (!text.is_empty()).then(|| printable(&text).into())
}

#[cfg(test)]
#[cfg(test)]
mod tests {
    use super::*;
    use testbed::mmdb::{Database, country, system};

    /// Nothing panics, and nothing takes for ever.
    #[test]
    fn any_damage_of_a_database_is_an_error_or_harmless() {
        let networks =
            [("1.0.0.0/8", country("AU")), ("1.2.0.0/16", system(64_500, "x")), ("2001:db8::/32", country("DE"))];
        let whole = Database::of("Test", &networks).octets();
        assert_eq!(GeoDatabase::parse(&whole).unwrap().entries.len(), 3);
        let mut refused = 0;
        let mut check = |octets: &[u8]| match GeoDatabase::parse(octets) {
            Ok(database) => {
                for address in ["1.2.3.4", "255.255.255.255", "2001:db8::1", "::"] {
                    database.get(address.parse().unwrap());
                }
            }
            Err(_) => refused += 1,
        };
        for at in 0..whole.len() {
            check(&whole[..at]);
            for octet in (0..8).map(|bit| 1 << bit).chain([0xff]) {
                let mut changed = whole.clone();
                changed[at] ^= octet;
                check(&changed);
            }
        }
        assert!(refused > whole.len(), "{refused}");
    }

    /// Each node has the next one on both sides, so there are 2^127 paths through the tree.
    #[test]
    fn a_tree_with_more_paths_than_nodes_is_refused() {
        let mut octets = Database::of("Test", &[("8000::/128", country("DE"))]).octets();
        let nodes = 128_u32;
        for node in 0..nodes {
            let next = (node + 1).to_be_bytes();
            octets[node as usize * 8..][..8].copy_from_slice(&[next, next].concat());
        }
        let error = GeoDatabase::parse(&octets).unwrap_err().to_string();
        assert!(error.ends_with("nodes of its tree refer to each other in a circle"), "{error}");
    }

    #[test]
    fn organizations_are_cut_between_characters_and_have_no_control_characters() {
        assert_eq!(organization_text("a\nb").as_deref(), Some("ab"));
        assert_eq!(organization_text("\n"), None);
        assert_eq!(organization_text("a\u{202e}b").as_deref(), Some(r"a\xe2\x80\xaeb"));
        let long = "\u{20ac}".repeat(100);
        assert_eq!(organization_text(&long).unwrap().chars().count(), 42);
    }
}
