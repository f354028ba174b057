//! Each case restricts a thread of its own: the restrictions concern the calling thread only.

use super::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{
    AddressFamily, MMsgHdr, SendAncillaryBuffer, SendFlags, SocketType, ipproto, sendmmsg, sendmsg_addr, sendto, socket,
};
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// Runs a case in a restricted thread, which may write to files in a directory.
fn restricted<T: Send>(directory: &Path, case: impl FnOnce(Sandbox) -> T + Send) -> T {
    let outputs = [directory.join("flows.json"), "/dev/null".into()].map(Target::File);
    thread::scope(|scope| {
        scope
            .spawn(|| case(Sandbox::enter(&outputs, &[], &[], Restrictions::FilesAndCalls { accepts: false })))
            .join()
            .unwrap()
    })
}

/// Whether this kernel has Landlock. Prints that the test is skipped if not.
fn has_landlock() -> bool {
    let status = thread::spawn(|| restrict_files(&[], &[], &[], &[])).join().unwrap();
    let is_enforced = !matches!(status, Ok(RulesetStatus::NotEnforced) | Err(_));
    if !is_enforced {
        eprintln!("SKIPPED: this kernel has no Landlock");
    }
    is_enforced
}

/// Whether a filter restricts this thread. Prints that the test is skipped if not.
fn has_seccomp() -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let is_filtered = status.contains("Seccomp:\t2\n");
    if !is_filtered {
        eprintln!("SKIPPED: this system has no seccomp filters");
    }
    is_filtered
}

fn is_denied<T>(result: io::Result<T>) -> bool {
    result.err().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn programs_processes_and_other_sockets_are_forbidden() {
    let folder = tempfile::tempdir().unwrap();
    restricted(folder.path(), |_| {
        if !has_seccomp() {
            return;
        }
        // `exec` replaces the process if it succeeds, `status` starts one.
        assert_eq!(Command::new("/bin/true").exec().raw_os_error(), Some(libc::EPERM));
        assert!(is_denied(Command::new("/bin/true").status()));
        for family in [AddressFamily::NETLINK, AddressFamily::PACKET, AddressFamily::VSOCK, AddressFamily::BLUETOOTH] {
            assert_eq!(socket(family, SocketType::RAW, None).err(), Some(rustix::io::Errno::PERM), "{family:?}");
        }
        let hidden = rustix::process::set_parent_process_death_signal(None);
        assert_eq!(hidden, Err(rustix::io::Errno::PERM), "prctl");
        assert_eq!(rustix::process::test_kill_process(rustix::process::getpid()), Err(rustix::io::Errno::PERM));
    });
}

#[test]
fn memory_that_was_written_does_not_become_code() {
    let folder = tempfile::tempdir().unwrap();
    let map = || memmap2::MmapMut::map_anon(4096).unwrap();
    assert!(map().make_exec().is_ok());
    restricted(folder.path(), |_| {
        if !has_seccomp() {
            return;
        }
        assert!(is_denied(map().make_exec()));
        assert!(map().make_read_only().is_ok());
        // A file that was written could be mapped as code, too, without access to write.
        let code = region::alloc(4096, region::Protection::READ_EXECUTE).map(drop);
        let Err(region::Error::SystemCall(error)) = code else { panic!("{code:?}") };
        assert_eq!(error, libc::EPERM);
        assert!(region::alloc(4096, region::Protection::READ).is_ok());
    });
}

#[test]
fn threads_names_and_datagrams_are_permitted() {
    let folder = tempfile::tempdir().unwrap();
    restricted(folder.path(), |_| {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = collector.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
                sender.connect(address).unwrap();
                sender.send(b"records").unwrap();
            });
        });
        assert_eq!(collector.recv(&mut [0; 100]).unwrap(), 7);
        assert!(("localhost", 1).to_socket_addrs().unwrap().next().is_some());
        thread::sleep(std::time::Duration::from_millis(1));
        // New memory, as for a queue of a new sink.
        assert!(vec![1_u8; 64 << 20].iter().all(|&byte| byte == 1));
        // A panic is reported with the names of functions, which are read from the program's file.
        let trace = std::backtrace::Backtrace::force_capture().to_string();
        assert!(trace.contains("backtrace"), "{trace}");
    });
}

