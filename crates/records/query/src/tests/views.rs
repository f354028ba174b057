//! Aggregation: the sums of the groups equal those of a sort of all records.

use super::records::{START, dns, icmp, layer2, of_ipv6, vlans, web};
use std::collections::BTreeMap;
use weir_export::ViewFormat;
use weir_fields::SumField;
use weir_flow::FlowRecord;
use weir_packet::ipv4_mapped;
use weir_query::{GroupField, Metric, Order, Row, Sums, View, ViewSettings};

fn settings(fields: &[&str]) -> ViewSettings {
    let fields = fields.iter().map(|field| field.parse().unwrap()).collect();
    ViewSettings { fields, groups: 1 << 20, ..ViewSettings::default() }
}

fn view(settings: ViewSettings, flows: &[FlowRecord]) -> View {
    let mut view = View::new(settings).unwrap();
    flows.chunks(100).for_each(|flows| view.add(flows));
    view
}

/// The texts of the key of a row.
fn texts(fields: &[GroupField], row: &Row) -> Vec<String> {
    let text = |(field, value): (&GroupField, _)| {
        let mut text = Vec::new();
        field.append_text(value, &mut text);
        String::from_utf8(text).unwrap()
    };
    fields.iter().zip(&row.key).map(text).collect()
}

/// Key, flows, packets and octets of the rows.
fn figures(view: &View) -> Vec<(String, u64, [u64; 2], [u64; 2])> {
    let fields = &view.settings().fields;
    view.rows()
        .iter()
        .map(|row| (texts(fields, row).join(" "), row.sums.flows, row.sums.packets, row.sums.bytes))
        .collect()
}

/// Records of hosts and ports that a simple generator chooses.
fn many(count: u64) -> Vec<FlowRecord> {
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 17) % below
    };
    let record = |_| {
        let mut flow = web();
        flow.source = ipv4_mapped([10, 0, random(3) as u8, random(40) as u8]);
        flow.destination = ipv4_mapped([10, 0, random(3) as u8, random(40) as u8]);
        (flow.source_port, flow.destination_port) = (40_000 + random(100) as u16, [53, 80, 443][random(3) as usize]);
        for direction in [&mut flow.forward, &mut flow.reverse] {
            direction.packets = 1 + random(100);
            direction.bytes = direction.packets * (40 + random(1400)) + random(7);
            direction.frame_bytes = direction.bytes + 14 * direction.packets;
            direction.first_ns = START + random(60_000_000_000);
            direction.last_ns = direction.first_ns + random(25_000_000_000) * random(2);
        }
        flow
    };
    (0..count).map(record).collect()
}

fn sum(rows: &[Row]) -> (u64, u64, u64, u64) {
    let add = |sum: (u64, u64, u64, u64), row: &Row| {
        let sums = row.sums;
        (sum.0 + sums.flows, sum.1 + sums.all_packets(), sum.2 + sums.all_bytes(), sum.3 + sums.l2_bytes)
    };
    rows.iter().fold((0, 0, 0, 0), add)
}

fn of(sums: &Sums) -> (u64, u64, u64, u64) {
    (sums.flows, sums.all_packets(), sums.all_bytes(), sums.l2_bytes)
}

#[test]
fn groups_have_the_sums_of_their_records_and_the_largest_is_the_first() {
    let flows = [web(), dns(), web(), icmp(), layer2()];
    assert_eq!(
        figures(&view(settings(&["src_ip", "service_port"]), &flows)),
        [
            ("10.0.0.1 443".into(), 2, [10, 14], [2000, 4000]),
            ("10.0.0.1 53".into(), 1, [1, 1], [60, 120]),
            ("10.0.0.1 ".into(), 1, [1, 0], [84, 0]),
            (" ".into(), 1, [1, 0], [0, 0]),
        ]
    );
    let rows = view(settings(&["protocol"]), &flows).rows();
    let tcp = rows[0].sums;
    assert_eq!((tcp.segments, tcp.retransmitted), (20, 4));
    assert_eq!((tcp.retransmitted_share(), tcp.rtt_mean_ns(), tcp.rtt_max_ns), (Some(0.2), Some(3_000_000), 3_000_000));
    assert_eq!((tcp.first_ns, tcp.last_ns), (START, START + 2_000_000_000));
}

