//! Retry intervals, timeouts and polling intervals of a run, in one structure.
//!
//! Output: [`Timing`], plain data. `Default` has the times of every normal run; tests set others
//! (`--timing`). Each stage gets its part only: a sink gets the time between its attempts, not
//! the structure. Not here: timeouts of flows and other options of users, bounds of waits that are
//! steps of an algorithm, and everything that is done per packet.
//!
//! This has nothing to do with accounting. It is in this crate because all stages that wait depend on
//! it: outputs of records (`export`) and of packets (`egress`), `recorder`, `probe` and `control`. The only
//! other crate below all of them is `packet`, whose code runs once per packet.

use std::time::Duration;

/// Defines the structure, its defaults and the names of its fields in one list.
macro_rules! timing {
    ($($(#[$sentence:meta])* $field:ident: $default:expr,)*) => {
        /// Times of a run. The module documentation says what belongs here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Timing {
            $($(#[$sentence])* pub $field: Duration,)*
        }

        impl Default for Timing {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Timing {
            /// Names of the fields, in their order.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field),)*];

            /// The field of this name.
            pub fn field_mut(&mut self, name: &str) -> Option<&mut Duration> {
                match name {
                    $(stringify!($field) => Some(&mut self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

timing! {
    /// From a failed attempt of a sink to write or to connect to the next one; also between two looks
    /// at the source address of a collector, and at whether another program has removed a file.
    sink_retry: Duration::from_secs(1),
    /// Shortest time between two warnings of a sink that its output cannot be used.
    sink_log: Duration::from_secs(10),
    /// From the end of a connection of a sink to the next attempt; doubles with each failed one, up to the
    /// next time, and varies by a quarter.
    sink_reconnect: Duration::from_millis(100),
    /// Longest time from a failed attempt of a sink to connect to the next one.
    sink_reconnect_max: Duration::from_secs(30),
    /// An address of a collector that does not answer for this time is not tried any longer.
    sink_connect: Duration::from_secs(5),
    /// A connection to a collector that accepts nothing for this time is lost.
    sink_dead: Duration::from_secs(120),
    /// `weir read`, and the end of a run that has no time limit, wait this long for a lost connection.
    sink_outage: Duration::from_secs(10),
    /// A sink of `failover:` that takes no records for this time is left for another one, and one before it that takes
    /// records for this time gets them again.
    sink_failover: Duration::from_secs(5),
    /// After the last record, a collector has this time to close its connection.
    sink_close: Duration::from_secs(2),
    /// Between two calls that let a sink connect and do what is due, while it gets no records.
    sink_tick: Duration::from_secs(1),
    /// A sink with a new connection waits at most this long until its datagrams are not metered.
    sink_filter: Duration::from_secs(2),
    /// At the end of a run, the other sinks do not wait for one that writes a batch for this time.
    sink_stall: Duration::from_millis(500),
    /// At the end of live traffic, a sink that accepts no records for this time is abandoned.
    sink_timeout: Duration::from_secs(10),
    /// A sink that was asked to end has this time to write to its spool what waits.
    sink_save: Duration::from_secs(10),
    /// Without a new file, the thread of a store looks this often at what is to be removed or sorted.
    store_check: Duration::from_secs(60),
    /// A store sorts an hour when it has had no new file for this long: flows that began in it end later.
    store_settled: Duration::from_secs(15 * 60),
    /// From a failed attempt to sort an hour of a store to the next one.
    store_retry: Duration::from_secs(3600),
    /// Threads may go on for this time after the deadline of the end: they look at the clock between
    /// two batches.
    drain_grace: Duration::from_secs(1),
    /// From a failed attempt to use an output for packets to the next one; also between two looks at
    /// an interface that cannot be used.
    output_retry: Duration::from_secs(1),
    /// At the end of a run, the reader of a pipe gets this time for the packets that wait.
    output_finish: Duration::from_secs(5),
    /// From a failed attempt of the recorder to write to the next one.
    recorder_retry: Duration::from_secs(2),
    /// Between two looks of `weir probe` at signals, requests and what is due.
    probe_check: Duration::from_millis(50),
    /// A thread that does not advance for this time, or for half of the watchdog's timeout if that is
    /// longer, is stuck.
    thread_stuck: Duration::from_secs(2),
    /// A configuration file that has not changed for this time is complete.
    config_settled: Duration::from_secs(1),
    /// A reload waits at most this long until its file is complete.
    config_limit: Duration::from_secs(10),
    /// A client of the HTTP interface has this time for the TLS handshake, for the headers of a request,
    /// and between two requests.
    http_header: Duration::from_secs(5),
    /// A connection of the HTTP interface whose client reads nothing of an answer for this time is closed.
    http_stall: Duration::from_secs(5),
    /// Signals that end a run count as one within this time: `timeout`, shells and supervisors signal a process and its
    /// group at once.
    same_signal: Duration::from_secs(2),
    /// Time that sinks have for the last records of `weir read` after a second signal.
    last_records: Duration::from_secs(2),
    /// A request of the HTTP interface without token waits this long for others to end.
    http_wait: Duration::from_secs(3),
    /// After this time a connection of the HTTP interface gets no further requests.
    http_keep_alive: Duration::from_secs(20),
    /// After this time a connection of the HTTP interface is closed.
    http_total: Duration::from_secs(30),
    /// A client of the HTTP interface waits this long for an answer: a probe may search for a flow for 11 s.
    http_answer: Duration::from_secs(15),
    /// `weir top` waits this long for the first answer, which takes no search.
    top_first: Duration::from_secs(5),
    /// `weir top` says that there is no answer after two of its intervals, and after this time at the latest.
    top_silence: Duration::from_secs(5),
    /// `weir top --once` waits this long for the first interval of a probe, and for one that answers others.
    top_once: Duration::from_secs(15),
    /// A child of `weir top` that does not end for this time is killed.
    top_child_end: Duration::from_secs(10),
    /// Between two looks of `weir top` at whether its child serves or has ended.
    top_check: Duration::from_millis(20),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_selects_a_field_of_its_own() {
        let mut timing = Timing::default();
        for (number, name) in Timing::NAMES.iter().enumerate() {
            *timing.field_mut(name).unwrap() = Duration::from_secs(1000 + number as u64);
        }
        let fields = Timing::NAMES.iter().map(|name| timing.field_mut(name).copied().unwrap().as_secs());
        assert!(fields.eq(1000..1000 + Timing::NAMES.len() as u64));
        assert_eq!((timing.sink_retry.as_secs(), timing.field_mut("sink-retry")), (1000, None));
    }
}
