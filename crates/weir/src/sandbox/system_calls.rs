//! The system calls that Weir makes after start (seccomp).
//!
//! The list has what Weir's own threads and the C library need: memory, threads, files, clocks,
//! datagrams, name resolution. It starts no process, so there is no `execve`; and no call by which
//! processes have attacked kernels, such as `ptrace`, `bpf` (except on what is open),
//! `io_uring_setup`, `userfaultfd`, `perf_event_open`, `unshare` and `mount`.

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::net::ToSocketAddrs;

/// Calls permitted with all arguments.
const PERMITTED: &[i64] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads, and this process. `clone3` is answered by `NO_CLONE3`.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_membarrier,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    // Clocks.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    // Files.
    libc::SYS_close,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchown,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    // The threads of librdkafka wake each other by pipes.
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets.
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Older forms of the same calls, which the C library still makes.
#[cfg(target_arch = "x86_64")]
const PERMITTED_HERE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const PERMITTED_HERE: &[i64] = &[];

/// For HTTP: `--listen` and `weir bypass`. The socket listens and the descriptors of epoll are open when
/// the sandbox begins.
const PERMITTED_FOR_HTTP: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// bpf(2) commands on a map and a program that are open: an AF_XDP queue that stops gives its packets
/// back to the network stack (`BPF_MAP_DELETE_ELEM`), and with `--wait` the program is attached to an
/// interface that returns (`BPF_MAP_UPDATE_ELEM`, `BPF_LINK_CREATE`).
const BPF_COMMANDS: [u64; 3] = [2, 3, 28];

/// Answers `clone3` as a kernel that has no such call. The C library then uses `clone`, whose flags
/// can be checked: those of `clone3` are in memory, which a filter cannot read.
const NO_CLONE3: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);
const FORBIDDEN: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Forbids this thread, and those that it starts from now on, all other system calls. With `has_http`, it
/// keeps those of a server or client of HTTP.
///
/// # Errors
/// The kernel has no seccomp filters, or this architecture is unknown.
pub fn restrict(has_http: bool) -> Result<(), Error> {
    let architecture = TargetArch::try_from(ARCH).map_err(Error::from)?;
    // The C library loads its modules of name resolution (NSS) now, because later it cannot. A label
    // has at most 63 octets (RFC 1035 section 2.3.4), so no name server is asked.
    let _ = ("x".repeat(64).as_str(), 0).to_socket_addrs();
    let any_arguments = || [libc::SYS_clone3].map(|call| (call, Vec::new())).into();
    apply(SeccompFilter::new(any_arguments(), SeccompAction::Allow, NO_CLONE3, architecture))?;
    apply(SeccompFilter::new(permitted(has_http)?, FORBIDDEN, SeccompAction::Allow, architecture))
}

fn apply(filter: Result<SeccompFilter, BackendError>) -> Result<(), Error> {
    let program: BpfProgram = filter?.try_into()?;
    apply_filter(&program)
}

fn permitted(has_http: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let is = |argument, value: u64| condition(argument, SeccompCmpOp::Eq, value);
    // Threads, not processes: they share memory with this one. No new namespaces.
    let is_thread = condition(0, SeccompCmpOp::MaskedEq(libc::CLONE_THREAD as u64), libc::CLONE_THREAD as u64);
    // Terminals (size, kind), non-blocking sockets, the resolver, link state and kind of interfaces.
    let requests = [
        libc::TCGETS,
        libc::TIOCGWINSZ,
        libc::FIONBIO,
        libc::FIONREAD,
        libc::FIOCLEX,
        libc::SIOCGIFFLAGS,
        libc::SIOCGIFHWADDR,
        libc::SIOCGIFINDEX,
        libc::SIOCGIFNAME,
    ];
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];
    // Landlock does not see the connections of other protocols, such as MPTCP.
    let protocols = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];
    let sockets = families
        .into_iter()
        .flat_map(|family| protocols.map(|protocol| vec![is(0, family as u64), is(2, protocol as u64)]));
    let without = |argument, flag: i32| vec![vec![condition(argument, SeccompCmpOp::MaskedEq(flag as u64), 0)]];
    // The rules of a call, of which one must hold. A rule holds if all of its conditions do.
    let some_arguments: [(i64, Vec<Vec<_>>); 12] = [
        (libc::SYS_bpf, BPF_COMMANDS.map(|command| vec![is(0, command)]).into()),
        (libc::SYS_clone, vec![vec![is_thread]]),
        (libc::SYS_ioctl, requests.map(|request| vec![is(1, request)]).into()),
        // Neither memory nor a file becomes code.
        (libc::SYS_mmap, without(2, libc::PROT_EXEC)),
        (libc::SYS_mprotect, without(2, libc::PROT_EXEC)),
        (libc::SYS_prctl, vec![vec![is(0, libc::PR_SET_NAME as u64)]]),
        // The limits of this process; a change of them is forbidden.
        (libc::SYS_prlimit64, vec![vec![SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)]]),
        // Data that opens a TCP connection (Fast Open) passes Landlock, too.
        (libc::SYS_sendmmsg, without(3, libc::MSG_FASTOPEN)),
        (libc::SYS_sendmsg, without(2, libc::MSG_FASTOPEN)),
        (libc::SYS_sendto, without(3, libc::MSG_FASTOPEN)),
        (libc::SYS_socket, sockets.collect()),
        // Signals to threads of this process (`abort`).
        (libc::SYS_tgkill, vec![vec![is(0, std::process::id().into())]]),
    ];
    let for_http = if has_http { PERMITTED_FOR_HTTP } else { &[] };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PERMITTED.iter().chain(PERMITTED_HERE).chain(for_http).map(|&call| (call, Vec::new())).collect();
    for (call, alternatives) in some_arguments {
        let of_call = alternatives
            .into_iter()
            .map(|conditions| SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?));
        rules.insert(call, of_call.collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// A condition on the low 32 bits of an argument, which is all that the kernel reads of these.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}
