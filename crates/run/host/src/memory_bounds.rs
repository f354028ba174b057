//! What bounds the memory of this process: its control groups, its address space, the machine.
//!
//! In: files of `/proc/self`, `/proc/meminfo` and `/sys/fs/cgroup`. Out: every bound that could be
//! read, with what is free under it. File pages that the kernel can discard count as free. Swap is
//! not counted. Sources: the kernel's `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`.

use crate::cpu::bytes_of;
use crate::sysroot::Sysroot;

/// A value of cgroup v1 from here on means no limit.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// A bound of the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBound {
    /// What sets the bound.
    pub kind: MemoryBoundKind,
    /// Size of the bound.
    pub limit_bytes: u64,
    /// What can still be taken.
    pub free_bytes: u64,
}

/// What bounds memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryBoundKind {
    /// The file of a control group that has the limit.
    ControlGroup(String),
    /// The address space of the process (`RLIMIT_AS`), touched or not.
    AddressSpace,
    /// The memory of the machine.
    Machine,
}

/// The bounds of this process.
pub fn memory_bounds(sysroot: &Sysroot) -> Vec<MemoryBound> {
    let groups = sysroot.text("/proc/self/cgroup").unwrap_or_default();
    let mut bounds: Vec<_> = groups.lines().flat_map(|line| group_bounds(sysroot, line)).collect();
    bounds.extend(address_space(sysroot));
    bounds.extend(machine(sysroot));
    bounds
}

/// Where a hierarchy of control groups is mounted, and the names of its files.
struct Hierarchy {
    root: &'static str,
    limits: &'static [&'static str],
    usage: &'static str,
    /// Keys of `memory.stat` for file pages, of the group and those below.
    file_pages: [&'static str; 2],
}

const V1: Hierarchy = Hierarchy {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    file_pages: ["total_inactive_file", "total_active_file"],
};
const V2: Hierarchy = Hierarchy {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    file_pages: ["inactive_file", "active_file"],
};

/// The bounds of one line of `/proc/self/cgroup`: those of the group and of all groups above it. A
/// container may see only the upper part of its hierarchy, as the root.
fn group_bounds(sysroot: &Sysroot, line: &str) -> Vec<MemoryBound> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    let hierarchy = match controllers {
        "" => V2,
        _ if controllers.split(',').any(|controller| controller == "memory") => V1,
        _ => return Vec::new(),
    };
    let path = path.trim_end_matches('/');
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let folders: Vec<_> = ends.map(|end| format!("{}{}", hierarchy.root, &path[..end])).collect();
    folders.iter().flat_map(|folder| bounds_of_group(sysroot, &hierarchy, folder)).collect()
}

fn bounds_of_group(sysroot: &Sysroot, hierarchy: &Hierarchy, folder: &str) -> Vec<MemoryBound> {
    let used_bytes: u64 = sysroot.number(&format!("{folder}/{}", hierarchy.usage)).unwrap_or(0);
    let statistics = sysroot.text(&format!("{folder}/memory.stat")).unwrap_or_default();
    let pages = |key: &str| -> u64 {
        let of_key = |line: &str| line.split_once(' ').filter(|(name, _)| *name == key)?.1.parse().ok();
        statistics.lines().find_map(of_key).unwrap_or(0)
    };
    let kept_bytes = used_bytes.saturating_sub(hierarchy.file_pages.map(pages).iter().sum());
    let bound = |name: &&str| {
        let file = format!("{folder}/{name}");
        // v2 writes "max" for no limit.
        let limit_bytes: u64 = sysroot.number(&file).filter(|&limit| limit < UNLIMITED_BYTES)?;
        let free_bytes = limit_bytes.saturating_sub(kept_bytes);
        Some(MemoryBound { kind: MemoryBoundKind::ControlGroup(file), limit_bytes, free_bytes })
    };
    hierarchy.limits.iter().filter_map(bound).collect()
}

fn address_space(sysroot: &Sysroot) -> Option<MemoryBound> {
    let limits = sysroot.text("/proc/self/limits")?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?.split_whitespace().next()?;
    let limit_bytes: u64 = soft.parse().ok()?;
    let used_bytes = bytes_of(&sysroot.text("/proc/self/status")?, "VmSize")?;
    let free_bytes = limit_bytes.saturating_sub(used_bytes);
    Some(MemoryBound { kind: MemoryBoundKind::AddressSpace, limit_bytes, free_bytes })
}

fn machine(sysroot: &Sysroot) -> Option<MemoryBound> {
    let text = sysroot.text("/proc/meminfo")?;
    let (limit_bytes, free_bytes) = (bytes_of(&text, "MemTotal")?, bytes_of(&text, "MemAvailable")?);
    Some(MemoryBound { kind: MemoryBoundKind::Machine, limit_bytes, free_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MB: u64 = 1_000_000;

    /// The bounds of a machine with these files: what sets them, MB, and MB free.
    fn bounds(files: &[(&str, &str)]) -> Vec<(String, u64, u64)> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kind = |kind| match kind {
            MemoryBoundKind::ControlGroup(file) => file,
            other => format!("{other:?}"),
        };
        let bounds = memory_bounds(&Sysroot::open(folder.path()).unwrap()).into_iter();
        bounds.map(|bound| (kind(bound.kind), bound.limit_bytes / MB, bound.free_bytes / MB)).collect()
    }

    #[test]
    fn limits_of_all_groups_above_count_in_cgroup_v2() {
        let found = bounds(&[
            ("/proc/self/cgroup", "0::/system.slice/weir.service\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.high", "800000000\n"),
            ("/sys/fs/cgroup/system.slice/memory.current", "700000000\n"),
            ("/sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 200000000\nactive_file 100000000\n"),
            ("/sys/fs/cgroup/system.slice/weir.service/memory.max", "500000000\n"),
            ("/sys/fs/cgroup/system.slice/weir.service/memory.high", "max\n"),
            ("/sys/fs/cgroup/system.slice/weir.service/memory.current", "50000000\n"),
        ]);
        assert_eq!(
            found,
            [
                ("/sys/fs/cgroup/system.slice/memory.high".into(), 800, 400),
                ("/sys/fs/cgroup/system.slice/weir.service/memory.max".into(), 500, 450),
            ]
        );
    }

    #[test]
    fn a_container_that_sees_its_group_as_the_root_has_the_limit_of_cgroup_v1() {
        let found = bounds(&[
            ("/proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n1:name=systemd:/docker/1\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "300000000\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000000\n"),
            ("/sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 40000000\n"),
        ]);
        assert_eq!(found, [("/sys/fs/cgroup/memory/memory.limit_in_bytes".into(), 300, 240)]);
        let unlimited = [
            ("/proc/self/cgroup", "4:memory:/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(bounds(&unlimited), []);
    }

    #[test]
    fn address_space_and_machine_bound_memory() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max address space         400000000            unlimited            bytes     \n";
        let found = bounds(&[
            ("/proc/self/limits", limits),
            ("/proc/self/status", "VmPeak:\t   90000 kB\nVmSize:\t   50000 kB\n"),
            ("/proc/meminfo", "MemTotal:        2000000 kB\nMemFree: 1 kB\nMemAvailable:    1000000 kB\n"),
        ]);
        assert_eq!(found, [("AddressSpace".into(), 400, 348), ("Machine".into(), 2048, 1024)]);
        assert_eq!(bounds(&[("/proc/self/limits", "Max address space unlimited unlimited bytes\n")]), []);
    }
}
