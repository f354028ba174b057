//! Checks of CPU frequency, idle states, isolation, clock source and interrupt balancing.

use crate::cpu::{Cpu, IdleState};
use crate::finding::{Finding, MACHINE, Severity, Step};
use crate::lists::list;
use crate::machine::Machine;
use crate::nic::Nic;
use crate::units::count;

/// Idle states with a longer exit latency, µs, delay packets.
const MAX_EXIT_LATENCY_US: u32 = 10;

pub fn check(machine: &Machine, nics: &[&Nic]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if machine.cpus.is_empty() {
        findings.push(Finding::unknown("cores", MACHINE, "cores: the kernel lists none"));
    } else {
        let any_fast = nics.iter().any(|nic| nic.is_fast());
        let severity = if any_fast { Severity::Critical } else { Severity::Warning };
        findings.extend([smt(machine), governor(machine, severity), idle_states(machine)]);
        findings.extend(isolation(machine, nics));
    }
    findings.push(match machine.turbo {
        Some(true) => Finding::ok("turbo", MACHINE, "turbo is on"),
        Some(false) => Finding::ok("turbo", MACHINE, "turbo is off: a lower but constant frequency"),
        None => Finding::unknown("turbo", MACHINE, "turbo: the kernel does not report it"),
    });
    findings.extend([realtime(machine), clock(machine), irqbalance(machine)]);
    if machine.is_virtual == Some(true) {
        let summary = "this is a virtual machine: its host schedules the CPUs, and some of these values may be wrong";
        findings.push(Finding::ok("virtual", MACHINE, summary));
    }
    findings
}

fn smt(machine: &Machine) -> Finding {
    match machine.smt {
        Some(true) => {
            Finding::ok("smt", MACHINE, "SMT is on: capture should have both hardware threads of its core for itself")
        }
        Some(false) => Finding::ok(
            "smt",
            MACHINE,
            "cores have one hardware thread (SMT is off or not available): each pipeline stage uses a core",
        ),
        None => Finding::unknown("smt", MACHINE, "SMT: the kernel does not report it"),
    }
}

fn governor(machine: &Machine, severity: Severity) -> Finding {
    let mut governors: Vec<&str> = machine.cpus.iter().filter_map(|cpu| cpu.governor.as_deref()).collect();
    if governors.is_empty() {
        let summary = "frequency governor: the kernel does not control the CPU frequency";
        return Finding::unknown("governor", MACHINE, summary);
    }
    governors.retain(|governor| *governor != "performance");
    let slow = governors.len();
    governors.sort_unstable();
    governors.dedup();
    if slow == 0 {
        return Finding::ok("governor", MACHINE, "frequency governor: performance");
    }
    let cpus = count(machine.cpus.len(), "CPU");
    let summary = format!("{slow} of {cpus} have the frequency governor {}", governors.join(", "));
    let impact = "The frequency rises only after the load was measured. Until then packets wait in the receive ring, or \
                  do not fit and are dropped.";
    let is_slow = |cpu: &&Cpu| cpu.governor.as_deref().is_some_and(|governor| governor != "performance");
    let steps = machine.cpus.iter().filter(is_slow).map(|cpu| Step::Write {
        path: format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu.id),
        text: "performance".into(),
    });
    let mut finding = Finding::new(severity, "governor", MACHINE, summary, impact).with_steps(steps.collect(), "");
    if let Some(remedy) = &mut finding.remedy {
        let all = "for g in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $g; done";
        remedy.commands = vec![all.into()];
    }
    finding
}

fn idle_states(machine: &Machine) -> Finding {
    let states = || machine.cpus.iter().flat_map(|cpu| &cpu.idle_states);
    let is_deep = |state: &&IdleState| state.latency_us > MAX_EXIT_LATENCY_US && !state.disabled;
    let Some(deepest) = states().filter(is_deep).max_by_key(|state| state.latency_us) else {
        return match states().next() {
            Some(_) => {
                let summary = format!("no enabled idle state has an exit latency above {MAX_EXIT_LATENCY_US} µs");
                Finding::ok("idle", MACHINE, summary)
            }
            None => Finding::unknown("idle", MACHINE, "idle states: the kernel lists none"),
        };
    };
    let mut names: Vec<&str> = states().filter(is_deep).map(|state| &state.name[..]).collect();
    names.sort_unstable();
    names.dedup();
    let summary = format!(
        "deep idle states are enabled ({}); {} has an exit latency of {} µs",
        names.join(", "),
        deepest.name,
        deepest.latency_us
    );
    let impact = "A core in this state needs that time before it receives the first packet after a pause.";
    Finding::new(Severity::Warning, "idle", MACHINE, summary, impact).with_commands(
        &[format!("cpupower idle-set -D {MAX_EXIT_LATENCY_US}")],
        "This costs power and heat, and limits the turbo frequency of other cores. cpupower is in the package \
         linux-cpupower.",
    )
}

