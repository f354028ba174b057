//! Errors of DPDK sources.

use crate::settings::SettingsError;
use std::io;

/// Why DPDK does not open a device.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    #[error("no device is named; name a PCI address as in dpdk:0000:17:00.0, or a virtual device as in dpdk:net_null0")]
    NoDevice,
    #[error("{0} is no PCI address; it must have the form 0000:17:00.0 (domain, bus, device, function)")]
    PciAddress(String),
    /// A setting is wrong.
    #[error("{0}; arguments for DPDK follow the device, each after a semicolon")]
    Settings(#[from] SettingsError),
    #[error("mbufs={0} is too few for descriptors={1}: each descriptor holds one, and {2} more are in use")]
    Mbufs(u32, u32, u32),
    #[error("no PCI device has the address {0}: `lspci -D` lists them, `dpdk-devbind.py --status` the NICs")]
    NoPciDevice(String),
    #[error("DPDK could not be started in this process: {0}")]
    NotStarted(String),
    #[error("DPDK does not start{hint}: {0}", hint = if .0.errno == libc::EACCES { " (not permitted: is this root?)" } else { "" })]
    Start(Failure),
    #[error("DPDK runs in this process with hugepages={0}: a second source cannot have hugepages={1}")]
    HugePages(&'static str, &'static str),
    #[error("DPDK already runs in this process: a second source cannot have core={0}, give it to the first")]
    CoreInUse(u32),
    #[error("core={0}: this process may not run on this core, or it does not exist")]
    NoCore(u32),
    #[error(
        "no huge page is free: as root, `echo 512 > /proc/sys/vm/nr_hugepages` reserves 512 pages of 2 MB (best after boot, \
         before memory is fragmented); hugepages=off works without them, more slowly"
    )]
    NoHugePages,
    #[error(
        "{}",
        if *.1 == 0 { "this device has no receive queue".into() }
        else { format!("queues={}: the port has {} at most", .0, .1) }
    )]
    Queues(u16, u16),
    #[error(
        "each of {0} pipelines needs a transmit queue, and the port has {1}: queues={1} at the source, or fewer sources"
    )]
    OutputQueues(u16, u16),
    #[error("descriptors={0} is not possible with this port: the nearest is descriptors={1}")]
    Descriptors(u16, u16),
    #[error("this process already has the device, for another source or output")]
    DeviceInUse,
    /// DPDK cannot open the device, with the likely cause.
    #[error("DPDK cannot open this device: {0} DPDK reports: {1}")]
    Device(DeviceCause, Failure),
    #[error(
        "the port refuses the hash key that keeps both directions of a flow on one queue; symmetric=off accepts its own \
         key; then queues=1 or --uniflow-key keeps flow records correct"
    )]
    HashKey,
    /// There is no memory for the packet buffers.
    #[error(
        "no memory for {mbufs} packet buffers on each of {queues} queues, {} MB: lower descriptors= and mbufs=, or reserve \
         more huge pages on the NIC's NUMA node (without them there are {without_mib} MiB in all). DPDK reports: {failure}",
        u64::from(*mbufs) * 2432 * u64::from(*queues) / 1_000_000 + 1
    )]
    Memory {
        /// Packet buffers of each queue.
        mbufs: u32,
        /// Number of queues.
        queues: u16,
        /// Memory without huge pages.
        without_mib: &'static str,
        /// DPDK's error.
        failure: Failure,
    },
    #[error("the port refuses this configuration: {0}")]
    Port(Failure),
}

/// Why DPDK probably cannot open a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceCause {
    #[error("the name must be a driver and a number, such as net_pcap0, with arguments of that driver.")]
    Virtual,
    #[error("not permitted: run as root, or give this user /dev/vfio and enough locked memory (ulimit -l).")]
    Permission,
    #[error("another process uses it.")]
    OtherProcess,
    #[error("no kernel driver is bound to it; `dpdk-devbind.py --bind=vfio-pci {0}` binds it for DPDK.")]
    Unbound(String),
    #[error("it is bound for DPDK; either another process uses it, or DPDK has no driver for it.")]
    Bound,
    #[error(
        "the kernel driver {0} is bound to it; `dpdk-devbind.py --bind=vfio-pci {1}` binds it for DPDK (the system \
         then loses it; NICs of Mellanox and NVIDIA keep mlx5_core)."
    )]
    KernelDriver(String, String),
}

/// A failed call of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// DPDK's name of the call.
    pub call: String,
    /// Positive error number.
    pub errno: i32,
    /// DPDK's log messages during the call.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.call)?;
        // Drivers return -1 for any error, which is EPERM.
        match self.errno {
            libc::EPERM => f.write_str("failed")?,
            errno => write!(f, "{}", io::Error::from_raw_os_error(errno))?,
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, "; {}", self.message) }
    }
}
