//! Which fields of a flow record rules may use. A flow is decided once, so the value of a field must
//! not change any more.

use weir_fields::{Origin, column};

/// What is known of a field when a flow begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// From the first packet on.
    AtFirst,
    /// When inspection of the first payload has ended.
    Later,
    /// It changes as long as the flow lasts.
    Never,
}

/// Fields of the first packet.
const AT_FIRST: [&str; 32] = [
    "host",
    "port",
    "src_ip",
    "dst_ip",
    "src_port",
    "dst_port",
    "service_port",
    "server_ip",
    "client_ip",
    "protocol",
    "protocol_number",
    "ip_version",
    "vlan",
    "inner_vlan",
    "mpls",
    "mac",
    "src_mac",
    "dst_mac",
    "ethertype",
    "tunnel",
    "icmp_type",
    "interface",
    "community_id",
    "fwd_vlan_id",
    "fwd_inner_vlan_id",
    "fwd_mpls_label",
    "fwd_tunnel_type",
    "fwd_tunnel_id",
    "fwd_outer_src_ip",
    "fwd_outer_dst_ip",
    "fwd_icmp_type",
    "fwd_icmp_code",
];

/// Also of the first packet: what networks, databases and lists have of its addresses and interface.
const PLACES: [&str; 20] = [
    "as",
    "country",
    "interface_name",
    "src_network",
    "dst_network",
    "src_site",
    "dst_site",
    "src_role",
    "dst_role",
    "src_local",
    "dst_local",
    "src_country",
    "dst_country",
    "src_as",
    "dst_as",
    "src_as_org",
    "dst_as_org",
    "src_tags",
    "dst_tags",
    "tags",
];

/// Whether the value comes from enrichment.
pub(crate) fn is_place(field: &str) -> bool {
    PLACES.contains(&field)
}

pub(crate) fn known(field: &str) -> Known {
    if AT_FIRST.contains(&field) || is_place(field) {
        return Known::AtFirst;
    }
    match column(field) {
        Ok(column) if column.is_of(Origin::Inspection) => Known::Later,
        _ => Known::Never,
    }
}