fn isolation(machine: &Machine, nics: &[&Nic]) -> Option<Finding> {
    let isolated: Vec<u32> = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let nic = nics.iter().find(|nic| nic.is_fast())?;
    let node = machine.node_of(nic)?;
    let cores = machine.cores(Some(node.id));
    // The last core is left to the system.
    let candidates: Vec<u32> = cores.iter().take(cores.len().saturating_sub(1)).flatten().copied().collect();
    if candidates.is_empty() {
        return None;
    }
    let cpus = list(&candidates);
    let boot = format!(
        "Boot with isolcpus={cpus} nohz_full={cpus} rcu_nocbs={cpus} (GRUB_CMDLINE_LINUX in /etc/default/grub, then \
         update-grub). The scheduler then runs nothing else on these CPUs."
    );
    if isolated.is_empty() {
        let impact =
            "The scheduler may run other programs on the cores that receive packets, and packets wait meanwhile.";
        let finding = Finding::new(Severity::Warning, "isolated", MACHINE, "no CPUs are isolated", impact);
        return Some(finding.with_commands(&[], &boot));
    }
    if !isolated.iter().any(|cpu| node.cpus.contains(cpu)) {
        let isolated = list(&isolated);
        let summary = format!(
            "CPUs {isolated} are isolated, but none of NUMA node {}, into which {} is plugged",
            node.id, nic.name
        );
        let impact = "They are of no use: packets should be received on the NUMA node of their NIC.";
        let finding = Finding::new(Severity::Critical, "isolated", MACHINE, summary, impact);
        return Some(finding.with_commands(&[], &boot));
    }
    Some(Finding::ok("isolated", MACHINE, format!("CPUs {} are isolated", list(&isolated))))
}

fn realtime(machine: &Machine) -> Finding {
    match machine.realtime_us {
        None => Finding::unknown("realtime", MACHINE, "real-time throttling"),
        Some(us) if !(0..1_000_000).contains(&us) => Finding::ok("realtime", MACHINE, "real-time throttling is off"),
        Some(us) => {
            let summary =
                format!("real-time threads may be throttled for {} ms of each second", (1_000_000 - us) / 1000);
            let impact = "If Weir runs with real-time priority, packets wait during this time; otherwise this has no effect. \
                          Since Linux 6.12, only kernels with real-time group scheduling throttle; others give this time only \
                          to threads that would starve.";
            let step = Step::Write { path: "/proc/sys/kernel/sched_rt_runtime_us".into(), text: "-1".into() };
            Finding::new(Severity::Warning, "realtime", MACHINE, summary, impact)
                .with_steps(vec![step], "A real-time thread that never sleeps then occupies its core permanently.")
        }
    }
}

fn clock(machine: &Machine) -> Finding {
    let Some(source) = machine.clock_source.as_deref() else {
        return Finding::unknown("clock", MACHINE, "clock source");
    };
    let (severity, impact, note) = match source {
        "tsc" | "arch_sys_counter" => return Finding::ok("clock", MACHINE, format!("clock source: {source}")),
        "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" => (
            Severity::Critical,
            "Reading the time takes 1 µs or more instead of 20 ns, and the kernel reads it for every packet.",
            "If the kernel refuses it, dmesg shows why it does not trust the TSC.",
        ),
        _ => (
            Severity::Warning,
            "Reading this clock is slower than reading the TSC, and the kernel reads it for every packet.",
            "This works only if the host provides the TSC.",
        ),
    };
    let command = "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource";
    Finding::new(severity, "clock", MACHINE, format!("the clock source is {source}"), impact)
        .with_commands(&[command.into()], note)
}

fn irqbalance(machine: &Machine) -> Finding {
    match machine.irqbalance {
        None => Finding::unknown("irqbalance", MACHINE, "whether irqbalance is running"),
        Some(false) => Finding::ok("irqbalance", MACHINE, "irqbalance is not running"),
        Some(true) => {
            let impact = "It moves interrupts between cores while packets arrive, and overrides their affinity.";
            Finding::new(Severity::Warning, "irqbalance", MACHINE, "irqbalance is running", impact)
                .with_commands(&["systemctl disable --now irqbalance".into()], "")
        }
    }
}
