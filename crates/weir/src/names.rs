//! Names for tables and the page (`--names`): of hosts, from answers of DNS in the traffic and then from /etc/hosts; of services, from a
//! list of usual ports.
//!
//! Input: flow records, and messages of DNS. Output: a name for an address, if one is known. No name server is asked.
//! Names from traffic are claims of the sender of the answer. Control characters are escaped. At most
//! [`MAX_LEARNED`] addresses get a name from traffic, those that come first; of an address with several names the first
//! one counts, and `…` says that there are others.

use crate::console::printable;
use crate::stored_reader::select;
use std::collections::HashMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{debug, warn};
use weir_control::{AskNames, NamedItem};
use weir_dpi::Fact;
use weir_fields::{Field, field};
use weir_flow::FlowRecord;
use weir_probe::RecordObserver;
use weir_query::Expression;
use weir_store::{FlowReader, Found};
use weir_tcp_report::DatagramObserver;

/// Addresses with a name from traffic, at most: about 10 MB, with the longest names 25 MB.
const MAX_LEARNED: usize = 1 << 16;
/// Stored flows that are read at once.
const BATCH: usize = 1024;
/// The names of this host.
const HOSTS: &str = "/etc/hosts";
/// The response code of an answer without an error, and the types of questions for addresses.
const NO_ERROR: u64 = 0;
const ADDRESS_TYPES: [u64; 2] = [1, 28];
/// Texts of records have 255 octets at most. One of these may be cut, within a character that is escaped.
const CUT: usize = 252;

/// Names that several threads use.
#[derive(Clone)]
pub struct SharedNames(Arc<Mutex<HostNames>>);

/// Names of hosts.
#[derive(Default)]
pub struct HostNames {
    learned: HashMap<IpAddr, Learned>,
    /// Answers with addresses that did not fit.
    left_out: u64,
    of_file: HashMap<IpAddr, String>,
}

struct Learned {
    name: Box<str>,
    has_others: bool,
}

impl SharedNames {
    /// The names of /etc/hosts; traffic adds others.
    pub fn load() -> Self {
        let mut names = HostNames::default();
        match fs::read(HOSTS) {
            Ok(text) => names.add_file(&String::from_utf8_lossy(&text)),
            Err(error) => debug!(%error, "{HOSTS} cannot be read"),
        }
        Self(Arc::new(Mutex::new(names)))
    }

    pub fn lock(&self) -> MutexGuard<'_, HostNames> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Learns from records. Those without answers of DNS cost no lock.
    pub fn learn(&self, flows: &[FlowRecord]) {
        for flow in flows {
            let Some(findings) = &flow.findings else { continue };
            if let (Some(name), Some(address)) = (findings.text(Fact::LearnedName), flow.destination_ip()) {
                self.lock().add(name, address);
            }
            let (name, answers) = (findings.text(Fact::DnsName), findings.text(Fact::DnsAnswers));
            let is_answer = findings.number(Fact::DnsRcode) == Some(NO_ERROR)
                && findings.number(Fact::DnsType).is_some_and(|kind| ADDRESS_TYPES.contains(&kind));
            if let (Some(name), Some(answers), true) = (name.filter(|name| name.len() < CUT), answers, is_answer) {
                let whole =
                    if answers.len() < CUT { answers } else { answers.rsplit_once(',').map_or("", |(of, _)| of) };
                // What is no address is an alias on the way from the name to its addresses.
                let addresses = whole.split(',').filter_map(|answer| answer.parse().ok());
                addresses.for_each(|address| self.lock().add(name, address));
            }
        }
    }

    /// Learns from records before something else sees them. Says once that no more names fit.
    pub fn before(self, observe: RecordObserver) -> RecordObserver {
        let is_said = AtomicBool::new(false);
        Arc::new(move |flows| {
            self.learn(flows);
            if self.lock().left_out > 0 && !is_said.swap(true, Ordering::Relaxed) {
                self.log_left_out();
            }
            observe(flows);
        })
    }

    /// Learns from stored flows: from the name under which a client has looked up a destination. To the end of the files,
    /// or until there are as many names as are kept. What cannot be read is left out.
    pub fn learn_stored(&self, paths: &[PathBuf]) {
        let Ok(Found { mut reader, .. }) = FlowReader::open(paths, None) else { return };
        let columns: Vec<_> = ["dst_dns_name", "dst_ip"].into_iter().filter_map(field).map(Field::column).collect();
        if !columns.iter().all(|column| reader.known().contains(column)) {
            return;
        }
        let named = Expression::new("dst_dns_name").expect("this is an expression");
        select(&mut reader, None, Some(&named));
        reader.keep_only(&columns);
        let mut flows = Vec::with_capacity(BATCH);
        while self.lock().learned.len() < MAX_LEARNED {
            flows.clear();
            if let Ok(false) = reader.read(&mut flows, BATCH) {
                break;
            }
            self.learn(&flows);
        }
    }

