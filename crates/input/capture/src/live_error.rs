//! Errors of live sources.

use crate::settings::SettingsError;
use std::io;
use std::sync::Arc;

/// Why a live source cannot be opened, or ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error("not live traffic; live sources begin with {}", .0.join(", "))]
    UnknownScheme(&'static [&'static str]),
    /// A setting is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What is wrong with the name of a source.
    #[error(transparent)]
    Spec(#[from] Arc<Self>),
    #[error("an interface is named twice, so each of its packets would count twice")]
    DuplicateInterface,
    #[error("more than {0} interfaces cannot share one source")]
    TooManyInterfaces(usize),
    #[error("the interfaces have different numbers of queues; set queues=")]
    QueueCountsDiffer,
    #[error("cannot {0}: {1}")]
    Io(String, io::Error),
    #[error("there is no interface '{0}'; there are: {existing}", existing = .1.join(", "))]
    NoInterface(String, Vec<String>),
    #[error("the interface is down; as root: ip link set dev {0} up")]
    InterfaceDown(String),
    #[error("the interface was removed; the packets before that were read")]
    InterfaceRemoved,

    // AF_PACKET.
    #[error("interfaces of its kind (hardware type {0}) are not supported; Ethernet, loopback and IP tunnels are")]
    HardwareType(u16),
    #[error("it is of another kind (hardware type {0}) than the interface before")]
    OtherKind(u16),
    #[error("not permitted: capturing needs CAP_NET_RAW")]
    CapturePermission,
    #[error(
        "queues={0}, blocks={1}, block={2} take {mib} MiB of memory, more than is available; make one of them smaller",
        mib = (u64::from(*.0) * u64::from(*.1) * u64::from(*.2)).div_ceil(1 << 20)
    )]
    RingMemory(u16, u32, u32),
    #[error("fanout={0}: the group is full; choose another number")]
    FanoutFull(u16),
    #[error(
        "fanout={0}: another program has a group of that number on another interface or with another mode; \
         choose another number"
    )]
    FanoutInUse(u16),
    #[error("timestamps=hardware: not permitted: configuring the NIC needs CAP_NET_ADMIN, and capturing CAP_NET_RAW")]
    TimestampPermission,
    #[error(
        "timestamps=hardware: the NIC cannot time-stamp every frame (ethtool -T {0} shows what it can); leave it out"
    )]
    HardwareTimestamps(String),
    #[error("the kernel counted {0} packets that it did not deliver")]
    Undelivered(u64),

    // Sending.
    #[error("it is not Ethernet (hardware type {0}), and packets can be forwarded to Ethernet interfaces only")]
    SendNotEthernet(u16),
    #[error(
        "{0} pipelines need {0} queues, and the interface has {1}; use af_packet:{2}, or raise the number (ethtool \
         -L {2} combined {0})"
    )]
    SendQueues(usize, u32, String),
    #[error("not permitted: sending packets needs CAP_NET_RAW, or root")]
    SendPermission,

    // AF_XDP.
    #[error("it is not Ethernet (hardware type {0}), and af_xdp reads nothing else; af_packet: may read it")]
    NotEthernet(u16),
    #[error(
        "queues={1}: {0} has {existing}; ethtool -l {0} shows how many it can have",
        existing = if *.2 == 1 { "only queue 0".into() } else { format!("queues 0-{}", .2 - 1) }
    )]
    NoQueue(String, String, u32),
    #[error("not permitted: it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")]
    XdpPermission,
    #[error("the kernel has no AF_XDP (CONFIG_XDP_SOCKETS); use af_packet:")]
    NoXdpSockets,
    #[error("the kernel refuses the map of sockets (it must be 5.9 or newer, with CONFIG_XDP_SOCKETS): {0}")]
    SocketMap(io::Error),
    #[error("the kernel refuses the program (it must be {0} or newer): {1}; {2}")]
    XdpProgram(&'static str, io::Error, String),
    #[error(
        "another XDP program is attached to it (ip link show dev {0} shows which): end the process that attached it, \
         or: ip link set dev {0} xdp off"
    )]
    XdpInUse(String),
    #[error("its driver has no native XDP; attach=generic works with every driver")]
    NoNativeXdp,
    #[error(
        "its driver refuses a native XDP program in its configuration ({0}): often the MTU is too large for it, \
         or GRO in hardware (LRO) is on; attach=generic works with every driver"
    )]
    NativeXdp(io::Error),
    #[error("the kernel does not attach the program (it must be 5.9 or newer): {0}")]
    XdpAttach(io::Error),
    #[error(
        "frames={0}: this exceeds the limit of locked memory; raise the limit (ulimit -l), give CAP_IPC_LOCK, or \
         lower frames="
    )]
    LockedMemory(u32),
    #[error(
        "the limit of locked memory is too low for its frames, which need {} MiB for each pipeline; raise the \
         limit (ulimit -l) or give CAP_IPC_LOCK",
        .0 >> 20
    )]
    SendLockedMemory(usize),
    #[error("the interface returned more than {0} times, and there is no socket left for it; start the probe again")]
    NoSpareSocket(usize),
    #[error("another program has an AF_XDP socket on queue {0}")]
    QueueInUse(u32),
    #[error("its driver has no zero copy for queue {0} ({1}); mode=copy works with every driver")]
    NoZeroCopy(u32, io::Error),
    #[error("the driver passes no metadata, so the length of frames that are cut is unknown; leave snap out")]
    NoMetadata,

    // DPDK.
    #[error(
        "this weir was built without DPDK: `cargo build --release --features dpdk` builds it in, and needs DPDK \
         itself (on Debian 12, apt-get install libdpdk-dev pkg-config)"
    )]
    NoDpdk,
    /// DPDK cannot open the device.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Dpdk(#[from] Box<crate::live::dpdk::error::DpdkError>),
}

/// The capabilities that af_packet: needs.
pub(crate) const FOR_AF_PACKET: &[&str] = &["CAP_NET_RAW"];
/// Those for `timestamps=hardware`.
pub(crate) const FOR_TIMESTAMPS: &[&str] = &["CAP_NET_RAW", "CAP_NET_ADMIN"];
/// Those of af_xdp:.
pub(crate) const FOR_AF_XDP: &[&str] = &["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"];

impl LiveError {
    /// The capabilities without which it is not permitted.
    pub(crate) fn needed_capabilities(&self) -> &'static [&'static str] {
        match self {
            Self::CapturePermission | Self::SendPermission => FOR_AF_PACKET,
            Self::TimestampPermission => FOR_TIMESTAMPS,
            Self::XdpPermission => FOR_AF_XDP,
            _ => &[],
        }
    }

    /// Wraps the error of a system call.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        |error| Self::Io(action, error)
    }

    /// Wraps the error of a query about an interface.
    pub(crate) fn query(interface: &str) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("query {interface}"))
    }
}
