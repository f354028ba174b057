//! Conditions of a measurement: machine, system and build.

use serde::Serialize;
use std::fmt;
use std::fs::read_to_string;

/// Conditions of a run. Values that the system does not provide are `None`.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// Version of Weir.
    pub weir_version: &'static str,
    /// Profile of the build.
    pub build: &'static str,
    /// Compiler.
    pub compiler: &'static str,
    /// Date of the run.
    pub date: String,
    /// Measured rounds.
    pub rounds: usize,
    /// Small loads: not a measurement.
    pub quick: bool,
    /// Model of the processor.
    pub processor: Option<String>,
    /// Cores of the process.
    pub cores: usize,
    /// Frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory that is available, bytes.
    pub memory_available_bytes: u64,
    /// Mode of transparent huge pages.
    pub transparent_huge_pages: Option<String>,
    /// Free huge pages of 2 MiB.
    pub free_2mib_pages: u64,
    /// Free huge pages of 1 GiB.
    pub free_1gib_pages: u64,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Load average of the last minute.
    pub load: Option<f64>,
}

/// Memory available to programs now, bytes.
pub fn available_memory_bytes() -> u64 {
    memory("MemAvailable").unwrap_or(4 << 30)
}

/// Resident memory of this process, bytes.
pub fn resident_memory_bytes() -> u64 {
    let text = field("/proc/self/status", "VmRSS").unwrap_or_default();
    text.trim_end_matches(" kB").parse().map_or(0, |kib: u64| kib * 1024)
}

/// Clock of the first CPU according to /proc/cpuinfo, Hz.
pub fn cpu_hz() -> Option<f64> {
    field("/proc/cpuinfo", "cpu MHz")?.parse::<f64>().ok().map(|mhz| mhz * 1e6)
}

fn memory(name: &str) -> Option<u64> {
    field("/proc/meminfo", name)?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the value of a `name: value` line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

impl Conditions {
    /// Reads those of this machine.
    pub fn read(date: &str, rounds: usize, quick: bool) -> Self {
        let line = |path: &str| read_to_string(path).ok().map(|text| text.trim().to_owned());
        let [free_2mib_pages, free_1gib_pages] = [2048, 1 << 20].map(|kib| {
            let free = line(&format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/free_hugepages"));
            free.and_then(|free| free.parse().ok()).unwrap_or(0)
        });
        // The file lists all modes, with the active one in brackets.
        let mode = line("/sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|modes| Some(modes.split_once('[')?.1.split_once(']')?.0.to_owned()));
        Self {
            weir_version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug build: figures mean nothing" } else { "release" },
            compiler: env!("WEIR_COMPILER"),
            date: date.to_owned(),
            rounds,
            quick,
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: memory("MemTotal").unwrap_or(0),
            memory_available_bytes: available_memory_bytes(),
            transparent_huge_pages: mode,
            free_2mib_pages,
            free_1gib_pages,
            kernel: line("/proc/sys/kernel/osrelease"),
            load: line("/proc/loadavg").and_then(|load| load.split(' ').next()?.parse().ok()),
        }
    }

    /// One-line summary for plots.
    pub fn summary(&self) -> String {
        let processor = self.processor.as_deref().unwrap_or("unknown processor");
        let quick = if self.quick { ", QUICK: not a measurement" } else { "" };
        format!(
            "{processor}, {} cores, weir {} {}, {} rounds, {}{quick}",
            self.cores, self.weir_version, self.build, self.rounds, self.date
        )
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".into());
        let gib = |octets: u64| octets as f64 / f64::from(1 << 30);
        let processor = unknown(&self.processor);
        writeln!(f, "processor    {processor}, {} cores, governor {}", self.cores, unknown(&self.governor))?;
        let (all, available) = (gib(self.memory_bytes), gib(self.memory_available_bytes));
        writeln!(f, "memory       {all:.1} GiB, {available:.1} GiB available")?;
        write!(f, "pages        transparent huge pages: {}; reserved and", unknown(&self.transparent_huge_pages))?;
        writeln!(f, " free: {} of 2 MiB, {} of 1 GiB", self.free_2mib_pages, self.free_1gib_pages)?;
        let load = self.load.map_or_else(String::new, |load| format!(", load {load} before"));
        writeln!(f, "system       Linux {}{load}", unknown(&self.kernel))?;
        let quick = if self.quick { ", QUICK: small loads, not a measurement" } else { "" };
        let Self { weir_version, build, compiler, date, rounds, .. } = self;
        writeln!(f, "build        weir {weir_version}, {build}, {compiler}")?;
        writeln!(f, "run          {rounds} rounds, {date}{quick}")
    }
}
