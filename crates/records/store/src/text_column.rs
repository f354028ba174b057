//! Reads a column of texts as places in a list of its different values, from the pages themselves: most pages have the
//! places already, as indices of a dictionary.
//!
//! Input: the pages of a column chunk, decompressed. Output: for each row a place, or null. Not done here: encodings that
//! Weir does not write; they are refused, and the caller reads records then. Source: the documents "Encodings" and
//! "Data Pages" of Apache Parquet.

use crate::reading::too_few_values;
use crate::row_group::address;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::RowGroupReader;
use std::collections::HashMap;
use weir_fields::{StoredColumn, StoredText};

/// A column of texts of which some rows are read.
pub struct TextColumn {
    pages: Box<dyn PageReader>,
    is_address: bool,
    has_levels: bool,
    /// The place of each text of the dictionary.
    dictionary: Vec<u32>,
    page: DataPage,
    /// Rows before those that are read next.
    to_skip: usize,
    /// Places by octets.
    known: HashMap<Box<[u8]>, u32, ahash::RandomState>,
    /// Levels, and indices or places, of some rows.
    levels: Vec<u32>,
    indices: Vec<u32>,
}

/// What is left of a page.
#[derive(Default)]
struct DataPage {
    rows: usize,
    /// 1 for each row with a value, otherwise 0; `None` if all have one.
    levels: Option<Hybrid>,
    texts: Texts,
}

enum Texts {
    /// Indices of the dictionary.
    Indices(Hybrid),
    /// Texts, each with its length before it.
    Plain(Bytes),
}

impl Default for Texts {
    fn default() -> Self {
        Self::Plain(Bytes::new())
    }
}

impl TextColumn {
    /// The column of this number in a row group.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn open(group: &dyn RowGroupReader, at: usize, is_address: bool) -> Result<Self> {
        Ok(Self {
            pages: group.get_column_page_reader(at)?,
            is_address,
            has_levels: group.metadata().column(at).column_descr().max_def_level() > 0,
            dictionary: Vec::new(),
            page: DataPage::default(),
            to_skip: 0,
            known: HashMap::default(),
            levels: Vec::new(),
            indices: Vec::new(),
        })
    }

    /// Leaves out the next rows.
    pub fn skip(&mut self, rows: usize) {
        self.to_skip += rows;
    }

    /// Replaces `places` by those of the next rows. A new text is appended to `values`, which has those of all rows before.
    ///
    /// # Errors
    /// The file is damaged, has too few rows, or another encoding.
    pub fn decode(&mut self, rows: usize, places: &mut Vec<u32>, values: &mut Vec<StoredText>) -> Result<()> {
        while self.to_skip > 0 {
            // Also what is left out is decoded: a page says only so how long its parts are.
            let part = self.to_skip.min(rows.max(1));
            places.clear();
            self.append(part, places, values)?;
            self.to_skip -= part;
        }
        places.clear();
        self.append(rows, places, values)
    }

    fn append(&mut self, mut rows: usize, places: &mut Vec<u32>, values: &mut Vec<StoredText>) -> Result<()> {
        while rows > 0 {
            if self.page.rows == 0 {
                self.next_page(values)?;
                continue;
            }
            let of_page = rows.min(self.page.rows);
            let of_all = self.page.levels.as_mut().map_or(Ok(Some(1)), |levels| levels.next_if_same(of_page))?;
            match of_all {
                Some(0) => places.resize(places.len() + of_page, StoredColumn::NULL),
                Some(_) => self.append_texts(of_page, places, values)?,
                None => self.append_some(of_page, places, values)?,
            }
            self.page.rows -= of_page;
            rows -= of_page;
        }
        Ok(())
    }

    /// Appends places of rows of which some are null.
    fn append_some(&mut self, rows: usize, places: &mut Vec<u32>, values: &mut Vec<StoredText>) -> Result<()> {
        let mut levels = std::mem::take(&mut self.levels);
        levels.clear();
        self.page.levels.as_mut().map_or(Ok(()), |of| of.read(rows, &mut levels))?;
        let mut texts = Vec::new();
        self.append_texts(levels.iter().filter(|level| **level > 0).count(), &mut texts, values)?;
        let mut texts = texts.into_iter();
        let place = |level: &u32| if *level > 0 { texts.next() } else { None };
        places.extend(levels.iter().map(place).map(|place| place.unwrap_or(StoredColumn::NULL)));
        self.levels = levels;
        Ok(())
    }

    /// Appends the places of the next texts.
    fn append_texts(&mut self, number: usize, places: &mut Vec<u32>, values: &mut Vec<StoredText>) -> Result<()> {
        match &mut self.page.texts {
            Texts::Indices(hybrid) => {
                let (indices, dictionary) = (&mut self.indices, &self.dictionary);
                indices.clear();
                hybrid.read(number, indices)?;
                let mut is_valid = true;
                places.extend(indices.iter().map(|index| {
                    let place = dictionary.get(*index as usize);
                    is_valid &= place.is_some();
                    place.copied().unwrap_or_default()
                }));
                if is_valid { Ok(()) } else { Err(too_few_values()) }
            }
            Texts::Plain(octets) => {
                for _ in 0..number {
                    let text = plain_text(octets)?;
                    places.push(place(&mut self.known, &text, values, self.is_address)?);
                }
                Ok(())
            }
        }
    }

    fn next_page(&mut self, values: &mut Vec<StoredText>) -> Result<()> {
        match self.pages.get_next_page()? {
            None => Err(too_few_values()),
            Some(Page::DictionaryPage { mut buf, num_values, .. }) => {
                for _ in 0..num_values {
                    let text = plain_text(&mut buf)?;
                    self.dictionary.push(place(&mut self.known, &text, values, self.is_address)?);
                }
                Ok(())
            }
            Some(Page::DataPage { mut buf, num_values, encoding, def_level_encoding, .. }) => {
                let levels = match self.has_levels {
                    true if def_level_encoding == Encoding::RLE => {
                        let octets = u32::from_le_bytes(take(&mut buf, 4)?[..].try_into().unwrap_or_default());
                        Some(Hybrid::new(take(&mut buf, octets as usize)?, 1))
                    }
                    true => return Err(other_encoding()),
                    false => None,
                };
                let texts = match encoding {
                    Encoding::PLAIN => Texts::Plain(buf),
                    Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                        // A page without values may have no width.
                        let bits = if buf.is_empty() { 0 } else { take(&mut buf, 1)?[0] };
                        Texts::Indices(Hybrid::new(buf, bits))
                    }
                    _ => return Err(other_encoding()),
                };
                self.page = DataPage { rows: num_values as usize, levels, texts };
                Ok(())
            }
            Some(Page::DataPageV2 { .. }) => Err(other_encoding()),
        }
    }
}

