//! Which connections may stay: strangers must not keep out those who have the token.
//!
//! ```text
//! accepted -> unfinished -> answering -> idle -> answering ...
//! ```
//! A connection is unfinished until its first request has arrived (TLS handshake and headers), and idle
//! between two requests. A new connection replaces the oldest idle or unfinished one when there is no
//! place, and a request without token replaces the answer that has been stalled longest. So a client
//! that sends its request at once and reads its answer is served, whatever others do. Places that no
//! request without token can take are left for those with it.
//!
//! Clients of this machine have no address of their own, since all of 127.0.0.0/8 is theirs: they have
//! the limit of all addresses together.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Open connections. With the files and sockets of a probe they are far from the usual limit of
/// 1024 descriptors.
pub const MAX_CONNECTIONS: usize = 64;
/// Connections without a whole request, of all addresses.
const MAX_UNFINISHED: usize = 32;
/// Connections without a whole request, of one address (IPv6: of its /64) of another machine.
const MAX_UNFINISHED_OF_ADDRESS: usize = 8;
/// Requests without token that are being answered. With the unfinished connections they leave 8 places.
const MAX_ANSWERS_WITHOUT_TOKEN: usize = 24;

/// All clients of this machine.
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// All open connections.
pub struct Connections {
    table: Mutex<Table>,
    /// How long a request without token waits for another one to end.
    answer_wait: Duration,
    /// An answer has ended or is stalled.
    changed: Notify,
}

#[derive(Default)]
struct Table {
    /// By their number, the oldest first.
    open: BTreeMap<u64, Entry>,
    /// Number of the last event.
    last: u64,
}

struct Entry {
    /// The address, for the limit.
    client: IpAddr,
    phase: Phase,
    /// Number of the event that began the phase.
    since: u64,
    /// Number of the event since which the client reads nothing.
    stalled: Option<u64>,
    task: Option<AbortHandle>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Unfinished,
    /// The number of answers that are not sent is above 1 if the client sends requests without waiting.
    Answering {
        answers: u32,
        has_token: bool,
    },
    Idle,
}

/// A connection. Its place is free when this is dropped.
pub struct Connection {
    all: Arc<Connections>,
    number: u64,
}

/// An answer that is not sent.
pub struct Answering(Arc<Connection>);

impl Connections {
    /// A request without token waits this long for another one to end.
    pub fn new(answer_wait: Duration) -> Self {
        Self { table: Mutex::default(), answer_wait, changed: Notify::default() }
    }

    /// A place for a new connection; another one may be closed for it. `None` if all others are being
    /// answered.
    pub fn open(self: &Arc<Self>, client: SocketAddr, server: SocketAddr) -> Option<Arc<Connection>> {
        let client = client_of(client.ip(), server.ip());
        let mut table = self.table.lock();
        if client != LOCAL && table.unfinished(client) >= MAX_UNFINISHED_OF_ADDRESS {
            table.close_unfinished(client);
        }
        if table.count(|entry| entry.phase == Phase::Unfinished) >= MAX_UNFINISHED {
            table.close_any_unfinished();
        }
        if table.open.len() >= MAX_CONNECTIONS && !table.close_idle() && !table.close_any_unfinished() {
            return None;
        }
        let number = table.next();
        let entry = Entry { client, phase: Phase::Unfinished, since: number, stalled: None, task: None };
        table.open.insert(number, entry);
        Some(Arc::new(Connection { all: self.clone(), number }))
    }
}

impl Connection {
    /// What is aborted to close it.
    pub fn set_task(&self, task: AbortHandle) {
        if let Some(entry) = self.all.table.lock().open.get_mut(&self.number) {
            entry.task = Some(task);
        }
    }

    /// A whole request has arrived. `None` if there are too many requests without token for too long.
    pub async fn answer(self: &Arc<Self>, has_token: bool) -> Option<Answering> {
        let answering = async {
            loop {
                // Before the attempt, so that no change is missed.
                let changed = self.all.changed.notified();
                if let Some(answering) = self.try_answer(has_token) {
                    return answering;
                }
                changed.await;
            }
        };
        timeout(self.all.answer_wait, answering).await.ok()
    }

