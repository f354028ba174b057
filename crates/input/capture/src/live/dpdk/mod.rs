//! Live traffic through DPDK: `dpdk:DEVICE[,key=value]...`.
//!
//! In: a device's name and settings. Out: a [`Queue`] per receive queue of its port.
//! Invariants: every packet that a port counted as received while its queues were read was
//! delivered; every packet that it could not receive is reported as lost. Frames are read where the
//! NIC wrote them; nothing is copied, also not if a [`Transmitter`] sends them through another port.
//!
//! The environment abstraction layer (EAL) is started once per process, by the first source,
//! without devices; each source then adds its own. Its settings (huge pages, the core of DPDK's own
//! threads) hold for later sources, too.

mod clock;
mod driver;
pub(crate) mod error;
mod queue;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use driver::Transmitter;
use driver::{Environment, OpenError};
use error::{DeviceCause, DpdkError};
use queue::LossesAtStop;
use queue::Queue;
use settings::Device;
pub(crate) use settings::Settings;
use std::fs;
use std::path::Path;

/// Memory without huge pages, in MiB. This is address space: only memory that is used is allocated.
const MEMORY_MIB: &str = "2048";

/// Opens a device: one source per receive queue.
///
/// # Errors
/// DPDK does not open the device.
pub(crate) fn open(settings: &Settings) -> Result<Vec<Queue>, DpdkError> {
    let sysfs = Path::new("/sys");
    let mut environment = started(sysfs, settings)?;
    let (receivers, descriptors) = environment.open(settings).map_err(|error| open_error(error, sysfs, settings))?;
    drop(environment);
    match settings.descriptors {
        Some(requested) if requested != descriptors => Err(DpdkError::Descriptors(requested, descriptors)),
        _ => {
            let losses_at_stop = LossesAtStop::default();
            let queue = |receiver| Queue::new(settings, receiver, losses_at_stop.clone(), descriptors.into());
            Ok(receivers.into_iter().map(queue).collect())
        }
    }
}

/// Opens a device for sending, by the part of the output's name after `dpdk:`: one transmitter for each
/// of `queues` pipelines.
///
/// # Errors
/// A wrong setting, or DPDK does not open the device.
pub(crate) fn open_output(rest: &str, queues: u16) -> Result<Vec<Transmitter>, DpdkError> {
    let settings = Settings::parse_output(rest, queues)?;
    let sysfs = Path::new("/sys");
    let mut environment = started(sysfs, &settings)?;
    environment.open_output(&settings).map_err(|error| match error {
        OpenError::Queues(most) => DpdkError::OutputQueues(queues, most),
        error => open_error(error, sysfs, &settings),
    })
}

/// The environment, started for a device that exists as far as `sysfs` says.
fn started(sysfs: &Path, settings: &Settings) -> Result<Environment, DpdkError> {
    if let Device::Pci(_) = &settings.device {
        check_pci_device(sysfs, settings.device.name())?;
    }
    let mut environment = Environment::lock();
    start(&mut environment, settings, free_huge_pages(sysfs) > 0)?;
    Ok(environment)
}

/// Starts the environment, or checks that it was started with these settings.
fn start(environment: &mut Environment, settings: &Settings, pages_are_free: bool) -> Result<(), DpdkError> {
    const NO_HUGE: &str = "--no-huge";
    let running = match environment.outcome() {
        None => None,
        Some(Ok(arguments)) => Some(arguments),
        Some(Err(failure)) => return Err(DpdkError::NotStarted(failure.message.clone())),
    };
    if let Some(arguments) = running {
        let without = arguments.iter().any(|argument| argument == NO_HUGE);
        if settings.huge_pages.is_some_and(|on| on == without) {
            let (current, requested) = if without { ("off", "on") } else { ("on", "off") };
            return Err(DpdkError::HugePages(current, requested));
        }
        return match settings.core.filter(|&core| !arguments.contains(&core_argument(core))) {
            Some(core) => Err(DpdkError::CoreInUse(core)),
            None => Ok(()),
        };
    }
    let huge_pages = use_huge_pages(settings, pages_are_free)?;
    if let Some(core) = settings.core.filter(|&core| !driver::may_run_on(core)) {
        return Err(DpdkError::NoCore(core));
    }
    let cores: Vec<String> = (0..1024).filter(|&core| driver::may_run_on(core)).map(|core| core.to_string()).collect();
    // No files that other processes could find or that remain. No device is probed until it is
    // added: an allow list with an address that no device has allows no other device.
    let mut arguments =
        ["weir", "--no-telemetry", "--file-prefix=weir", "-a", "ffff:ff:1f.7"].map(String::from).to_vec();
    arguments.push(settings.core.map_or_else(|| format!("--lcores=0@({})", cores.join(",")), core_argument));
    let memory: &[&str] =
        if huge_pages { &["--in-memory"] } else { &[NO_HUGE, "--no-shconf", "-m", MEMORY_MIB, "--iova-mode=va"] };
    arguments.extend(memory.iter().map(ToString::to_string));
    environment.start(arguments, settings.core).map_err(DpdkError::Start)
}

