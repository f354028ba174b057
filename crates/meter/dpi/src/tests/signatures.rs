//! What single messages are recognised as, where the captures of `testdata` have no example.

use weir_dpi::{DATAGRAM_READERS, Datagram, DatagramState, Fact, Findings, STREAM_READERS, Streams, Verdict};

/// What all readers say of a connection: applications with their confidence. A reader that claims
/// it refuses no start of it.
fn streams(first: &[u8], second: &[u8]) -> String {
    let streams = Streams { first, second, ports: [40000, 40001], ..Streams::default() };
    names(STREAM_READERS.iter().map(|reader| {
        let mut findings = Findings::new(true);
        let verdict = reader.read(&streams, &mut findings);
        for cut in 0..first.len() {
            let start = Streams { first: &first[..cut], second: b"", ..streams };
            let of_start = reader.read(&start, &mut Findings::new(true));
            assert!(of_start != Verdict::No || findings.application().is_none(), "{cut}: {:?}", findings.application());
        }
        (verdict, findings)
    }))
}

/// The same of a datagram.
fn datagram(payload: &[u8], port: u16) -> String {
    let datagram =
        Datagram { payload, wire_octets: payload.len() as u32, from_first: true, ports: [40000, port], time_ns: 0 };
    names(DATAGRAM_READERS.iter().map(|reader| {
        let mut findings = Findings::new(true);
        (reader.read(&mut DatagramState::default(), &datagram, &mut findings), findings)
    }))
}

fn names(read: impl Iterator<Item = (Verdict, Findings)>) -> String {
    let mut names: Vec<String> = Vec::new();
    for (verdict, findings) in read {
        match findings.application() {
            Some((application, confidence)) => names.push(format!("{} by {}", application.name(), confidence.name())),
            None => assert!(matches!(verdict, Verdict::No | Verdict::More)),
        }
    }
    names.join(", ")
}

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> = hexadecimal.bytes().filter(|digit| *digit != b' ').collect();
    let digit = |digit: u8| (digit as char).to_digit(16).expect("a hexadecimal digit") as u8;
    digits.as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}

#[test]
fn first_command_tells_protocols_with_the_same_greeting_apart() {
    let greeting = b"220-a.example ready\r\n220 go on\r\n";
    assert_eq!(streams(greeting, b""), "");
    assert_eq!(streams(greeting, b"EHLO b.example\r\n"), "smtp by message");
    assert_eq!(streams(greeting, b"USER a\r\n"), "ftp by message");
    assert_eq!(streams(greeting, b"AUTH TLS\r\n\x16\x03\x01"), "ftp by message");
    assert_eq!(streams(b"+OK ready\r\n", b"CAPA\r\n"), "pop3 by message");
    assert_eq!(streams(b"* OK ready\r\n", b"a1 capability\r\n"), "imap by message");
    for command in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\n", b"HELP\r\n", b"MAIL\r\n"] {
        assert_eq!(streams(greeting, command), "");
    }
}

#[test]
fn damaged_line_does_not_undo_that_of_the_other_side() {
    assert_eq!(streams(b"220 a\x1b.example\r\n", b"EHLO b.example\r\n"), "smtp by message");
    assert_eq!(streams(b"220 a\x1b.example\r\n", b"USER a\r\n"), "ftp by message");
    assert_eq!(streams(b"+OK \x1b\r\n", b"CAPA\r\n"), "pop3 by message");
    assert_eq!(streams(b"* OK \x1b\r\n", b"a1 capability\r\n"), "imap by message");
    assert_eq!(streams(b"220 a\x1b.example ESMTP\r\n", b""), "");
    assert_eq!(streams(b"220 a.example ESMTP\r\n", b"EHLO \x1b\r\n"), "smtp by pattern");
    assert_eq!(streams(b"GET /\x1b HTTP/1.1\r\n", b"HTTP/1.1 400 Bad\r\n"), "http by message");
    assert_eq!(streams(b"SSH-2.0-x\x1b\r\n", b"SSH-2.0-y\r\n"), "ssh by message");
}

