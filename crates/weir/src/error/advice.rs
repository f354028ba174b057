//! What the user can do about an error of a library.

use std::io;
use weir_anonymise::KeyError;
use weir_enrich::Problem;
use weir_export::{UnusableFile, UnusableOptions};

/// The source of an interface that the user named with or without a scheme.
pub fn live_source(name: &str) -> String {
    if name.contains(':') { name.into() } else { format!("af_packet:{name}") }
}

/// What the user can do about a file that cannot be written; begins with punctuation.
pub fn advice(error: &io::Error) -> &'static str {
    if let Some(libc::EMFILE) = error.raw_os_error() {
        return "; ulimit -n shows the limit of open files";
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; ls -l shows who may use it",
        io::ErrorKind::NotFound => "; does its directory exist?",
        io::ErrorKind::AlreadyExists => "; name a directory, not a file",
        io::ErrorKind::IsADirectory => "; name a file in it",
        io::ErrorKind::FileTooLarge if error.raw_os_error().is_some() => "; ulimit -f shows the limit of file sizes",
        io::ErrorKind::StorageFull => "; free some space, or write elsewhere",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; write elsewhere, or make it writable: mount it so, in a service ReadWritePaths=, in a container a volume"
        }
        _ => "",
    }
}

/// Whether an address of IPv6 cannot be used because there is no IPv6.
fn lacks_ipv6(is_ipv6: bool, error: &io::Error) -> bool {
    is_ipv6 && matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

/// What the user can do so that the HTTP interface starts; begins with punctuation.
pub fn control_advice(error: &weir_control::Error) -> &'static str {
    match error {
        weir_control::Error::Listen { address, error } if lacks_ipv6(address.is_ipv6(), error) => {
            "; this machine has no IPv6 at this address (ip -6 address shows all): listen on 127.0.0.1"
        }
        weir_control::Error::Listen { error, .. } => match error.kind() {
            io::ErrorKind::AddrInUse => "; another program listens there (ss -ltnp shows it): name another port",
            io::ErrorKind::AddrNotAvailable => "; this machine has no such address (ip address shows all)",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need root: name a higher one",
            _ => "",
        },
        weir_control::Error::NotLoopback(_) => {
            ": give --tls-cert, --tls-key and --token-file, or listen on 127.0.0.1 (weir help control)"
        }
        weir_control::Error::File { error, .. } => input_advice(error),
        weir_control::Error::TokenOwner { .. } => {
            "; give it to the user that starts weir (chown), and make a new token"
        }
        weir_control::Error::TokenReadable { .. } => "; chmod 600 it, and make a new token",
        weir_control::Error::InvalidToken { .. } => "; make one with: openssl rand -hex 32",
        weir_control::Error::Pem { .. }
        | weir_control::Error::Tls(_)
        | weir_control::Error::Client(_)
        | weir_control::Error::TokenInClear(_) => "",
    }
}

/// What the user can do about a file that has no key of anonymisation; begins with punctuation.
pub fn key_advice(error: &KeyError) -> &'static str {
    match error {
        KeyError::Io { error, .. } => input_advice(error),
        KeyError::Length { .. } | KeyError::Digits { .. } => "; make one with: head -c 32 /dev/urandom > KEYFILE",
    }
}

/// What the user can do about a folder that cannot be recorded into.
pub fn recorder_advice(error: &weir_recorder::Error) -> &'static str {
    match error {
        weir_recorder::Error::Folder { error, .. } => advice(error),
        weir_recorder::Error::InUse(_) => "; name another folder, or end that program",
        weir_recorder::Error::Setting { .. } => "",
    }
}

/// What the user can do about a file that cannot be read.
pub fn input_advice(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::NotFound { "; is the name right?" } else { advice(error) }
}