    fn try_answer(self: &Arc<Self>, has_token: bool) -> Option<Answering> {
        let mut table = self.all.table.lock();
        let without = Phase::is_answering_without_token;
        let others = table.open.iter().filter(|(number, entry)| **number != self.number && without(entry.phase));
        if !has_token && others.count() >= MAX_ANSWERS_WITHOUT_TOKEN && !table.close_stalled() {
            return None;
        }
        let since = table.next();
        if let Some(entry) = table.open.get_mut(&self.number) {
            let before = if let Phase::Answering { answers, .. } = entry.phase { answers } else { 0 };
            (entry.phase, entry.since) = (Phase::Answering { answers: before + 1, has_token }, since);
        }
        Some(Answering(self.clone()))
    }

    /// Whether the client reads nothing of an answer.
    pub fn set_stalled(&self, is_stalled: bool) {
        let mut table = self.all.table.lock();
        let since = table.next();
        if let Some(entry) = table.open.get_mut(&self.number) {
            entry.stalled = is_stalled.then_some(since);
        }
        self.all.changed.notify_waiters();
    }

    /// Closes the connection without token that has been stalled longest, so that its answer takes no
    /// more memory.
    pub fn close_stalled(&self) {
        self.all.table.lock().close_stalled();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.table.lock().open.remove(&self.number);
        self.all.changed.notify_waiters();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.all.changed.notify_waiters();
        let mut table = self.0.all.table.lock();
        let since = table.next();
        let Some(entry) = table.open.get_mut(&self.0.number) else { return };
        match &mut entry.phase {
            Phase::Answering { answers: answers @ 2.., .. } => *answers -= 1,
            phase => (*phase, entry.since) = (Phase::Idle, since),
        }
    }
}

impl Phase {
    fn is_answering_without_token(self) -> bool {
        matches!(self, Self::Answering { has_token: false, .. })
    }
}

impl Table {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn count(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        self.open.values().filter(|entry| is_counted(entry)).count()
    }

    fn unfinished(&self, client: IpAddr) -> usize {
        self.count(|entry| entry.phase == Phase::Unfinished && entry.client == client)
    }

    /// Closes the connection with the lowest number of an event. Returns false if none has one.
    fn close_first(&mut self, event: impl Fn(&Entry) -> Option<u64>) -> bool {
        let found = self.open.iter().filter_map(|(&number, entry)| Some((event(entry)?, number))).min();
        let closed = found.and_then(|(_, number)| self.open.remove(&number));
        if let Some(task) = closed.as_ref().and_then(|entry| entry.task.as_ref()) {
            // It ends later, in a turn of its own.
            task.abort();
        }
        closed.is_some()
    }

    fn close_idle(&mut self) -> bool {
        self.close_first(|entry| (entry.phase == Phase::Idle).then_some(entry.since))
    }

    fn close_stalled(&mut self) -> bool {
        self.close_first(|entry| entry.stalled.filter(|_| entry.phase.is_answering_without_token()))
    }

    fn close_unfinished(&mut self, client: IpAddr) -> bool {
        self.close_first(|entry| {
            let is_counted = entry.phase == Phase::Unfinished && entry.client == client;
            is_counted.then_some(entry.since)
        })
    }

    /// The oldest one of the addresses that have most.
    fn close_any_unfinished(&mut self) -> bool {
        let clients: Vec<_> = self.open.values().map(|entry| (self.unfinished(entry.client), entry.client)).collect();
        let most = clients.iter().map(|(unfinished, _)| *unfinished).max();
        self.close_first(|entry| {
            let has_most = || clients.iter().any(|&(number, client)| Some(number) == most && client == entry.client);
            (entry.phase == Phase::Unfinished && has_most()).then_some(entry.since)
        })
    }
}

