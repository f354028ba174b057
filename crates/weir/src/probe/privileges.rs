//! Privileges and priority of the probe's threads.

use crate::error::{Error, ProbeError};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, setpriority_process};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};
use std::fs;
use std::io::ErrorKind;
use weir_export::Owner;

const DEFAULT_USER: &str = "nobody";
/// Priority of the pipelines' threads, as a `nice` value.
pub const PIPELINE_NICE: i32 = -10;

/// Raises the priority of this thread and of those that it starts from now on, if permitted. Call
/// it before `drop_to`, which takes the permission away.
pub fn raise_priority() {
    let _ = setpriority_process(None, PIPELINE_NICE);
}

pub fn reset_priority() {
    let _ = setpriority_process(None, 0);
}

/// User and group that [`drop_to`] changes to; `None` if it keeps them.
///
/// # Errors
/// The user does not exist, or only root can become this user.
pub fn changes_to(user: &str) -> Result<Option<Owner>, Error> {
    if geteuid().is_root() {
        return (!is_root(user)).then(|| look_up(user)).transpose();
    }
    // The default applies to root only.
    if user != DEFAULT_USER && look_up(user)?.user != geteuid().as_raw() {
        return Err(ProbeError::NotRoot(user.into()).into());
    }
    Ok(None)
}

/// Calls `check` on a thread that has the privileges that are left after [`drop_to`].
///
/// # Errors
/// Those of [`drop_to`] and of `check`, or no thread can be started.
pub fn as_user(user: &str, check: impl FnOnce() -> Result<(), Error> + Send) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || drop_to(user).and_then(|()| check()));
        thread.map_err(Error::Thread)?.join().expect("the check does not panic")
    })
}

fn is_root(user: &str) -> bool {
    user == "root" || user == "0"
}

/// Drops the privileges of this thread and of those that it starts from now on: all capabilities,
/// and root's user and group for those of `user`. Call it while there are no other threads. Open
/// files stay open. A process that is not root keeps its user; root as `user` keeps everything.
/// Afterwards no program that the process starts can gain privileges.
///
/// # Errors
/// The user does not exist, or the system refuses.
pub fn drop_to(user: &str) -> Result<(), Error> {
    let failed =
        |action, error: Errno| ProbeError::Privileges { user: user.into(), action, error: error.into() }.into();
    let keeps_all = geteuid().is_root() && is_root(user);
    if !keeps_all {
        // The change of the user takes the permission away.
        drop_bounding_set();
    }
    if let Some(Owner { user, group }) = changes_to(user)? {
        set_thread_groups(&[]).map_err(|error| failed("leave its groups", error))?;
        set_thread_gid(Gid::from_raw(group)).map_err(|error| failed("change the group (needs CAP_SETGID)", error))?;
        set_thread_uid(Uid::from_raw(user)).map_err(|error| failed("change the user (needs CAP_SETUID)", error))?;
    }
    if !keeps_all {
        drop_capabilities().map_err(|error| failed("drop its capabilities", error))?;
    }
    set_no_new_privs(true).map_err(|error| failed("set no_new_privs", error))
}

/// Removes all capabilities from the bounding set if permitted (CAP_SETPCAP). Otherwise the set
/// stays, without effect: it limits what a program may gain that is started later (execve), and
/// with no_new_privs that is nothing.
fn drop_bounding_set() {
    let mut all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
    // The first error: the kernel has no more capabilities, or does not permit it.
    let _ = all.try_for_each(remove_capability_from_bounding_set);
}

fn drop_capabilities() -> Result<(), Errno> {
    let none = CapabilitySet::empty();
    // Kernels before 4.3 have no ambient capabilities.
    let _ = clear_ambient_capability_set();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}

fn look_up(user: &str) -> Result<Owner, Error> {
    let users = match fs::read_to_string("/etc/passwd") {
        // Without users, a number still names one.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        result => result.map_err(|error| Error::file("/etc/passwd", error))?,
    };
    let mut entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known = entries.find(|fields| fields.len() > 3 && (fields[0] == user || fields[2] == user));
    let ids = known.and_then(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?)));
    // The largest number means "no change" to the system.
    let number = || user.parse().ok().filter(|&number| number != u32::MAX).map(|number| (number, number));
    let (user, group) = ids.or_else(number).ok_or_else(|| ProbeError::UnknownUser(user.into()))?;
    Ok(Owner { user, group })
}