/// Returns whether to use huge pages: by the setting, for a NIC, or if some are free.
fn use_huge_pages(settings: &Settings, pages_are_free: bool) -> Result<bool, DpdkError> {
    let wanted = match (settings.huge_pages, &settings.device) {
        (Some(wanted), _) => wanted,
        (None, Device::Pci(_)) => true,
        (None, Device::Virtual(_)) => pages_are_free,
    };
    if wanted && !pages_are_free { Err(DpdkError::NoHugePages) } else { Ok(wanted) }
}

/// Returns the argument that puts DPDK's own threads on one core.
fn core_argument(core: u32) -> String {
    format!("--lcores=0@{core}")
}

fn free_huge_pages(sysfs: &Path) -> u64 {
    let sizes = fs::read_dir(sysfs.join("kernel/mm/hugepages")).into_iter().flatten().flatten();
    sizes
        .filter_map(|size| fs::read_to_string(size.path().join("free_hugepages")).ok())
        .filter_map(|number| number.trim().parse::<u64>().ok())
        .sum()
}

fn check_pci_device(sysfs: &Path, address: &str) -> Result<(), DpdkError> {
    let exists = sysfs.join("bus/pci/devices").join(address).exists();
    if exists { Ok(()) } else { Err(DpdkError::NoPciDevice(address.into())) }
}

/// Returns the kernel driver that is bound to a PCI device, if there is one.
fn kernel_driver(sysfs: &Path, address: &str) -> Option<String> {
    let link = fs::read_link(sysfs.join("bus/pci/devices").join(address).join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.into())
}

fn open_error(error: OpenError, sysfs: &Path, settings: &Settings) -> DpdkError {
    let queues = settings.queues;
    match error {
        OpenError::Queues(available) => DpdkError::Queues(queues, available),
        OpenError::Device(failure) if failure.errno == libc::EEXIST => DpdkError::DeviceInUse,
        OpenError::Device(failure) => {
            let cause = match &settings.device {
                Device::Pci(_) => pci_cause(sysfs, settings.device.name(), failure.errno),
                Device::Virtual(_) => DeviceCause::Virtual,
            };
            DpdkError::Device(cause, failure)
        }
        OpenError::Port(failure) => match failure.errno {
            libc::EKEYREJECTED => DpdkError::HashKey,
            libc::ENOMEM | libc::ENOBUFS => {
                DpdkError::Memory { mbufs: settings.mbufs(), queues, without_mib: MEMORY_MIB, failure }
            }
            _ => DpdkError::Port(failure),
        },
    }
}

fn pci_cause(sysfs: &Path, address: &str, errno: i32) -> DeviceCause {
    match errno {
        libc::EACCES => return DeviceCause::Permission,
        libc::EBUSY => return DeviceCause::OtherProcess,
        _ => {}
    }
    match kernel_driver(sysfs, address) {
        None => DeviceCause::Unbound(address.into()),
        Some(driver) if matches!(&driver[..], "vfio-pci" | "uio_pci_generic" | "igb_uio") => DeviceCause::Bound,
        Some(driver) => DeviceCause::KernelDriver(driver, address.into()),
    }
}
