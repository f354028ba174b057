//! Machines of the fixtures: what is found on each, and how pipelines lie on them.

use std::path::{Path, PathBuf};
use weir_host::{
    CpuAssignment, CpuLayout, Demand, Finding, LayoutMode, Machine, Severity, SourceThreads, Sysroot, assign_cpus,
    default_mpps_per_core, examine, nearby_cpus, plan,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(fixtures().join(format!("{name}.txt"))).unwrap()
}

fn machine_of(text: &str) -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.txt");
    std::fs::write(&path, text).unwrap();
    Machine::read(&Sysroot::open(&path).unwrap(), &[])
}

fn findings(machine: &Machine) -> Vec<Finding> {
    let nics: Vec<&str> = machine.nics.iter().filter(|nic| nic.physical).map(|nic| &nic.name[..]).collect();
    examine(machine, &nics)
}

/// `interface check`, of one severity.
fn of(findings: &[Finding], severity: Severity) -> Vec<String> {
    let of = findings.iter().filter(|finding| finding.severity == severity);
    of.map(|finding| format!("{} {}", finding.subject, finding.check)).collect()
}

/// A demand of 100 Gbit/s.
fn demand() -> Demand {
    Demand {
        link_bits_per_second: 100_000_000_000,
        frame_octets: 700,
        packets_per_second: None,
        flows: 2_000_000,
        records_per_second: None,
        mpps_per_core: default_mpps_per_core(),
    }
}

#[test]
fn each_machine_has_its_faults_and_no_others() {
    for (name, wrong, better) in [
        ("one-node", &[][..], &[][..]),
        ("wrong-node", &["eth0 irq", "machine isolated", "machine pages"], &["machine realtime"]),
        ("four-nodes", &[], &["eth0 queues", "eth1 node", "eth1 queues"]),
        ("eight-nodes", &["machine governor"], &["eth0 queues", "machine idle", "machine isolated"]),
        ("x8-slot", &["eth0 pcie", "eth1 pcie"], &[]),
        ("few-queues", &["eth0 queues", "eth0 ring"], &[]),
        ("asymmetric-rss", &["eth0 rss", "eth0 table", "eth0 irq"], &["eth0 hashed"]),
        (
            "gro-on",
            &["eth0 ring", "eth0 joining", "machine governor", "machine clock"],
            &[
                "machine idle",
                "machine isolated",
                "machine realtime",
                "machine irqbalance",
                "machine pages",
                "machine transparent",
                "machine swap",
            ],
        ),
        ("no-memory", &["eth0 node", "machine memory"], &[]),
        ("virtual", &[], &["machine realtime", "machine clock", "machine instructions"]),
    ] {
        let findings = findings(&machine_of(&text_of(name)));
        assert_eq!(of(&findings, Severity::Critical), wrong, "{name}");
        assert_eq!(of(&findings, Severity::Warning), better, "{name}");
        let unknown = of(&findings, Severity::Unknown);
        assert_eq!(unknown.is_empty(), name != "virtual", "{name}: {unknown:?}");
        for finding in findings.iter().filter(|finding| finding.severity <= Severity::Warning) {
            assert!(!finding.impact.is_empty(), "{name}: {finding:?}");
        }
    }
}

#[test]
fn every_fixture_is_judged() {
    let names = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".txt")).count(), 10);
}

