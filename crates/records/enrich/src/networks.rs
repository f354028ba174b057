//! The table of `--networks`: prefixes with name, site, role, and whether they are local, as CSV.

use crate::error::{BrokenLines, Error, InvalidEntry, Problem};
use crate::file::InputFile;
use crate::prefix::Prefix;
use crate::prefix_map::{PrefixMap, PrefixMapBuilder};
use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use weir_dpi::printable;
use weir_flow::NamedNetwork;

/// Columns of the table. Only the prefix is needed.
const COLUMNS: [&str; 5] = ["prefix", "name", "site", "role", "local"];
/// Longest name, site or role, octets.
const MAX_TEXT_OCTETS: usize = 128;

/// The table in memory.
#[derive(Debug)]
pub(crate) struct Networks {
    /// Position in `networks`, from 1 on.
    prefixes: PrefixMap<Option<NonZeroU32>>,
    /// Different networks.
    networks: Vec<Arc<NamedNetwork>>,
    /// Lines with a prefix.
    pub entries: u64,
}

impl Networks {
    /// Reads a table.
    ///
    /// # Errors
    /// The file cannot be read, its first line does not name columns, or lines are broken. All of them
    /// are reported, and none is left out: the user writes this table.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let read = || Self::parse(&InputFile::open(path)?.read_all()?);
        read().map_err(|problem| Error::new("--networks", path, problem))
    }

    fn parse(text: &[u8]) -> Result<Self, Problem> {
        let mut table =
            csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).comment(Some(b'#')).from_reader(text);
        let columns = table.headers().map_err(|error| Problem::Columns(error.to_string()))?;
        let columns = columns.iter().map(column).collect::<Result<Vec<usize>, _>>()?;
        if !columns.contains(&0) {
            return Err(Problem::Columns("there is no column prefix".into()));
        }
        if let Some(twice) = columns.iter().enumerate().find(|(at, column)| columns[..*at].contains(column)) {
            return Err(Problem::Columns(format!("the column {} is there twice", COLUMNS[*twice.1])));
        }
        let mut builder = PrefixMapBuilder::default();
        let (mut networks, mut numbers) = (Vec::new(), HashMap::new());
        let (mut lines, mut broken) = (HashMap::new(), BrokenLines::default());
        let mut row = csv::ByteRecord::new();
        loop {
            match table.read_byte_record(&mut row) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Err(Problem::Columns(error.to_string())),
            }
            let (number, quotes) = line_and_quotes(text, &row, table.position());
            // The library takes the end of the file for the missing quote.
            let entry = if quotes % 2 == 0 { entry(&row, &columns) } else { Err(InvalidEntry::Quote) };
            let added = entry.and_then(|(prefix, network)| {
                if let Some(&other) = lines.get(&prefix) {
                    return Err(InvalidEntry::Twice(other));
                }
                lines.insert(prefix, number);
                let network = Arc::new(network);
                let of_network = *numbers.entry(network.clone()).or_insert_with(|| {
                    networks.push(network);
                    u32::try_from(networks.len()).ok().and_then(NonZeroU32::new)
                });
                builder.add(prefix, of_network);
                Ok(())
            });
            if let Err(reason) = added {
                let texts: Vec<_> = row.iter().map(String::from_utf8_lossy).collect();
                broken.add(number, &texts.join(","), reason);
            }
        }
        if broken.count > 0 {
            return Err(Problem::Lines(broken));
        }
        Ok(Self { prefixes: builder.build(|_, longer| longer), networks, entries: lines.len() as u64 })
    }

    /// The network of the longest prefix that has an address.
    pub fn get(&self, address: IpAddr) -> Option<&Arc<NamedNetwork>> {
        let number = self.prefixes.get(address)?;
        self.networks.get(number.get() as usize - 1)
    }

    pub fn memory_bytes(&self) -> usize {
        let texts = |network: &Arc<NamedNetwork>| network.name.len() + network.site.len() + network.role.len();
        let networks = self.networks.iter().map(|network| size_of::<NamedNetwork>() + 24 + texts(network));
        self.prefixes.memory_bytes() + networks.sum::<usize>()
    }
}

/// The position of a column in [`COLUMNS`].
fn column(name: &str) -> Result<usize, Problem> {
    let found = COLUMNS.iter().position(|column| column.eq_ignore_ascii_case(name));
    found.ok_or_else(|| Problem::Columns(format!("there is no column {name:?}")))
}

/// The number of the line in which a row begins, and its quotes. What the library takes for a row begins
/// with the comments and empty lines before it.
fn line_and_quotes(text: &[u8], row: &csv::ByteRecord, end: &csv::Position) -> (u64, usize) {
    let Some(begin) = row.position() else { return (0, 0) };
    let mut number = begin.line();
    let mut lines = text.get(begin.byte() as usize..end.byte() as usize).unwrap_or_default();
    while let Some(at) = lines.iter().position(|octet| *octet == b'\n')
        && (lines[0] == b'#' || lines[..at].is_empty() || lines[..at] == *b"\r")
    {
        lines = &lines[at + 1..];
        number += 1;
    }
    (number, lines.iter().filter(|octet| **octet == b'"').count())
}

