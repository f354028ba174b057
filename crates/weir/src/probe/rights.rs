//! What a probe may do once everything is open: as little as it needs.

use crate::Refusal;
use rustix::process::{Gid, Uid, geteuid, setpriority_process};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};
use std::fs;

/// Whose rights are kept if nobody says.
const DEFAULT_USER: &str = "nobody";
/// How far threads may be raised above others, as `nice` has it.
pub const MOST_URGENT: i32 = -10;

/// Raises this thread above others, and those that it starts from now on, if that is permitted. Afterwards it may not be.
pub fn raise() {
    let _ = setpriority_process(None, MOST_URGENT);
}

/// This thread is as urgent as any again.
pub fn lower() {
    let _ = setpriority_process(None, 0);
}

/// Gives up root's rights for those of a user, for this thread and those it starts from now on: call it before there are
/// others. What is open stays open. Whoever is not root keeps what he has. Never are rights regained by starting a program.
///
/// # Errors
/// There is no such user, or the system refuses.
pub fn drop_to(user: &str) -> Result<(), Refusal> {
    let failed = |what: &str, error| Refusal(format!("--user {user}: cannot {what}: {error}"));
    let is_default = user == DEFAULT_USER;
    if !geteuid().is_root() {
        // Nobody asked for another user if it is the one that stands there by itself.
        if !is_default && ids(user)?.0 != geteuid().as_raw() {
            return Err(Refusal(format!("--user {user}: only root can become another user; leave it out")));
        }
    } else if user != "root" && user != "0" {
        let (uid, gid) = ids(user)?;
        set_thread_groups(&[]).map_err(|error| failed("leave its groups", error))?;
        set_thread_gid(Gid::from_raw(gid)).map_err(|error| failed("take its group (which takes CAP_SETGID)", error))?;
        set_thread_uid(Uid::from_raw(uid))
            .map_err(|error| failed("become that user (which takes CAP_SETUID)", error))?;
    }
    set_no_new_privs(true).map_err(|error| failed("forbid to regain rights", error))
}

/// Numbers of a user and its group.
fn ids(user: &str) -> Result<(u32, u32), Refusal> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known = fields.find(|fields| fields.len() > 3 && (fields[0] == user || fields[2] == user));
    let ids = known.and_then(|fields| Some((fields[2].parse().ok()?, fields[3].parse().ok()?)));
    let number = || user.parse().ok().map(|number| (number, number));
    ids.or_else(number).ok_or_else(|| {
        Refusal(format!("--user {user}: there is no such user; name one, or root to keep all rights (not advised)"))
    })
}