#[test]
fn a_record_is_in_the_groups_of_both_hosts_and_counts_once_in_the_total() {
    let mut itself = dns();
    itself.destination = itself.source;
    let view = view(settings(&["host"]), &[web(), dns(), itself]);
    assert_eq!(
        figures(&view),
        [
            // What it sent to itself it has received.
            ("10.0.0.1".into(), 3, [8, 10], [1240, 2300]),
            ("198.51.100.20".into(), 1, [7, 5], [2000, 1000]),
            ("10.0.0.53".into(), 1, [1, 1], [120, 60]),
        ]
    );
    let itself = view.rows()[0].sums;
    assert_eq!((itself.all_packets(), itself.all_bytes()), (16, 3360));
    assert_eq!(of(view.total()), (3, 16, 3360, 3360 + 14 * 16));
}

#[test]
fn addresses_are_grouped_by_prefix() {
    let prefixes =
        |field: &str| figures(&view(settings(&[field]), &[web(), dns(), of_ipv6()])).into_iter().map(|row| row.0);
    assert_eq!(prefixes("src_ip/24").collect::<Vec<_>>(), ["10.0.0.0/24", "2001:db8::/64"]);
    assert_eq!(prefixes("dst_ip/0/0").collect::<Vec<_>>(), ["0.0.0.0/0", "::/0"]);
    assert_eq!(prefixes("host/32/128").count(), 5);
    assert_eq!(figures(&view(settings(&["vlan"]), &[vlans()]))[0].0, "7");
}

#[test]
fn sums_equal_those_of_a_sort_of_all_records() {
    let flows = many(5000);
    let mut expected: BTreeMap<(String, u16), (u64, u64, u64)> = BTreeMap::new();
    for flow in &flows {
        let entry = expected.entry((flow.destination_ip().unwrap().to_string(), flow.destination_port)).or_default();
        *entry = (entry.0 + 1, entry.1 + flow.packets(), entry.2 + flow.bytes());
    }
    let view = view(settings(&["dst_ip", "dst_port"]), &flows);
    let rows = view.rows();
    let found = rows.iter().map(|row| {
        let key = texts(&view.settings().fields, row);
        let sums = row.sums;
        ((key[0].clone(), key[1].parse().unwrap()), (sums.flows, sums.all_packets(), sums.all_bytes()))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row.sums.all_bytes())));
    assert_eq!(sum(&rows), of(view.total()));
}

#[test]
fn the_first_rows_are_those_of_all_rows_and_the_others_are_summed_up() {
    let view = view(settings(&["src_ip", "src_port"]), &many(3000));
    let rows = view.rows();
    for limit in [0, 1, 7, rows.len() - 1, rows.len(), usize::MAX] {
        let (first, others) = view.first_rows(limit);
        let keys = |rows: &[Row]| rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&first), keys(&rows[..limit.min(rows.len())]));
        let rest = sum(&rows[first.len()..]);
        assert_eq!(of(&others.sums), rest);
    }
}

#[test]
fn the_first_groups_have_the_same_intervals_as_among_all_and_the_others_share_a_row() {
    const EVERY_NS: u64 = 10_000_000_000;
    let flows = many(3000);
    for (fields, most) in [(&["src_ip"][..], 3), (&["host"], 5), (&["src_ip", "vlan"], 0), (&["dst_port"], 7)] {
        let whole = view(settings(fields), &flows);
        let all = view(ViewSettings { every_ns: Some(EVERY_NS), ..settings(fields) }, &flows);
        let mut few = whole.of_first_groups(most, EVERY_NS, 1 << 20);
        for flows in flows.chunks(1000) {
            let mut part = whole.of_first_groups(most, EVERY_NS, 1 << 20);
            part.reserve();
            part.add(flows);
            few.merge(&part);
        }
        // Without the number of groups that a row sums up: of the whole time, and of the interval.
        let rows = |view: &View| {
            let mut text = Vec::new();
            view.append_rows(ViewFormat::Csv, most, &mut text);
            let line = |line: &str| {
                let mut cells: Vec<String> = line.split(',').map(String::from).collect();
                (cells.remove(1 + fields.len()) == "0", cells)
            };
            String::from_utf8(text).unwrap().lines().skip(1).map(line).collect::<Vec<_>>()
        };
        assert_eq!(rows(&few), rows(&all), "{fields:?}");
        assert!(rows(&few).iter().any(|(is_group, _)| *is_group) == (most > 0), "{fields:?}");
    }
}