/// The good machine with one line changed: what is found then.
#[test]
fn a_single_fault_is_found_alone() {
    let good = text_of("one-node");
    let key = "6d:5a:".repeat(20);
    let key = key.trim_end_matches(':');
    for (from, to, severity, found) in [
        (key, &key.replacen("5a", "5b", 1)[..], Severity::Critical, "eth0 rss"),
        (key, "00:".repeat(40).trim_end_matches(':'), Severity::Critical, "eth0 rss"),
        ("toeplitz: on\n     xor: off", "toeplitz: off\n     xor: on", Severity::Unknown, "eth0 rss"),
        ("numa_node = 0", "numa_node = 7", Severity::Unknown, "eth0 node"),
        ("current_link_width = 8", "current_link_width = 1", Severity::Critical, "eth0 pcie"),
        ("current_link_width = 8", "current_link_width = 4", Severity::Warning, "eth0 pcie"),
        ("operstate = up", "operstate = down", Severity::Warning, "eth0 port"),
        ("     0: 0 1 2 3", "     0: 0 0 2 3", Severity::Warning, "eth0 table"),
        ("large-receive-offload: off", "large-receive-offload: on", Severity::Critical, "eth0 joining"),
        ("scaling_governor = performance", "scaling_governor = ondemand", Severity::Critical, "machine governor"),
        ("current_clocksource = tsc", "current_clocksource = acpi_pm", Severity::Critical, "machine clock"),
        ("sched_rt_runtime_us = -1", "sched_rt_runtime_us = 950000", Severity::Warning, "machine realtime"),
        ("irqbalance = does not run", "irqbalance = runs", Severity::Warning, "machine irqbalance"),
        ("free_hugepages = 2048", "free_hugepages = 12", Severity::Warning, "machine pages"),
        ("[madvise] never", "madvise [never]", Severity::Warning, "machine transparent"),
        ("state2/disable = 1", "state2/disable = 0", Severity::Warning, "machine idle"),
        ("isolated = 1-7,9-15", "isolated = ", Severity::Warning, "machine isolated"),
        (" avx2 avx512f", "", Severity::Warning, "machine instructions"),
        (" TCP over", " IP SA\n TCP over", Severity::Ok, "eth0 hashed"),
        (" L4 bytes 0 & 1 [TCP/UDP src port]", "", Severity::Warning, "eth0 hashed"),
    ] {
        assert!(good.contains(from), "{from}");
        let all = findings(&machine_of(&good.replace(from, to)));
        assert!(of(&all, severity).contains(&found.to_owned()), "{from} -> {to}: {all:#?}");
        if severity == Severity::Unknown {
            continue;
        }
        let bad = [of(&all, Severity::Critical), of(&all, Severity::Warning)].concat();
        assert!(bad.iter().all(|bad| bad == found), "{from} -> {to}: {bad:?}");
    }
}

#[test]
fn symmetric_input_makes_any_key_good() {
    let text = text_of("asymmetric-rss")
        .replace("     xor: off", "     xor: off\n RSS input transformation:\n     symmetric-xor: on");
    assert!(!of(&findings(&machine_of(&text)), Severity::Critical).contains(&"eth0 rss".into()));
}

#[test]
fn capture_is_alone_on_its_core_and_the_others_are_siblings() {
    let machine = machine_of(&text_of("one-node"));
    let layout = CpuLayout::of(&machine, Some(0), 3);
    assert_eq!(layout.mode, LayoutMode::Split);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.queue, p.capture, p.meter, p.export)).collect();
    assert_eq!(cpus, [(0, 1, 2, 10), (1, 3, 4, 12), (2, 5, 6, 14)]);
    // Five do not fit so; the exporters share the core of processor 0.
    let layout = CpuLayout::of(&machine, Some(0), 5);
    assert_eq!(layout.mode, LayoutMode::Fused);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.queue, p.capture, p.meter, p.export)).collect();
    assert_eq!(cpus, [(0, 1, 1, 0), (1, 2, 2, 0), (2, 3, 3, 0), (3, 4, 4, 0), (4, 5, 5, 0)]);
    assert_eq!(CpuLayout::of(&machine, Some(0), 1000).pipelines.len(), 7);
}

#[test]
fn without_smt_each_stage_has_a_core() {
    let machine = machine_of(&text_of("four-nodes"));
    let layout = CpuLayout::of(&machine, Some(2), 2);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.capture, p.meter, p.export)).collect();
    // 12 to 16 are isolated and come first.
    assert_eq!((layout.mode, cpus), (LayoutMode::Split, vec![(12, 13, 14), (15, 16, 17)]));
}

