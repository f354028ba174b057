//! Names of protocols for people. Flow records carry numbers.

/// Name of an IP protocol, or its number.
pub fn ip_protocol(number: u8) -> String {
    weir_fields::protocol_name(number).map_or_else(|| number.to_string(), String::from)
}

/// Name of an EtherType (IEEE registry), or its number. 0 stands for frames without one: LLC, PPP,
/// control frames of Cisco HDLC.
pub fn ethertype(number: u16) -> String {
    let name = match number {
        0 => "no EtherType",
        0x0800 => "ipv4",
        0x0806 => "arp",
        0x0842 => "wol",
        0x22f3 => "trill",
        0x8035 => "rarp",
        0x80f3 => "aarp",
        0x8137 => "ipx",
        0x86dd => "ipv6",
        0x8808 => "pause",
        0x8809 => "lacp",
        0x8863 => "pppoe",
        0x888e => "eapol",
        0x88cc => "lldp",
        0x88e5 => "macsec",
        0x88f7 => "ptp",
        0x8902 => "cfm",
        0x8906 => "fcoe",
        other => return format!("0x{other:04x}"),
    };
    name.into()
}

/// Number and name of a link type: `link type 127 IEEE802_11_RADIOTAP`.
pub fn link_type(number: u16) -> String {
    let name = weir_packet::link_type_name(number).map_or_else(String::new, |name| format!(" {name}"));
    format!("link type {number}{name}")
}
