//! Expressions: what they select, and what the errors say.

use super::records::{dns, icmp, layer2, of_ipv6, vlans, web};
use std::sync::Arc;
use weir_flow::{Approximate, AutonomousSystem, FlowRecord, Place, Places};
use weir_query::{Expression, GroupField, Order, RecordOrder};

fn matches(expression: &str, flow: &FlowRecord) -> bool {
    match Expression::new(expression) {
        Ok(compiled) => compiled.matches(flow),
        Err(error) => panic!("{error}"),
    }
}

/// Expressions that match a record, and others that do not.
fn check(flow: &FlowRecord, matching: &[&str], others: &[&str]) {
    for expression in matching {
        assert!(matches(expression, flow), "{expression}");
        assert!(!matches(&format!("not ({expression})"), flow), "not {expression}");
    }
    for expression in others {
        assert!(!matches(expression, flow), "{expression}");
    }
}

#[test]
fn words_of_tcpdump_select_sides_ports_and_protocols() {
    check(
        &web(),
        &[
            "tcp",
            "ip",
            "inet",
            "proto tcp",
            "proto 6",
            "ip proto 6",
            "PROTO TCP",
            "proto {udp, tcp}",
            "protocol = tcp",
            "protocol != udp",
            "protocol in {17, 6}",
            "host 10.0.0.1",
            "ip 10.0.0.1",
            "host 198.51.100.20",
            "src host 10.0.0.1",
            "src 10.0.0.1",
            "src ip 10.0.0.1",
            "dst host 198.51.100.20",
            "net 10.0.0.0/8",
            "src net 10.0.0.0/8",
            "src or dst net 198.51.100.0/24",
            "src and dst net 0.0.0.0/0",
            "port 443",
            "dst port 443",
            "tcp port 443",
            "tcp dst port 443",
            "tcp and dst port 443",
            "ip and tcp && port 443",
            "port 80 or 443",
            "tcp port 80 or 443",
            "portrange 400-500",
            "port {80, 443, 8000-8100}",
            "port [80 443]",
            "port > 1024",
            "dst port < 1024",
            "src net 10.0.0.0/8 and port 443 and bytes > 1k and retransmitted > 0",
            "any",
        ],
        &[
            "udp",
            "ip6",
            "icmp",
            "vlan",
            "layer2",
            "proto 17",
            "src host 198.51.100.20",
            "dst net 10.0.0.0/8",
            "src and dst net 10.0.0.0/8",
            "src port 443",
            "udp port 443",
            "port 80 or 8080",
            "udp port 80 or 443",
            "ip6 host 10.0.0.1",
            "host 10.0.0.2",
            "not tcp",
            "! tcp",
        ],
    );
}

#[test]
fn fields_are_compared_by_name_with_units_ranges_and_sets() {
    check(
        &web(),
        &[
            "bytes = 3000",
            "bytes == 3k",
            "bytes != 3001",
            "bytes >= 3k and bytes <= 3000",
            "bytes < 3Ki",
            "bytes < 1MB",
            "bytes < 1.5MiB",
            "bytes in 2000-4000",
            "bytes in {1, 2000-4000}",
            "bytes not in {1, 2}",
            "bytes > 0xbb7",
            "fwd_bytes = 1000 and rev_bytes = 2000",
            "packets = 12",
            "duration = 2s",
            "duration = 2000ms",
            "duration_ns = 2000000000",
            "duration > 0 and duration < 1min",
            "src_ip = 10.0.0.1",
            "src_ip != 10.0.0.2",
            "src_ip in 10.0.0.0/8",
            "src_ip in {192.0.2.0/24, 10.0.0.0-10.0.0.9}",
            "src_ip not in 192.0.2.0/24",
            "server_ip = 198.51.100.20 and client_ip = 10.0.0.1 and service_port = 443",
            "start_time >= 2026-11-20T12:00:00Z",
            "start_time < '2026-11-20T12:00:01'",
            "start_time >= 2026-11-20",
            "end_reason = end",
            "end_reason = END",
            "end_reason starts-with e and end_reason ends-with d and end_reason contains n",
            "end_reason in {idle, end}",
            "end_reason != idle",
            "fwd_tcp_flags contains S",
            "fwd_tcp_flags contains ps",
            "fwd_tcp_flags = SAPF",
            "fwd_tcp_flags = fpas",
            "fwd_tcp_flags in {S, APFS}",
            "fwd_tcp_flags != SAP",
            "flags contains AS",
            "flags S",
            "flags SA",
            "flags = SAPF",
            "flags != S",
            "not flags N and not flags x and not flags Y and not flags Z",
            "src flags S and not dst flags P",
            "retransmitted = 2",
            "rtt = 3ms",
            "bps = 12000",
            "bpp = 250",
            "pps >= 5.5",
        ],
        &[
            "bytes < 3000",
            "bytes > 3000",
            "bytes > 3k",
            "bytes in {1, 2}",
            "bytes not in {3000}",
            "packets < 0",
            "packets > 18446744073709551615",
            "src_ip in 11.0.0.0/8",
            "src_ip in ::/0",
            "start_time < 2026-11-20T12:00:00+00:00",
            "flags R",
            "flags SR",
            "flags = SA",
            "flags = ''",
            "fwd_tcp_flags = AS",
            "fwd_tcp_flags contains AR",
            "duration > 2s",
        ],
    );
}