pub fn enrichment_with_advice(errors: &[weir_enrich::Error]) -> String {
    let line = |error: &weir_enrich::Error| {
        let advice = match &error.problem {
            Problem::Io(error) => input_advice(error),
            Problem::NotAFile => "; write its content to a file first",
            Problem::Changed => "; try again, and replace files with mv, so that they are never incomplete",
            Problem::NoPlaces(_) => "; use a database of countries, cities or autonomous systems",
            Problem::Database(_) => "; name a file that ends with .mmdb, and compare its size with the original",
            _ => "",
        };
        format!("{error}{advice}")
    };
    errors.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub fn sysroot_advice(error: &weir_host::Error) -> &'static str {
    match error {
        weir_host::Error::Unreadable(_, error) => input_advice(error),
        weir_host::Error::NotARecording(_) => "",
    }
}

/// What the user can do about a sink that cannot be opened or written.
pub fn sink_advice(error: &weir_export::Error) -> &'static str {
    match error {
        weir_export::Error::Io { sink, error } if lacks_ipv6(sink.contains("://["), error) => {
            "; this machine has no IPv6 (ip -6 address shows it): name an IPv4 address of the collector"
        }
        weir_export::Error::Io { sink, error } if sink.contains("://") => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => "; ip route get ADDRESS shows the route",
            io::ErrorKind::ConnectionRefused => "; no collector listens there",
            _ => "",
        },
        weir_export::Error::Io { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
            "; ls -l shows who may use it. A file that existed when root started the probe keeps its owner: give it to \
             --user with chown, or restart the probe"
        }
        weir_export::Error::Io { error, .. } => advice(error),
        weir_export::Error::Kafka { error, .. } if error.is_unreachable() => {
            "; is a broker of Kafka there, and are the options right?"
        }
        weir_export::Error::Kafka { .. } => "",
        weir_export::Error::KafkaOptions { problem: UnusableOptions::Io { error, .. }, .. } => input_advice(error),
        weir_export::Error::Spool { .. } => error.of_spool().map_or("", advice),
        weir_export::Error::Spec(_) | weir_export::Error::KafkaOptions { .. } => "",
        weir_export::Error::File { problem, .. } => match problem {
            UnusableFile::SymbolicLink => "; name the file itself, or - for standard output",
            UnusableFile::NoReader => "",
            UnusableFile::NotEmpty => "; name another file, or replace its content with --overwrite",
            UnusableFile::Locked => "; give each a file of its own",
            UnusableFile::OtherContent => "; name another file, or move this one away",
            UnusableFile::NoFile => "; name a file of its own",
            UnusableFile::NoStore => "; name an empty folder, or one that does not exist",
            UnusableFile::StoreLocked => "; give each a folder of its own",
        },
    }
}

pub fn capture_with_advice(error: &weir_capture::Error) -> String {
    match error {
        weir_capture::Error::Io { path, error: cause } => {
            if cause.kind() != io::ErrorKind::NotFound {
                return format!("{error}{}", input_advice(cause));
            }
            let name = path.to_string_lossy();
            if weir_capture::is_interface(&name) {
                return format!("{name}: there is no such file; to capture from the interface: -i af_packet:{name}");
            }
            if name == "any" {
                return "any: there is no such file, and no interface that stands for all; name the interfaces, joined \
                        with +: -i af_packet:eth0+eth1"
                    .into();
            }
            match name.split_once(':') {
                Some((scheme, _)) if !scheme.contains(['/', '.']) => {
                    let live = weir_capture::LIVE_SCHEMES.join(", ");
                    format!("{name}: there is no such file, and no source {scheme}:; use {live} or synth:")
                }
                _ => format!("{error}{}", input_advice(cause)),
            }
        }
        _ => error.to_string(),
    }
}

pub fn memory_with_advice(error: &weir_tcp_report::MemoryError) -> String {
    match error {
        weir_tcp_report::MemoryError::TooManyConnections { .. } => {
            format!("--connections: {error}; choose fewer, split the capture, or filter fewer hosts or ports")
        }
        weir_tcp_report::MemoryError::TooLittle { .. } => error.to_string(),
    }
}

pub fn connection_advice(error: &weir_tcp_report::LookupError) -> &'static str {
    match error {
        weir_tcp_report::LookupError::NotFound => "; weir tcp FILE --top 0 lists all",
        weir_tcp_report::LookupError::Ambiguous { .. } => "; choose one by its number:",
        _ => "",
    }
}
