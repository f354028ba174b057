//! Numbers of link types: LINKTYPE in captures; `DLT_` where libpcap, or some systems, have another.

pub const NULL: u16 = 0; pub const ETHERNET: u16 = 1; pub const PPP: u16 = 9; pub const DLT_ATM_RFC1483: u16 = 11;
pub const DLT_RAW: u16 = 12; pub const DLT_RAW_OPENBSD: u16 = 14; pub const PPP_HDLC: u16 = 50;
pub const ATM_RFC1483: u16 = 100; pub const RAW: u16 = 101; pub const C_HDLC: u16 = 104; pub const LOOP: u16 = 108;
pub const LINUX_SLL: u16 = 113; pub const IPV4: u16 = 228; pub const IPV6: u16 = 229; pub const NFLOG: u16 = 239;
pub const LINUX_SLL2: u16 = 276;

/// Link types for which a new filter expression is tried, in this order, until libpcap accepts it.
pub const CHECKED: [u16; 14] = [ETHERNET, RAW, LINUX_SLL, LINUX_SLL2, NULL, LOOP, DLT_RAW, IPV4, IPV6, PPP, PPP_HDLC,
    C_HDLC, NFLOG, ATM_RFC1483];
