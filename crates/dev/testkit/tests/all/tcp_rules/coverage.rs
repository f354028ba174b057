//! Which rules of `docs/tcp.md` the packets of a test reached.

use std::collections::BTreeSet;
use weir_tcp::SegmentClass;
use weir_testkit::reference::TcpReference;

/// The rules by the names of the reference: a topic per paragraph, separated by semicolons.
const RULES: &str = "
starts with a SYN; starts mid-stream; below the start; SYN overtaken; SYN overtaken, holes full; SYN restarts;
reused: a side had ended; reused: none had ended; position wraps;

out of window: ahead; out of window: behind; out of window: before the SYN; out of window: not next to the other;
out of window: reaches into the stream; jump;

duplicate by identification; duplicate without identification; duplicate at the second place;
duplicate at the fourth place; duplicate at the fifth place or beyond; duplicate beyond the 32nd place;
duplicate at the 64th place; duplicate of a first fragment; first fragment;
no duplicate: behind four others; no duplicate: behind 64 others; no duplicate: too late, identified;
no duplicate: too late, not identified; no duplicate: acknowledgment without identification;
no duplicate: RST without identification; history cleared by a jump; history cleared by a restart;
deep history cleared by a jump; deep history cleared by a restart;

SYN with payload; SYN with FIN; SYN retransmission with payload; keep-alive without payload;
keep-alive with the last octet; no keep-alive: FIN; probe; probe again; no probe: window open;
zero window; zero window of an acknowledgment only;

duplicate acknowledgment; no duplicate acknowledgment: no ACK; no duplicate acknowledgment: other number;
no duplicate acknowledgment: other window; no duplicate acknowledgment: window 0;
no duplicate acknowledgment: nothing outstanding;

in order, next; in order, beyond; FIN alone in order; FIN retransmission; FIN at another position; payload on the FIN;
retransmission, full; retransmission, partial; retransmission, re-segmented; retransmission, spurious;
retransmission, not acknowledged; retransmission, other side silent;

out of order by the identification; unseen by the identification; identification older, but too late;
identification too far away; out of order by the handshake; out of order by 3 ms; unseen by the handshake; unseen by 3 ms;
fills one of two holes; splits a hole; touches several holes; hole settled; hole settled below others;

handshake of the responder; handshake of the initiator; SYN answered wrongly; size by sequence; no size: several;

round trip; round trip: time runs backwards; timed segment discarded; answer; answer: time runs backwards;
no answer: the request is not acknowledged; request: repeated or completed; request: not extended, acknowledged before";

/// The rules, classes and degradations that packets reached.
#[derive(Debug, Default)]
pub struct Coverage {
    rules: BTreeSet<&'static str>,
    classes: BTreeSet<SegmentClass>,
    degraded: BTreeSet<&'static str>,
}

impl Coverage {
    /// Adds what a connection reached in its current record, and its rules from the beginning.
    pub fn add(&mut self, reference: &TcpReference) {
        self.rules.extend(reference.reached());
        for report in [reference.report(0), reference.report(1)] {
            let present = SegmentClass::ALL.into_iter().filter(|&class| report.count(class).segments > 0);
            self.classes.extend(present);
            self.degraded.extend(report.degradation.names());
        }
    }

    /// Asserts that all rules were reached, except some. The pool never is full in these tests.
    pub fn assert_complete_except(&self, rare: &[&str]) {
        let expected: BTreeSet<&str> = RULES.split(';').map(str::trim).collect();
        let missing: Vec<_> =
            expected.iter().filter(|rule| !self.rules.contains(*rule) && !rare.contains(rule)).collect();
        assert!(missing.is_empty(), "not reached: {missing:?}");
        assert!(self.rules.is_subset(&expected), "unknown rules: {:?}", self.rules.difference(&expected));
        assert_eq!(self.classes.len(), SegmentClass::COUNT, "{:?}", self.classes);
        assert_eq!(self.degraded, BTreeSet::from(["duplicates", "holes", "jump", "reused", "unread"]));
    }
}