#[test]
fn all_of_a_layout_lies_on_the_node_of_the_card_and_no_core_serves_two_pipelines() {
    for name in ["one-node", "wrong-node", "four-nodes", "eight-nodes", "x8-slot", "few-queues", "gro-on", "no-memory"]
    {
        let machine = machine_of(&text_of(name));
        for mpps_per_core in [1.0, 3.0, 6.0, 9.0, 20.0] {
            let plan = plan(&machine, &Demand { mpps_per_core, ..demand() }, Some("eth0"));
            let node = machine.nics[0].node;
            assert_eq!(plan.layout.node, node, "{name}");
            let core = |id: u32| machine.cpus.iter().find(|cpu| cpu.id == id).unwrap().siblings[0];
            let mut captures = Vec::new();
            for pipeline in &plan.layout.pipelines {
                for id in [pipeline.capture, pipeline.meter, pipeline.export] {
                    assert_eq!(machine.cpus.iter().find(|cpu| cpu.id == id).unwrap().node, node, "{name}");
                }
                captures.extend([core(pipeline.capture), core(pipeline.meter)]);
                assert_ne!(core(pipeline.capture), core(pipeline.export), "{name}");
            }
            captures.sort_unstable();
            let all = captures.len();
            captures.dedup();
            let each = if plan.layout.mode == LayoutMode::Split { 2 } else { 1 };
            assert_eq!(captures.len(), plan.layout.pipelines.len() * each, "{name}: {all}");
            let cores_missing = plan.findings.iter().any(|f| f.check == "cores" && f.severity == Severity::Critical);
            assert_eq!(cores_missing, plan.layout.pipelines.len() < plan.pipelines, "{name}");
        }
    }
}

#[test]
fn a_plan_says_what_does_not_fit() {
    let obstacles =
        |name: &str, demand: &Demand| of(&plan(&machine_of(&text_of(name)), demand, None).findings, Severity::Critical);
    assert_eq!(obstacles("x8-slot", &demand()), ["eth0 pcie"]);
    assert_eq!(obstacles("one-node", &demand()), ["eth0 pcie", "eth0 speed"]);
    assert_eq!(obstacles("few-queues", &demand()), ["eth0 queues"]);
    assert_eq!(obstacles("no-memory", &demand()), ["machine memory"]);
    assert_eq!(obstacles("eight-nodes", &demand()), [""; 0]);
    let small = Demand { frame_octets: 64, ..demand() };
    assert_eq!(obstacles("eight-nodes", &small), ["machine cores", "eth0 queues"]);
    let flows = Demand { flows: 2_000_000_000, ..demand() };
    assert_eq!(obstacles("eight-nodes", &flows), ["machine memory"]);
}

#[test]
fn each_queue_of_the_card_has_a_pipeline_if_there_are_cores() {
    let plan = plan(&machine_of(&text_of("x8-slot")), &demand(), None);
    assert_eq!((plan.needed_pipelines, plan.pipelines, plan.layout.pipelines.len()), (3, 15, 15));
    assert_eq!(plan.layout.mode, LayoutMode::Fused);
}

#[test]
fn a_plan_is_arithmetic() {
    let plan = plan(&machine_of(&text_of("eight-nodes")), &demand(), None);
    assert_eq!(plan.packets_per_second as u64, 17_361_111);
    // The NIC has 8 queues, but the node only 4 cores.
    assert_eq!((plan.needed_pipelines, plan.pipelines), (3, 3));
    let memory = plan.memory;
    assert_eq!(
        (memory.flow_bytes, memory.tcp_bytes, memory.tcp_anomaly_bytes),
        (512_000_000, 512_000_000, 297_600_000)
    );
    assert_eq!(memory.buffer_bytes, 3 * 4096 * 2048);
    assert_eq!(memory.total_bytes, 512_000_000 + 512_000_000 + 297_600_000 + 25_165_824);
    assert_eq!(plan.huge_pages_2_mib, 643);
    assert_eq!(plan.export.records_per_second, 200_000.0);
    assert_eq!(plan.export.ipfix_bits_per_second, 560e6);
    assert_eq!(plan.bus_bits_per_second as u64 / 1_000_000_000, 114);
}

