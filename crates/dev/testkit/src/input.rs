//! Octets as a source of values: how fuzz targets and random tests make packets and records.

/// Reads values from the front of an input; zeros after its end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next octets.
    pub fn octets<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut octets = [0; N];
        octets[..front.len()].copy_from_slice(front);
        octets
    }

    /// The next octet.
    pub fn octet(&mut self) -> u8 {
        let [octet] = self.octets();
        octet
    }

    /// The next two octets, little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.octets())
    }

    /// The next four octets, little-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.octets())
    }

    /// The next eight octets, little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.octets())
    }

    /// The next octets, or all that are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// All octets that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The value at an index, modulo the length of the list.
pub fn pick<T: Copy>(list: &[T], index: impl Into<usize>) -> T {
    list[index.into() % list.len()]
}