#[test]
fn files_are_written_only_in_the_directories_of_the_outputs() {
    if !has_landlock() {
        return;
    }
    let [folder, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let foreign = other.path().join("secret");
    fs::write(&foreign, "x").unwrap();
    restricted(folder.path(), |sandbox| {
        fs::write(folder.path().join("more.json"), "x").unwrap();
        File::options().write(true).open("/dev/null").unwrap().write_all(b"x").unwrap();
        assert!(fs::read_to_string("/etc/passwd").is_ok());
        assert!(is_denied(fs::read(&foreign)));
        assert!(is_denied(File::options().append(true).open(&foreign)));
        assert!(is_denied(File::create(other.path().join("new"))));
        // A refused reload removes the files that it created.
        fs::write(folder.path().join("new.json"), "").unwrap();
        fs::remove_file(folder.path().join("new.json")).unwrap();
        for (call, result) in [
            ("unlink", fs::remove_file(&foreign)),
            ("mkdir", fs::create_dir(folder.path().join("directory"))),
            ("symlink", std::os::unix::fs::symlink("/etc", folder.path().join("link"))),
            ("chmod", fs::set_permissions(folder.path().join("more.json"), fs::Permissions::from_mode(0o777))),
        ] {
            assert!(is_denied(result), "{call}");
        }
        // A rotated file gets its name.
        let rename =
            |from: &Path, to: &str| renameat_with(CWD, from, CWD, folder.path().join(to), RenameFlags::NOREPLACE);
        rename(&folder.path().join("more.json"), "named.json").unwrap();
        assert!(rename(&foreign, "stolen").is_err());
        let permits = |path: &Path| sandbox.permits(&Target::File(path.into()));
        assert!(permits(&folder.path().join("other.csv")) && permits(Path::new("/dev/null")));
        assert!(!permits(&foreign) && !permits(Path::new("/dev/full")));
        assert!(sandbox.permits(&Target::StandardOutput) && sandbox.permits(&Target::Network));
        assert!(!sandbox.permits(&Target::Tcp { ports: vec![4739] }));
    });
}

#[test]
fn only_name_servers_are_reached_over_tcp() {
    if !has_landlock() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    if TcpStream::connect(("127.0.0.1", DNS_PORT)).is_ok() {
        return eprintln!("SKIPPED: a name server listens on loopback");
    }
    restricted(folder.path(), |_| {
        let error = TcpStream::connect(("127.0.0.1", DNS_PORT)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        // Kernels before 6.7 restrict no TCP connections.
        match TcpStream::connect(address) {
            Ok(_) => eprintln!("SKIPPED: this kernel does not restrict TCP"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}"),
        }
    });
}

#[test]
fn tcp_does_not_connect_past_landlock() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    restricted(folder.path(), |_| {
        if !has_seccomp() {
            return;
        }
        let forbidden = Some(rustix::io::Errno::PERM);
        for protocol in [ipproto::MPTCP, ipproto::SCTP, ipproto::ICMP] {
            for family in [AddressFamily::INET, AddressFamily::INET6] {
                let result = socket(family, SocketType::STREAM, Some(protocol));
                assert_eq!(result.err(), forbidden, "{family:?} {protocol:?}");
            }
        }
        // TCP Fast Open sends data with the segment that opens the connection.
        let flags = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
        let open = || socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::TCP)).unwrap();
        let (data, any) = ([IoSlice::new(b"records")], address.as_any());
        assert_eq!(sendto(open(), b"records", flags, &address).err(), forbidden, "sendto");
        let mut control = SendAncillaryBuffer::default();
        assert_eq!(sendmsg_addr(open(), &address, &data, &mut control, flags).err(), forbidden, "sendmsg");
        let mut messages = [MMsgHdr::new_with_addr(&any, &data, &mut control)];
        assert_eq!(sendmmsg(open(), &mut messages, flags).err(), forbidden, "sendmmsg");
    });
}
