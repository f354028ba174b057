//! IPv4 (RFC 791). Options are skipped; the header checksum is not verified.

use crate::frame_slice::{FrameSlice, array, be16};
use crate::packet::{AnomalySet, Flags, Network, Packet, ipv4_mapped};
use weir_ledger::{PacketAnomaly, RefusalReason};

/// Length of a header without options, octets.
const FIXED_BYTES: u32 = 20;

/// A whole fixed IPv4 header with plausible lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv4<'a> {
    fixed: &'a [u8; 20],
    /// Length of the header with its options, octets.
    header_bytes: u32,
    /// Length of the packet, octets: the total length, or what is left of the frame if segmentation
    /// offload left that at 0.
    ip_bytes: u32,
    /// What follows the fixed header, options first.
    rest: FrameSlice<'a>,
}

impl<'a> Ipv4<'a> {
    /// Splits the header.
    ///
    /// # Errors
    /// `Ipv4Truncated` if the capture ends inside the fixed header; `IpVersion`; `Ipv4HeaderLength`
    /// if it is below 5 words; `Ipv4TotalLength` if the packet is shorter than its header.
    #[inline]
    pub fn split(slice: FrameSlice<'a>) -> Result<Self, RefusalReason> {
        let (fixed, rest) = slice.split::<20>().ok_or(RefusalReason::Ipv4Truncated)?;
        if fixed[0] >> 4 != 4 {
            return Err(RefusalReason::IpVersion);
        }
        let header_bytes = u32::from(fixed[0] & 0x0f) * 4;
        if header_bytes < FIXED_BYTES {
            return Err(RefusalReason::Ipv4HeaderLength);
        }
        let ip_bytes = match be16(fixed, 2) {
            0 => slice.wire_bytes(),
            total_length => total_length.into(),
        };
        if ip_bytes < header_bytes {
            return Err(RefusalReason::Ipv4TotalLength);
        }
        Ok(Self { fixed, header_bytes, ip_bytes, rest })
    }

