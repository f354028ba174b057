//! All tables, databases and lists together.

use crate::domain;
use crate::error::{BrokenLines, Error};
use crate::geo::GeoDatabase;
use crate::networks::Networks;
use crate::tag_set::TagSet;
use crate::tags::{ListContent, TagList, TagLists};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_dpi::{Fact, Findings};
use weir_flow::{Approximate, FlowRecord, NamedNetwork, Place, Places};

/// Files of the options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// `--networks`.
    pub networks: Option<PathBuf>,
    /// `--geo`. The first database that has a value for an address gives it.
    pub geo: Vec<PathBuf>,
    /// `--tags`.
    pub tags: Vec<TagList>,
}

impl Sources {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let tags = self.tags.iter().map(|list| &list.path);
        self.networks.iter().chain(&self.geo).chain(tags).map(PathBuf::as_path)
    }
}

/// What a loaded file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The option, with the name of a list: `--tags botnets`.
    pub option: String,
    /// The file.
    pub path: PathBuf,
    /// Prefixes, networks of a database, or entries of a list.
    pub entries: u64,
    /// Type of a database, as it says itself.
    pub kind: Option<String>,
    /// Lines of a list that were left out.
    pub broken: BrokenLines,
}

/// Tables, databases and lists in memory.
#[derive(Debug, Default)]
pub struct Enrichment {
    networks: Option<Networks>,
    geo: Vec<GeoDatabase>,
    tags: Option<TagLists>,
}

impl Enrichment {
    /// Reads all files.
    ///
    /// # Errors
    /// Files cannot be used: all of those.
    pub fn load(sources: &Sources) -> Result<(Self, Vec<Report>), Vec<Error>> {
        let (mut new, mut reports, mut errors) = (Self::default(), Vec::new(), Vec::new());
        if let Some(path) = &sources.networks {
            match Networks::load(path) {
                Ok(networks) => {
                    reports.push(report("--networks", path, networks.entries));
                    new.networks = Some(networks);
                }
                Err(error) => errors.push(error),
            }
        }
        for path in &sources.geo {
            match GeoDatabase::load(path) {
                Ok(database) => {
                    let kind = Some(database.kind.clone());
                    reports.push(Report { kind, ..report("--geo", path, database.networks) });
                    new.geo.push(database);
                }
                Err(error) => errors.push(error),
            }
        }
        if !sources.tags.is_empty() {
            match TagLists::load(&sources.tags) {
                Ok((lists, of_lists)) => {
                    reports.extend(sources.tags.iter().zip(of_lists).map(|(list, of_list)| {
                        let option = format!("--tags {}", list.name);
                        Report { broken: of_list.broken, ..report(option, &list.path, of_list.entries) }
                    }));
                    new.tags = Some(lists);
                }
                Err(of_lists) => errors.extend(of_lists),
            }
        }
        if errors.is_empty() { Ok((new, reports)) } else { Err(errors) }
    }

    /// What these lists of `--tags` have together, selected by name.
    pub fn lists(&self, is_wanted: impl Fn(&str) -> bool) -> ListContent {
        self.tags.as_ref().map_or(ListContent::default(), |tags| tags.content(is_wanted))
    }

    /// The network of `--networks` that has this address.
    pub fn network(&self, address: IpAddr) -> Option<&Arc<NamedNetwork>> {
        self.networks.as_ref()?.get(address)
    }

    /// Memory of everything.
    pub fn memory_bytes(&self) -> usize {
        self.networks.as_ref().map_or(0, Networks::memory_bytes)
            + self.geo.iter().map(GeoDatabase::memory_bytes).sum::<usize>()
            + self.tags.as_ref().map_or(0, TagLists::memory_bytes)
    }

    /// Places and tags of a record. A layer-2 flow has none, and an overflow record neither: its
    /// addresses are prefixes.
    pub fn places(&self, record: &FlowRecord) -> Places {
        let (Some(source), Some(destination), false) =
            (record.source_ip(), record.destination_ip(), record.approximate.has(Approximate::OVERFLOW))
        else {
            return Places::default();
        };
        let (source, of_source) = self.place(source);
        let (destination, of_destination) = self.place(destination);
        let of_findings = match (&self.tags, &record.findings) {
            (Some(lists), Some(findings)) => of_findings(lists, findings),
            _ => TagSet::default(),
        };
        let tags = self.text(of_source | of_destination | of_findings);
        Places { source, destination, tags, interface: None, has_geo: !self.geo.is_empty() }
    }

    /// The place of an address, and the lists that have it.
    fn place(&self, address: IpAddr) -> (Place, TagSet) {
        let network = self.networks.as_ref().and_then(|networks| networks.get(address)).cloned();
        let tags = self.tags.as_ref().map_or(TagSet::default(), |tags| tags.of_address(address));
        let mut place = Place {
            is_local: self.networks.as_ref().map(|_| network.as_ref().is_some_and(|network| network.is_local)),
            network,
            country: None,
            autonomous_system: None,
            tags: self.text(tags),
        };
        for entry in self.geo.iter().filter_map(|database| database.get(address)) {
            place.country = place.country.or(entry.country);
            if place.autonomous_system.is_none() {
                place.autonomous_system.clone_from(&entry.autonomous_system);
            }
        }
        (place, tags)
    }

    fn text(&self, tags: TagSet) -> Option<Box<str>> {
        self.tags.as_ref()?.text(tags)
    }
}

/// The lists that have a name of the flow (the server name of TLS and QUIC, the host of HTTP, the name
/// that DNS was asked for), or the fingerprint of its client.
fn of_findings(lists: &TagLists, findings: &Findings) -> TagSet {
    let names = [Fact::ServerName, Fact::HttpHost, Fact::DnsName].into_iter().filter_map(|fact| findings.text(fact));
    let mut tags = TagSet::default();
    names.for_each(|name| tags |= lists.of_name(domain::without_port(name)));
    // Two hashes, which are not computed in vain.
    if lists.have_fingerprints() {
        let (ja3, ja4) = (weir_dpi::ja3(findings), weir_dpi::ja4(findings));
        for fingerprint in [ja3.as_ref().map(<[u8; 32]>::as_slice), ja4.as_ref().map(<[u8; 36]>::as_slice)] {
            let text = fingerprint.and_then(|octets| str::from_utf8(octets).ok());
            tags |= text.map_or(TagSet::default(), |text| lists.of_fingerprint(text));
        }
    }
    tags
}

fn report(option: impl Into<String>, path: &Path, entries: u64) -> Report {
    Report { option: option.into(), path: path.into(), entries, kind: None, broken: BrokenLines::default() }
}
