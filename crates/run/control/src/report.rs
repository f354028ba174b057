//! What the probe reports to the server, and how the server asks.
//!
//! A request that finds no report that is fresh enough wants a new one. The main thread of the probe
//! looks at that between two checks and publishes one, for all requests that wait. So their number
//! does not matter. Without any, the history (`history.rs`) wants one each second.

use crate::in_effect::InEffect;
use parking_lot::RwLock;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, mpsc as mpsc_async, oneshot};
use weir_ledger::Ledger;
use weir_probe::{FlowReply, FlowSearch, FoundFlows, GroupStatus, Heartbeat};

/// A report that is not older than this serves further requests.
pub const REPORT_AGE: Duration = Duration::from_millis(250);
/// How long a request waits for a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// Requests that wait for the main thread of the probe.
const MAX_REQUESTS: usize = 16;

/// What the probe reports about itself.
#[derive(Default)]
pub struct Report {
    /// The ledger since the start.
    pub ledger: Ledger,
    /// The pipelines.
    pub pipelines: Vec<GroupStatus>,
    /// The figures of the last whole interval, as `weir probe --status json` prints them; null before
    /// the first one has ended.
    pub interval: Value,
    /// The interfaces of all sources, and whether each is up and has a link.
    pub interfaces: Vec<(String, bool)>,
    /// What the probe runs with.
    pub in_effect: InEffect,
    /// The probe has stopped receiving, and this is its last report.
    pub is_ending: bool,
}

/// A report and when it was published.
pub(crate) struct Snapshot {
    pub report: Report,
    pub published: Instant,
}

/// What the main thread of the probe and the server share.
pub(crate) struct Exchange {
    snapshot: RwLock<Arc<Snapshot>>,
    published: Notify,
    is_wanted: AtomicBool,
    pub started: SystemTime,
}

/// Answers a request to reload: what was reloaded, or why not.
pub type ReloadReply = oneshot::Sender<Result<String, String>>;

/// A request of a client that the main thread of the probe passes on.
pub enum Request {
    /// Reload the configuration and the lists.
    Reload(ReloadReply),
    /// Search among the current flows.
    Flows(FlowSearch, FlowReplies),
}

/// Where the threads that meter answer to.
pub struct FlowReplies(mpsc_async::UnboundedSender<FoundFlows>);

impl FlowReplies {
    /// For one more thread.
    pub fn reply(&self) -> FlowReply {
        let sender = self.0.clone();
        // The client may have gone.
        Box::new(move |found| drop(sender.send(found)))
    }
}

/// The side of the main thread of the probe.
pub struct Control {
    exchange: Arc<Exchange>,
    requests: mpsc::Receiver<Request>,
    address: SocketAddr,
    heartbeat: Arc<Heartbeat>,
}

/// The side of the server.
#[derive(Clone)]
pub(crate) struct Client {
    pub exchange: Arc<Exchange>,
    requests: SyncSender<Request>,
    /// The main thread of the probe, which may be parked.
    main_thread: Thread,
}

/// Both sides, with the first report. Requests wake the thread that calls this, if it is parked.
pub(crate) fn connect(first: Report, address: SocketAddr) -> (Control, Client) {
    let (sender, requests) = mpsc::sync_channel(MAX_REQUESTS);
    let snapshot = Snapshot { report: first, published: Instant::now() };
    let exchange = Arc::new(Exchange {
        snapshot: RwLock::new(Arc::new(snapshot)),
        published: Notify::new(),
        is_wanted: AtomicBool::new(false),
        started: SystemTime::now(),
    });
    let client = Client { exchange: exchange.clone(), requests: sender, main_thread: thread::current() };
    (Control { exchange, requests, address, heartbeat: Arc::default() }, client)
}

impl Control {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// That of the thread of the server, which beats at least every half second.
    pub fn heartbeat(&self) -> Arc<Heartbeat> {
        self.heartbeat.clone()
    }

    /// Whether requests wait for a report.
    pub fn wants_report(&self) -> bool {
        self.exchange.is_wanted.load(Ordering::Relaxed)
    }

    /// Publishes a report.
    pub fn publish(&self, report: Report) {
        let snapshot = Arc::new(Snapshot { report, published: Instant::now() });
        *self.exchange.snapshot.write() = snapshot;
        self.exchange.is_wanted.store(false, Ordering::Relaxed);
        self.exchange.published.notify_waiters();
    }

    /// Requests since the last call.
    pub fn requests(&self) -> impl Iterator<Item = Request> + '_ {
        self.requests.try_iter()
    }
}

impl Client {
    /// The last report, however old.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.exchange.snapshot.read().clone()
    }

    /// A report that is at most [`REPORT_AGE`] older than the call, or that of the end. `None` if the
    /// probe publishes none for 3 s.
    pub async fn report(&self) -> Option<Arc<Snapshot>> {
        let oldest = Instant::now().checked_sub(REPORT_AGE);
        let fresh = async {
            loop {
                // Before the snapshot is read, so that no publication is missed.
                let published = self.exchange.published.notified();
                let snapshot = self.snapshot();
                if snapshot.report.is_ending || oldest.is_none_or(|oldest| snapshot.published >= oldest) {
                    return snapshot;
                }
                self.exchange.is_wanted.store(true, Ordering::Relaxed);
                self.main_thread.unpark();
                published.await;
            }
        };
        tokio::time::timeout(REPORT_TIMEOUT, fresh).await.ok()
    }

    /// Requests a reload. `None` if too many requests wait already, or the probe is ending.
    pub fn reload(&self) -> Option<oneshot::Receiver<Result<String, String>>> {
        let (sender, result) = oneshot::channel();
        self.request(Request::Reload(sender)).then_some(result)
    }

    /// Requests a search. Each thread that meters answers once. `None` as for a reload.
    pub fn search_flows(&self, search: FlowSearch) -> Option<mpsc_async::UnboundedReceiver<FoundFlows>> {
        let (sender, found) = mpsc_async::unbounded_channel();
        self.request(Request::Flows(search, FlowReplies(sender))).then_some(found)
    }

    fn request(&self, request: Request) -> bool {
        let is_accepted = !self.snapshot().report.is_ending && self.requests.try_send(request).is_ok();
        self.main_thread.unpark();
        is_accepted
    }
}
