//! The name of this host, by which records say where they come from.

/// Longest name, octets (RFC 5424).
const MAX_HOST_NAME: usize = 255;

/// The name of this host; `-` if it has none, or one with other letters than printable ASCII.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_valid = (1..=MAX_HOST_NAME).contains(&name.len()) && name.bytes().all(|octet| octet.is_ascii_graphic());
    if is_valid { name } else { "-".into() }
}
