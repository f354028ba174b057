//! Live traffic through DPDK: `dpdk:DEVICE[,key=value]...`.
//!
//! In: a device's name and settings. Out: a [`Source`] per receive queue of its port.
//! Always true: what a port counted as received while its queues were read was handed over; what it could not take
//! in is told as lost. Frames lie where the card wrote them; nothing is copied.
//!
//! DPDK's environment is started once per process, by the first source, without devices; each source then adds its
//! own. What that process-wide part was started with (huge pages or not, the core of DPDK's own threads) holds for later ones.

mod clock;
mod driver;
mod queue;
mod settings;
#[cfg(test)]
mod tests;

use crate::{Error, Source};
use driver::{Environment, Failure, Refused, Wanted};
use queue::{AtStop, Queue};
use settings::{Device, Settings};
use std::fs;
use std::path::Path;

/// Descriptors of a queue, unless the port or the user wants it otherwise: at 10 M packets a second on it, 0.4 ms of them.
const DESCRIPTORS: u16 = 4096;
/// Memory without huge pages, in MiB. Address space: the system gives what is touched.
const MEMORY_MIB: &str = "2048";

/// Linux error numbers that say something about a device.
mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const ENOBUFS: i32 = 105;
    pub const EKEYREJECTED: i32 = 129;
}

/// Opens what stands behind `dpdk:`; `name` is the source as the user wrote it.
///
/// # Errors
/// [`Error::Live`] with what to do about it.
pub(crate) fn open(name: &str, rest: &str) -> Result<Vec<Box<dyn LiveSource + Send>>, Error> {
    let queues = try_open(rest).map_err(|what| Error::Live { name: name.into(), what })?;
    Ok(queues.into_iter().map(|queue| Box::new(queue) as Box<dyn LiveSource + Send>).collect())
}

fn try_open(rest: &str) -> Result<Vec<Queue>, String> {
    let settings = Settings::parse(rest)?;
    let system = Path::new("/sys");
    if let Device::Card(_) = &settings.device {
        find_card(system, settings.device.name())?;
    }
    let mut environment = Environment::lock();
    start(&mut environment, &settings, free_huge_pages(system) > 0)?;
    let wanted = Wanted {
        queues: settings.queues,
        descriptors: settings.descriptors.unwrap_or(DESCRIPTORS),
        mbufs: settings.mbufs(),
        symmetric: settings.symmetric,
    };
    let (receivers, descriptors) =
        environment.open(&settings.device, &wanted).map_err(|refused| explain(refused, system, &settings))?;
    drop(environment);
    match settings.descriptors {
        Some(asked) if asked != descriptors => {
            Err(format!("descriptors={asked} is not possible with this port: the nearest is descriptors={descriptors}"))
        }
        _ => {
            let at_stop = AtStop::default();
            let queue = |receiver| Queue::new(receiver, at_stop.clone(), settings.snap, descriptors.into());
            Ok(receivers.into_iter().map(queue).collect())
        }
    }
}

/// Starts the environment, or finds that it was started so that it will do for these settings.
fn start(environment: &mut Environment, settings: &Settings, pages_are_free: bool) -> Result<(), String> {
    const NO_HUGE: &str = "--no-huge";
    let running = match environment.outcome() {
        None => None,
        Some(Ok(arguments)) => Some(arguments),
        Some(Err(words)) => return Err(format!("DPDK could not be started in this process: {words}")),
    };
    if let Some(arguments) = running {
        let without = arguments.iter().any(|argument| argument == NO_HUGE);
        if settings.huge_pages.is_some_and(|on| on == without) {
            let (is, asked) = if without { ("off", "on") } else { ("on", "off") };
            return Err(format!(
                "DPDK runs in this process with hugepages={is}: a second source cannot have hugepages={asked}"
            ));
        }
        if let Some(core) = settings.core
            && !arguments.contains(&on_core(core))
        {
            return Err(format!(
                "DPDK runs in this process already: a second source cannot have core={core}, give it to the first"
            ));
        }
        return Ok(());
    }
    let huge_pages = in_huge_pages(settings, pages_are_free)?;
    if let Some(core) = settings.core.filter(|&core| !driver::may_run_on(core)) {
        return Err(format!("core={core}: there is no such processor that this process may run on"));
    }
    let cores: Vec<String> = (0..1024).filter(|&core| driver::may_run_on(core)).map(|core| core.to_string()).collect();
    // No files that another process could find or that stay behind. No device is looked for until it is asked for: an
    // allowed address that no card has allows no other.
    let mut arguments =
        ["weir", "--no-telemetry", "--file-prefix=weir", "-a", "ffff:ff:1f.7"].map(String::from).to_vec();
    arguments.push(settings.core.map_or_else(|| format!("--lcores=0@({})", cores.join(",")), on_core));
    let memory: &[&str] =
        if huge_pages { &["--in-memory"] } else { &[NO_HUGE, "--no-shconf", "-m", MEMORY_MIB, "--iova-mode=va"] };
    arguments.extend(memory.iter().map(ToString::to_string));
    environment.start(arguments, settings.core).map_err(|failure| {
        let permitted = if failure.number == errno::EACCES { " (not permitted: is this root?)" } else { "" };
        format!("DPDK does not start{permitted}: {}", told(&failure))
    })
}