fn other_encoding() -> ParquetError {
    ParquetError::General("a page has another encoding than those of Weir".into())
}

/// Takes octets from the front.
fn take(octets: &mut Bytes, number: usize) -> Result<Bytes> {
    if number > octets.len() {
        return Err(too_few_values());
    }
    Ok(octets.split_to(number))
}

fn plain_text(octets: &mut Bytes) -> Result<Bytes> {
    let length = u32::from_le_bytes(take(octets, 4)?[..].try_into().unwrap_or_default());
    take(octets, length as usize)
}

/// The place of a text, which may be new.
fn place(
    known: &mut HashMap<Box<[u8]>, u32, ahash::RandomState>,
    octets: &[u8],
    values: &mut Vec<StoredText>,
    is_address: bool,
) -> Result<u32> {
    if let Some(place) = known.get(octets) {
        return Ok(*place);
    }
    let text = if is_address {
        address(octets).map(StoredText::Ip)
    } else {
        std::str::from_utf8(octets).ok().map(|text| StoredText::Text(text.into()))
    };
    let place = values.len() as u32;
    values.push(text.ok_or_else(|| ParquetError::General("a column has an invalid value".into()))?);
    known.insert(octets.into(), place);
    Ok(place)
}

/// Numbers of a fixed width of bits, in runs: of one number, or of packed ones ("RLE/bit-packing hybrid").
struct Hybrid {
    octets: Bytes,
    /// Bits of a number.
    bits: usize,
    run: Run,
}

enum Run {
    Repeated {
        number: u32,
        left: usize,
    },
    Packed {
        octets: Bytes,
        /// Numbers that were read.
        read: usize,
        left: usize,
    },
}

impl Run {
    fn left(&self) -> usize {
        let (Self::Repeated { left, .. } | Self::Packed { left, .. }) = self;
        *left
    }
}

impl Hybrid {
    fn new(octets: Bytes, bits: u8) -> Self {
        Self { octets, bits: bits.into(), run: Run::Repeated { number: 0, left: 0 } }
    }

    /// Takes the next numbers if they are a part of a run of one number.
    fn next_if_same(&mut self, numbers: usize) -> Result<Option<u32>> {
        if self.run.left() == 0 {
            self.next_run()?;
        }
        match &mut self.run {
            Run::Repeated { number, left } if *left >= numbers => {
                *left -= numbers;
                Ok(Some(*number))
            }
            _ => Ok(None),
        }
    }

