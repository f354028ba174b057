//! The HTTP interface of the probe (`--listen`): its settings, its reports, its requests to reload.

use super::machine;
use super::reload::ReloadResult;
use crate::actions::Actions;
use crate::anonymisation;
use crate::arguments::ProbeOptions;
use crate::error::Error;
use crate::flow_packets::{self, PacketPlaces, SegmentPlaces, SegmentSource};
use crate::names::SharedNames;
use crate::stored;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use weir_anonymise::Anonymiser;
use weir_control::{Access, AskPackets, Control, DoctorFindings, RecentFlows, ReloadReply, Request, Server};
use weir_flow::FlowRecord;
use weir_packet::DecodeOptions;
use weir_probe::{CpuAffinity, RecordEnricher};
use weir_tcp_report::PacketSelection;

/// Nice value of its thread, above that of export threads: answers may wait, records should not.
const NICE: i32 = 10;

/// What listens, and what it needs to know before privileges are dropped.
pub struct Bound {
    pub server: Server,
    /// What is wrong with the machine.
    pub doctor: DoctorFindings,
    /// With `--names`, those of this machine.
    pub names: Option<SharedNames>,
}

/// Reads the files of token and TLS, and listens; finds what is wrong with the machine. To be called with the privileges
/// of the start, before packets wait in sources, and while programs may be started.
///
/// # Errors
/// A file cannot be used, the address needs more of them, or the port is taken.
pub fn bind(probe: &ProbeOptions) -> Result<Option<Bound>, Error> {
    let Some(address) = probe.listen else { return Ok(None) };
    let server = Server::bind(address, access(probe, address)?, &probe.timing())?;
    // Questions to a store (`/stored`) leave enough descriptors for all else.
    stored::raise_limit_of_files();
    let names = probe.names.then(SharedNames::load);
    Ok(Some(Bound { server, doctor: machine::findings_of(probe), names }))
}

/// Checks the same, except that the port is free: a probe with this configuration may be running.
pub fn check(probe: &ProbeOptions) -> Result<(), Error> {
    let Some(address) = probe.listen else { return Ok(()) };
    let any_port = SocketAddr::new(address.ip(), 0);
    Server::bind(any_port, access(probe, address)?, &probe.timing())?;
    Ok(())
}

fn access(probe: &ProbeOptions, address: SocketAddr) -> Result<Access, Error> {
    let tls = probe.tls_cert.as_deref().zip(probe.tls_key.as_deref()).map(|(cert, key)| [cert, key]);
    Ok(Access::load(address, probe.token_file.as_deref(), tls)?)
}

/// The memory for the last flows that end (`--listen-records`).
pub fn recent(probe: &ProbeOptions) -> Option<Arc<RecentFlows>> {
    let records = probe.kept_records();
    (records > 0).then(|| Arc::new(RecentFlows::new(records)))
}

/// Keeps records when they have their places, anonymised as for a sink. It runs once for each batch, on the thread of the
/// sink that gets it first.
pub fn keeping(
    recent: Arc<RecentFlows>,
    places: Option<RecordEnricher>,
    anonymiser: Option<&Anonymiser>,
) -> RecordEnricher {
    let anonymise = anonymisation::enricher(None, anonymiser);
    Arc::new(move |records: &mut [FlowRecord]| {
        if let Some(places) = &places {
            places(records);
        }
        match &anonymise {
            _ if !recent.is_wanted() => {}
            None => recent.add(records),
            Some(anonymise) => {
                let mut anonymised = records.to_vec();
                anonymise(&mut anonymised);
                recent.add(&anonymised);
            }
        }
    })
}

/// What finds the packets of flows, in the folders of the recorder. A reload does not change these. There is none with
/// `--anonymise`, which refuses rules.
pub fn packets(probe: &ProbeOptions, actions: Option<&Actions>) -> AskPackets {
    let paths: Vec<PathBuf> = actions.into_iter().flat_map(Actions::folders).collect();
    let reason = match () {
        () if paths.is_empty() => Some(flow_packets::NO_RECORDER),
        () if probe.listen_packets == 0 => Some(flow_packets::SWITCHED_OFF),
        () if probe.metering.selection.decap => Some(flow_packets::OF_TUNNELS),
        () => None,
    };
    if let Some(reason) = reason {
        return flow_packets::ask(Err(reason.into()), Err(reason.into()));
    }
    let source = SegmentSource::Recorded(paths.clone());
    let selection = PacketSelection { filter: None, times_ns: None, decode: DecodeOptions { decapsulate: false } };
    let places = PacketPlaces {
        paths,
        missing: None,
        most_octets: probe.listen_packets,
        are_recorded: true,
        filter: None,
        times_ns: 0..=u64::MAX,
    };
    flow_packets::ask(Ok(places), Ok(SegmentPlaces { source, selection }))
}

/// Where the thread of the server runs: with those of the sinks.
pub fn affinity(export_cores: &[usize]) -> CpuAffinity {
    CpuAffinity { cores: export_cores.into(), nice: NICE }
}

/// Describes the interface, for `--check`.
pub fn text(probe: &ProbeOptions) -> String {
    let Some(address) = probe.listen else { return "off".into() };
    let scheme = if probe.tls_cert.is_some() { "https" } else { "http" };
    let changes = match &probe.token_file {
        Some(path) => format!("changes with the token of {}", path.display()),
        None => "no changes".into(),
    };
    format!("{scheme}://{address}, {changes}")
}

/// Requests over HTTP. Those to reload wait until a reload that runs already has ended, so that their
/// result is that of a reload after them. One reload answers all that wait.
#[derive(Default)]
pub struct Requests {
    waiting: Vec<ReloadReply>,
    running: Vec<ReloadReply>,
}

impl Requests {
    /// Takes new requests. Returns whether a reload is to start; `is_idle` if none is running.
    pub fn start(&mut self, control: &Control, probe: &weir_probe::Probe, is_idle: bool) -> bool {
        for request in control.requests() {
            match request {
                Request::Reload(reply) => self.waiting.push(reply),
                Request::Flows(search, replies) => probe.search_flows(&search, || replies.reply()),
            }
        }
        if self.waiting.is_empty() || !self.running.is_empty() || !is_idle {
            return false;
        }
        self.running = std::mem::take(&mut self.waiting);
        true
    }

    /// Answers with the result of a reload.
    pub fn end(&mut self, result: &ReloadResult) {
        // A client may have gone.
        self.running.drain(..).for_each(|reply| drop(reply.send(result.clone())));
    }
}
