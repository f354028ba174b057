//! Findings, plans and CPU assignments for the machines in `fixtures`.

use std::path::{Path, PathBuf};
use weir_host::{
    AssignmentError, CpuAssignment, CpuLayout, Demand, Finding, LayoutMode, Machine, Severity, SourceThreads, Sysroot,
    assign_cpus, default_mpps_per_core, examine, nearby_cpus, plan,
};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(fixtures().join(format!("{name}.txt"))).unwrap()
}

fn sysroot(name: &str) -> Sysroot {
    Sysroot::open(&fixtures().join(format!("{name}.txt"))).unwrap()
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

/// Subject and check of the findings of one severity.
fn with_severity(findings: &[Finding], severity: Severity) -> Vec<String> {
    let selected = findings.iter().filter(|finding| finding.severity == severity);
    selected.map(|finding| format!("{} {}", finding.subject, finding.check)).collect()
}

/// Line rate on 100 Gbit/s.
fn demand() -> Demand {
    Demand {
        link_bits_per_second: 100_000_000_000,
        ports: 1,
        frame_octets: 700,
        packets_per_second: None,
        flows: 2_000_000,
        mac_addresses: false,
        transaction_bytes: 0,
        records_per_second: None,
        mpps_per_core: default_mpps_per_core(),
    }
}

#[test]
fn each_machine_has_exactly_its_expected_findings() {
    for (name, critical, warnings) in [
        ("one-node", &[][..], &[][..]),
        ("wrong-node", &["eth0 irq", "machine isolated", "machine huge-pages"], &["machine realtime"]),
        ("four-nodes", &[], &["eth0 queues", "eth1 node", "eth1 queues"]),
        ("eight-nodes", &["machine governor"], &["eth0 queues", "machine idle", "machine isolated"]),
        ("x8-slot", &["eth0 pcie", "eth1 pcie"], &[]),
        ("few-queues", &["eth0 queues", "eth0 ring"], &[]),
        ("asymmetric-rss", &["eth0 rss-key", "eth0 rss-table", "eth0 irq"], &["eth0 rss-fields"]),
        (
            "gro-on",
            &["eth0 ring", "eth0 offloads", "machine governor", "machine clock"],
            &[
                "machine idle",
                "machine isolated",
                "machine realtime",
                "machine irqbalance",
                "machine huge-pages",
                "machine transparent-huge-pages",
                "machine swap",
            ],
        ),
        ("no-memory", &["eth0 node", "machine memory"], &[]),
        ("virtual", &[], &["machine realtime", "machine clock"]),
    ] {
        let findings = findings(&machine_of(&text_of(name)));
        assert_eq!(with_severity(&findings, Severity::Critical), critical, "{name}");
        assert_eq!(with_severity(&findings, Severity::Warning), warnings, "{name}");
        let unknown = with_severity(&findings, Severity::Unknown);
        assert_eq!(unknown.is_empty(), name != "virtual", "{name}: {unknown:?}");
        for finding in findings.iter().filter(|finding| finding.severity <= Severity::Warning) {
            assert!(!finding.impact.is_empty(), "{name}: {finding:?}");
        }
    }
}

#[test]
fn no_fixture_is_missing() {
    let names = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".txt")).count(), 10);
}

/// Changes one line of a machine without findings.
#[test]
fn a_single_fault_causes_a_single_finding() {
    let good = text_of("one-node");
    let key = "6d:5a:".repeat(20);
    let key = key.trim_end_matches(':');
    for (from, to, severity, found) in [
        (key, &key.replacen("5a", "5b", 1)[..], Severity::Critical, "eth0 rss-key"),
        (key, "00:".repeat(40).trim_end_matches(':'), Severity::Critical, "eth0 rss-key"),
        ("toeplitz: on\n     xor: off", "toeplitz: off\n     xor: on", Severity::Unknown, "eth0 rss-key"),
        ("numa_node = 0", "numa_node = 7", Severity::Unknown, "eth0 node"),
        ("current_link_width = 8", "current_link_width = 1", Severity::Critical, "eth0 pcie"),
        ("current_link_width = 8", "current_link_width = 4", Severity::Warning, "eth0 pcie"),
        ("operstate = up", "operstate = down", Severity::Warning, "eth0 port"),
        ("     0: 0 1 2 3", "     0: 0 0 2 3", Severity::Warning, "eth0 rss-table"),
        ("large-receive-offload: off", "large-receive-offload: on", Severity::Critical, "eth0 offloads"),
        ("scaling_governor = performance", "scaling_governor = ondemand", Severity::Critical, "machine governor"),
        ("current_clocksource = tsc", "current_clocksource = acpi_pm", Severity::Critical, "machine clock"),
        ("sched_rt_runtime_us = -1", "sched_rt_runtime_us = 950000", Severity::Warning, "machine realtime"),
        ("irqbalance = does not run", "irqbalance = runs", Severity::Warning, "machine irqbalance"),
        ("free_hugepages = 2048", "free_hugepages = 12", Severity::Warning, "machine huge-pages"),
        ("[madvise] never", "madvise [never]", Severity::Warning, "machine transparent-huge-pages"),
        ("state2/disable = 1", "state2/disable = 0", Severity::Warning, "machine idle"),
        ("isolated = 1-7,9-15", "isolated = ", Severity::Warning, "machine isolated"),
        (" TCP over", " IP SA\n TCP over", Severity::Ok, "eth0 rss-fields"),
        (" L4 bytes 0 & 1 [TCP/UDP src port]", "", Severity::Warning, "eth0 rss-fields"),
    ] {
        assert!(good.contains(from), "{from}");
        let all = findings(&machine_of(&good.replace(from, to)));
        assert!(with_severity(&all, severity).contains(&found.to_owned()), "{from} -> {to}: {all:#?}");
        if severity == Severity::Unknown {
            continue;
        }
        let bad = [with_severity(&all, Severity::Critical), with_severity(&all, Severity::Warning)].concat();
        assert!(bad.iter().all(|bad| bad == found), "{from} -> {to}: {bad:?}");
    }
}