    /// Appends the next numbers.
    fn read(&mut self, mut numbers: usize, out: &mut Vec<u32>) -> Result<()> {
        while numbers > 0 {
            if self.run.left() == 0 {
                self.next_run()?;
            }
            let of_run = numbers.min(self.run.left());
            match &mut self.run {
                Run::Repeated { number, left } => {
                    out.resize(out.len() + of_run, *number);
                    *left -= of_run;
                }
                Run::Packed { octets, read, left } => {
                    unpack(octets, self.bits, *read, of_run, out);
                    *read += of_run;
                    *left -= of_run;
                }
            }
            numbers -= of_run;
        }
        Ok(())
    }

    fn next_run(&mut self) -> Result<()> {
        const MAX_BITS: usize = 32;
        if self.bits > MAX_BITS {
            return Err(too_few_values());
        }
        let header = self.next_number()?;
        self.run = if header & 1 == 0 {
            let (left, mut number) = (header >> 1, [0; 4]);
            let octets = take(&mut self.octets, self.bits.div_ceil(8))?;
            number[..octets.len()].copy_from_slice(&octets);
            Run::Repeated { number: u32::from_le_bytes(number), left }
        } else {
            // The last group may be cut.
            let left = (header >> 1).checked_mul(8).ok_or_else(too_few_values)?;
            let octets = ((header >> 1).checked_mul(self.bits).ok_or_else(too_few_values)?).min(self.octets.len());
            let left = (octets * 8).checked_div(self.bits).map_or(left, |numbers| left.min(numbers));
            Run::Packed { octets: take(&mut self.octets, octets)?, read: 0, left }
        };
        // An empty run would be followed by others without an end.
        if self.run.left() == 0 { Err(too_few_values()) } else { Ok(()) }
    }

    /// A number of seven bits in each octet, the last ones first.
    fn next_number(&mut self) -> Result<usize> {
        let mut number = 0;
        for shift in (0..35).step_by(7) {
            let octet = take(&mut self.octets, 1)?[0];
            number |= usize::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(too_few_values())
    }
}

/// Appends packed numbers, of which all are in the octets.
fn unpack(octets: &[u8], bits: usize, first: usize, numbers: usize, out: &mut Vec<u32>) {
    let mask = (1_u64 << bits) - 1;
    let number = |at: usize| {
        let (octet, shift) = (at * bits / 8, at * bits % 8);
        let window = match octets.get(octet..).and_then(|octets| octets.first_chunk::<8>()) {
            Some(window) => u64::from_le_bytes(*window),
            None => {
                let (mut window, end) = ([0; 8], octets.get(octet..).unwrap_or_default());
                window[..end.len()].copy_from_slice(end);
                u64::from_le_bytes(window)
            }
        };
        (window >> shift & mask) as u32
    };
    out.extend((first..first + numbers).map(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(octets: &[u8], bits: u8, parts: &[usize]) -> Option<Vec<u32>> {
        let (mut hybrid, mut out) = (Hybrid::new(Bytes::copy_from_slice(octets), bits), Vec::new());
        parts.iter().try_for_each(|part| hybrid.read(*part, &mut out)).ok()?;
        Some(out)
    }

    #[test]
    fn runs_are_of_one_number_or_packed() {
        // The example of the document: 0 to 7 in three bits each; before it, 300 times the number 5.
        let octets = [0xd8, 0x04, 5, 0x03, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let expected: Vec<u32> = [5; 300].into_iter().chain(0..8).collect();
        for parts in [&[308][..], &[299, 1, 8], &[1, 300, 3, 4]] {
            assert_eq!(read(&octets, 3, parts).as_ref(), Some(&expected), "{parts:?}");
        }
        assert_eq!(read(&octets, 3, &[309]), None);
        assert_eq!(read(&[0x03], 0, &[8]), Some(vec![0; 8]));
    }

    #[test]
    fn numbers_of_each_width_are_unpacked() {
        for bits in 1..=32_u8 {
            let numbers: Vec<u32> = (0..64_u32).map(|at| at.wrapping_mul(0x9e37_79b9) >> (32 - bits)).collect();
            let mut octets = vec![0; 8 * usize::from(bits)];
            for (at, number) in numbers.iter().enumerate() {
                for bit in 0..usize::from(bits) {
                    let place = at * usize::from(bits) + bit;
                    octets[place / 8] |= ((number >> bit & 1) as u8) << (place % 8);
                }
            }
            octets.insert(0, 8 << 1 | 1);
            assert_eq!(read(&octets, bits, &[3, 60, 1]), Some(numbers), "{bits}");
        }
    }

    #[test]
    fn what_is_cut_or_invalid_is_refused() {
        for octets in [&[][..], &[0x80], &[0x80; 6], &[0x00, 5], &[0x04], &[0x03], &[0x01]] {
            assert_eq!(read(octets, 3, &[1]), None, "{octets:?}");
        }
        assert_eq!(read(&[0x02, 1, 2, 3, 4, 5], 33, &[1]), None);
    }
}
