//! IPv6 (RFC 8200), including jumbogram lengths (RFC 2675).

use super::extension::{self, HOP_BY_HOP};
use crate::frame_slice::{FrameSlice, array, be16};
use crate::packet::{AnomalySet, Flags, Network, Packet};
use weir_ledger::{PacketAnomaly, RefusalReason};

/// Length of the fixed header, octets.
const FIXED_BYTES: u32 = 40;

/// Largest length that counts although it exceeds the frame. A meter has only few counters for longer
/// packets, and a false length must not take them.
const MAX_FALSE_REST_BYTES: u32 = u16::MAX as u32 - FIXED_BYTES;

/// A whole fixed IPv6 header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ipv6<'a> {
    fixed: &'a [u8; 40],
    /// What follows the fixed header, extension headers first.
    rest: FrameSlice<'a>,
}

impl<'a> Ipv6<'a> {
    /// Splits the header.
    ///
    /// # Errors
    /// `Ipv6Truncated` if the capture ends inside the fixed header; `IpVersion`.
    #[inline]
    pub fn split(slice: FrameSlice<'a>) -> Result<Self, RefusalReason> {
        let (fixed, rest) = slice.split().ok_or(RefusalReason::Ipv6Truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(RefusalReason::IpVersion);
        }
        Ok(Self { fixed, rest })
    }

    /// Octets after the fixed header.
    #[inline]
    fn rest_bytes(self, anomalies: &mut AnomalySet) -> u32 {
        let frame_bytes = self.rest.wire_bytes();
        // The payload length is 0 in jumbograms, or if segmentation offload left it empty.
        let stated = match be16(self.fixed, 4) {
            0 if self.fixed[6] == HOP_BY_HOP => extension::jumbo_length(self.rest),
            0 => None,
            length => Some(length.into()),
        };
        match stated {
            Some(length) if length <= frame_bytes => length,
            Some(length) => {
                anomalies.add(PacketAnomaly::LengthBeyondFrame);
                if length <= MAX_FALSE_REST_BYTES { length } else { frame_bytes }
            }
            None => {
                if frame_bytes > 0 {
                    anomalies.add(PacketAnomaly::LengthFromFrame);
                }
                frame_bytes
            }
        }
    }

    /// See [`super::Ip::octets`].
    pub fn octets(&self) -> &'a [u8] {
        self.fixed
    }

    /// See [`super::Ip::fill`].
    #[inline]
    pub fn fill(self, packet: &mut Packet, anomalies: &mut AnomalySet) -> Option<FrameSlice<'a>> {
        let rest_bytes = self.rest_bytes(anomalies);
        packet.source = array(self.fixed, 8);
        packet.destination = array(self.fixed, 24);
        packet.network = Network::Ipv6;
        packet.ip_bytes = FIXED_BYTES + rest_bytes;
        packet.payload_bytes = rest_bytes;
        packet.tos = self.fixed[0] << 4 | self.fixed[1] >> 4;
        packet.ttl = self.fixed[7];
        packet.protocol = self.fixed[6];
        packet.identification = 0;
        packet.flags = Flags(0);
        extension::fill(self.rest.limit(rest_bytes), packet, anomalies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::frames::*;

    #[test]
    fn every_field_is_read() {
        let mut ip = udp_in_v6(5, 6, b"payload");
        ip[0] = 0x6b;
        ip[1] = 0x9f;
        let packet = without_anomalies(decoded(&ethernet(0x86dd, &ip)));
        assert_eq!((packet.source[0], packet.source[15], packet.destination[15]), (0xfd, 1, 2));
        assert_eq!((packet.network, packet.protocol, packet.ttl, packet.tos), (Network::Ipv6, 17, 64, 0xb9));
        assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.frame_bytes), (55, 7, 69));
        assert_eq!((packet.identification, packet.flags.0), (0, Flags::PORTS));
    }

    #[test]
    fn truncation_anywhere_is_refused() {
        for cut in 0..40 {
            assert_eq!(refusal(229, &udp_in_v6(5, 6, b"x")[..cut]), RefusalReason::Ipv6Truncated);
        }
        assert_eq!(refusal(101, &[0x60]), RefusalReason::Ipv6Truncated);
    }

    #[test]
    fn another_version_is_refused() {
        let mut ip = udp_in_v6(5, 6, b"x");
        ip[0] = 0x40;
        assert_eq!(refusal(229, &ip), RefusalReason::IpVersion);
    }

    #[test]
    fn a_payload_length_of_0_is_taken_from_the_frame_if_octets_follow() {
        let mut ip = udp_in_v6(5, 6, b"x");
        ip[4..6].fill(0);
        let packet = with_anomalies(decoded_as(229, &ip), &[PacketAnomaly::LengthFromFrame]);
        assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.source_port), (49, 1, 5));

        let packet = without_anomalies(decoded_as(229, &ipv6(59, &[])));
        assert_eq!((packet.ip_bytes, packet.protocol), (40, 59));
    }

    #[test]
    fn a_jumbo_payload_option_gives_the_length() {
        let options = [17, 0, 0xc2, 4, 0, 1, 0x86, 0xa0];
        let mut ip = ipv6(0, &[&options[..], &udp(5, 6, &[0; 16])].concat());
        ip[4..6].fill(0);
        let mut packet = Packet::default();
        let anomalies = crate::decode(229, &ip, 40 + 100_000, crate::DecodeOptions::default(), &mut packet).unwrap();
        assert!(anomalies.is_empty());
        assert_eq!((packet.ip_bytes, packet.payload_bytes), (100_040, 100_000 - 8 - 8));
        assert_eq!((packet.protocol, packet.source_port), (17, 5));

        // With a payload length, the option is ignored.
        ip[5] = 32;
        assert_eq!(decoded_as(229, &ip).0.ip_bytes, 72);
    }

    #[test]
    fn the_longest_jumbogram_does_not_overflow() {
        let mut ip = ipv6(0, &[17, 0, 0xc2, 4, 0xff, 0xff, 0xff, 0xff - 40, 0, 5, 0, 6]);
        ip[4..6].fill(0);
        let mut packet = Packet::default();
        let anomalies = crate::decode(229, &ip, u32::MAX, crate::DecodeOptions::default(), &mut packet).unwrap();
        assert!(anomalies.is_empty());
        assert_eq!((packet.ip_bytes, packet.payload_bytes), (u32::MAX, u32::MAX - 40 - 16));
    }

    #[test]
    fn a_length_over_65535_octets_and_beyond_the_frame_is_taken_from_the_frame() {
        let mut ip = udp_in_v6(5, 6, b"x");
        for (stated, expected) in [(65_495, 65_535), (65_496, 49), (u16::MAX, 49)] {
            ip[4..6].copy_from_slice(&stated.to_be_bytes());
            let packet = with_anomalies(decoded_as(229, &ip), &[PacketAnomaly::LengthBeyondFrame]);
            assert_eq!((packet.ip_bytes, packet.payload_bytes, packet.source_port), (expected, expected - 48, 5));
        }
        let mut ip = ipv6(0, &[17, 0, 0xc2, 4, 0xff, 0xff, 0xff, 0xff, 0, 5, 0, 6, 0, 0, 0, 0]);
        ip[4..6].fill(0);
        let packet = with_anomalies(decoded_as(229, &ip), &[PacketAnomaly::LengthBeyondFrame]);
        assert_eq!((packet.ip_bytes, packet.protocol), (56, 17));
    }
}