#[test]
fn greeting_that_names_its_protocol_is_a_pattern() {
    assert_eq!(streams(b"220 a.example ESMTP Postfix\r\n", b""), "smtp by pattern");
    assert_eq!(streams(b"220 ProFTPD Server\r\n", b""), "ftp by pattern");
    assert_eq!(streams(b"+OK POP3 ready\r\n", b""), "pop3 by pattern");
    assert_eq!(streams(b"* OK [CAPABILITY IMAP4rev1] ready\r\n", b""), "imap by pattern");
    assert_eq!(streams(b"EHLO b.example\r\n", b""), "smtp by pattern");
    assert_eq!(streams(b"+OK\r\n", b""), "");
}

#[test]
fn sender_of_mail_is_not_looked_for_behind_a_change_to_tls() {
    let user = |client: &[u8]| {
        let streams = Streams { first: b"220 a.example ESMTP\r\n", second: client, ..Streams::default() };
        let mut findings = Findings::new(true);
        STREAM_READERS.iter().for_each(|reader| {
            reader.read(&streams, &mut findings);
        });
        findings.text(Fact::User).map(String::from)
    };
    assert_eq!(user(b"EHLO b\r\nmail from:<a@b.example> SIZE=1\r\n").as_deref(), Some("a@b.example"));
    assert_eq!(user(b"EHLO b\r\nSTARTTLS\r\n\x16\x03\x01\0\nMAIL FROM:<a@b.example>\r\n"), None);
    assert_eq!(user(b"EHLO b\r\nDATA\r\nMAIL FROM:<a@b.example>\r\n"), None);
}

#[test]
fn names_of_accounts_are_exact_or_left_out() {
    let smtp = b"220 a.example ESMTP\r\n";
    let imap = b"* OK IMAP4rev1 ready\r\n";
    for (server, client, expected) in [
        (&smtp[..], "EHLO b\r\nMAIL FROM:<\"a>b\"@c.example>\r\n", Some("\"a>b\"@c.example")),
        (smtp, "EHLO b\r\nMAIL FROM:<\"a\\\">b\"@c.example>\r\n", Some("\"a\\\\\">b\"@c.example")),
        (smtp, "EHLO b\r\nMAIL FROM:<@d,@e:a@c.example>\r\n", Some("a@c.example")),
        (smtp, "EHLO b\r\nMAIL FROM:<a@c.example\r\n", None),
        (imap, "a LOGIN bob pw\r\n", Some("bob")),
        (imap, "a LOGIN \"bob\" pw\r\n", Some("bob")),
        (imap, "a LOGIN \"bob smith\" \"pw\"\r\n", Some("bob smith")),
        (imap, "a LOGIN \"b\\\"ob\" pw\r\n", Some("b\"ob")),
        (imap, "a LOGIN \"bob pw\r\n", None),
        (imap, "a LOGIN {3}\r\nbob {2}\r\npw\r\n", None),
        (imap, "a LOGIN {3+}\r\nbob {2+}\r\npw\r\n", None),
    ] {
        let streams = Streams { first: server, second: client.as_bytes(), ..Streams::default() };
        let mut findings = Findings::new(true);
        STREAM_READERS.iter().for_each(|reader| {
            reader.read(&streams, &mut findings);
        });
        assert_eq!(findings.text(Fact::User), expected, "{client:?}");
    }
}

#[test]
fn connection_requests_of_rdp_are_distinguished_from_others_in_the_same_envelope() {
    assert_eq!(streams(&octets("0300000b 06e00000000000"), b""), "rdp by pattern");
    assert_eq!(streams(&octets("03000013 0ee00000000000 01000800 03000000"), b""), "rdp by message");
    assert_eq!(streams(&octets("03000013 0ed00000123400 03000800 05000000"), b""), "rdp by message");
    // S7: parameters with the names of the two sides.
    assert_eq!(streams(&octets("03000016 11e00000000100 c1020100c2020102c0010a"), b""), "");
}

#[test]
fn smb_is_recognised_in_all_versions_and_behind_netbios() {
    for version in ["ff534d42", "fe534d42", "fd534d42", "fc534d42"] {
        assert_eq!(streams(&octets(&format!("00000054 {version}")), b""), "smb by message");
    }
    let request = [&octets("81000044")[..], &[0x20; 68], &octets("00000054 ff534d42")].concat();
    assert_eq!(streams(&request, b""), "smb by message");
    assert_eq!(streams(&octets("82000000 00000054 ff534d42"), b""), "smb by message");
    assert_eq!(streams(&octets("00000054 fb534d42"), b""), "");
}

