//! Every record written to a sink is counted exactly once, whatever happens to the output.

use super::open;
use crate::tests::flows::{answered, plain};
use crate::tests::sum;
use std::fs::OpenOptions;
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::process::Command;
use weir_export::{Error, ExportOptions, Sink, UnusableFile};
use weir_flow::FlowRecord;
use weir_ledger::{ExportLossReason, RecordTotals};

fn flows(count: u32) -> Vec<FlowRecord> {
    (0..count).map(|number| answered(number, 1 + u64::from(number % 5))).collect()
}

fn lost(sink: &dyn Sink, reason: ExportLossReason) -> RecordTotals {
    sink.counters().lost.get(reason.key()).copied().unwrap_or_default()
}

#[test]
fn a_full_disk_ends_the_sink_and_all_records_are_lost() {
    for scheme in ["json", "csv", "ipfix"] {
        let mut sink = open(&format!("{scheme}:/dev/full"), &ExportOptions::default()).unwrap();
        let flows = flows(300);
        assert!(sink.write(&flows).is_err(), "{scheme}");
        assert!(sink.write(&flows).is_ok(), "the end is reported once");
        assert!(sink.finish().is_ok());
        assert_eq!(sink.counters().exported, RecordTotals::default());
        assert_eq!(lost(&*sink, ExportLossReason::WriteFailed).flows, 600);
        assert_eq!((sink.counters().octets, sink.counters().messages, sink.counters().wire_records), (0, 0, 0));
    }
}

#[test]
fn lines_that_the_reader_of_a_pipe_received_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reader = std::thread::spawn({
        let path = path.clone();
        move || {
            let mut taken = vec![0; 100_000];
            OpenOptions::new().read(true).open(path).unwrap().read_exact(&mut taken).unwrap();
            taken
        }
    });
    let mut sink = loop {
        match open(&format!("json:{}", path.display()), &ExportOptions::default()) {
            Err(Error::File { problem: UnusableFile::NoReader, .. }) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    let flows = flows(2000);
    let error = sink.write(&flows).expect_err("the reader closes the pipe");
    assert!(error.is_closed_pipe());
    sink.finish().unwrap();
    let taken = reader.join().unwrap();
    let whole = taken.iter().filter(|&&octet| octet == b'\n').count() as u64;
    let counters = sink.counters();
    // Some octets that the reader did not read are still in the pipe.
    assert!(counters.exported.flows >= whole && counters.octets >= 100_000);
    assert_eq!(counters.wire_records, counters.exported.flows);
    assert_eq!(counters.total(), sum(&flows));
    assert_eq!(lost(&*sink, ExportLossReason::OutputClosed).flows, 2000 - counters.exported.flows);
}

#[test]
fn a_partly_written_line_is_lost() {
    // The test runs itself in a shell that limits files to 20 blocks of 512 bytes.
    let name = "tests::counters::a_partly_written_line_is_lost";
    if let Some(path) = std::env::var_os("WEIR_TEST_LIMITED_FILE") {
        let path = path.into_string().unwrap();
        let mut sink = open(&format!("json:{path}"), &ExportOptions::default()).unwrap();
        let flows = flows(100);
        assert!(sink.write(&flows).is_err());
        let text = std::fs::read_to_string(&path).unwrap();
        let counters = sink.counters();
        // What fits of the line is removed again.
        assert!((9 * 512..20 * 512).contains(&text.len()) && text.ends_with('\n'));
        let whole = text.matches('\n').count();
        assert_eq!((counters.exported, counters.octets), (sum(&flows[..whole]), text.len() as u64));
        assert_eq!(lost(&*sink, ExportLossReason::WriteFailed), sum(&flows[whole..]));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .arg("-c")
        // With the signal ignored, the write fails as on a full disk.
        .arg("trap '' XFSZ; ulimit -f 20; exec \"$0\" --exact \"$1\"")
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .env("WEIR_TEST_LIMITED_FILE", folder.path().join("limited"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn every_flow_to_a_closed_port_is_refused() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in ["ipfix+udp", "netflow9+udp", "netflow5+udp"] {
        let mut sink = open(&format!("{scheme}://127.0.0.1:{port}"), &ExportOptions::default()).unwrap();
        let flows = flows(500);
        for batch in flows.chunks(50) {
            sink.write(batch).unwrap();
        }
        sink.finish().unwrap();
        assert_eq!(sink.counters().exported, RecordTotals::default(), "{scheme}");
        assert_eq!(lost(&*sink, ExportLossReason::CollectorRefused), sum(&flows), "{scheme}");
        assert_eq!(sink.counters().wire_records, 0);
        assert!(sink.counters().messages > 0);
    }
}

#[test]
fn templates_are_retransmitted_to_a_collector_that_starts_late() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut sink = open(&format!("ipfix+udp://127.0.0.1:{port}?template=full"), &ExportOptions::default()).unwrap();
    sink.write(&[plain(1, 1)]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let listener = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    sink.write(&[plain(2, 1)]).unwrap();
    sink.finish().unwrap();
    let mut datagram = [0; 2000];
    let mut decoder = testbed::decode::Decoder::new();
    let octets = listener.recv(&mut datagram).unwrap();
    assert_eq!(datagram[16..18], [0, 3], "the message begins with the type information");
    let mut records = decoder.message(&datagram[..octets]);
    while records.is_empty() {
        let octets = listener.recv(&mut datagram).unwrap();
        records = decoder.message(&datagram[..octets]);
    }
    assert_eq!((records.len(), decoder.types_seen), (1, 112));
    assert_eq!((sink.counters().exported.flows, lost(&*sink, ExportLossReason::CollectorRefused).flows), (1, 1));
}

#[test]
fn all_datagrams_of_a_large_flow_are_refused_together() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut sink = open(&format!("netflow5+udp://127.0.0.1:{port}"), &ExportOptions::default()).unwrap();
    let mut large = plain(1, 1);
    large.forward.bytes = 200 * u64::from(u32::MAX);
    let flows = [plain(2, 1), large, plain(3, 1)];
    sink.write(&flows).unwrap();
    sink.finish().unwrap();
    assert_eq!(lost(&*sink, ExportLossReason::CollectorRefused), sum(&flows));
    assert_eq!(sink.counters().total(), sum(&flows));
}

#[test]
fn a_file_that_cannot_be_created_is_an_error_on_opening() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [folder.path().join("no/such/folder"), folder.path().into(), socket] {
        assert!(open(&format!("json:{}", path.display()), &ExportOptions::default()).is_err());
    }
}
