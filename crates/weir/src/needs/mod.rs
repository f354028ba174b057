//! What probes need of the machine, and whether it has it: of the kernel and the permissions ([`kernel`]), of folders
//! ([`folders`]), and interfaces. Tried on this machine.

mod folders;
mod kernel;

pub use folders::real;

use crate::arguments::ProbeOptions;
use folders::Written;
use kernel::KernelNeeds;
use weir_capture::SourceSpec;
use weir_host::{Finding, Machine, Severity};

/// What probes need.
#[derive(Default)]
pub struct Needs {
    kernel: KernelNeeds,
    /// Interfaces of sources, without those of DPDK.
    pub interfaces: Vec<String>,
    /// Those of them that have to be there when the probe starts: without `wait = true`.
    required: Vec<String>,
    /// Those that the probe waits for.
    awaited: Vec<String>,
    written: Vec<Written>,
}

impl Needs {
    /// Adds those of a probe. `file` is its configuration, or another name of it.
    pub fn add(&mut self, options: &ProbeOptions, file: &str) {
        self.kernel.add(options);
        let live = options.inputs.iter().filter_map(SourceSpec::live);
        for live in live.filter(|live| !live.is_dpdk()) {
            let names = live.devices().iter().map(|device| device.name.clone());
            self.interfaces.extend(names.clone());
            if options.wait { &mut self.awaited } else { &mut self.required }.extend(names);
        }
        self.interfaces.sort();
        self.interfaces.dedup();
        for names in [&mut self.required, &mut self.awaited] {
            names.sort();
            names.dedup();
        }
        self.written.extend(folders::of_probe(options, file));
    }

    /// Findings about the kernel, the permissions and the folders.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = kernel::check(&self.kernel);
        findings.extend(folders::check(&self.written));
        findings
    }

    /// Interfaces that have to be there, or are waited for, and are not there.
    pub fn absent(&self, machine: &Machine) -> Vec<Finding> {
        const ENDS: &str = "The probe does not start. Name another one, or let it wait (wait = true).";
        const WAITS: &str = "The probe waits for it, and meters nothing and has no page until it is up. If the name is wrong, \
                             name another one.";
        let of = |names: &[String], severity: Severity, impact: &'static str| {
            let is_absent = |name: &&String| !machine.nics.iter().any(|nic| nic.name == **name);
            let finding = |name: &String| {
                let summary = format!("there is no interface {name}, which a configuration names");
                Finding::new(severity, "interface", name, summary, impact)
            };
            names.iter().filter(is_absent).map(finding).collect::<Vec<_>>()
        };
        let mut findings = of(&self.required, Severity::Critical, ENDS);
        findings.extend(of(&self.awaited, Severity::Warning, WAITS));
        findings
    }
}
