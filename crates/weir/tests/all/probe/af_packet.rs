//! `weir read` and `weir probe` on an AF_PACKET source: live flow records equal those of a file,
//! the ledger accounts for every packet, and signals end the run.

use testbed::namespace::{ip, until};
use testbed::running::{Running, flows_of_file, frames, wire, without_times};
use testbed::{arp, failure, packets, tcp, udp};

#[test]
fn live_flow_records_equal_those_of_a_file() {
    let Some(mut sender) = wire() else { return };
    let names = ["web.pcap", "dns.pcap.gz", "ping.pcap.zst", "qinq.pcap", "mpls.pcap", "vxlan.pcap", "layer2.pcap"];
    for (number, name) in names.into_iter().chain(["synth:mix,flows=300,packets=10k"]).enumerate() {
        let frames = frames(name);
        let live = Running::read("af_packet:right", &["--decap"]);
        frames.iter().for_each(|frame| sender.send(frame));
        live.signal([libc::SIGINT, libc::SIGTERM][number % 2]);
        let (code, err, flows, ledger) = live.wait();
        assert_eq!(code, 0, "{name}: {err}");
        assert!(!err.contains("interrupted"), "{err}");
        assert_eq!(ledger["packets"]["received"], frames.len(), "{name}: {ledger}");
        let octets: usize = frames.iter().map(Vec::len).sum();
        assert_eq!(ledger["bytes"]["received"], octets, "{name}");
        let expected = flows_of_file(&frames, &["--layer2", "--decap"]);
        assert_eq!(without_times(&flows), expected, "{name}");
    }
}

#[test]
fn flow_records_of_four_queues_equal_those_of_a_file() {
    let Some(mut sender) = wire() else { return };
    // Fragments, VLAN tags, MPLS labels, tunnels, ICMP errors, IPv6; and connections on each queue.
    let names = "web.pcap dns.pcap.gz tls.pcap ssh.pcap sctp.pcap ping.pcap.zst traceroute.pcap vlan.pcap qinq.pcap \
                 mpls.pcap vxlan.pcap gre.pcap 4in6.pcap layer2.pcap synth:mix,flows=300,packets=10k";
    let frames: Vec<Vec<u8>> = names.split(' ').flat_map(frames).collect();
    let expected = flows_of_file(&frames, &["--layer2"]);
    assert!(expected.len() > 300, "{}", expected.len());
    for layout in ["fused", "split"] {
        let probe = Running::probe("af_packet:right,queues=4", &["--layer2", "--layout", layout]);
        frames.iter().for_each(|frame| sender.send(frame));
        let (_, flows, ledger) = probe.stop(0);
        assert_eq!(ledger["packets"]["received"], frames.len(), "{layout}: {ledger}");
        assert_eq!(ledger["bytes"]["received"], frames.iter().map(Vec::len).sum::<usize>(), "{layout}: {ledger}");
        let flows = without_times(&flows);
        let only_live: Vec<_> = flows.iter().filter(|line| !expected.contains(line)).collect();
        let counts = (flows.len(), expected.len());
        assert!(flows == expected, "{layout}: {counts:?} live and in the file; only live: {only_live:#?}");
    }
}

#[test]
fn packets_dropped_by_the_kernel_are_in_the_ledger() {
    let Some(mut sender) = wire() else { return };
    const SENT: u64 = 5000;
    let live = Running::read("af_packet:right,block=4KiB,blocks=8", &[]);
    let request = udp(([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 53), 30);
    sender.send(&request);
    live.signal(libc::SIGSTOP);
    (1..SENT).for_each(|_| sender.send(&request));
    live.signal(libc::SIGCONT);
    live.signal(libc::SIGINT);
    let (code, err, flows, ledger) = live.wait();
    assert_eq!(code, 2, "{err}");
    let count = |key: &str| ledger["packets"][key].as_u64().unwrap();
    assert!(count("dropped_kernel") > SENT / 2, "{ledger}");
    assert_eq!(count("received"), SENT, "{ledger}");
    assert_eq!(count("metered") + count("dropped_kernel"), SENT, "{ledger}");
    assert_eq!(flows.iter().map(packets).sum::<u64>(), count("metered"));
    assert!(err.contains("dropped"), "{err}");
}

#[test]
fn idle_flows_are_exported_without_another_packet() {
    let Some(mut sender) = wire() else { return };
    let mut live = Running::read("af_packet:right", &["--idle", "500ms"]);
    let (client, server) = (([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 80));
    for (number, frames) in [
        vec![udp(client, server, 30), udp(server, client, 90)],
        vec![tcp(client, server, 0x02, 0), tcp(server, client, 0x12, 0), tcp(server, client, 0x14, 0)],
        vec![arp()],
    ]
    .into_iter()
    .enumerate()
    {
        frames.iter().for_each(|frame| sender.send(frame));
        until("the flow record is exported", || live.flows().len() > number);
        assert!(live.process.0.try_wait().unwrap().is_none(), "weir still runs");
    }
    let (err, flows, ledger) = live.stop(0);
    assert_eq!(flows.len(), 3, "{err}");
    assert_eq!(ledger["packets"]["received"], 6);
}

#[test]
fn removal_of_the_interface_ends_the_run_and_exports_its_flows() {
    let Some(mut sender) = wire() else { return };
    let live = Running::read("af_packet:right", &[]);
    sender.send(&udp(([192, 0, 2, 1], 4000), ([192, 0, 2, 2], 53), 30));
    ip("link delete right");
    let (code, err, flows, ledger) = live.wait();
    assert_eq!((code, flows.len()), (2, 1), "{err}");
    assert!(err.contains("af_packet:right: the interface was removed"), "{err}");
    assert!(!err.contains("copy it again"), "{err}");
    assert_eq!(ledger["packets"]["metered"], 1);
}

#[test]
fn weir_read_refuses_several_queues() {
    let Some(_sender) = wire() else { return };
    let err = failure(1, ["read", "-i", "af_packet:right,queues=2"]);
    assert!(err.contains("leave out queues=N"), "{err}");
}
