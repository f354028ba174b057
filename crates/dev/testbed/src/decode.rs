//! A decoder of IPFIX and NetFlow v9 that knows the IANA registry and learns everything else from
//! the messages.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unsigned(u64),
    Float(f64),
    Ip(IpAddr),
    Octets(Vec<u8>),
    Text(String),
}

/// A data record: element name to value. Names of IANA elements of the reverse direction begin with
/// `reverse `.
pub type Record = BTreeMap<String, Value>;

/// The state of a collector.
#[derive(Default)]
pub struct Decoder {
    /// Number to name and type, from the IANA registry and from type information records.
    registry: HashMap<(u32, u16), (String, String)>,
    pub templates: HashMap<u16, Vec<Field>>,
    types_id: Option<u16>,
    /// Fields of options templates. The names of NetFlow v9's scopes are `scope N`.
    options_templates: HashMap<u16, Vec<Field>>,
    /// Options data records, without those of type information.
    pub options: Vec<Record>,
    /// Number of template records, retransmitted ones included.
    pub templates_seen: usize,
    /// Number of type information records.
    pub types_seen: usize,
    pub messages: Vec<Header>,
}

/// The header fields of a message, and the number of its data records.
#[derive(Clone, Debug, Default)]
pub struct Header {
    pub sequence: u32,
    pub domain: u32,
    /// NetFlow v9: uptime in ms and seconds since 1970.
    pub up_ms: u32,
    pub seconds: u32,
    pub octets: usize,
    pub data_records: u32,
}

pub struct Field {
    enterprise: u32,
    number: u16,
    /// [`VARIABLE`] if each value has its own.
    octets: usize,
}

/// Length of an element whose values have lengths of their own (RFC 7011 section 7).
const VARIABLE: usize = 65_535;

impl Field {
    fn min_octets(&self) -> usize {
        if self.octets == VARIABLE { 1 } else { self.octets }
    }

    fn octets<'a>(&self, reader: &mut Reader<'a>) -> &'a [u8] {
        let octets = match self.octets {
            VARIABLE => match reader.number(1) as usize {
                255 => reader.number(2) as usize,
                short => short,
            },
            fixed => fixed,
        };
        reader.take(octets)
    }
}

/// Reads octets from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, octets: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at_checked(octets).expect("the message is whole");
        self.0 = rest;
        front
    }

    fn number(&mut self, octets: usize) -> u64 {
        self.take(octets).iter().fold(0, |number, &octet| number << 8 | u64::from(octet))
    }
}

const REVERSE: u32 = 29305;
const NTOP: u32 = 35632;
/// In place of the enterprise number of a scope of NetFlow v9.
const SCOPE: u32 = u32::MAX;

