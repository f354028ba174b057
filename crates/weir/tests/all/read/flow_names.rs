//! A flow as outputs print it is a flow that options take.

use serde_json::Value;
use testbed::{captures, failure, read_flows, success};

/// The number of packets that `weir packets --flow` finds.
fn packets_of(capture: &str, flow: &str, folder: &std::path::Path) -> u64 {
    let output = folder.join("found.pcapng");
    let options = ["--overwrite", "-q", "--stats", "-", "--flow", flow, "-o", output.to_str().unwrap()];
    let stats: Value = serde_json::from_str(&success([&["packets", capture], &options[..]].concat())).unwrap();
    stats["packets"].as_u64().unwrap()
}

#[test]
fn packets_of_each_flow_of_the_table_are_found_also_behind_vlan_tags() {
    let folder = tempfile::tempdir().unwrap();
    for (name, least) in [("web.pcap", 5), ("vlan.pcap", 1), ("qinq.pcap", 1), ("ping.pcap.zst", 1)] {
        let capture = captures().join(name);
        let capture = capture.to_str().unwrap();
        let json = folder.path().join("flows.json");
        let sink = format!("json:{}", json.display());
        let table = success(["read", capture, "-q", "--top", "0", "--overwrite", "-o", "table:-", "-o", &sink]);
        let mut found = 0;
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(at) = words.iter().skip(3).position(|word| *word == "→").map(|at| at + 3) else { continue };
            let flow = words[2..=at + 1].join(" ");
            assert!(packets_of(capture, &flow, folder.path()) > 0, "{flow}: {table}");
            found += 1;
        }
        assert!(found >= least, "{name}: {found}: {table}");
        for flow in read_flows(&json) {
            if let Some(id) = flow["community_id"].as_str() {
                assert!(packets_of(capture, id, folder.path()) > 0, "{name}: {id}");
            }
        }
    }
}

#[test]
fn connections_are_explained_by_every_name_that_is_printed() {
    let capture = captures().join("web.pcap");
    let capture = capture.to_str().unwrap();
    let report: Value = serde_json::from_str(&success(["tcp", capture, "--json", "-"])).unwrap();
    for connection in report["list"].as_array().unwrap() {
        let [client, server] = [["src_ip", "src_port"], ["dst_ip", "dst_port"]].map(|[address, port]| {
            let (address, port) = (connection[address].as_str().unwrap(), &connection[port]);
            let address = if address.contains(':') { format!("[{address}]") } else { address.into() };
            format!("{address}:{port}")
        });
        let number = &connection["number"];
        let expected = success(["tcp", capture, "--explain", &format!("#{number}")]);
        let without_brackets = format!("{client} → {server}").replace(['[', ']'], "");
        for name in [
            number.to_string(),
            format!("{client} → {server}"),
            format!("{server} → {client}"),
            format!("{client} -> {server}"),
            format!("{client} ← {server}"),
            format!("{client}-{server}"),
            format!("{client}-{server}/tcp"),
            format!("tcp {client} → {server}"),
            without_brackets,
            connection["community_id"].as_str().unwrap_or(&client).into(),
            client.clone(),
        ] {
            assert_eq!(success(["tcp", capture, "--explain", &name]), expected, "{name}");
        }
    }
    let udp = failure(1, ["tcp", capture, "--explain", "udp 192.0.2.1:1 → 192.0.2.2:2"]);
    assert!(udp.contains("no connection matches"), "{udp}");
    let ambiguous = failure(1, ["tcp", capture, "--explain", "192.0.2.1 → 192.0.2.2"]);
    assert!(ambiguous.contains("3 connections match"), "{ambiguous}");
}