#[test]
fn a_field_that_does_not_apply_has_no_value_so_each_comparison_is_false() {
    check(
        &icmp(),
        &["icmp", "icmp-type 8", "not port 80", "not (port != 80)", "retransmitted = 0 or icmp"],
        &["port 80", "port != 80", "port not in {80}", "port >= 0", "rtt >= 0", "retransmitted = 0", "flags S"],
    );
    check(
        &layer2(),
        &["layer2", "mac 02:00:00:00:00:01", "src mac 02:00:00:00:00:01", "not ip and not ip6"],
        &["ip", "host 0.0.0.0", "proto 255", "dst mac 02:00:00:00:00:01"],
    );
}

#[test]
fn a_field_of_both_sides_differs_if_both_sides_differ() {
    check(
        &web(),
        &["port != 80", "host != 10.0.0.9", "port not in {80, 81}"],
        &["port != 443", "port != 40000", "host != 10.0.0.1"],
    );
    check(
        &vlans(),
        &["vlan", "vlan 7", "vlan 8", "vlan in {1, 8}", "inner_vlan 100", "vlan 7 or 9"],
        &["vlan 9", "vlan != 7", "mpls", "vlan 100"],
    );
}

#[test]
fn ipv4_and_ipv6_prefixes_do_not_mix() {
    check(
        &of_ipv6(),
        &["ip6", "src net 2001:db8::/32", "host 2001:db8::1", "net ::/0", "icmp6 or udp", "dst 2001:db8::2"],
        &["ip", "net 0.0.0.0/0", "host 10.0.0.1"],
    );
    check(&dns(), &["net 0.0.0.0/0", "udp port 53", "proto udp and service_port = 53"], &["net ::/0", "tcp"]);
}

#[test]
fn the_service_port_is_that_of_the_responder_unless_the_start_was_not_seen() {
    let mut flow = web();
    (flow.source_port, flow.destination_port) = (443, 50_000);
    check(&flow, &["service_port = 50000", "server_ip = 198.51.100.20"], &[]);
    (flow.forward.tcp_flags, flow.reverse.tcp_flags) = (0x10, 0x10);
    check(&flow, &["service_port = 443", "server_ip = 10.0.0.1", "client_ip = 198.51.100.20"], &[]);
    (flow.source_port, flow.destination_port) = (40_000, 50_000);
    check(&flow, &["service_port = 50000"], &[]);
}

#[test]
fn names_of_wireshark_have_hints_that_are_valid_expressions() {
    for (expression, meant) in [
        ("ip.addr == 10.1.0.11", "host 10.1.0.11"),
        ("ip.src==10.1.0.11", "src host 10.1.0.11"),
        ("ip.dst != 10.1.0.11", "not dst host 10.1.0.11"),
        ("ipv6.addr eq 2001:db8::1", "host 2001:db8::1"),
        ("tcp.port == 80", "tcp port 80"),
        ("tcp.srcport == 80 and udp", "tcp src port 80"),
        ("tcp.dstport eq 80", "tcp dst port 80"),
        ("udp.port == 53", "udp port 53"),
        ("http.host == \"www.example\"", "http_host = \"www.example\""),
        ("http.response.code >= 400", "http_status >= 400"),
        ("dns.qry.name == www.example", "dns_name = www.example"),
        ("tls.handshake.extensions_server_name != 'www.example'", "sni != 'www.example'"),
        ("eth.addr == 02:00:00:00:00:01", "mac 02:00:00:00:00:01"),
        ("eth.src == 02:00:00:00:00:01", "src mac 02:00:00:00:00:01"),
        ("vlan.id == 7", "vlan 7"),
        ("ip.proto == 47", "proto 47"),
    ] {
        let text = error(expression);
        let name = expression.split([' ', '=']).next().unwrap();
        assert_eq!(text.lines().next().unwrap(), format!("there is no field {name:?}; write {meant}"));
        assert!(Expression::new(meant).is_ok(), "{meant}");
    }
    assert!(error("ip.addr").starts_with("there is no field \"ip.addr\"; write host VALUE\n"));
    assert!(error("http.host").starts_with("there is no field \"http.host\"; write http_host = VALUE\n"));
    assert!(error("http.host contains x").starts_with("there is no field \"http.host\"; write http_host contains x\n"));
}