#[test]
fn databases_are_recognised_by_their_first_message() {
    let error = [&octets("2a0000 00 ff 6a04")[..], b"Host 'a' is not allowed to connect here"].concat();
    assert_eq!(streams(&error, b""), "mysql by pattern");
    assert_eq!(streams(&octets("00000008 04d2162f"), b""), "postgresql by message");
    assert_eq!(streams(&octets("00000008 04d2162f 16030100"), b"S"), "postgresql by message");
    assert_eq!(streams(&octets("00000010 04d2162e 00000001 00000002"), b""), "postgresql by message");
    assert_eq!(streams(&octets("00000009 00020000"), b""), "");
    assert_eq!(streams(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b""), "redis by message");
    assert_eq!(streams(b"*1\r\n$4\r\nping\r\n", b""), "redis by message");
    assert_eq!(streams(b"*1\r\n$7\r\nFOOBARX\r\n", b""), "redis by pattern");
    for other in [&b"*0\r\n"[..], b"*1\r\n$0\r\n\r\n", b"*1\r\n$4\r\nPI G\r\n", b"*x\r\n", b"$4\r\nPING\r\n"] {
        assert_eq!(streams(other, b""), "");
    }
}

#[test]
fn lengths_of_ber_have_to_agree() {
    let snmp = octets("301c 020101 04066162636465 66 a00f 020101 020100 020100 3004 30020500");
    assert_eq!(datagram(&snmp, 161), "snmp by message");
    for at in [1, 4, 6, 14] {
        let mut other = snmp.clone();
        other[at] ^= 4;
        assert_eq!(datagram(&other, 161), "", "{at}");
    }
    // PDUs without a request id.
    assert_eq!(datagram(&octets("3007 020100 0400 a000"), 161), "");
    assert_eq!(datagram(&octets("300a 020100 0400 a003 040101"), 161), "");
    let error = octets("7e 0e 30 0c a003020105 a10302011e 0500");
    assert_eq!(datagram(&error, 88), "kerberos by message");
    assert_eq!(streams(&[&octets("00000010"), &error[..]].concat(), b""), "kerberos by message");
    let mut other = error.clone();
    other[13] = 0x0b;
    assert_eq!(datagram(&other, 88), "");
    let start_tls = [&octets("301d 020101 7718 8016")[..], b"1.3.6.1.4.1.1466.20037"].concat();
    assert_eq!(streams(&start_tls, b""), "ldap by message");
    assert_eq!(streams(&octets("300c 020101 6107 0a0100 0400 0400"), b""), "ldap by message");
    assert_eq!(streams(&octets("300c 020101 6007 020103 0400 8000"), b""), "ldap by message");
    assert_eq!(streams(&octets("300c 020101 6007 020104 0400 8000"), b""), "");
    assert_eq!(streams(&octets("300c 020101 6107 0a0100 0400 0400")[..10], b""), "");
}

#[test]
fn stun_needs_its_cookie_or_its_port() {
    let with_cookie = octets("00010000 2112a442 000102030405060708090a0b");
    assert_eq!(datagram(&with_cookie, 5000), "stun by message");
    assert_eq!(streams(&with_cookie, b""), "stun by message");
    // An attribute of three octets without padding.
    assert_eq!(
        datagram(&octets("00030007 2112a442 000102030405060708090a0b 4000 0003 010203"), 5000),
        "stun by message"
    );
    let classic = octets("00010000 112233440001020304050607 08090a0b");
    assert_eq!(datagram(&classic, 3478), "stun by pattern");
    assert_eq!(datagram(&classic, 3479), "");
    assert_eq!(datagram(&with_cookie[..19], 3478), "");
    assert_eq!(datagram(&octets("00010000 00000000 0000000000000000 00000000"), 3478), "");
}

