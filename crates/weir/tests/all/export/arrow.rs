//! Streams of Apache Arrow, read by the columnar specification (Message.fbs, Schema.fbs).

use serde_json::{Map, Value, json};
use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use testbed::{arguments, assert_usage_errors, captures, command, success, weir};

/// A table of FlatBuffers.
#[derive(Clone, Copy)]
struct Table<'a> {
    octets: &'a [u8],
    at: usize,
}

fn number<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    octets[at..at + N].try_into().unwrap()
}

/// What an offset at a place points to.
fn target(octets: &[u8], at: usize) -> usize {
    at + u32::from_le_bytes(number(octets, at)) as usize
}

impl<'a> Table<'a> {
    fn place(self, member: usize) -> usize {
        let vtable = self.at.checked_add_signed(-(i32::from_le_bytes(number(self.octets, self.at)) as isize)).unwrap();
        let offset = u16::from_le_bytes(number(self.octets, vtable + 4 + 2 * member));
        assert!(offset > 0, "the member {member} is missing");
        self.at + usize::from(offset)
    }

    fn table(self, member: usize) -> Table<'a> {
        Table { at: target(self.octets, self.place(member)), ..self }
    }

    fn octet(self, member: usize) -> u8 {
        self.octets[self.place(member)]
    }

    fn long(self, member: usize) -> usize {
        i64::from_le_bytes(number(self.octets, self.place(member))) as usize
    }

    /// The elements of a vector: their number, and where the first is.
    fn vector(self, member: usize) -> (usize, usize) {
        let at = target(self.octets, self.place(member));
        (u32::from_le_bytes(number(self.octets, at)) as usize, at + 4)
    }

    fn tables(self, member: usize) -> impl Iterator<Item = Table<'a>> {
        let (length, first) = self.vector(member);
        (0..length).map(move |index| Table { at: target(self.octets, first + 4 * index), ..self })
    }

    /// A vector of pairs of numbers of 64 bits, which are aligned.
    fn pairs(self, member: usize) -> Vec<[usize; 2]> {
        let (length, first) = self.vector(member);
        assert_eq!(first % 8, 0);
        let long = |at| i64::from_le_bytes(number(self.octets, at)) as usize;
        (0..length).map(|index| [long(first + 16 * index), long(first + 16 * index + 8)]).collect()
    }

    fn text(self, member: usize) -> &'a str {
        let (length, first) = self.vector(member);
        std::str::from_utf8(&self.octets[first..first + length]).unwrap()
    }
}

/// The messages of a stream that is at its end: the type, the header and the body of each.
fn messages(mut stream: &[u8]) -> Vec<(u8, Table<'_>, &[u8])> {
    let mut messages = Vec::new();
    loop {
        let (prefix, rest) = stream.split_at(8);
        assert_eq!(prefix[..4], [0xff; 4]);
        let length = u32::from_le_bytes(number(prefix, 4)) as usize;
        if length == 0 {
            assert!(rest.is_empty(), "something follows the end");
            return messages;
        }
        assert_eq!(length % 8, 0);
        let (metadata, body) = rest.split_at(length);
        let message = Table { octets: metadata, at: target(metadata, 0) };
        assert_eq!(i16::from_le_bytes(number(metadata, message.place(0))), 4, "version 5");
        let (body, rest) = body.split_at(message.long(3));
        messages.push((message.octet(1), message.table(2), body));
        stream = rest;
    }
}

/// The values of a column of some rows, as JSON has them.
fn values(kind: u8, rows: usize, buffers: &[[usize; 2]], body: &[u8]) -> Vec<Value> {
    let buffer = |index: usize| &body[buffers[index][0]..][..buffers[index][1]];
    let bits = buffer(0);
    let is_null = |row: usize| !bits.is_empty() && bits[row / 8] >> (row % 8) & 1 == 0;
    let value = |row: usize| match kind {
        5 => {
            let end = |row: usize| i32::from_le_bytes(number(buffer(1), 4 * row)) as usize;
            json!(std::str::from_utf8(&buffer(2)[end(row)..end(row + 1)]).unwrap())
        }
        3 => json!(f64::from_le_bytes(number(buffer(1), 8 * row))),
        2 => json!(i64::from_le_bytes(number(buffer(1), 8 * row))),
        10 => {
            let ns = i64::from_le_bytes(number(buffer(1), 8 * row));
            json!(format!("{:.9}", jiff::Timestamp::from_nanosecond(ns.into()).unwrap()))
        }
        other => panic!("type {other}"),
    };
    (0..rows).map(|row| if is_null(row) { Value::Null } else { value(row) }).collect()
}