/// The address of a client for the limit.
fn client_of(client: IpAddr, server: IpAddr) -> IpAddr {
    match client.to_canonical() {
        address if address.is_loopback() || address == server.to_canonical() => LOCAL,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(3);

    fn open(all: &Arc<Connections>, client: &str) -> Option<Arc<Connection>> {
        all.open(SocketAddr::new(client.parse().unwrap(), 1), "192.0.2.1:1".parse().unwrap())
    }

    fn is_open(connection: &Connection) -> bool {
        connection.all.table.lock().open.contains_key(&connection.number)
    }

    fn opened(connections: &[Arc<Connection>]) -> usize {
        connections.iter().filter(|connection| is_open(connection)).count()
    }

    #[test]
    fn an_address_replaces_its_own_unfinished_connections() {
        let all = Arc::new(Connections::new(WAIT));
        let other = open(&all, "198.51.100.7").unwrap();
        for clients in [&["198.51.100.1"][..], &["2001:db8::1", "2001:db8::2"], &["203.0.113.1"]] {
            let held: Vec<_> = clients.iter().cycle().take(100).map(|client| open(&all, client).unwrap()).collect();
            assert_eq!((opened(&held), opened(&held[92..])), (8, 8));
            assert!(is_open(&other));
        }
    }

    #[test]
    fn of_many_addresses_with_one_unfinished_connection_each_the_oldest_loses() {
        let all = Arc::new(Connections::new(WAIT));
        let held: Vec<_> = (0..100).map(|number| open(&all, &format!("2001:db8:{number}::1")).unwrap()).collect();
        let opened_now = opened(&held);
        assert!(opened_now <= MAX_UNFINISHED && opened(&held[100 - opened_now..]) == opened_now, "{opened_now}");
    }

    #[test]
    fn of_many_addresses_the_one_with_most_unfinished_connections_loses_its_oldest() {
        let all = Arc::new(Connections::new(WAIT));
        let other = open(&all, "198.51.100.7").unwrap();
        let mut held = Vec::new();
        for number in 0..100 {
            held.push(open(&all, &format!("203.0.113.{}", number % 10)).unwrap());
            assert!(opened(&held) < MAX_UNFINISHED);
        }
        assert!(is_open(&other));
        // Those of this machine have the limit of all.
        let all = Arc::new(Connections::new(WAIT));
        let held: Vec<_> = (0..100)
            .map(|number| open(&all, if number % 2 == 0 { "192.0.2.1" } else { "127.0.0.9" }).unwrap())
            .collect();
        assert_eq!((opened(&held), opened(&held[68..])), (32, 32));
    }

    #[test]
    fn an_idle_connection_is_closed_for_a_new_one_and_one_that_is_answered_is_not() {
        let all = Arc::new(Connections::new(WAIT));
        let open = || open(&all, "127.0.0.1").unwrap();
        let answered: Vec<_> = (0..40)
            .map(|_| {
                let connection = open();
                (connection.try_answer(true).unwrap(), connection)
            })
            .collect();
        let idle: Vec<_> = (0..24)
            .map(|_| {
                let connection = open();
                drop(connection.try_answer(false));
                connection
            })
            .collect();
        // The oldest one is no longer the one that has been idle longest.
        drop(idle[0].try_answer(false));
        let new: Vec<_> = (0..23).map(|_| open()).collect();
        assert_eq!((opened(&idle), opened(&new), is_open(&idle[0])), (1, 23, true));
        assert!(answered.iter().all(|(_, connection)| is_open(connection)));
    }

    #[test]
    fn requests_without_token_leave_places_and_replace_stalled_answers() {
        let all = Arc::new(Connections::new(WAIT));
        let open = || open(&all, "127.0.0.1").unwrap();
        let answer = |connection: Arc<Connection>, has_token| (connection.try_answer(has_token), connection);
        let mut strangers: Vec<_> = (0..24).map(|_| answer(open(), false)).collect();
        assert!(strangers.iter().all(|(answering, _)| answering.is_some()));
        assert!(answer(open(), false).0.is_none());
        strangers[3].1.set_stalled(true);
        strangers[2].1.set_stalled(true);
        strangers[3].1.set_stalled(false);
        strangers.push(answer(open(), false));
        assert!(strangers[24].0.is_some() && !is_open(&strangers[2].1) && is_open(&strangers[3].1));
        let unfinished: Vec<_> = (0..32).map(|_| open()).collect();
        let trusted: Vec<_> = (0..8).map(|_| answer(open(), true)).collect();
        assert!(trusted.iter().all(|(answering, connection)| answering.is_some() && is_open(connection)));
        assert_eq!(opened(&unfinished), 31);
    }

    #[test]
    fn a_connection_is_idle_when_its_last_answer_is_sent() {
        let all = Arc::new(Connections::new(WAIT));
        let connection = open(&all, "127.0.0.1").unwrap();
        let phase = || all.table.lock().open[&connection.number].phase;
        let [first, second] = [false, true].map(|has_token| connection.try_answer(has_token).unwrap());
        drop(first);
        assert!(phase() == Phase::Answering { answers: 1, has_token: true });
        drop(second);
        assert!(phase() == Phase::Idle);
        drop(connection);
        assert!(all.table.lock().open.is_empty());
    }
}