#[test]
fn groups_that_do_not_fit_are_summed_up_as_others() {
    let flows = many(5000);
    let view = view(ViewSettings { groups: 50, ..settings(&["src_ip", "src_port"]) }, &flows);
    assert_eq!((view.groups(), view.others().is_some_and(|others| others.flows > 0)), (50, true));
    let (kept, others, total) = (sum(&view.rows()), of(view.others().unwrap()), of(view.total()));
    assert_eq!((kept.0 + others.0, kept.1 + others.1, kept.2 + others.2, kept.3 + others.3), total);
    assert!(view.memory_bytes() < 50_000);
}

#[test]
fn groups_take_at_most_the_memory_that_is_counted_for_them() {
    let flows = many(5000);
    for groups in [1, 50, 1000, 1024, 3000, 1 << 20] {
        let view = view(ViewSettings { groups, ..settings(&["src_ip", "src_port", "dst_ip"]) }, &flows);
        let (bytes, most) = (view.memory_bytes() as u64, view.settings().max_memory_bytes());
        assert!(view.groups() <= groups && bytes <= most + 1000, "{groups}: {bytes} {most}");
        assert!(view.groups() < groups || groups < 1000 || bytes > most * 9 / 10, "{groups}: {bytes} {most}");
    }
}

#[test]
fn parts_of_records_that_do_not_fit_are_others_although_the_record_is_not() {
    let view = view(ViewSettings { every_ns: Some(1_000_000_000), groups: 1, ..settings(&[]) }, &[web()]);
    let others = view.others().unwrap();
    assert_eq!((others.flows, view.groups()), (0, 1));
    assert_eq!(others.all_bytes() + view.rows()[0].sums.all_bytes(), web().bytes());
}

#[test]
fn a_time_line_has_all_octets_also_of_records_that_span_intervals() {
    let flows = many(3000);
    for every_ns in [1_000_000_000, 10_000_000_000, 777_777_777] {
        let view = view(ViewSettings { every_ns: Some(every_ns), ..settings(&[]) }, &flows);
        let rows = view.rows();
        assert_eq!(sum(&rows), of(view.total()));
        assert!(rows.is_sorted_by_key(|row| row.start_ns) && view.spread_flows() > 100);
        for row in &rows {
            let start_ns = row.start_ns.unwrap();
            assert!(
                start_ns % every_ns == 0 && row.sums.first_ns >= start_ns && row.sums.last_ns <= start_ns + every_ns
            );
        }
        let starts = |row: &Row| {
            let start_ns = row.start_ns.unwrap();
            flows.iter().filter(move |flow| flow.start_ns() / every_ns * every_ns == start_ns)
        };
        assert!(rows.iter().all(|row| row.sums.flows == starts(row).count() as u64));
        let exact: u64 = rows.iter().map(|row| row.sums.spread_bytes).sum();
        let spread = flows.iter().filter(|flow| flow.start_ns() / every_ns != flow.end_ns() / every_ns);
        assert_eq!(exact, spread.map(FlowRecord::bytes).sum::<u64>());
    }
}

#[test]
fn a_record_without_an_end_in_sight_counts_at_its_start() {
    let mut flow = web();
    flow.reverse.last_ns = flow.forward.first_ns + 3_600_000_000_000;
    let view = view(ViewSettings { every_ns: Some(1000), ..settings(&[]) }, &[flow]);
    assert_eq!((view.groups(), view.spread_flows(), view.rows()[0].sums.spread_bytes), (1, 1, 3000));
}

