//! Writes small databases in the MaxMind DB format, version 2.0, for tests.

use std::net::IpAddr;

/// A value in the data of a network.
#[derive(Clone, Debug)]
pub enum Value {
    Map(Vec<(&'static str, Value)>),
    Text(String),
    Number(u32),
}

/// The data of a network in a database of countries.
pub fn country(code: &str) -> Value {
    Value::Map(vec![("country", Value::Map(vec![("iso_code", Value::Text(code.into()))]))])
}

/// The data of a network in a database of autonomous systems.
pub fn system(number: u32, organization: &str) -> Value {
    let organization = ("autonomous_system_organization", Value::Text(organization.into()));
    Value::Map(vec![("autonomous_system_number", Value::Number(number)), organization])
}

#[derive(Clone, Copy)]
enum Record {
    Empty,
    Node(usize),
    /// Position in the data section.
    Data(usize),
}

/// A database in memory, into which networks are put.
pub struct Database {
    kind: String,
    nodes: Vec<[Record; 2]>,
    data: Vec<u8>,
}

impl Database {
    /// An empty database of IPv4 and IPv6 addresses.
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.into(), nodes: vec![[Record::Empty; 2]], data: Vec::new() }
    }

    /// A database of networks such as `10.0.0.0/8`. Of two that contain each other, the longer prefix
    /// has to come later.
    pub fn of(kind: &str, networks: &[(&str, Value)]) -> Self {
        let mut database = Self::new(kind);
        for (network, value) in networks {
            let (address, bits) = network.split_once('/').unwrap();
            database.add(address.parse().unwrap(), bits.parse().unwrap(), value);
        }
        database
    }

    pub fn add(&mut self, address: IpAddr, bits: u8, value: &Value) {
        let data = self.data.len();
        encode(value, &mut self.data);
        let (address, bits) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()), bits + 96),
            IpAddr::V6(address) => (address.to_bits(), bits),
        };
        let mut node = 0;
        for depth in 0..bits {
            let side = (address >> (127 - depth) & 1) as usize;
            if depth + 1 == bits {
                self.nodes[node][side] = Record::Data(data);
                break;
            }
            node = match self.nodes[node][side] {
                Record::Node(next) => next,
                other => {
                    self.nodes.push([other; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][side] = Record::Node(next);
                    next
                }
            };
        }
    }

    /// The octets of the file.
    pub fn octets(&self) -> Vec<u8> {
        let count = self.nodes.len();
        let mut file = Vec::new();
        for record in self.nodes.iter().flatten() {
            let number = match record {
                Record::Empty => count,
                Record::Node(number) => *number,
                Record::Data(position) => count + 16 + position,
            };
            file.extend((number as u32).to_be_bytes());
        }
        file.extend([0; 16]);
        file.extend(&self.data);
        file.extend(b"\xab\xcd\xefMaxMind.com");
        let short = |number: u8| vec![0xa1, number];
        let fields: [(&str, Vec<u8>); 9] = [
            ("binary_format_major_version", short(2)),
            ("binary_format_minor_version", short(0)),
            ("build_epoch", vec![0x01, 0x02, 1]),
            ("database_type", encoded(&Value::Text(self.kind.clone()))),
            ("description", encoded(&Value::Map(vec![("en", Value::Text("a test".into()))]))),
            ("ip_version", short(6)),
            ("languages", vec![0x00, 0x04]),
            ("node_count", encoded(&Value::Number(count as u32))),
            ("record_size", short(32)),
        ];
        file.push(0xe0 | fields.len() as u8);
        for (key, value) in fields {
            encode(&Value::Text(key.into()), &mut file);
            file.extend(value);
        }
        file
    }
}

fn encoded(value: &Value) -> Vec<u8> {
    let mut octets = Vec::new();
    encode(value, &mut octets);
    octets
}

fn encode(value: &Value, out: &mut Vec<u8>) {
    let mut start = |kind: u8, size: usize| match size {
        0..29 => out.push(kind << 5 | size as u8),
        _ => out.extend([kind << 5 | 29, u8::try_from(size - 29).unwrap()]),
    };
    match value {
        Value::Text(text) => {
            start(2, text.len());
            out.extend(text.as_bytes());
        }
        Value::Number(number) => {
            start(6, 4);
            out.extend(number.to_be_bytes());
        }
        Value::Map(entries) => {
            start(7, entries.len());
            for (key, value) in entries {
                encode(&Value::Text((*key).into()), out);
                encode(value, out);
            }
        }
    }
}
