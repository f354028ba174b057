//! Clock, frequency, idle states, who else may run on the cores.

use super::is_fast;
use crate::cpu::Cpu;
use crate::finding::{Finding, Severity, Step};
use crate::lists::{count, list};
use crate::machine::Machine;
use crate::nic::Nic;

/// Idle states that take longer to leave are deep: microseconds.
const DEEP_US: u32 = 10;

const MACHINE: &str = "machine";

pub fn check(machine: &Machine, nics: &[&Nic]) -> Vec<Finding> {
    let fast = nics.iter().any(|nic| is_fast(nic));
    let severity = if fast { Severity::Critical } else { Severity::Warning };
    let mut findings = Vec::new();
    if machine.cpus.is_empty() {
        findings.push(Finding::unknown("cores", MACHINE, "cores: the system does not name any"));
    } else {
        findings.extend([smt(machine), governor(machine, severity), idle(machine)]);
        findings.extend(isolated(machine, nics));
    }
    findings.push(match machine.turbo {
        Some(true) => Finding::fine("turbo", MACHINE, "turbo is on"),
        Some(false) => Finding::fine("turbo", MACHINE, "turbo is off: slower, but even"),
        None => Finding::unknown("turbo", MACHINE, "turbo: the kernel does not say"),
    });
    findings.extend([realtime(machine), clock(machine), irqbalance(machine)]);
    findings.extend(instructions(machine));
    if machine.is_virtual == Some(true) {
        let summary = "a virtual machine: its host decides when it runs, and what of the above is true";
        findings.push(Finding::fine("virtual", MACHINE, summary));
    }
    findings
}

fn smt(machine: &Machine) -> Finding {
    match machine.smt {
        Some(true) => {
            Finding::fine("smt", MACHINE, "SMT is on: capture should have both hardware threads of its core for itself")
        }
        Some(false) => Finding::fine(
            "smt",
            MACHINE,
            "cores have one hardware thread (SMT is off, or there is none): each stage takes a core",
        ),
        None => Finding::unknown("smt", MACHINE, "SMT: the kernel does not say"),
    }
}

fn governor(machine: &Machine, severity: Severity) -> Finding {
    let name = |cpu: &Cpu| cpu.governor.clone();
    let mut governors: Vec<String> = machine.cpus.iter().filter_map(name).collect();
    if governors.is_empty() {
        return Finding::unknown("governor", MACHINE, "frequency governor: the kernel controls no frequency here");
    }
    governors.retain(|governor| governor != "performance");
    let slow = governors.len();
    governors.sort();
    governors.dedup();
    if slow == 0 {
        return Finding::fine("governor", MACHINE, "frequency governor: performance");
    }
    let summary = format!(
        "{} of {} have the frequency governor {}",
        slow,
        count(machine.cpus.len(), "processor"),
        governors.join(", ")
    );
    let impact =
        "The clock rises only after load was seen; packets that come until then wait in the ring, or do not fit."
            .into();
    let is_slow = |cpu: &&Cpu| cpu.governor.as_deref().is_some_and(|governor| governor != "performance");
    let steps = machine.cpus.iter().filter(is_slow).map(|cpu| Step::Write {
        path: format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu.id),
        text: "performance".into(),
    });
    let mut finding = Finding::bad(severity, "governor", MACHINE, summary, impact).fixed_by(steps.collect(), "");
    if let Some(remedy) = &mut finding.remedy {
        let every = "for g in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > $g; done";
        remedy.commands = vec![every.into()];
    }
    finding
}

fn idle(machine: &Machine) -> Finding {
    let states = || machine.cpus.iter().flat_map(|cpu| &cpu.idle_states);
    let deep = |state: &&crate::IdleState| state.latency_us > DEEP_US && !state.disabled;
    let Some(worst) = states().filter(deep).max_by_key(|state| state.latency_us) else {
        return match states().next() {
            Some(_) => Finding::fine("idle", MACHINE, format!("no idle state takes more than {DEEP_US} µs to leave")),
            None => Finding::unknown("idle", MACHINE, "idle states: the kernel names none"),
        };
    };
    let mut names: Vec<&str> = states().filter(deep).map(|state| &state.name[..]).collect();
    names.sort_unstable();
    names.dedup();
    let summary =
        format!("idle states {} are on; {} takes {} µs to leave", names.join(", "), worst.name, worst.latency_us);
    let impact = "A core that slept through a pause lets packets wait for so long before it takes the first.".into();
    Finding::bad(Severity::Warning, "idle", MACHINE, summary, impact).by_hand(
        &[format!("cpupower idle-set -D {DEEP_US}")],
        "It costs power and heat, and turbo of other cores. cpupower is in linux-cpupower.",
    )
}