#[test]
fn series_have_the_sums_of_all_intervals() {
    let flows = many(2000);
    let view = view(ViewSettings { every_ns: Some(5_000_000_000), ..settings(&["host"]) }, &flows);
    let whole = self::view(settings(&["host"]), &flows);
    let (series, rows) = (view.series(), whole.rows());
    assert_eq!(series.len(), rows.len());
    for (series, row) in series.iter().zip(&rows) {
        assert_eq!((series.key.len(), of(&series.sums)), (1, of(&row.sums)));
        assert_eq!(series.intervals.iter().map(|&(_, bytes)| bytes).sum::<u64>(), row.sums.all_bytes());
    }
}

#[test]
fn sums_that_are_asked_for_have_names_of_their_own_and_are_in_all_rows_together_once() {
    let flows = many(2000);
    for sum in SumField::all() {
        let is_taken = Metric::ALL.iter().any(|metric| [metric.name(), metric.name_of_side()].contains(&sum.name()));
        assert!(!is_taken, "{sum:?}");
    }
    let sum: SumField = "server_rtt_count".parse().unwrap();
    for every_ns in [None, Some(1_000_000_000)] {
        for groups in [20, 1 << 20] {
            let order = Some("server_rtt_mean_ns".parse().unwrap());
            let wanted = ViewSettings { sums: vec![sum], every_ns, groups, order, ..settings(&["dst_ip"]) };
            let view = view(wanted, &flows);
            assert_eq!(view.settings().sums.len(), 2, "that of the order is one, too");
            let rows = view.rows().into_iter().chain(view.others_row());
            let all: u64 = rows.map(|row| row.amounts[0].records).sum();
            assert_eq!((all, view.total_row().amounts[0].records), (2000, 2000), "{every_ns:?} {groups}");
        }
    }
}

#[test]
fn rows_are_sorted_by_any_number_or_field() {
    let flows = many(500);
    let order = |text: &str| Some(text.parse::<Order>().unwrap());
    for metric in Metric::ALL {
        for (suffix, ascending) in [("", false), (":desc", false), (":asc", true)] {
            let name = format!("{}{suffix}", metric.name());
            let rows = view(ViewSettings { order: order(&name), ..settings(&["host"]) }, &flows).rows();
            let values: Vec<String> = rows.iter().map(|row| format!("{:>40}", metric.value(&row.sums))).collect();
            let is_sorted = if ascending { values.is_sorted() } else { values.is_sorted_by(|one, other| one >= other) };
            assert!(is_sorted || metric == Metric::RetransmittedShare, "{name}: {values:?}");
        }
    }
    let ports = view(ViewSettings { order: order("dst_port:asc"), ..settings(&["dst_port"]) }, &flows);
    assert_eq!(figures(&ports).into_iter().map(|row| row.0).collect::<Vec<_>>(), ["53", "80", "443"]);
}

#[test]
fn invalid_fields_and_orders_are_refused() {
    for (field, error) in [
        ("byts", "there is no field \"byts\"; did you mean bytes?"),
        ("", "there is no field \"\""),
        ("dst_port/8", "dst_port is not an address: it has no prefix"),
        ("src_ip/33", "\"33\" is not a prefix length: write FIELD/24, or FIELD/24/48"),
        ("src_ip/24/129", "\"24/129\" is not a prefix length"),
        ("src_ip/", "\"\" is not a prefix length"),
    ] {
        let found = field.parse::<GroupField>().unwrap_err().to_string();
        assert!(found.starts_with(error), "{field}: {found}");
    }
    assert!("bytes:up".parse::<Order>().unwrap_err().to_string().starts_with("\"up\" is no direction"));
    let order = Some("host".parse().unwrap());
    let error = View::new(ViewSettings { order, ..settings(&["dst_port"]) }).err().unwrap().to_string();
    assert!(error.starts_with("a view has no number \"host\"; use flows, packets"), "{error}");
}
