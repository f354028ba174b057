//! What is looked at, and what is said of it. docs/doctor.md lists every check with its reason and its source.
//!
//! In: a machine, and the names of the cards that packets come from. Out: findings, the worst first.

mod bus;
mod interrupts;
mod memory;
mod processor;
mod queues;

pub use bus::fits_bus;
pub use memory::reserve;
pub use queues::{LINK_GOES_DOWN, set_queues};

use crate::card::Card;
use crate::finding::Finding;
use crate::machine::Machine;

/// From so many bits a second on, a core has no time to lose.
const FAST: u64 = 10_000_000_000;
/// Octets of an average frame of the internet mix that NAPA-FP and docs/performance.md plan with.
const USUAL_FRAME: u32 = 700;
const SMALLEST_FRAME: u32 = 64;

/// Looks at everything that matters to cards of these names; the worst findings come first, else the order is that of the
/// checks.
pub fn examine(machine: &Machine, cards: &[&str]) -> Vec<Finding> {
    let cards: Vec<&Card> = machine.cards.iter().filter(|card| cards.contains(&&card.name[..])).collect();
    let mut findings = Vec::new();
    for card in &cards {
        findings.extend(bus::check(machine, card));
        findings.extend(queues::check(machine, card));
        findings.extend(interrupts::check(machine, card));
    }
    findings.extend(processor::check(machine, &cards));
    findings.extend(memory::check(machine, &cards));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

fn is_fast(card: &Card) -> bool {
    card.speed_bits().is_some_and(|bits| bits >= FAST)
}
