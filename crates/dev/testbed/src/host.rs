//! A host for a test: a thread in a network namespace of its own, with the TCP of the kernel. All
//! its packets pass through the test.

use crate::namespace::ip;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

/// A host that runs.
pub struct Host<T> {
    /// Its interface: a read returns the next IP packet that the host sends, or `WouldBlock`; a write is
    /// a packet that it receives.
    pub packets: File,
    /// `None`: it has no interface.
    work: JoinHandle<Option<T>>,
}

impl<T: Send + 'static> Host<T> {
    /// Starts a host with this address, as in `192.0.2.1/24`, and this MTU, in octets. Prints the reason
    /// and returns `None` where that is not permitted.
    pub fn start(address: &'static str, mtu: u32, work: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let (started, interface) = channel();
        let thread = thread::spawn(move || {
            let opened = open_interface();
            if opened.is_ok() {
                ip(&format!("address add {address} dev {INTERFACE}"));
                ip(&format!("link set {INTERFACE} mtu {mtu} up"));
            }
            let is_open = opened.is_ok();
            started.send(opened).expect("the test waits");
            is_open.then(work)
        });
        match interface.recv().expect("the thread sends its interface") {
            Ok(packets) => Some(Self { packets, work: thread }),
            Err(error) => {
                eprintln!("SKIPPED: no host with a network namespace and a TUN interface: {error}");
                None
            }
        }
    }

    /// Whether its work is done.
    pub fn is_finished(&self) -> bool {
        self.work.is_finished()
    }

    /// Waits until its work is done.
    ///
    /// # Panics
    /// The work panicked.
    pub fn join(self) -> T {
        self.work.join().expect("the host works").expect("it has an interface")
    }
}

const INTERFACE: &str = "tun0";

/// Moves this thread into a new namespace with a TUN interface. Without flags for offloads the kernel
/// sends whole packets with checksums.
fn open_interface() -> io::Result<File> {
    // SAFETY: the call takes no memory, and concerns this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(io::Error::last_os_error());
    }
    std::process::Command::new("ip").arg("-V").output()?;
    for kind in ["all", "default"] {
        // Fails in a kernel without IPv6, where nothing needs to be disabled.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{kind}/disable_ipv6"), "1");
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    // SAFETY: the request is plain numbers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, octet) in request.ifr_name.iter_mut().zip(INTERFACE.bytes()) {
        *to = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives across the call and has the type that it expects.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}
