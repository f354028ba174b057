//! IPFIX messages (RFC 7011), built field by field, also wrong ones.

/// The private enterprise numbers of reverse elements (RFC 5103) and of CERT (YAF).
pub const REVERSE: u32 = 29305;
pub const CERT: u32 = 6871;
/// In place of a length: each value has its own.
pub const VARIABLE: u16 = 65_535;

/// A field of a template: enterprise, number, length.
pub type Field = (u32, u16, u16);

/// A message of an observation domain, exported 1000 s after 1970.
pub struct Message {
    domain: u32,
    sets: Vec<u8>,
}

impl Message {
    pub fn of(domain: u32) -> Self {
        Self { domain, sets: Vec::new() }
    }

    /// Adds a set.
    pub fn set(mut self, id: u16, records: &[u8]) -> Self {
        self.sets.extend(id.to_be_bytes());
        self.sets.extend((4 + records.len() as u16).to_be_bytes());
        self.sets.extend(records);
        self
    }

    /// Adds a template.
    pub fn template(self, id: u16, fields: &[Field]) -> Self {
        let record = [&id.to_be_bytes()[..], &(fields.len() as u16).to_be_bytes(), &specifiers(fields)].concat();
        self.set(2, &record)
    }

    /// Adds an options template, whose first fields are the scope.
    pub fn options_template(self, id: u16, scopes: u16, fields: &[Field]) -> Self {
        let header = [id, fields.len() as u16, scopes].map(u16::to_be_bytes).concat();
        self.set(3, &[header, specifiers(fields)].concat())
    }

    /// Withdraws a template.
    pub fn withdrawal(self, id: u16) -> Self {
        self.set(2, &[id, 0].map(u16::to_be_bytes).concat())
    }

    /// The octets of the message.
    pub fn octets(&self) -> Vec<u8> {
        let length = 16 + self.sets.len() as u16;
        let header = [&10_u16.to_be_bytes()[..], &length.to_be_bytes(), &1000_u32.to_be_bytes()].concat();
        [&header[..], &[0; 4], &self.domain.to_be_bytes(), &self.sets].concat()
    }
}

fn specifiers(fields: &[Field]) -> Vec<u8> {
    let mut octets = Vec::new();
    for &(enterprise, number, length) in fields {
        let flag = if enterprise == 0 { 0 } else { 0x8000 };
        octets.extend([number | flag, length].map(u16::to_be_bytes).concat());
        if enterprise != 0 {
            octets.extend(enterprise.to_be_bytes());
        }
    }
    octets
}

/// The fields of the smallest template of flow records: addresses, ports, protocol, packets, octets and times in ms.
pub const FLOW: [Field; 9] =
    [(0, 8, 4), (0, 12, 4), (0, 7, 2), (0, 11, 2), (0, 4, 1), (0, 2, 4), (0, 1, 4), (0, 152, 8), (0, 153, 8)];

/// A record of [`FLOW`]: UDP from 192.0.2.1 to 192.0.2.2, with this number of packets.
pub fn flow(packets: u32) -> Vec<u8> {
    let times = [1_000_u64, 2_000].map(u64::to_be_bytes).concat();
    let counts = [packets, 100 * packets].map(u32::to_be_bytes).concat();
    [&[192, 0, 2, 1, 192, 0, 2, 2][..], &[0x30, 0x39, 0, 53, 17], &counts, &times].concat()
}
