//! `--names`: names of hosts from answers of DNS, and of services, in tables of `weir read` and `weir tcp`.

use testbed::{Pcap, START, SavedCapture, assert_usage_errors, datagram, success, tcp};

const CLIENT: [u8; 4] = [192, 0, 2, 1];
const RESOLVER: [u8; 4] = [192, 0, 2, 53];
const SERVER: [u8; 4] = [198, 51, 100, 20];

/// A question for the addresses of a name, and the answer that it is another name with the address of the server.
pub fn question_and_answer(id: u16, name: &[u8]) -> [Vec<u8>; 2] {
    let mut asked = vec![name.len() as u8];
    asked.extend(name);
    asked.extend(b"\x07example\0\0\x01\0\x01");
    let header = |flags: u16, answers: u16| [id, flags, 1, answers, 0, 0].map(u16::to_be_bytes).concat();
    let alias = b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x06\x03cdn\xc0";
    // The rest of the question's name, which the alias ends with.
    let rest_at = 12 + 1 + name.len() as u8;
    let alias_at = 12 + asked.len() as u8 + 12;
    let address = [&[0xc0, alias_at, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4][..], &SERVER].concat();
    let answer = [&header(0x8180, 2), &asked, &alias[..], &[rest_at], &address].concat();
    let (client, resolver) = ((CLIENT, 50_000 + id), (RESOLVER, 53));
    let question = [header(0x0100, 0), asked].concat();
    [datagram(client, resolver, &question), datagram(resolver, client, &answer)]
}

/// Lookups of names, and a connection to their address.
pub fn capture(names: &[&[u8]]) -> SavedCapture {
    let (client, server) = ((CLIENT, 40_000), (SERVER, 443));
    let mut frames: Vec<Vec<u8>> = (1..).zip(names).flat_map(|(id, name)| question_and_answer(id, name)).collect();
    frames.extend([
        tcp(client, server, 0x02, 0),
        tcp(server, client, 0x12, 0),
        tcp(client, server, 0x10, 0),
        tcp(client, server, 0x18, 100),
    ]);
    let add = |pcap: Pcap, (number, frame): (u32, &Vec<u8>)| pcap.frame(START, number * 1000, frame);
    (0..).zip(&frames).fold(Pcap::new(), add).saved()
}

#[test]
fn tables_have_the_name_that_was_asked_for_and_the_usual_service() {
    let capture = capture(&[b"www"]);
    let flows = success(["read", capture.name(), "-q", "--names"]);
    let line = flows.lines().find(|line| line.contains("198.51.100.20:443")).unwrap();
    assert!(flows.lines().next().unwrap().contains(" destination name"), "{flows}");
    assert!(line.contains(" www.example:https ") && !line.contains("cdn"), "{flows}");
    assert!(flows.lines().any(|line| line.contains("192.0.2.53:53 ") && line.contains(" :domain ")), "{flows}");
    let hosts = success(["read", capture.name(), "-q", "--names", "--by", "host,port", "--where", "port 443"]);
    let line = hosts.lines().find(|line| line.starts_with("198.51.100.20 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..4], ["198.51.100.20", "443", "www.example", "https"], "--where leaves out the answers: {hosts}");
    let tcp = success(["tcp", capture.name(), "--names", "--top", "0"]);
    assert!(tcp.contains(" server name ") && tcp.contains(" www.example:https "), "{tcp}");
    let servers = success(["tcp", capture.name(), "--names", "--by", "server"]);
    assert!(servers.lines().any(|line| line.starts_with("198.51.100.20:443 www.example:https ")), "{servers}");
}

#[test]
fn without_the_option_and_in_other_outputs_there_are_no_names() {
    let capture = capture(&[b"www"]);
    for (command, output) in [("read", &["-q", "-o", "csv:-"][..]), ("tcp", &["--csv", "-"]), ("tcp", &["--json", "-"])]
    {
        let plain = success([&[command, capture.name()], output].concat());
        assert_eq!(plain, success([&[command, capture.name(), "--names"], output].concat()), "{command} {output:?}");
    }
    for command in ["read", "tcp"] {
        assert!(!success([command, capture.name()]).contains("www.example"));
    }
}

#[test]
fn a_name_of_the_traffic_cannot_act_on_the_terminal_and_several_are_marked() {
    for (names, expected) in
        [(&[&b"\x1b[2J"[..]][..], " \\x1b[2J.example:https "), (&[b"\x1b[2J", b"other"], ".example …:https ")]
    {
        let capture = capture(names);
        for command in ["read", "tcp"] {
            let text = success([command, capture.name(), "--names"]);
            assert!(text.contains(expected) && !text.contains('\u{1b}'), "{command}: {text:?}");
        }
    }
}

#[test]
fn names_are_for_packets_and_not_for_anonymised_records() {
    let capture = capture(&[b"www"]);
    let store = capture.beside("flows");
    success(["read", capture.name(), "-q", "-o", &format!("parquet:{}", store.display())]);
    assert_usage_errors(&[
        (&["read", store.to_str().unwrap(), "--names"], "--names"),
        (&["read", capture.name(), "--names", "--anonymise", "key"], "cannot be used with"),
    ]);
}
