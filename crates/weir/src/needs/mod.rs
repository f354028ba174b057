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
            self.required.extend(names.filter(|_| !options.wait));
        }
        self.interfaces.sort();
        self.interfaces.dedup();
        self.required.sort();
        self.required.dedup();
        self.written.extend(folders::of_probe(options, file));
    }

    /// Findings about the kernel, the permissions and the folders.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = kernel::check(&self.kernel);
        findings.extend(folders::check(&self.written));
        findings
    }

    /// Interfaces that have to be there, and are not.
    pub fn absent(&self, machine: &Machine) -> Vec<Finding> {
        let is_absent = |name: &&String| !machine.nics.iter().any(|nic| nic.name == **name);
        let impact = "The probe does not start. Name another one, or let it wait (wait = true).";
        let finding = |name: &String| {
            let summary = format!("there is no interface {name}, which a configuration names");
            Finding::new(Severity::Critical, "interface", name, summary, impact)
        };
        self.required.iter().filter(is_absent).map(finding).collect()
    }
}