#[test]
fn a_recording_reads_as_the_machine_that_it_is_of() {
    for name in ["one-node", "eight-nodes", "asymmetric-rss", "virtual"] {
        let folder = tempfile::tempdir().unwrap();
        let again = folder.path().join("again.txt");
        let sysroot = Sysroot::open(&fixtures().join(format!("{name}.txt"))).unwrap();
        let machine = Machine::read(&sysroot, &[]);
        std::fs::write(&again, sysroot.recording()).unwrap();
        assert_eq!(Machine::read(&Sysroot::open(&again).unwrap(), &[]), machine, "{name}");
    }
    // And of this one.
    let sysroot = Sysroot::live();
    let machine = Machine::read(&sysroot, &[]);
    assert_eq!(machine_of(&sysroot.recording()), machine);
}

#[test]
fn damaged_recordings_are_not_known_and_never_a_panic() {
    for name in ["asymmetric-rss", "no-memory", "virtual"] {
        let text = text_of(name);
        let lines: Vec<&str> = text.lines().collect();
        for at in 1..lines.len() {
            let mut without = lines.clone();
            without.remove(at);
            let mut garbage = lines.clone();
            let line = lines[at];
            let path = line.split_once(" =").map_or(line, |(path, _)| path);
            let texts =
                ["", "-1", "\u{1b}[2J\u{fffd}", "4294967296", "0-4294967295", "18446744073709551615", "NaN", "0"];
            let odd = format!("{path} = {}", texts[at % texts.len()]);
            garbage[at] = &odd;
            let cut = lines[..at].to_vec();
            for lines in [without, garbage, cut] {
                let machine = machine_of(&lines.join("\n"));
                findings(&machine);
                plan(&machine, &demand(), None);
                plan(&machine, &Demand { flows: u64::MAX, link_bits_per_second: u64::MAX, ..demand() }, Some("eth0"));
            }
        }
    }
}

#[test]
fn a_folder_reads_as_a_machine_does() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("sys/devices/system/cpu/online", b"0-1\n");
    write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", b"powersave\n");
    write("sys/devices/system/cpu/cpu0/topology/core_cpus_list", b"");
    write("sys/devices/system/node/online", b"\xff\xfe\n");
    write("sys/class/net/eth0/speed", b"garbage");
    write("sys/class/net/eth0/queues/rx-0/rps_cpus", b"0");
    write("weir/ethtool/eth0/-g", b"Pre-set maximums:\nRX: 512\nCurrent hardware settings:\nRX: 256\n");
    // Links that go nowhere, and one that goes round.
    let link = |target: &str, path: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    link("../../devices/nowhere/0000:00:09.0/net/eth1", "sys/class/net/eth1");
    link("loop", "sys/class/net/loop");
    link("../../devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/net/usb0", "sys/class/net/usb0");
    write("sys/class/net/bonding_masters", b"");
    link("/dev/zero", "proc/swaps");
    let machine = Machine::read(&Sysroot::open(folder.path()).unwrap(), &["eth0".into()]);
    assert_eq!(machine.cpus.len(), 2);
    assert_eq!(machine.cpus[0].governor.as_deref(), Some("powersave"));
    assert_eq!((machine.cpus[0].siblings.as_slice(), machine.swap), (&[0][..], None));
    let names: Vec<&str> = machine.nics.iter().map(|nic| &nic.name[..]).collect();
    assert_eq!(names, ["eth0", "eth1", "loop", "usb0"]);
    assert_eq!((machine.nics[0].speed_mbps, machine.nics[0].queues), (None, 1));
    assert_eq!(machine.nics[0].ring.ok().map(|ring| (ring.current, ring.maximum)), Some((256, 512)));
    assert_eq!(machine.nics[1].pci.as_deref(), Some("0000:00:09.0"));
    assert_eq!(machine.nics[3].pci, None);
    let empty = tempfile::tempdir().unwrap();
    let machine = Machine::read(&Sysroot::open(empty.path()).unwrap(), &[]);
    assert!(machine.cpus.is_empty() && machine.nics.is_empty() && machine.irqbalance.is_none());
    let findings = findings(&machine);
    assert!(findings.iter().all(|finding| finding.severity == Severity::Unknown), "{findings:#?}");
    assert!(Sysroot::open(&folder.path().join("nowhere")).is_err());
    assert!(Sysroot::open(&folder.path().join("sys/class/net/eth0/speed")).is_err());
}