/// The error of an expression.
fn error(expression: &str) -> String {
    Expression::new(expression).expect_err(expression).to_string()
}

#[test]
fn errors_mark_the_place() {
    assert_eq!(
        error("src net 10.0.0.0/8 and byts > 1M"),
        "there is no field \"byts\"; did you mean bytes?\n  \
         src net 10.0.0.0/8 and byts > 1M\n                         ^^^^"
    );
    assert_eq!(error("tcp and"), "missing here: a condition, as in port 443 or bytes > 1M\n  tcp and\n         ^");
    // Control characters are not printed, and a long expression is cut.
    let long = format!("bytes > 1 and {} x\u{1b}[31m", "packets > 1 and ".repeat(50));
    let text = error(&long);
    assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.chars().count() < 150), "{text}");
}

#[test]
fn errors_name_what_is_missing_and_what_else_was_meant() {
    for (expression, place, sentence) in [
        ("bytes 5", 6, "missing here: an operator (= != < <= > >= in), as in bytes > 1M"),
        ("bytes >", 7, "missing here: a value of bytes (a number of octets)"),
        ("src bytes > 1", 4, "missing here: host, net, port, mac, as, country or an address"),
        (
            "sni endswith .example",
            4,
            "missing here: an operator (= != in starts-with ends-with contains), as in sni ends-with",
        ),
        ("end_reason idle", 11, "missing here: an operator (= != in starts-with ends-with contains)"),
        ("fwd_tcp_flags S", 14, "missing here: an operator (= != in contains), as in flags contains SA"),
        ("src_ip 10.0.0.1", 7, "missing here: an operator (= != in), as in src_ip = 192.0.2.0/24"),
        ("ether 02:00:00:00:00:01", 6, "missing here: src, dst or host, and a MAC address"),
        ("bytes eq", 6, "missing here: an operator"),
        ("443", 0, "there is no field \"443\"; write port 443"),
        ("10.1.0.11", 0, "there is no field \"10.1.0.11\"; write host 10.1.0.11"),
        ("tcp and 2001:db8::/32", 8, "there is no field \"2001:db8::/32\"; write net 2001:db8::/32"),
        ("02:00:00:00:00:01", 0, "there is no field \"02:00:00:00:00:01\"; write mac 02:00:00:00:00:01"),
    ] {
        assert_error(expression, place, sentence);
    }
}

/// Asserts that an expression is wrong at a place, and how the sentence begins.
fn assert_error(expression: &str, place: usize, sentence: &str) {
    let text = error(expression);
    assert!(text.starts_with(sentence), "{expression}: {text}");
    let mark = text.lines().last().unwrap();
    assert_eq!(mark.find('^').unwrap() - 2, place, "{expression}: {text}");
}

