//! nDPI recognises a request of HTTP in packets that are made here.
#![cfg(feature = "ndpi")]

use weir_ndpi::{Library, Names};

/// An IPv4 packet of TCP without checksums.
fn packet(forward: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (40 + payload.len()) as u16;
    let (source, destination) = if forward { (1, 2) } else { (2, 1) };
    let ports: [u16; 2] = if forward { [40_000, 8080] } else { [8080, 40_000] };
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, source, 10, 0, 0, destination]);
    packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

#[test]
fn ndpi_names_a_protocol_its_category_and_its_risks() {
    assert!(weir_ndpi::version().unwrap().starts_with("4.2"));
    let mut library = Library::open().unwrap();
    let mut flow = library.new_flow().unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: curl/8\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok";
    for (number, packet) in [
        packet(true, 0, 2, &[]),
        packet(false, 0, 0x12, &[]),
        packet(true, 1, 0x18, request),
        packet(false, 1, 0x18, answer),
    ]
    .iter()
    .enumerate()
    {
        library.inspect(&mut flow, packet, 1_700_000_000_000_000_000 + number as u64);
    }
    let classified = library.classify(flow);
    let Names { protocol, category, confidence, risks } = library.names(&classified);
    assert_eq!((protocol.as_str(), category.as_str(), confidence), ("HTTP", "Web", "DPI"));
    assert_eq!(risks, ["Known Protocol on Non Standard Port"]);
}

#[test]
fn unknown_octets_have_no_protocol() {
    let mut library = Library::open().unwrap();
    let mut flow = library.new_flow().unwrap();
    library.inspect(&mut flow, &packet(true, 1, 0x18, &[0xa5; 300]), 0);
    assert!(!library.classify(flow).is_known());
    // Of packets that are cut, or are none, nothing is known.
    for length in 0..40 {
        let mut flow = library.new_flow().unwrap();
        library.inspect(&mut flow, &packet(true, 1, 0x18, &[])[..length], 0);
        assert!(!library.classify(flow).is_known());
    }
    assert!(Library::flow_octets() > 100);
}