    /// See [`super::Ip::octets`].
    pub fn octets(&self) -> &'a [u8] {
        self.fixed
    }

    /// See [`super::Ip::fill`].
    #[inline]
    pub fn fill(self, packet: &mut Packet, anomalies: &mut AnomalySet) -> Option<FrameSlice<'a>> {
        let Self { fixed, header_bytes, ip_bytes, rest } = self;
        if be16(fixed, 2) == 0 {
            anomalies.add(PacketAnomaly::LengthFromFrame);
        }
        if ip_bytes - FIXED_BYTES > rest.wire_bytes() {
            anomalies.add(PacketAnomaly::LengthBeyondFrame);
        }
        packet.source = ipv4_mapped(array(fixed, 12));
        packet.destination = ipv4_mapped(array(fixed, 16));
        packet.network = Network::Ipv4;
        packet.ip_bytes = ip_bytes;
        packet.payload_bytes = ip_bytes - header_bytes;
        packet.tos = fixed[1];
        packet.ttl = fixed[8];
        packet.protocol = fixed[9];
        packet.identification = be16(fixed, 4).into();
        let fragment = be16(fixed, 6);
        packet.flags = Flags::of_fragment(fragment & 0x1fff, fragment & 0x2000 != 0);
        let options_bytes = header_bytes - FIXED_BYTES;
        let Some(payload) = rest.limit(ip_bytes - FIXED_BYTES).skip(options_bytes as usize) else {
            anomalies.add(PacketAnomaly::ExtensionMalformed);
            return None;
        };
        (!packet.flags.has(Flags::FRAGMENT_LATER)).then_some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::frames::*;

    #[test]
    fn every_field_is_read() {
        let mut ip = udp_in_v4(5, 6, b"payload");
        ip[1] = 0xb9;
        ip[4..6].copy_from_slice(&[0x12, 0x34]);
        ip[6] = 0x40;
        let packet = without_anomalies(decoded(&ethernet(0x0800, &ip)));
        assert_eq!((packet.source, packet.destination), (ipv4_mapped([10, 0, 0, 1]), ipv4_mapped([10, 0, 0, 2])));
        assert_eq!((packet.network, packet.protocol, packet.ttl, packet.tos), (Network::Ipv4, 17, 64, 0xb9));
        assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.frame_bytes), (35, 7, 49));
        assert_eq!((packet.identification, packet.flags.0), (0x1234, Flags::PORTS));
    }

    #[test]
    fn options_are_skipped_and_truncated_options_are_an_anomaly() {
        let mut ip = udp_in_v4(5, 6, b"x");
        ip.splice(20..20, [1; 40]);
        ip[0] = 0x4f;
        ip[3] += 40;
        let packet = without_anomalies(decoded_as(228, &ip));
        assert_eq!((packet.source_port, packet.ip_bytes, packet.payload_bytes), (5, 69, 1));
        for cut in 20..60 {
            let packet = with_anomalies(snapped(228, &ip, cut), &[PacketAnomaly::ExtensionMalformed]);
            assert_eq!((packet.source_port, packet.ip_bytes, packet.payload_bytes), (0, 69, 9));
            assert!(!packet.flags.has(Flags::PORTS));
        }
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for cut in 0..20 {
            assert_eq!(refusal(228, &udp_in_v4(5, 6, b"x")[..cut]), RefusalReason::Ipv4Truncated);
        }
        assert_eq!(refusal(101, &[]), RefusalReason::LinkTruncated);
        assert_eq!(refusal(101, &[0x45]), RefusalReason::Ipv4Truncated);
    }

    #[test]
    fn impossible_versions_and_lengths_are_refused() {
        let with = |first, total: u16| {
            let mut ip = udp_in_v4(5, 6, b"x");
            ip[0] = first;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip
        };
        assert_eq!(refusal(228, &with(0x65, 29)), RefusalReason::IpVersion);
        assert_eq!(refusal(1, &ethernet(0x0800, &udp_in_v6(5, 6, b"x"))), RefusalReason::IpVersion);
        assert_eq!(refusal(101, &with(0x55, 29)), RefusalReason::IpVersion);
        for words in 0..5 {
            assert_eq!(refusal(228, &with(0x40 | words, 29)), RefusalReason::Ipv4HeaderLength);
        }
        assert_eq!(refusal(228, &with(0x45, 19)), RefusalReason::Ipv4TotalLength);
        assert_eq!(refusal(228, &with(0x46, 23)), RefusalReason::Ipv4TotalLength);
        assert_eq!(decoded_as(228, &with(0x45, 20)).0.ip_bytes, 20);
    }

    #[test]
    fn a_total_length_of_0_is_taken_from_the_frame() {
        let mut ip = udp_in_v4(5, 6, &[0; 1000]);
        ip[2..4].fill(0);
        let packet =
            with_anomalies(decoded(&ethernet(0x8100, &vlan(1, 0x0800, &ip))), &[PacketAnomaly::LengthFromFrame]);
        assert_eq!((packet.ip_bytes, packet.payload_bytes), (1028, 1000));
        let (snapped, _) = snapped(1, &ethernet(0x8100, &vlan(1, 0x0800, &ip)), 60);
        assert_eq!(snapped, packet);
    }

    #[test]
    fn a_length_of_0_in_a_frame_shorter_than_the_header_is_refused() {
        let mut ip = udp_in_v4(5, 6, b"x");
        ip.truncate(22);
        ip[0] = 0x46;
        ip[2..4].fill(0);
        let mut packet = Packet::default();
        let result = crate::decode(228, &ip, 22, crate::DecodeOptions::default(), &mut packet);
        assert_eq!(result, Err(RefusalReason::Ipv4TotalLength));
    }

    #[test]
    fn a_length_beyond_the_frame_is_kept() {
        let mut ip = udp_in_v4(5, 6, b"x");
        ip[2..4].copy_from_slice(&1500_u16.to_be_bytes());
        let packet = with_anomalies(decoded_as(228, &ip), &[PacketAnomaly::LengthBeyondFrame]);
        assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.source_port), (1500, 1472, 5));
    }

    #[test]
    fn fragments_are_flagged_and_only_the_first_has_ports() {
        let fragment = |field: u16| {
            let mut ip = udp_in_v4(5, 6, b"x");
            ip[4..6].copy_from_slice(&[0x12, 0x34]);
            ip[6..8].copy_from_slice(&field.to_be_bytes());
            let packet = without_anomalies(decoded_as(228, &ip));
            assert_eq!(packet.identification, 0x1234);
            (packet.flags.0, packet.source_port, packet.payload_bytes)
        };
        assert_eq!(fragment(0x2000), (Flags::FRAGMENT_FIRST | Flags::PORTS, 5, 1));
        for field in [0x2001, 0x0001, 0x1fff] {
            assert_eq!(fragment(field), (Flags::FRAGMENT_LATER, 0, 9));
        }
        // The reserved bit and "don't fragment" do not make a fragment.
        assert_eq!(fragment(0xc000), (Flags::PORTS, 5, 1));
    }
}