#[test]
fn handshakes_of_tunnels_are_recognised() {
    let mut initiation = vec![7; 148];
    initiation[..4].copy_from_slice(&[1, 0, 0, 0]);
    assert_eq!(datagram(&initiation, 51820), "wireguard by pattern");
    initiation[132..].fill(0);
    assert_eq!(datagram(&initiation, 51820), "wireguard by message");
    assert_eq!(datagram(&initiation[..147], 51820), "");
    // Without the first MAC, without the key.
    for zeros in [116..132, 8..40] {
        let mut other = initiation.clone();
        other[zeros].fill(0);
        assert_eq!(datagram(&other, 51820), "");
    }
    let mut response = vec![7; 92];
    response[..4].copy_from_slice(&[2, 0, 0, 0]);
    assert_eq!(datagram(&response, 51820), "wireguard by pattern");
    response[60..76].fill(0);
    assert_eq!(datagram(&response, 51820), "");
    // HARD_RESET_SERVER_V2 that acknowledges the packet 0 of the client.
    let reset = octets("40 0102030405060708 01 00000000 1112131415161718 00000000");
    assert_eq!(datagram(&reset, 1194), "openvpn by message");
    assert_eq!(streams(&[&[0, reset.len() as u8], &reset[..]].concat(), b""), "openvpn by message");
    assert_eq!(datagram(&octets("38 0102030405060708 00 00000001"), 1194), "");
}

#[test]
fn ntp_is_a_pattern_on_its_port_only() {
    let mut packet = vec![0; 48];
    packet[0] = 0x23;
    assert_eq!(datagram(&packet, 123), "ntp by pattern");
    assert_eq!(datagram(&packet, 124), "");
    assert_eq!(datagram(&packet[..47], 123), "");
    // A control message (mode 6), and a private one (mode 7).
    assert_eq!(datagram(&octets("16020001 00000000 00000000"), 123), "ntp by pattern");
    assert_eq!(datagram(&octets("1700032a 00000000"), 123), "ntp by pattern");
    packet[0] = 0x20;
    assert_eq!(datagram(&packet, 123), "");
}

#[test]
fn sip_is_distinguished_from_http_and_from_its_responses() {
    assert_eq!(streams(b"REGISTER sip:a.example SIP/2.0\r\n", b""), "sip by message");
    assert_eq!(streams(b"SIP/2.0 200 OK\r\n", b""), "sip by message");
    assert_eq!(datagram(b"SIP/2.0 200 OK\r\nf: sip:a@b.example;tag=1\r\n\r\n", 5060), "sip by message");
    assert_eq!(datagram(b"SUBSCRIBE sips:a.example SIP/2.0\r\n\r\n", 5060), "sip by message");
    assert_eq!(streams(b"SIP/2.0 099 OK\r\n", b""), "");
    assert_eq!(streams(b"SIP/2.0 2000 OK\r\n", b""), "");
    for other in
        [&b"NOTIFY * HTTP/1.1\r\n\r\n"[..], b"OPTIONS rtsp://a RTSP/1.0\r\n\r\n", b"SIP/2.0 2", b"SSH-2.0-a\r\n"]
    {
        assert_eq!(datagram(other, 5060), "");
    }
}

#[test]
fn messages_of_the_dht_and_packets_of_utp() {
    assert_eq!(datagram(b"d1:eli201e5:Errore1:t2:aa1:y1:ee", 6881), "bittorrent by message");
    assert_eq!(datagram(b"d1:eli201e5:Errore1:t2:aa", 6881), "");
    let syn = octets("41001234 075bcd15 00000000 00100000 0001 0000");
    assert_eq!(datagram(&syn, 6881), "bittorrent by pattern");
    assert_eq!(datagram(&[&syn[..], &[0]].concat(), 6881), "");
}

#[test]
fn mqtt_names_its_version() {
    let connect = |version: u8| [&octets("10 0e 0004")[..], b"MQTT", &[version, 2, 0, 60, 0, 2], b"ab"].concat();
    assert_eq!(streams(&connect(4), b""), "mqtt by message");
    assert_eq!(streams(&connect(3), b""), "");
    assert_eq!(streams(b"\x10\x10\0\x06MQIsdp\x03\x02\0\x3c\0\x02ab", b""), "mqtt by message");
    assert_eq!(streams(b"\x10\xff\xff\xff\xff\x01", b""), "");
}