#[test]
fn errors_name_the_problem() {
    for (expression, place, sentence) in [
        ("", 0, "the expression is empty"),
        ("  ", 0, "the expression is empty"),
        ("ttl_min > 3", 0, "there is no field \"ttl_min\"; did you mean fwd_ttl_min or rev_ttl_min?"),
        ("foo", 0, "there is no field \"foo\" (weir fields lists all)"),
        ("bytes", 0, "0 is a value of bytes, too; compare it, as in bytes > 0"),
        ("not src_local", 4, "0 is a value of src_local, too; compare it, as in src_local > 0"),
        ("tcp and TLS", 8, "there is no field \"tls\"; for the application write application = tls"),
        ("sni is null", 4, "for flows in which sni has a value write sni, for the others not sni"),
        (
            "application exists",
            12,
            "for flows in which application has a value write application, for the others not app",
        ),
        ("application = ''", 14, "application has no empty value; for flows without a value write not application"),
        ("approximate = ''", 14, "approximate has no empty value; for flows without a value write not approximate"),
        ("bytes > many", 8, "\"many\" is not a number, and bytes is a number of octets"),
        ("bytes > 1x", 8, "\"x\" is not a unit of bytes; use k, M, G, T (decimal) or Ki, Mi, Gi, Ti (binary)"),
        ("bytes > 10s", 8, "bytes is a number of octets: it has no unit \"s\""),
        ("bytes > -1", 8, "\"-1\" is not a number"),
        ("bytes > 0.5", 8, "bytes has whole numbers only"),
        ("bytes > 1-5", 8, "> takes one value; for several write bytes in {…}"),
        ("bytes in 5-1", 9, "the range is empty"),
        ("bytes in {}", 9, "the set is empty"),
        ("bytes in {1, 2", 9, "the set is not closed"),
        ("bytes > 1 2", 10, "\"2\" is too much here"),
        ("dst_port = 10.0.0.0/8", 11, "dst_port is a port, not an address: it has no prefix"),
        ("port 10.0.0.0/8", 5, "port is a port, not an address: it has no prefix"),
        ("port 443k", 5, "port is a port: it has no unit \"k\""),
        ("port 65536", 5, "the number is too large: port is at most 65535"),
        ("port https", 5, "\"https\" is not a number, and port is a port, from 0 to 65535"),
        ("port 1.2.3.4", 5, "\"1.2.3.4\" is not a number, and port is a port, from 0 to 65535"),
        ("vlan 4096", 5, "the number is too large: vlan is at most 4095"),
        ("src_ip = 10M", 9, "src_ip is an address: it has no unit \"M\""),
        ("src_ip > 10.0.0.1", 7, "src_ip is an address; > needs a number"),
        ("src_ip = 10.0.0.256", 9, "\"10.0.0.256\" is not an address, which src_ip is"),
        ("net 10.0.0.1/8", 4, "10.0.0.1/8 has set bits behind its first 8 bits; write 10.0.0.0/8"),
        ("net 10.0.0.0/33", 4, "an IPv4 prefix has at most 32 bits"),
        ("net ::/129", 4, "an IPv6 prefix has at most 128 bits"),
        ("src_ip in 10.0.0.1-::1", 10, "the addresses of a range must both be IPv4 or both IPv6"),
        ("duration > 5", 11, "duration needs a unit of time, as in 5s"),
        ("duration > 5k", 11, "\"k\" is not a unit of duration; use ns, us, ms, s, m, h or d"),
        ("start_time > yesterday", 13, "\"yesterday\" is not a time; write for example 2026-11-20T12:00:00Z"),
        ("proto tpc", 6, "there is no protocol \"tpc\"; write a number, or a name as in tcp; did you mean tcp?"),
        ("proto 256", 6, "the number is too large: protocol is at most 255"),
        ("flags SQ", 6, "'Q' is not a TCP flag; letters are S A P F R U E C N X Y Z, as in SA"),
        ("fwd_tcp_flags = SQ", 16, "'Q' is not a TCP flag"),
        ("fwd_tcp_flags starts-with S", 14, "fwd_tcp_flags is a set of TCP flags; starts-with is for text"),
        ("end_reason = foo", 13, "end_reason has no value \"foo\"; there are idle, active, end, forced, resources\n"),
        ("end_reason in {idle, forcd}", 21, "end_reason has no value \"forcd\"; did you mean forced?; there are idle,"),
        ("end_reason contains x", 20, "end_reason has no value \"x\"; there are"),
        ("end_reason ends-with for", 21, "end_reason has no value \"for\"; "),
        ("tcp and tunnel gpu", 15, "tunnel has no value \"gpu\"; did you mean gtpu?; there are gre, ipip, 6in4"),
        ("fwd_tunnel_type != vxlna", 19, "fwd_tunnel_type has no value \"vxlna\"; did you mean vxlan?"),
        ("approximate = 'overflow mixed'", 14, "approximate has no value \"mixed\"; did you mean mixed_"),
        ("rev_tcp_degraded = hole", 19, "rev_tcp_degraded has no value \"hole\"; did you mean holes?"),
        ("protocol = TPC", 11, "there is no protocol \"TPC\"; write a number, or a name as in tcp; did you mean tcp?"),
        ("flags > S", 6, "flags is a set of TCP flags; > needs a number"),
        ("bytes contains 1", 6, "bytes is a number of octets; contains is for text"),
        ("end_reason = 'end", 13, "the quote is not closed"),
        ("tcp or udp and port 53", 11, "and beside or needs parentheses"),
        ("(tcp", 0, "the parenthesis is not closed"),
        ("tcp)", 3, "\")\" is too much here"),
        ("tcp & udp", 4, "'&' has no meaning here; write && or and"),
        ("tcp; drop", 3, "';' has no meaning here"),
        ("ümlaut", 0, "'ü' has no meaning here"),
        (
            "udp and greater 100",
            8,
            "greater is about the length of a packet, which a flow does not have; select packets with",
        ),
        (
            "less 100",
            0,
            "less is about the length of a packet, which a flow does not have; select packets with -f 'less N'",
        ),
        ("ether src 10.0.0.1", 10, "\"10.0.0.1\" is not a MAC address, which mac is"),
        ("port eq", 5, "\"eq\" is not a number"),
        ("src as AS5", 7, "\"AS5\" is not a number, and as is a number, from 0 to 4294967295"),
        ("tcp and\n\tbyts > 1", 9, "there is no field \"byts\"; did you mean bytes?"),
    ] {
        assert_error(expression, place, sentence);
    }
}