fn entry(row: &csv::ByteRecord, columns: &[usize]) -> Result<(Prefix, NamedNetwork), InvalidEntry> {
    if row.len() > columns.len() {
        return Err(InvalidEntry::Values);
    }
    let mut values = [""; COLUMNS.len()];
    for (value, &column) in row.iter().zip(columns) {
        values[column] = str::from_utf8(value).map_err(|_| InvalidEntry::NotText)?;
    }
    let [prefix, name, site, role, local] = values;
    for (column, text) in [("name", name), ("site", site), ("role", role)] {
        if text.len() > MAX_TEXT_OCTETS || text.contains(char::is_control) {
            return Err(InvalidEntry::Text(column));
        }
    }
    let is_local = match local.to_ascii_lowercase().as_str() {
        "" | "false" => false,
        "true" => true,
        _ => return Err(InvalidEntry::Local),
    };
    let [name, site, role] = [name, site, role].map(|text| printable(text).into());
    Ok((prefix.parse()?, NamedNetwork { name, site, role, is_local }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(networks: &Networks, address: &str) -> Option<String> {
        let network = networks.get(address.parse().unwrap())?;
        Some(format!("{} {} {} {}", network.name, network.site, network.role, network.is_local))
    }

    #[test]
    fn the_longest_prefix_names_the_network() {
        let text = b"prefix,name,site,role,local\n10.0.0.0/8,office,Bonn,clients,true\n# servers\n10.1.0.0/16,\"a, b\", Ulm ,servers,TRUE\n\n192.0.2.0/24,partner\n2001:db8::/32,office,Bonn,clients,true\n";
        let networks = Networks::parse(text).unwrap();
        for (address, expected) in [
            ("10.0.0.1", Some("office Bonn clients true")),
            ("10.1.0.1", Some("a, b Ulm servers true")),
            ("192.0.2.9", Some("partner   false")),
            ("192.0.3.9", None),
            ("2001:db8::1", Some("office Bonn clients true")),
        ] {
            assert_eq!(get(&networks, address).as_deref(), expected, "{address}");
        }
        assert_eq!((networks.entries, networks.networks.len()), (4, 3));
        assert!(networks.memory_bytes() > 0);
    }

    #[test]
    fn columns_have_any_order_and_only_the_prefix_is_needed() {
        let networks = Networks::parse(b"Local,PREFIX\ntrue,10.0.0.0/8\n").unwrap();
        assert_eq!(get(&networks, "10.0.0.1").as_deref(), Some("   true"));
        assert_eq!(Networks::parse(b"prefix\n").unwrap().entries, 0);
    }

    #[test]
    fn invisible_characters_of_names_are_escaped() {
        let networks = Networks::parse("prefix,name,site\n10.0.0.0/8,a\u{202e}b,é\u{fe0f}\n".as_bytes()).unwrap();
        assert_eq!(get(&networks, "10.0.0.1").as_deref(), Some(r"a\xe2\x80\xaeb é\xef\xb8\x8f  false"));
    }

    #[test]
    fn lines_are_counted_with_comments_and_quotes_have_to_be_closed() {
        let error = |text: &[u8]| Networks::parse(text).unwrap_err().to_string();
        let quote = |line: &str| format!("{line}: a quote is not closed");
        assert_eq!(error(b"prefix,name\n10.0.0.0/8,\"a"), quote("line 2: \"10.0.0.0/8,a\""));
        assert_eq!(error(b"prefix,name\n10.0.0.0/8,\"a\n"), quote("line 2: \"10.0.0.0/8,a\""));
        let text = b"prefix,name\n# a \" in a comment\n\n10.0.0.0/8,\"a \"\"b\"\"\"\n#\r\n\r\n10.1.0.0/16,\"a\n10.2.0.0/16,b\n";
        assert_eq!(error(text), quote("line 7: \"10.1.0.0/16,a\\n10.2.0.0/16,b\""));
        assert_eq!(Networks::parse(&text[..text.len() - 29]).unwrap().entries, 1);
    }

    #[test]
    fn a_broken_table_is_refused_with_its_lines() {
        let error = |text: &[u8]| Networks::parse(text).unwrap_err().to_string();
        let begin = "the first line has to name the columns, as in prefix,name,site,role,local: ";
        assert_eq!(error(b"10.0.0.0/8,office\n"), format!("{begin}there is no column \"10.0.0.0/8\""));
        assert_eq!(error(b"name,site\n"), format!("{begin}there is no column prefix"));
        assert_eq!(error(b"prefix,prefix\n"), format!("{begin}the column prefix is there twice"));
        let text = b"prefix,name,local\n10.0.0.1/8,a\n10.0.0.0/8,a,maybe\n10.0.0.0/8,a\n10.0.0.0/8,b\nx\n10.1.0.0/16,a,true,b\n10.2.0.0/16,\"a\tb\"\n10.3.0.0/16,\xff\n";
        assert_eq!(
            error(text),
            "line 2: \"10.0.0.1/8,a\": the address has bits behind the prefix; did you mean 10.0.0.0/8?; \
             line 3: \"10.0.0.0/8,a,maybe\": local is not true, false or empty; \
             line 5: \"10.0.0.0/8,b\": the prefix is in line 4, too; \
             line 6: \"x\": not an address or prefix; \
             line 7: \"10.1.0.0/16,a,true,b\": more values than columns; \
             line 8: \"10.2.0.0/16,a\\tb\": name has control characters or more than 128 octets; \
             line 9: \"10.3.0.0/16,\u{fffd}\": not UTF-8 text"
        );
    }
}
