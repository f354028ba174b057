//! Functions of SQL for flows, with the names of protocols and services.

use crate::library::OLDEST_VERSION;
use crate::tokens::quoted_text;
use weir_fields::protocol_name;

/// Functions that need no table.
const FUNCTIONS: &str = include_str!("macros.sql");

/// Services with a port of their own (IANA, and what is usual), and their protocols.
#[rustfmt::skip]
const SERVICES: &[(u16, &str, &str)] = &[
    (20, "tcp", "ftp-data"), (21, "tcp", "ftp"), (22, "tcp", "ssh"), (23, "tcp", "telnet"), (25, "tcp", "smtp"),
    (43, "tcp", "whois"), (49, "tcp", "tacacs"), (53, "tcp udp", "domain"), (67, "udp", "bootps"),
    (68, "udp", "bootpc"), (69, "udp", "tftp"), (80, "tcp", "http"), (88, "tcp udp", "kerberos"), (110, "tcp", "pop3"),
    (111, "tcp udp", "sunrpc"), (119, "tcp", "nntp"), (123, "udp", "ntp"), (135, "tcp", "epmap"),
    (137, "udp", "netbios-ns"), (138, "udp", "netbios-dgm"), (139, "tcp", "netbios-ssn"), (143, "tcp", "imap"),
    (161, "udp", "snmp"), (162, "udp", "snmptrap"), (179, "tcp", "bgp"), (194, "tcp", "irc"),
    (389, "tcp udp", "ldap"), (443, "tcp udp", "https"), (445, "tcp", "microsoft-ds"), (465, "tcp", "submissions"),
    (500, "udp", "isakmp"), (502, "tcp", "mbap"), (514, "udp", "syslog"), (515, "tcp", "printer"),
    (520, "udp", "router"), (546, "udp", "dhcpv6-client"), (547, "udp", "dhcpv6-server"), (554, "tcp", "rtsp"),
    (587, "tcp", "submission"), (623, "udp", "asf-rmcp"), (631, "tcp udp", "ipp"), (636, "tcp", "ldaps"),
    (853, "tcp udp", "domain-s"), (873, "tcp", "rsync"), (989, "tcp", "ftps-data"), (990, "tcp", "ftps"),
    (993, "tcp", "imaps"), (995, "tcp", "pop3s"), (1080, "tcp", "socks"), (1194, "tcp udp", "openvpn"),
    (1433, "tcp", "ms-sql-s"), (1521, "tcp", "oracle"), (1723, "tcp", "pptp"), (1812, "udp", "radius"),
    (1813, "udp", "radius-acct"), (1883, "tcp", "mqtt"), (1900, "udp", "ssdp"), (2049, "tcp udp", "nfs"),
    (2055, "udp", "netflow"), (2181, "tcp", "zookeeper"), (3128, "tcp", "squid"), (3268, "tcp", "msft-gc"),
    (3306, "tcp", "mysql"), (3389, "tcp udp", "ms-wbt-server"), (3478, "tcp udp", "stun"), (4500, "udp", "ipsec-nat-t"),
    (4739, "tcp udp", "ipfix"), (4789, "udp", "vxlan"), (5060, "tcp udp", "sip"), (5061, "tcp", "sips"),
    (5201, "tcp udp", "iperf3"), (5222, "tcp", "xmpp-client"), (5269, "tcp", "xmpp-server"), (5353, "udp", "mdns"),
    (5355, "udp", "llmnr"), (5432, "tcp", "postgresql"), (5671, "tcp", "amqps"), (5672, "tcp", "amqp"),
    (5900, "tcp", "rfb"), (5985, "tcp", "wsman"), (6081, "udp", "geneve"), (6343, "udp", "sflow"),
    (6379, "tcp", "redis"), (6443, "tcp", "kubernetes"), (8080, "tcp", "http-alt"), (8443, "tcp", "https-alt"),
    (8883, "tcp", "secure-mqtt"), (9000, "tcp", "clickhouse"), (9042, "tcp", "cassandra"), (9090, "tcp", "prometheus"),
    (9092, "tcp", "kafka"), (9200, "tcp", "elasticsearch"), (11211, "tcp udp", "memcache"), (27017, "tcp", "mongodb"),
    (51820, "udp", "wireguard"),
];

/// The usual service of a port, of a protocol (`tcp`, `udp`) or of any: `https` of 443.
pub fn port_name(port: u16, protocol: Option<&str>) -> Option<&'static str> {
    let has = |protocols: &str| protocol.is_none_or(|wanted| protocols.split(' ').any(|of| of == wanted));
    SERVICES.iter().find(|(of, protocols, _)| *of == port && has(protocols)).map(|(.., name)| *name)
}

/// The statements that make all functions. DuckDB's own shell reads them, too.
pub fn macros() -> String {
    let services = |protocol| {
        let of_protocol = SERVICES.iter().filter(move |(_, protocols, _)| protocols.split(' ').any(|p| p == protocol));
        case("port", of_protocol.map(|(port, _, name)| (port.to_string(), quoted_text(name))))
    };
    let known = || (0..=u8::MAX).filter_map(|number| Some((number, protocol_name(number)?)));
    let names =
        case("try_cast(number as integer)", known().map(|(number, name)| (number.to_string(), quoted_text(name))));
    let numbers = case("name::varchar", known().map(|(number, name)| (quoted_text(name), number.to_string())));
    format!(
        "-- Functions for flows: protocols, services, networks and Community IDs.
-- They work in DuckDB {OLDEST_VERSION} and later: duckdb -init weir.sql

-- Names and numbers of IP protocols: protocol_name(6) is tcp, protocol_number('tcp') is 6.
create or replace macro protocol_name(number) as
    coalesce({names}, number::varchar);
create or replace macro protocol_number(name) as
    coalesce(try_cast(name as utinyint)::integer, {numbers});

-- The usual service of a port: port_name(443, 'tcp') is https.
create or replace macro port_name(port, protocol) as
    case protocol
    when 'tcp' then {tcp}
    when 'udp' then {udp} end;

{FUNCTIONS}",
        tcp = services("tcp"),
        udp = services("udp"),
    )
}

/// `case VALUE when A then B … end`.
fn case(value: &str, pairs: impl Iterator<Item = (String, String)>) -> String {
    let pairs: Vec<_> = pairs.map(|(when, then)| format!("when {when} then {then}")).collect();
    format!("case {value} {} end", pairs.join(" "))
}
