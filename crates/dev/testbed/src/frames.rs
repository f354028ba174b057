//! Ethernet frames, built from addresses, ports and lengths.

/// An Ethernet frame with an IPv4 packet.
pub fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(payload);
    frame
}

/// A frame with a datagram of UDP between addresses with ports.
pub fn datagram(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let words = [source.1, destination.1, 8 + payload.len() as u16, 0].map(u16::to_be_bytes).concat();
    ipv4(17, source.0, destination.0, &[&words, payload].concat())
}

/// An Ethernet frame with a UDP datagram. `payload` is the length of its payload in octets.
pub fn udp(source: ([u8; 4], u16), destination: ([u8; 4], u16), payload: usize) -> Vec<u8> {
    datagram(source, destination, &vec![0; payload])
}

/// An Ethernet frame with a TCP segment. `payload` is the length of its payload in octets.
pub fn tcp(source: ([u8; 4], u16), destination: ([u8; 4], u16), control: u8, payload: usize) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(source.1.to_be_bytes());
    segment.extend(destination.1.to_be_bytes());
    segment.extend([0; 8]);
    segment.extend([0x50, control, 0xff, 0xff, 0, 0, 0, 0]);
    segment.resize(20 + payload, 0);
    ipv4(6, source.0, destination.0, &segment)
}

/// An ARP request.
pub fn arp() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x08, 0x06]);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.resize(60, 0);
    frame
}

/// A DNS request and its response between client `number` and one server.
pub fn request_and_response(number: u16) -> [Vec<u8>; 2] {
    let [high, low] = number.to_be_bytes();
    let (client, server) = (([10, 0, high, low], 1024 + number % 5000), ([10, 1, 0, 1], 53));
    [udp(client, server, 40), udp(server, client, 400)]
}