#[test]
fn any_rss_key_is_symmetric_with_symmetric_xor() {
    let text = text_of("asymmetric-rss")
        .replace("     xor: off", "     xor: off\n RSS input transformation:\n     symmetric-xor: on");
    assert!(!with_severity(&findings(&machine_of(&text)), Severity::Critical).contains(&"eth0 rss-key".into()));
}

#[test]
fn split_pipelines_use_a_core_for_capture_and_siblings_for_meter_and_export() {
    let machine = machine_of(&text_of("one-node"));
    let layout = CpuLayout::new(&machine, Some(0), 3);
    assert_eq!(layout.mode, LayoutMode::Split);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.queue, p.capture, p.meter, p.export)).collect();
    assert_eq!(cpus, [(0, 1, 2, 10), (1, 3, 4, 12), (2, 5, 6, 14)]);
    // Five split pipelines do not fit. The exporters share the core of CPU 0.
    let layout = CpuLayout::new(&machine, Some(0), 5);
    assert_eq!(layout.mode, LayoutMode::Fused);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.queue, p.capture, p.meter, p.export)).collect();
    assert_eq!(cpus, [(0, 1, 1, 0), (1, 2, 2, 0), (2, 3, 3, 0), (3, 4, 4, 0), (4, 5, 5, 0)]);
    assert_eq!(CpuLayout::new(&machine, Some(0), 1000).pipelines.len(), 7);
}

#[test]
fn without_smt_each_stage_uses_a_core() {
    let machine = machine_of(&text_of("four-nodes"));
    let layout = CpuLayout::new(&machine, Some(2), 2);
    let cpus: Vec<_> = layout.pipelines.iter().map(|p| (p.capture, p.meter, p.export)).collect();
    // CPUs 12 to 16 are isolated and come first.
    assert_eq!((layout.mode, cpus), (LayoutMode::Split, vec![(12, 13, 14), (15, 16, 17)]));
}

