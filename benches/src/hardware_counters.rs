//! Instructions, cycles and energy of a piece of work, where the machine tells them.

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use std::fs;
use std::io;
use weir_bench::measure::Fact;

/// Counters of the calling thread, in user mode.
pub struct HardwareCounters {
    instructions: Counter,
    cycles: Counter,
}

impl HardwareCounters {
    /// # Errors
    /// The machine has none (most virtual machines), or the system does not permit it
    /// (kernel.perf_event_paranoid above 2).
    pub fn open() -> io::Result<Self> {
        let open = |event| Builder::new(event).build();
        Ok(Self { instructions: open(Hardware::INSTRUCTIONS)?, cycles: open(Hardware::CPU_CYCLES)? })
    }

    /// Runs `work`. Returns its result, instructions and cycles.
    pub fn count<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<(T, [u64; 2])> {
        for counter in [&mut self.instructions, &mut self.cycles] {
            counter.reset()?;
            counter.enable()?;
        }
        let result = work();
        for counter in [&mut self.instructions, &mut self.cycles] {
            counter.disable()?;
        }
        Ok((result, [self.instructions.read()?, self.cycles.read()?]))
    }
}

/// Energy that all processor packages have taken, J: RAPL by the kernel's powercap, which only root
/// may read. `None` if there is none.
pub fn energy_joules() -> Option<f64> {
    let zones = fs::read_dir("/sys/class/powercap").ok()?.flatten();
    // A package has one colon in its name; its parts, which it includes, have two.
    let packages = zones.filter(|zone| zone.file_name().to_string_lossy().matches(':').count() == 1);
    let energies =
        packages.filter_map(|zone| fs::read_to_string(zone.path().join("energy_uj")).ok()?.trim().parse::<f64>().ok());
    energies.reduce(|sum, energy| sum + energy).map(|microjoules| microjoules / 1e6)
}

/// The facts of a run: per packet.
pub fn facts(counts: Option<[u64; 2]>, joules: Option<f64>, packets: u64) -> Vec<Fact> {
    let per_packet = |value: f64| value / packets as f64;
    let mut facts = Vec::new();
    if let Some([instructions, cycles]) = counts {
        facts.push(("instructions/packet", per_packet(instructions as f64)));
        facts.push(("cycles/packet", per_packet(cycles as f64)));
    }
    // The counter starts again at 0 from time to time.
    if let Some(joules) = joules.filter(|joules| *joules > 0.0) {
        facts.push(("nJ/packet", per_packet(joules * 1e9)));
    }
    facts
}