/// The rows of a stream.
fn rows(stream: &[u8]) -> Vec<Map<String, Value>> {
    let messages = messages(stream);
    let (kind, schema, _) = messages[0];
    assert_eq!(kind, 1, "the schema");
    let fields: Vec<(&str, u8)> = schema.tables(1).map(|field| (field.text(0), field.octet(2))).collect();
    let mut rows = Vec::new();
    for (kind, batch, body) in &messages[1..] {
        assert_eq!(*kind, 3, "rows");
        let (length, nodes, mut buffers) = (batch.long(0), batch.pairs(1), &batch.pairs(2)[..]);
        assert!(length > 0 && nodes.len() == fields.len());
        let first = rows.len();
        rows.resize_with(first + length, Map::new);
        for ((name, kind), [in_node, nulls]) in fields.iter().zip(nodes) {
            let (own, others) = buffers.split_at(if *kind == 5 { 3 } else { 2 });
            buffers = others;
            let values = values(*kind, length, own, body);
            assert_eq!((in_node, nulls), (length, values.iter().filter(|value| value.is_null()).count()), "{name}");
            rows[first..].iter_mut().zip(values).for_each(|(row, value)| {
                row.insert((*name).into(), value);
            });
        }
        assert!(buffers.is_empty());
    }
    rows
}

#[test]
fn a_stream_has_the_values_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let [stream, json] = ["flows.arrows", "flows.json"].map(|name| folder.path().join(name));
    let web = captures().join("web.pcap");
    let inputs = [
        vec!["-i", "synth:apps,flows=300,packets=20k,seed=3"],
        // More rows than a message has.
        vec!["-i", "synth:mix,flows=12k,packets=60k,seed=5"],
        vec!["-i", "synth:lossy,flows=100,packets=20k", "--uniflow"],
        vec!["--layer2", web.to_str().unwrap()],
    ];
    for input in inputs {
        let read = ["read", "-q", "--overwrite", "--dpi-fields", "--fields", "all"].iter().chain(&input);
        let sinks = [format!("{}?fields=all", stream.display()), format!("json:{}", json.display())];
        success(read.copied().map(str::to_owned).chain(sinks.into_iter().flat_map(|sink| ["-o".into(), sink])));
        let json = fs::read_to_string(&json).unwrap();
        let expected: Vec<Map<String, Value>> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let rows = rows(&fs::read(&stream).unwrap());
        assert_eq!(rows.len(), expected.len(), "{input:?}");
        for (row, expected) in rows.iter().zip(&expected) {
            assert!(row == expected, "{input:?}\n{row:?}\n{expected:?}");
        }
    }
}

#[test]
fn a_stream_without_rows_has_columns_and_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let stream = folder.path().join("flows");
    let sink = format!("arrow:{}?fields=src_ip,packets", stream.display());
    success(arguments!["read", "-q", "-i", "synth:mix,packets=100", "--where", "packets > 1M", "-o", sink]);
    let octets = fs::read(&stream).unwrap();
    let messages = messages(&octets);
    let names: Vec<&str> = messages[0].1.tables(1).map(|field| field.text(0)).collect();
    assert_eq!((messages.len(), names), (1, vec!["src_ip", "packets"]));
    let (code, _, err) = weir(arguments!["read", "-q", "-i", "synth:mix,packets=100", "-o", sink]);
    assert!(code == 1 && err.contains("is not empty"), "{code} {err}");
    assert_usage_errors(&[
        (&["read", "-", "-o", "arrow:x?rotate=5m"], "a stream of Arrow is not rotated"),
        (&["probe", "-i", "synth:mix,packets=10", "-o", "arrow:x"], "standard output or a named pipe"),
    ]);
    let (code, _, err) = weir(["probe", "-i", "synth:mix,packets=10", "-o", "arrow:x", "--check"]);
    assert!(code == 1 && err.contains("standard output or a named pipe"), "{code} {err}");
    let live = command().args(["probe", "-i", "synth:mix,packets=500", "-o", "arrow:-"]).output().unwrap();
    assert!(live.status.success(), "{}", String::from_utf8_lossy(&live.stderr));
    assert!(rows(&live.stdout).len() > 10);
}

#[test]
fn the_columns_come_before_the_first_row() {
    let mut read = command();
    read.args(["read", "-", "-q", "-o", "arrow:-?fields=src_ip"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = read.spawn().unwrap();
    let (mut input, mut output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
    // A header, and no end: no row can come.
    input.write_all(&fs::read(captures().join("web.pcap")).unwrap()[..24]).unwrap();
    let mut octets = vec![0; 8];
    output.read_exact(&mut octets).unwrap();
    assert!(u32::from_le_bytes(number(&octets, 4)) > 0);
    drop(input);
    output.read_to_end(&mut octets).unwrap();
    assert!(process.wait().unwrap().success());
    assert_eq!(messages(&octets).len(), 1);
}

#[test]
fn connections_as_arrow_are_those_of_json() {
    let folder = tempfile::tempdir().unwrap();
    let [stream, json] = ["tcp.arrows", "tcp.json"].map(|name| folder.path().join(name).display().to_string());
    success(arguments!["tcp", "synth:lossy,flows=40,packets=8k,seed=2", "-q", "--arrow", stream, "--json", json]);
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let rows = rows(&fs::read(&stream).unwrap());
    let expected = report["list"].as_array().unwrap();
    assert!(expected.len() >= 40);
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(expected) {
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&row[name], value, "{name}");
        }
    }
    assert_usage_errors(&[(&["tcp", "-", "--arrow", "x", "--by", "server"], "cannot be used with")]);
}