/// Whether to take memory in huge pages: if the user says so, for a card, or if there are some anyway.
fn in_huge_pages(settings: &Settings, pages_are_free: bool) -> Result<bool, String> {
    let wanted = match (settings.huge_pages, &settings.device) {
        (Some(wanted), _) => wanted,
        (None, Device::Card(_)) => true,
        (None, Device::Virtual(_)) => pages_are_free,
    };
    if wanted && !pages_are_free {
        return Err(
            "no huge page of memory is free: as root, `echo 512 > /proc/sys/vm/nr_hugepages` reserves 512 of 2 MB \
            each (best right after boot, before memory is in pieces); hugepages=off does without, slower"
                .into(),
        );
    }
    Ok(wanted)
}

/// The argument that puts DPDK's own threads on one processor.
fn on_core(core: u32) -> String {
    format!("--lcores=0@{core}")
}

/// Pages of any size that nobody uses.
fn free_huge_pages(system: &Path) -> u64 {
    let sizes = fs::read_dir(system.join("kernel/mm/hugepages")).into_iter().flatten().flatten();
    sizes
        .filter_map(|size| fs::read_to_string(size.path().join("free_hugepages")).ok())
        .filter_map(|number| number.trim().parse::<u64>().ok())
        .sum()
}

/// Whether there is a card at this address.
fn find_card(system: &Path, address: &str) -> Result<(), String> {
    if system.join("bus/pci/devices").join(address).exists() {
        return Ok(());
    }
    Err(format!(
        "no PCI device has the address {address}: `lspci -D` lists them, `dpdk-devbind.py --status` the network cards"
    ))
}

/// The kernel's driver of a card, if it has one.
fn kernel_driver(system: &Path, address: &str) -> Option<String> {
    let link = fs::read_link(system.join("bus/pci/devices").join(address).join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.into())
}

/// What was refused, in words for the user.
fn explain(refused: Refused, system: &Path, settings: &Settings) -> String {
    let queues = settings.queues;
    match refused {
        Refused::Queues(0) => "this device has no receive queue".into(),
        Refused::Queues(most) => format!("queues={queues}: the port has {most} at most"),
        Refused::Device(failure) if failure.number == errno::EEXIST => {
            "this process has the device already, from another source".into()
        }
        Refused::Device(failure) => {
            let advice = match &settings.device {
                Device::Card(_) => about_card(system, settings.device.name(), failure.number),
                Device::Virtual(_) => {
                    "is it the name of a driver and a number, as net_pcap0, with arguments that it knows?".into()
                }
            };
            format!("DPDK cannot take this device: {advice} DPDK says: {}", told(&failure))
        }
        Refused::Port(failure) if failure.number == errno::EKEYREJECTED => {
            "the port does not take the key that keeps both directions of a flow on one queue; symmetric=off \
                accepts its own, then queues=1 or --uniflow-key keeps records true"
                .into()
        }
        Refused::Port(failure) if matches!(failure.number, errno::ENOMEM | errno::ENOBUFS) => {
            let mbufs = settings.mbufs();
            let each = u64::from(mbufs) * 2432 * u64::from(queues) / 1_000_000 + 1;
            format!(
                "no memory for {mbufs} packet buffers on each of {queues} queues, {each} MB: lower descriptors= and mbufs=, or \
                    reserve more huge pages on the card's node (without them there are {MEMORY_MIB} MiB in all). DPDK says: {}",
                told(&failure)
            )
        }
        Refused::Port(failure) => format!("the port does not take these settings: {}", told(&failure)),
    }
}

/// Why DPDK may not have a card.
fn about_card(system: &Path, address: &str, number: i32) -> String {
    if number == errno::EACCES {
        return "not permitted: run as root, or give this user /dev/vfio and enough locked memory (ulimit -l).".into();
    }
    if number == errno::EBUSY {
        return "another process has it.".into();
    }
    match kernel_driver(system, address).as_deref() {
        None => format!("no kernel driver has it; `dpdk-devbind.py --bind=vfio-pci {address}` gives it to DPDK."),
        Some("vfio-pci" | "uio_pci_generic" | "igb_uio") => {
            "it is bound for DPDK; either another process has it, or DPDK has no driver for it.".into()
        }
        Some(driver) => format!(
            "the kernel's driver {driver} has it; `dpdk-devbind.py --bind=vfio-pci {address}` gives it to DPDK \
                (and takes it from the system; cards of Mellanox and NVIDIA stay with mlx5_core)."
        ),
    }
}

/// A failure as DPDK tells it.
fn told(failure: &Failure) -> String {
    // Drivers return -1 for anything, which is the number of "not permitted".
    let error = match failure.number {
        errno::EPERM => "failed".into(),
        number => std::io::Error::from_raw_os_error(number).to_string(),
    };
    let words = if failure.words.is_empty() { String::new() } else { format!("; {}", failure.words) };
    format!("{}: {error}{words}", failure.call)
}
