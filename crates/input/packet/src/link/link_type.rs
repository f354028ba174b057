//! Link types by number and name (the LINKTYPE registry of tcpdump.org, without the prefix
//! `LINKTYPE_`). [`super::parse`] reads a few of them.

// Link types that the decoder reads.
pub(crate) const NULL: u16 = 0;
pub(crate) const ETHERNET: u16 = 1;
pub(crate) const PPP: u16 = 9;
pub(crate) const PPP_HDLC: u16 = 50;
pub(crate) const ATM_RFC1483: u16 = 100;
pub(crate) const RAW: u16 = 101;
// What some systems write for RAW: `DLT_RAW` of most, and of OpenBSD.
pub(crate) const DLT_RAW: u16 = 12;
pub(crate) const DLT_RAW_OPENBSD: u16 = 14;
pub(crate) const C_HDLC: u16 = 104;
pub(crate) const LOOP: u16 = 108;
pub(crate) const LINUX_SLL: u16 = 113;
pub(crate) const IPV4: u16 = 228;
pub(crate) const IPV6: u16 = 229;
pub(crate) const NFLOG: u16 = 239;
pub(crate) const LINUX_SLL2: u16 = 276;

/// Numbers in ascending order, with their names.
#[rustfmt::skip]
const NAMES: &[(u16, &str)] = &[
    (0, "NULL"), (1, "ETHERNET"), (2, "EXP_ETHERNET"), (3, "AX25"), (4, "PRONET"), (5, "CHAOS"), (6, "IEEE802_5"),
    (7, "ARCNET_BSD"), (8, "SLIP"), (9, "PPP"), (10, "FDDI"), (12, "RAW"), (14, "RAW"), (50, "PPP_HDLC"),
    (51, "PPP_ETHER"), (99, "SYMANTEC_FIREWALL"), (100, "ATM_RFC1483"), (101, "RAW"), (102, "SLIP_BSDOS"),
    (103, "PPP_BSDOS"), (104, "C_HDLC"), (105, "IEEE802_11"), (106, "ATM_CLIP"), (107, "FRELAY"), (108, "LOOP"),
    (109, "ENC"), (110, "LANE8023"), (111, "HIPPI"), (112, "HDLC"), (113, "LINUX_SLL"), (114, "LTALK"),
    (115, "ECONET"), (116, "IPFILTER"), (117, "PFLOG"), (118, "CISCO_IOS"), (119, "IEEE802_11_PRISM"),
    (120, "IEEE802_11_AIRONET"), (121, "HHDLC"), (122, "IP_OVER_FC"), (123, "SUNATM"), (124, "RIO"), (125, "PCI_EXP"),
    (126, "AURORA"), (127, "IEEE802_11_RADIOTAP"), (128, "TZSP"), (129, "ARCNET_LINUX"), (130, "JUNIPER_MLPPP"),
    (131, "JUNIPER_MLFR"), (132, "JUNIPER_ES"), (133, "JUNIPER_GGSN"), (134, "JUNIPER_MFR"), (135, "JUNIPER_ATM2"),
    (136, "JUNIPER_SERVICES"), (137, "JUNIPER_ATM1"), (138, "APPLE_IP_OVER_IEEE1394"), (139, "MTP2_WITH_PHDR"),
    (140, "MTP2"), (141, "MTP3"), (142, "SCCP"), (143, "DOCSIS"), (144, "LINUX_IRDA"), (145, "IBM_SP"),
    (146, "IBM_SN"), (147, "USER0"), (148, "USER1"), (149, "USER2"), (150, "USER3"), (151, "USER4"), (152, "USER5"),
    (153, "USER6"), (154, "USER7"), (155, "USER8"), (156, "USER9"), (157, "USER10"), (158, "USER11"), (159, "USER12"),
    (160, "USER13"), (161, "USER14"), (162, "USER15"), (163, "IEEE802_11_AVS"), (164, "JUNIPER_MONITOR"),
    (165, "BACNET_MS_TP"), (166, "PPP_PPPD"), (167, "JUNIPER_PPPOE"), (168, "JUNIPER_PPPOE_ATM"), (169, "GPRS_LLC"),
    (170, "GPF_T"), (171, "GPF_F"), (172, "GCOM_T1E1"), (173, "GCOM_SERIAL"), (174, "JUNIPER_PIC_PEER"),
    (175, "ERF_ETH"), (176, "ERF_POS"), (177, "LINUX_LAPD"), (178, "JUNIPER_ETHER"), (179, "JUNIPER_PPP"),
    (180, "JUNIPER_FRELAY"), (181, "JUNIPER_CHDLC"), (182, "MFR"), (183, "JUNIPER_VP"), (184, "A429"),
    (185, "A653_ICM"), (186, "USB_FREEBSD"), (187, "BLUETOOTH_HCI_H4"), (188, "IEEE802_16_MAC_CPS"),
    (189, "USB_LINUX"), (190, "CAN20B"), (191, "IEEE802_15_4_LINUX"), (192, "PPI"), (193, "IEEE802_16_MAC_CPS_RADIO"),
    (194, "JUNIPER_ISM"), (195, "IEEE802_15_4_WITHFCS"), (196, "SITA"), (197, "ERF"), (198, "RAIF1"),
    (199, "IPMB_KONTRON"), (200, "JUNIPER_ST"), (201, "BLUETOOTH_HCI_H4_WITH_PHDR"), (202, "AX25_KISS"),
    (203, "LAPD"), (204, "PPP_WITH_DIR"), (205, "C_HDLC_WITH_DIR"), (206, "FRELAY_WITH_DIR"), (207, "LAPB_WITH_DIR"),
    (209, "IPMB_LINUX"), (210, "FLEXRAY"), (211, "MOST"), (212, "LIN"), (213, "X2E_SERIAL"), (214, "X2E_XORAYA"),
    (215, "IEEE802_15_4_NONASK_PHY"), (216, "LINUX_EVDEV"), (217, "GSMTAP_UM"), (218, "GSMTAP_ABIS"), (219, "MPLS"),
    (220, "USB_LINUX_MMAPPED"), (221, "DECT"), (222, "AOS"), (223, "WIHART"), (224, "FC_2"),
    (225, "FC_2_WITH_FRAME_DELIMS"), (226, "IPNET"), (227, "CAN_SOCKETCAN"), (228, "IPV4"), (229, "IPV6"),
    (230, "IEEE802_15_4_NOFCS"), (231, "DBUS"), (232, "JUNIPER_VS"), (233, "JUNIPER_SRX_E2E"),
    (234, "JUNIPER_FIBRECHANNEL"), (235, "DVB_CI"), (236, "MUX27010"), (237, "STANAG_5066_D_PDU"),
    (238, "JUNIPER_ATM_CEMIC"), (239, "NFLOG"), (240, "NETANALYZER"), (241, "NETANALYZER_TRANSPARENT"),
    (242, "IPOIB"), (243, "MPEG_2_TS"), (244, "NG40"), (245, "NFC_LLCP"), (246, "PFSYNC"), (247, "INFINIBAND"),
    (248, "SCTP"), (249, "USBPCAP"), (250, "RTAC_SERIAL"), (251, "BLUETOOTH_LE_LL"), (252, "WIRESHARK_UPPER_PDU"),
    (253, "NETLINK"), (254, "BLUETOOTH_LINUX_MONITOR"), (255, "BLUETOOTH_BREDR_BB"),
    (256, "BLUETOOTH_LE_LL_WITH_PHDR"), (257, "PROFIBUS_DL"), (258, "PKTAP"), (259, "EPON"), (260, "IPMI_HPM_2"),
    (261, "ZWAVE_R1_R2"), (262, "ZWAVE_R3"), (263, "WATTSTOPPER_DLM"), (264, "ISO_14443"), (265, "RDS"),
    (266, "USB_DARWIN"), (267, "OPENFLOW"), (268, "SDLC"), (269, "TI_LLN_SNIFFER"), (270, "LORATAP"), (271, "VSOCK"),
    (272, "NORDIC_BLE"), (273, "DOCSIS31_XRA31"), (274, "ETHERNET_MPACKET"), (275, "DISPLAYPORT_AUX"),
    (276, "LINUX_SLL2"), (277, "SERCOS_MONITOR"), (278, "OPENVIZSLA"), (279, "EBHSCR"), (280, "VPP_DISPATCH"),
    (281, "DSA_TAG_BRCM"), (282, "DSA_TAG_BRCM_PREPEND"), (283, "IEEE802_15_4_TAP"), (284, "DSA_TAG_DSA"),
    (285, "DSA_TAG_EDSA"), (286, "ELEE"), (287, "Z_WAVE_SERIAL"), (288, "USB_2_0"), (289, "ATSC_ALP"), (290, "ETW"),
    (291, "NETANALYZER_NG"), (292, "ZBOSS_NCP"), (293, "USB_2_0_LOW_SPEED"), (294, "USB_2_0_FULL_SPEED"),
    (295, "USB_2_0_HIGH_SPEED"), (296, "AUERSWALD_LOG"), (297, "ZWAVE_TAP"), (298, "SILABS_DEBUG_CHANNEL"),
    (299, "FIRA_UCI"), (300, "MDB"), (301, "DECT_NR"),
];

/// The name of a link type in the registry; `None` for a number that Weir has no name for.
pub fn link_type_name(link_type: u16) -> Option<&'static str> {
    let index = NAMES.binary_search_by_key(&link_type, |&(number, _)| number).ok()?;
    Some(NAMES[index].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number() {
        assert!(NAMES.is_sorted_by(|(one, _), (other, _)| one < other));
        assert_eq!(link_type_name(127), Some("IEEE802_11_RADIOTAP"));
        assert_eq!((link_type_name(0), link_type_name(290)), (Some("NULL"), Some("ETW")));
        assert_eq!((link_type_name(11), link_type_name(u16::MAX)), (None, None));
    }

    /// tcpdump.org assigns numbers from 104 on without gaps, apart from one that it reserves.
    #[test]
    fn every_assigned_number_has_a_name() {
        let unnamed: Vec<u16> = (104..=301).filter(|&number| link_type_name(number).is_none()).collect();
        assert_eq!(unnamed, [208]);
    }
}