impl Decoder {
    pub fn new() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../data/iana/ipfix-elements.csv");
        let text = std::fs::read_to_string(path).expect("the registry ships with the project");
        let mut decoder = Self::default();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.split(',').collect();
            let number = columns[0].parse().expect("a number");
            decoder.registry.insert((0, number), (columns[1].into(), columns[2].into()));
        }
        for number in [109, 110, 111, 112, 417, 418, 421, 422] {
            decoder.registry.insert((NTOP, number), (format!("ntop {number}"), "unsigned".into()));
        }
        for (number, name) in [(119, "L7_PROTO_NAME"), (188, "TLS_SERVER_NAME"), (205, "DNS_QUERY")] {
            decoder.registry.insert((NTOP, number), (name.into(), "string".into()));
        }
        decoder
    }

    /// Numbers of the elements of a template.
    pub fn numbers(&self, template: u16) -> Vec<u16> {
        self.templates[&template].iter().map(|field| field.number).collect()
    }

    /// Decodes the messages of a file.
    pub fn file(&mut self, octets: &[u8]) -> Vec<Record> {
        let mut rest = octets;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (message, after) = rest.split_at(usize::from(u16::from_be_bytes([rest[2], rest[3]])));
            records.extend(self.message(message));
            rest = after;
        }
        records
    }

    pub fn message(&mut self, octets: &[u8]) -> Vec<Record> {
        let mut reader = Reader(octets);
        let mut header = Header { octets: octets.len(), ..Header::default() };
        let version = reader.number(2);
        let counted = reader.number(2);
        match version {
            10 => {
                assert_eq!(counted as usize, octets.len(), "the header's length is the message's");
                header.seconds = reader.number(4) as u32;
            }
            9 => {
                header.up_ms = reader.number(4) as u32;
                header.seconds = reader.number(4) as u32;
            }
            other => panic!("version {other}"),
        }
        header.sequence = reader.number(4) as u32;
        header.domain = reader.number(4) as u32;
        let mut records = Vec::new();
        let mut all = 0;
        while !reader.0.is_empty() {
            let id = reader.number(2) as u16;
            let octets = reader.number(2) as usize;
            assert_eq!(octets % 4, 0, "sets are padded");
            let set = reader.take(octets - 4);
            all += match id {
                0 | 2 => self.templates(set, version),
                1 | 3 => self.options(set, version),
                _ => {
                    let before = records.len();
                    let others = self.data(id, set, &mut records);
                    header.data_records += (others + records.len() - before) as u32;
                    others + records.len() - before
                }
            };
        }
        if version == 9 {
            assert_eq!(counted as usize, all, "the header counts every record");
        }
        self.messages.push(header);
        records
    }

    fn templates(&mut self, set: &[u8], version: u64) -> usize {
        let mut reader = Reader(set);
        let mut seen = 0;
        while reader.0.len() >= 4 {
            let id = reader.number(2) as u16;
            let count = reader.number(2);
            if (id, count) == (2, 0) {
                // All are withdrawn (RFC 7011 section 8.1).
                self.templates.clear();
                continue;
            }
            assert!(id >= 256);
            let fields = (0..count).map(|_| field(&mut reader, version)).collect();
            self.templates.insert(id, fields);
            seen += 1;
        }
        assert!(reader.0.iter().all(|&octet| octet == 0));
        self.templates_seen += seen;
        seen
    }

    /// Reads the options template of a set.
    fn options(&mut self, set: &[u8], version: u64) -> usize {
        if set == [0, 3, 0, 0] {
            self.options_templates.clear();
            self.types_id = None;
            return 0;
        }
        let mut reader = Reader(set);
        let id = reader.number(2) as u16;
        let (first, second) = (reader.number(2), reader.number(2));
        let (count, scopes) = if version == 9 { ((first + second) / 4, first / 4) } else { (first, second) };
        let mut fields: Vec<Field> = (0..count).map(|_| field(&mut reader, version)).collect();
        assert!(reader.0.len() < 4);
        let numbers: Vec<u16> = fields.iter().map(|field| field.number).collect();
        if numbers == [346, 303, 339, 344, 345, 342, 343, 341, 340] {
            assert_eq!(scopes, 2, "two scope fields");
            self.types_id = Some(id);
            return 1;
        }
        assert_eq!(scopes, 1, "one scope field");
        fields[0].enterprise = if version == 9 { SCOPE } else { 0 };
        self.options_templates.insert(id, fields);
        1
    }

    /// Decodes data records. Returns the number of options data records.
    fn data(&mut self, id: u16, set: &[u8], records: &mut Vec<Record>) -> usize {
        let mut reader = Reader(set);
        if self.types_id == Some(id) {
            let mut types = 0;
            while reader.0.len() >= 4 {
                let enterprise = reader.number(4) as u32;
                let number = reader.number(2) as u16;
                let data_type = match reader.number(1) {
                    1..=4 | 15 => "unsigned",
                    10 => "float64",
                    13 => "string",
                    18 => "ipv4Address",
                    19 => "ipv6Address",
                    other => panic!("type {other}"),
                };
                let _semantics_and_units = reader.number(3);
                assert_eq!((reader.number(8), reader.number(8)), (0, 0), "no range of its own");
                let length = reader.number(1) as usize;
                let name = String::from_utf8(reader.take(length).to_vec()).expect("a name is UTF-8");
                let length = reader.number(1) as usize;
                assert!(length > 0, "netflow_parser refuses an empty description");
                reader.take(length);
                self.registry.insert((enterprise, number), (name, data_type.into()));
                types += 1;
            }
            self.types_seen += types;
            return types;
        }
        if let Some(fields) = self.options_templates.get(&id) {
            let options = self.records(fields, reader);
            let count = options.len();
            self.options.extend(options);
            return count;
        }
        let fields = self.templates.get(&id).expect("a template is sent before its data");
        records.extend(self.records(fields, reader));
        0
    }

    fn records(&self, fields: &[Field], mut reader: Reader<'_>) -> Vec<Record> {
        let shortest: usize = fields.iter().map(Field::min_octets).sum();
        let mut records = Vec::new();
        assert!(shortest >= 4, "the padding of a set could be a record");
        while reader.0.len() >= shortest {
            let mut record = Record::new();
            for field in fields {
                let (enterprise, prefix) =
                    if field.enterprise == REVERSE { (0, "reverse ") } else { (field.enterprise, "") };
                // A decoder that starts late may not know the types of Weir elements yet.
                let unknown = if enterprise == SCOPE {
                    (format!("scope {}", field.number), "unsigned32".to_owned())
                } else {
                    (format!("{enterprise}/{}", field.number), "octetArray".to_owned())
                };
                let (name, data_type) = self.registry.get(&(enterprise, field.number)).unwrap_or(&unknown);
                let old = record.insert(format!("{prefix}{name}"), value(data_type, field.octets(&mut reader)));
                assert_eq!(old, None, "{name} occurs once");
            }
            records.push(record);
        }
        assert!(reader.0.len() < 4 && reader.0.iter().all(|&octet| octet == 0), "padding is short and zero");
        records
    }
}

fn field(reader: &mut Reader<'_>, version: u64) -> Field {
    let number = reader.number(2) as u16;
    let octets = reader.number(2) as usize;
    let has_enterprise = version == 10 && number & 0x8000 != 0;
    let enterprise = if has_enterprise { reader.number(4) as u32 } else { 0 };
    Field { enterprise, number: number & 0x7fff, octets }
}

fn value(data_type: &str, octets: &[u8]) -> Value {
    let number = octets.iter().fold(0u64, |number, &octet| number << 8 | u64::from(octet));
    match data_type {
        "float64" => Value::Float(f64::from_bits(number)),
        "ipv4Address" => Value::Ip(Ipv4Addr::from(<[u8; 4]>::try_from(octets).unwrap()).into()),
        "ipv6Address" => Value::Ip(Ipv6Addr::from(<[u8; 16]>::try_from(octets).unwrap()).into()),
        "string" => {
            let text = String::from_utf8(octets.to_vec()).expect("a text is UTF-8");
            Value::Text(text.trim_end_matches('\0').to_owned())
        }
        "macAddress" | "octetArray" => Value::Octets(octets.into()),
        // Whole nanoseconds since 1900, modulo 2^32 seconds.
        "dateTimeNanoseconds" => {
            let fraction = u128::from(number & u64::from(u32::MAX));
            Value::Unsigned((number >> 32) * 1_000_000_000 + ((fraction * 1_000_000_000) >> 32) as u64)
        }
        _ => Value::Unsigned(number),
    }
}