    /// What knows names of hosts, and of services by their usual ports.
    pub fn ask(&self) -> AskNames {
        let names = self.clone();
        let find = move |item: &NamedItem| match item {
            NamedItem::Host(address) => names.lock().of(*address),
            NamedItem::Service(port, protocol) => weir_sql::port_name(*port, protocol.as_deref()).map(str::to_owned),
        };
        AskNames { find: Some(Arc::new(find)), is_learning: Arc::default() }
    }

    /// Learns from messages of DNS.
    pub fn dns_observer(&self) -> DatagramObserver {
        let names = self.clone();
        Box::new(move |message| {
            let Some((name, addresses)) = weir_dpi::addresses_of_response(message) else { return };
            addresses.into_iter().for_each(|address| names.lock().add(&name, address));
        })
    }

    /// Says how many names did not fit.
    pub fn log_left_out(&self) {
        let left_out = self.lock().left_out;
        if left_out > 0 {
            warn!(left_out, "--names: {MAX_LEARNED} addresses have a name from traffic, and no more fit");
        }
    }
}

impl HostNames {
    /// Adds a name from traffic, whose control characters are escaped.
    pub fn add(&mut self, name: &str, address: IpAddr) {
        let is_full = self.learned.len() >= MAX_LEARNED;
        match self.learned.get_mut(&address) {
            Some(known) => known.has_others |= !known.name.eq_ignore_ascii_case(name),
            None if is_full => self.left_out += 1,
            None => {
                self.learned.insert(address, Learned { name: name.into(), has_others: false });
            }
        }
    }

    /// Adds the lines of a file in the form of /etc/hosts. The first name of an address counts.
    fn add_file(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            if let (Some(Ok(address)), Some(name)) = (words.next().map(str::parse), words.next()) {
                self.of_file.entry(address).or_insert_with(|| printable(name));
            }
        }
    }

    /// The name of a host.
    pub fn of(&self, address: IpAddr) -> Option<String> {
        match self.learned.get(&address) {
            Some(learned) if learned.has_others => Some(format!("{} …", learned.name)),
            Some(learned) => Some(learned.name.to_string()),
            None => self.of_file.get(&address).cloned(),
        }
    }

    /// The names of an end of a flow: of its host, of its service behind a colon, or of both.
    pub fn of_end(&self, address: Option<IpAddr>, port: Option<u16>, protocol: &str) -> String {
        let host = address.and_then(|address| self.of(address)).unwrap_or_default();
        match port.and_then(|port| weir_sql::port_name(port, Some(protocol))) {
            Some(service) => format!("{host}:{service}"),
            None => host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_traffic_come_before_those_of_the_file() {
        let mut names = HostNames::default();
        names.add_file(
            "# a comment\n127.0.0.1 localhost loop\n192.0.2.1\trouter # mine\n::1 ip6-localhost\nx y\n192.0.2.9\n",
        );
        let [router, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        assert_eq!((names.of(router).as_deref(), names.of(other)), (Some("router"), None));
        assert_eq!(names.of("::1".parse().unwrap()).as_deref(), Some("ip6-localhost"));
        names.add("www.example", router);
        names.add("WWW.example", router);
        assert_eq!(names.of(router).as_deref(), Some("www.example"));
        names.add("other.example", router);
        assert_eq!(names.of(router).as_deref(), Some("www.example …"));
        assert_eq!(names.of_end(Some(router), Some(443), "tcp"), "www.example …:https");
        assert_eq!(names.of_end(Some(other), Some(443), "tcp"), ":https");
        assert_eq!(names.of_end(Some(other), Some(40_000), "tcp"), "");
    }

    #[test]
    fn memory_is_bounded() {
        let mut names = HostNames::default();
        for number in 0..MAX_LEARNED as u32 + 3 {
            names.add("a.example", IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!((names.learned.len(), names.left_out), (MAX_LEARNED, 3));
        names.add("b.example", IpAddr::from([0; 4]));
        assert_eq!(names.of(IpAddr::from([0; 4])).as_deref(), Some("a.example …"));
    }
}