fn isolated(machine: &Machine, nics: &[&Nic]) -> Option<Finding> {
    let isolated: Vec<u32> = machine.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    let nic = nics.iter().find(|nic| is_fast(nic))?;
    let node = machine.node_of(nic)?;
    let boot = |cpus: &[u32]| {
        let list = list(cpus);
        format!(
            "Boot with isolcpus={list} nohz_full={list} rcu_nocbs={list} (GRUB_CMDLINE_LINUX in /etc/default/grub, then \
             update-grub). Nothing else runs on these processors afterwards."
        )
    };
    let cores = machine.cores(Some(node.id));
    // All but the core that is left to the system.
    let mine: Vec<u32> = cores.iter().take(cores.len().saturating_sub(1)).flatten().copied().collect();
    if mine.is_empty() {
        return None;
    }
    if isolated.is_empty() {
        let summary = "no core is kept free for packets".into();
        let impact = "The scheduler lets other programs run on the cores that take packets: each time they take a turn, packets wait.";
        return Some(
            Finding::bad(Severity::Warning, "isolated", MACHINE, summary, impact.into()).by_hand(&[], &boot(&mine)),
        );
    }
    if !isolated.iter().any(|cpu| node.cpus.contains(cpu)) {
        let summary =
            format!("cores are kept free ({}), but none on node {}, where {} is", list(&isolated), node.id, nic.name);
        let impact = "They help nobody: packets of this NIC are best taken on its node.".into();
        return Some(Finding::bad(Severity::Critical, "isolated", MACHINE, summary, impact).by_hand(&[], &boot(&mine)));
    }
    Some(Finding::fine("isolated", MACHINE, format!("processors {} are kept free for packets", list(&isolated))))
}

fn realtime(machine: &Machine) -> Finding {
    match machine.realtime_us {
        None => Finding::unknown("realtime", MACHINE, "real-time throttling"),
        Some(us) if !(0..1_000_000).contains(&us) => {
            Finding::fine("realtime", MACHINE, "real-time threads are not throttled")
        }
        Some(us) => {
            let summary = format!(
                "threads with real-time priority may be stopped for {} ms of each second",
                (1_000_000 - us) / 1000
            );
            let impact =
                "If Weir runs with such a priority, packets wait meanwhile; without it this changes nothing. From Linux 6.12 on it holds for kernels with real-time groups; others leave this time to threads that starve.".into();
            let step = Step::Write { path: "/proc/sys/kernel/sched_rt_runtime_us".into(), text: "-1".into() };
            Finding::bad(Severity::Warning, "realtime", MACHINE, summary, impact)
                .fixed_by(vec![step], "A real-time thread that never sleeps then keeps its core for ever.")
        }
    }
}

fn clock(machine: &Machine) -> Finding {
    let Some(source) = machine.clock_source.as_deref() else {
        return Finding::unknown("clock", MACHINE, "clock source");
    };
    let summary = format!("clock source: {source}");
    match source {
        "tsc" | "arch_sys_counter" => Finding::fine("clock", MACHINE, summary),
        "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" => {
            let impact = "Reading the time takes a microsecond or more instead of 20 ns, and the kernel does it for every packet.".into();
            Finding::bad(Severity::Critical, "clock", MACHINE, summary, impact).by_hand(
                &["echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource".into()],
                "If it is refused, dmesg says why the kernel does not trust the TSC.",
            )
        }
        _ => {
            let impact = "Slower to read than the TSC, and the kernel does it for every packet.".into();
            Finding::bad(Severity::Warning, "clock", MACHINE, summary, impact).by_hand(
                &["echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource".into()],
                "If the host offers it.",
            )
        }
    }
}

fn irqbalance(machine: &Machine) -> Finding {
    match machine.irqbalance {
        None => Finding::unknown("irqbalance", MACHINE, "whether irqbalance runs"),
        Some(false) => Finding::fine("irqbalance", MACHINE, "irqbalance does not run"),
        Some(true) => {
            let impact = "It moves interrupts between cores while packets come; what was pinned does not stay.".into();
            Finding::bad(Severity::Warning, "irqbalance", MACHINE, "irqbalance runs".into(), impact)
                .by_hand(&["systemctl disable --now irqbalance".into()], "")
        }
    }
}

fn instructions(machine: &Machine) -> Option<Finding> {
    let sets = machine.instructions.as_ref()?;
    if sets.is_empty() {
        let impact = "The table is searched with plain instructions; that costs little (docs/performance.md).".into();
        return Some(Finding::bad(Severity::Warning, "instructions", MACHINE, "no AVX2".into(), impact));
    }
    Some(Finding::fine("instructions", MACHINE, format!("instructions: {}", sets.join(", "))))
}