#[test]
fn layouts_are_on_the_numa_node_of_the_nic_and_no_core_runs_two_pipelines() {
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
fn plans_report_what_is_insufficient() {
    let obstacles = |name: &str, demand: &Demand| {
        with_severity(&plan(&machine_of(&text_of(name)), demand, None).findings, Severity::Critical)
    };
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
fn each_receive_queue_has_a_pipeline_if_there_are_enough_cores() {
    let plan = plan(&machine_of(&text_of("x8-slot")), &demand(), None);
    assert_eq!((plan.needed_pipelines, plan.pipelines, plan.layout.pipelines.len()), (3, 15, 15));
    assert_eq!(plan.layout.mode, LayoutMode::Fused);
}

#[test]
fn figures_of_a_plan_follow_from_the_demand() {
    let plan = plan(&machine_of(&text_of("eight-nodes")), &demand(), None);
    assert_eq!(plan.packets_per_second as u64, 17_361_111);
    // The NIC has 8 queues, but its node has only 4 cores.
    assert_eq!((plan.needed_pipelines, plan.pipelines), (3, 3));
    let memory = plan.memory;
    assert_eq!(
        (memory.flow_bytes, memory.tcp_bytes, memory.tcp_anomaly_bytes),
        (512_000_000, 896_000_000, 297_600_000)
    );
    assert_eq!(memory.buffer_bytes, 3 * 4096 * 2048);
    assert_eq!(memory.total_bytes, 512_000_000 + 896_000_000 + 297_600_000 + 25_165_824);
    assert_eq!(plan.huge_pages_2_mib, 826);
    assert_eq!(plan.export.records_per_second, 200_000.0);
    assert_eq!((plan.export.ipfix_bits_per_second, plan.export.ipfix_full_bits_per_second), (256e6, 480e6));
    assert_eq!(plan.bus_bits_per_second as u64 / 1_000_000_000, 114);
    let with_macs =
        weir_host::plan(&machine_of(&text_of("eight-nodes")), &Demand { mac_addresses: true, ..demand() }, None);
    assert_eq!(with_macs.memory.flow_bytes - memory.flow_bytes, 2_000_000 * 25);
    let with_transactions = Demand { transaction_bytes: 100_000_000, ..demand() };
    let recording = weir_host::plan(&machine_of(&text_of("eight-nodes")), &with_transactions, None).memory;
    assert_eq!(recording.transaction_bytes, 3 * 100_000_000);
    assert_eq!(recording.total_bytes - memory.total_bytes, recording.transaction_bytes);
}

#[test]
fn a_recording_yields_the_recorded_machine() {
    for name in ["one-node", "eight-nodes", "asymmetric-rss", "virtual"] {
        let folder = tempfile::tempdir().unwrap();
        let again = folder.path().join("again.txt");
        let sysroot = sysroot(name);
        let machine = Machine::read(&sysroot, &[]);
        std::fs::write(&again, sysroot.recording()).unwrap();
        assert_eq!(Machine::read(&Sysroot::open(&again).unwrap(), &[]), machine, "{name}");
    }
    // Also for the machine that runs the test.
    let sysroot = Sysroot::live();
    let machine = Machine::read(&sysroot, &[]);
    assert_eq!(machine_of(&sysroot.recording()), machine);
}

#[test]
fn damaged_recordings_never_cause_a_panic() {
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
fn a_folder_is_read_like_a_machine() {
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
    // Links without a target, and a link to itself.
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

fn assigned(
    name: &str,
    work: &[(&str, usize)],
    allowed: impl Fn(u32) -> bool,
) -> Result<CpuAssignment, AssignmentError> {
    let work: Vec<SourceThreads> = work
        .iter()
        .map(|&(devices, threads)| SourceThreads { devices: devices.split('+').map(String::from).collect(), threads })
        .collect();
    assign_cpus(&sysroot(name), &work, allowed)
}

#[test]
fn threads_get_cores_of_their_own_on_the_numa_node_of_their_nic() {
    let anywhere = |_| true;
    // CPUs 0 and 8 are one core.
    let one = assigned("one-node", &[("eth0", 4)], anywhere).unwrap();
    assert_eq!(one.sources, [(0, vec![1, 2, 3, 4])]);
    assert_eq!(one.export, [0, 5, 6, 7, 8, 13, 14, 15]);
    // On the node of the NIC, not of the process; also by PCI address.
    let far = assigned("wrong-node", &[("eth0", 3)], anywhere).unwrap();
    assert_eq!((&far.sources[..], far.export.len()), (&[(1, vec![8, 9, 10])][..], 10));
    assert_eq!(assigned("wrong-node", &[("0000:af:00.0", 3)], anywhere), Ok(far));
    // Without SMT, two NICs on one of four nodes: no core is used twice.
    let two = assigned("four-nodes", &[("eth0", 2), ("eth1", 2)], anywhere).unwrap();
    assert_eq!((two.sources, two.export), (vec![(2, vec![12, 13]), (2, vec![14, 15])], vec![16, 17]));
    let tap = assigned("four-nodes", &[("eth0+eth1", 3)], anywhere).unwrap();
    assert_eq!(tap.sources, [(2, vec![12, 13, 14])]);
    let near: Vec<u32> = (8..16).chain(24..32).collect();
    assert_eq!(
        (nearby_cpus(&sysroot("wrong-node"), "eth0"), nearby_cpus(&sysroot("one-node"), "eth0")),
        (near, vec![])
    );
    let eight = assigned("eight-nodes", &[("eth0", 2)], anywhere).unwrap();
    assert_eq!(eight.sources, [(3, vec![12, 13])]);
}

#[test]
fn the_reason_is_reported_if_no_cpus_can_be_assigned() {
    let anywhere = |_| true;
    let too_few = assigned("eight-nodes", &[("eth0", 3)], anywhere).unwrap_err().to_string();
    assert_eq!(too_few, "NUMA node 3 of eth0 has 4 cores; one per thread and two more are needed");
    let used = assigned("four-nodes", &[("eth0", 3), ("eth1", 3)], anywhere).unwrap_err();
    assert!(matches!(used, AssignmentError::TooFewCores { node: 2, cores: 6, .. }), "{used}");
    let confined = assigned("one-node", &[("eth0", 2)], |cpu| cpu < 2).unwrap_err();
    assert!(matches!(confined, AssignmentError::TooFewCores { cores: 2, .. }), "{confined}");
    assert_eq!(assigned("one-node", &[("lo", 1)], anywhere), Err(AssignmentError::NoPciDevice("lo".into())));
    assert_eq!(assigned("one-node", &[], anywhere).unwrap().sources, []);
}