fn placed(name: &str, work: &[(&str, usize)], allowed: impl Fn(u32) -> bool) -> Result<CpuAssignment, String> {
    let work: Vec<SourceThreads> = work
        .iter()
        .map(|&(devices, threads)| SourceThreads { devices: devices.split('+').map(String::from).collect(), threads })
        .collect();
    assign_cpus(&Sysroot::open(&fixtures().join(format!("{name}.txt"))).unwrap(), &work, allowed)
}

#[test]
fn threads_of_a_probe_have_cores_of_their_own_on_the_node_of_their_card() {
    let anywhere = |_| true;
    // Hardware threads: 0 and 8 are one core.
    let one = placed("one-node", &[("eth0", 4)], anywhere).unwrap();
    assert_eq!(one.sources, [(0, vec![1, 2, 3, 4])]);
    assert_eq!(one.export, [0, 5, 6, 7, 8, 13, 14, 15]);
    // Not where the process was started, but where the NIC is; by its address as well.
    let far = placed("wrong-node", &[("eth0", 3)], anywhere).unwrap();
    assert_eq!((&far.sources[..], far.export.len()), (&[(1, vec![8, 9, 10])][..], 10));
    assert_eq!(placed("wrong-node", &[("0000:af:00.0", 3)], anywhere), Ok(far));
    // Without hardware threads, two NICs on one of four nodes: no core twice.
    let two = placed("four-nodes", &[("eth0", 2), ("eth1", 2)], anywhere).unwrap();
    assert_eq!((two.sources, two.export), (vec![(2, vec![12, 13]), (2, vec![14, 15])], vec![16, 17]));
    let tap = placed("four-nodes", &[("eth0+eth1", 3)], anywhere).unwrap();
    assert_eq!(tap.sources, [(2, vec![12, 13, 14])]);
    let sysroot = |name: &str| Sysroot::open(&fixtures().join(format!("{name}.txt"))).unwrap();
    let near: Vec<u32> = (8..16).chain(24..32).collect();
    assert_eq!(
        (nearby_cpus(&sysroot("wrong-node"), "eth0"), nearby_cpus(&sysroot("one-node"), "eth0")),
        (near, vec![])
    );
    let eight = placed("eight-nodes", &[("eth0", 2)], anywhere).unwrap();
    assert_eq!(eight.sources, [(3, vec![12, 13])]);
}

#[test]
fn where_there_is_nothing_to_choose_the_system_chooses_and_why_is_said() {
    let anywhere = |_| true;
    let too_few = placed("eight-nodes", &[("eth0", 3)], anywhere).unwrap_err();
    assert_eq!(too_few, "node 3, where eth0 is, has 4 cores, too few for a thread each and two more");
    let taken = placed("four-nodes", &[("eth0", 3), ("eth1", 3)], anywhere).unwrap_err();
    assert!(taken.starts_with("node 2, where eth1 is, has 6 cores"), "{taken}");
    let confined = placed("one-node", &[("eth0", 2)], |cpu| cpu < 2).unwrap_err();
    assert!(confined.contains("has 2 cores"), "{confined}");
    assert_eq!(placed("one-node", &[("lo", 1)], anywhere).unwrap_err(), "there is no NIC behind lo");
    assert_eq!(placed("one-node", &[], anywhere).unwrap().sources, []);
}