#[test]
fn a_star_in_a_part_of_a_text_is_an_error_without_quotes() {
    for operator in ["starts-with", "ends-with", "contains"] {
        let text = error(&format!("sni {operator} *.example"));
        assert!(text.starts_with("'*' is compared as a letter; leave it out, or write the part in quotes"), "{text}");
        assert!(format!("sni {operator} '*.example'").parse::<Expression>().is_ok());
    }
}

#[test]
fn sets_of_words_are_compared_in_any_order() {
    let mut flow = web();
    flow.approximate = Approximate(Approximate::OVERFLOW | Approximate::FRAGMENTS);
    check(
        &flow,
        &[
            "approximate = 'overflow fragments'",
            "approximate = 'Fragments overflow'",
            "approximate contains overflow",
            "approximate contains frag",
            "approximate != overflow",
            "approximate in {sampled, 'fragments overflow'}",
        ],
        &["approximate = overflow", "approximate contains sampled", "approximate starts-with fragments"],
    );
    check(&web(), &["not approximate contains overflow"], &["approximate = overflow", "approximate != overflow"]);
}

#[test]
fn length_and_depth_are_limited() {
    let nested = |depth: usize| format!("{}tcp{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Expression::new(&nested(64)).is_ok());
    assert!(error(&nested(65)).starts_with("parentheses and not are nested deeper than 64"));
    assert!(error(&format!("{} tcp", "not ".repeat(1000))).starts_with("parentheses and not"));
    assert!(error(&"x".repeat(65_537)).starts_with("the expression is longer than 65536 octets"));
    let set = format!("host in {{{}}}", (0..4000).map(|n| format!("10.0.{}.{} ", n >> 8, n & 255)).collect::<String>());
    assert!(matches(&set, &web()));
}

/// As [`web`], with the places of `--geo` and `--tags`.
fn placed() -> FlowRecord {
    let place = |country: &[u8; 2], number| Place {
        country: Some(*country),
        autonomous_system: Some(Arc::new(AutonomousSystem { number, organization: None })),
        ..Place::default()
    };
    let places = Places {
        source: place(b"LT", 64_500),
        destination: place(b"DE", 3320),
        tags: None,
        interface: None,
        has_geo: true,
    };
    FlowRecord { places: Some(Arc::new(places)), ..web() }
}

#[test]
fn words_of_nfdump_and_tcpdump_for_operators_systems_and_mac_addresses() {
    check(
        &placed(),
        &[
            "port eq 443",
            "dst port EQ 443 and bytes gt 1 and packets lt 1G",
            "dst_port ne 80 and bytes ge 1 and packets le 1G",
            "src as 64500",
            "dst as 3320",
            "as 3320 and tcp src as 64500",
            "src or dst as {3320, 1}",
            "as = 64500",
            "src as lt 64501",
            "src country LT",
            "src country eq LT and country DE",
            "src_country = lt",
            "country and as and dst_country",
            "country in {FR, DE}",
            "tcp and\n\r\n\x0b port\n443",
        ],
        &["src as 3320", "src and dst as 64500", "dst country LT", "port eq 80", "as 1", "country de-"],
    );
    check(&web(), &[], &["as >= 0", "country != DE", "as", "country"]);
    check(
        &layer2(),
        &["ether host 02:00:00:00:00:01", "ether src 02:00:00:00:00:01", "ETHER SRC HOST 02:00:00:00:00:01"],
        &["ether dst 02:00:00:00:00:01", "ether host 02:00:00:00:00:09"],
    );
}

#[test]
fn an_expression_names_its_fields_and_tags() {
    let expression =
        Expression::new("(src mac 02:00:00:00:00:01 or not tags = bad) and src_tags in {x, y} and port 80").unwrap();
    assert_eq!(expression.fields(), ["mac", "tags", "src_tags", "port"]);
    let tags = |expression: &Expression| -> Vec<(&str, String, Vec<bool>)> {
        let lists = ["bad", "x", "badly"];
        let tags = expression.tags();
        tags.iter().map(|tag| (tag.field, tag.text.into(), lists.map(|list| tag.matches(list)).into())).collect()
    };
    let of = |field, text: &str, lists: [bool; 3]| (field, text.into(), lists.into());
    let expected = [
        of("tags", "bad", [true, false, false]),
        of("src_tags", "x", [false, true, false]),
        of("src_tags", "y", [false, false, false]),
    ];
    assert_eq!(tags(&expression), expected);
    for (operator, expected) in [
        ("contains ad", [true, false, true]),
        ("starts-with bad", [true, false, true]),
        ("ends-with ly", [false, false, true]),
    ] {
        let expression = Expression::new(&format!("dst_tags {operator} and sni contains a")).unwrap();
        assert_eq!(tags(&expression), [of("dst_tags", operator.split_once(' ').unwrap().1, expected)]);
    }
}

#[test]
fn an_expression_is_decided_as_far_as_the_known_fields_decide_it() {
    let known = ["host", "src_ip", "port", "protocol"];
    for (expression, of_web, only) in [
        ("any", Some(true), true),
        ("port 443", Some(true), true),
        ("port 80", Some(false), true),
        ("not port 80 and tcp", Some(true), true),
        ("src port 443", Some(false), false),
        ("bytes > 1", None, false),
        ("not bytes > 1", None, false),
        ("port 443 and bytes > 1", None, false),
        ("port 80 and bytes > 1", Some(false), false),
        ("bytes > 1 or port 443", Some(true), false),
        ("bytes > 1 or port 80", None, false),
        ("not (bytes > 1 and port 80)", Some(true), false),
    ] {
        let compiled = Expression::new(expression).unwrap();
        let decided = compiled.matches_by(&known, &web());
        assert_eq!(decided, of_web, "{expression}");
        assert!(decided.is_none_or(|decided| decided == compiled.matches(&web())), "{expression}");
        assert_eq!(compiled.compares_only(&["host", "port", "protocol"]), only, "{expression}");
    }
}

#[test]
fn a_protocol_before_a_word_without_a_value_counts() {
    check(&web(), &["port", "tcp port", "ip host", "tcp flags", "protocol", "ip proto"], &["udp port", "ip6 host"]);
    check(&web(), &["ip proto tcp"], &["ip6 proto tcp", "udp proto tcp"]);
}

#[test]
fn every_name_that_is_listed_can_be_compared_grouped_selected_and_if_a_number_sorted() {
    let columns = weir_fields::columns().iter().map(|column| column.name);
    let listed: Vec<&str> = columns.chain(weir_fields::words().map(|(word, _)| word.name)).collect();
    assert!(["rtt", "response", "server_ip", "host", "ip_version"].iter().all(|name| listed.contains(name)));
    for name in listed.into_iter().chain(["app"]) {
        let field = weir_fields::field(name).unwrap();
        let condition = if field.is_count() { format!("{name} > 0") } else { name.into() };
        assert!(Expression::new(&condition).is_ok(), "{condition}: {}", Expression::new(&condition).err().unwrap());
        assert!(name.parse::<GroupField>().is_ok(), "--by {name}");
        assert!(weir_fields::select_columns(name).is_ok_and(|columns| !columns.is_empty()), "--fields {name}");
        let order: Order = name.parse().unwrap();
        assert_eq!(RecordOrder::new(&order).is_ok(), field.kind.is_ordered(), "--sort {name}");
    }
}
