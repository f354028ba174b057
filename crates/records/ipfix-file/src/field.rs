//! Fields of templates, and their values in data records (RFC 7011 sections 3.2 and 7).

/// In place of the length of a field whose values have lengths of their own.
const VARIABLE: u16 = 65_535;

/// A field of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Private enterprise number; 0 for elements of IANA.
    pub enterprise: u32,
    /// Number of the element.
    pub number: u16,
    /// Octets of a value, or [`VARIABLE`].
    pub length: u16,
}

/// Splits the next data record into the values of its fields. `None`: the rest of the set is padding, or shorter than
/// a record. Values replace those in `values`: places in the set.
pub fn split_record<'a>(fields: &[Field], set: &mut &'a [u8], values: &mut Vec<&'a [u8]>) -> Option<()> {
    values.clear();
    let mut rest = *set;
    for field in fields {
        let length = match field.length {
            VARIABLE => {
                let (&short, after) = rest.split_first()?;
                rest = after;
                if short < u8::MAX {
                    short.into()
                } else {
                    let (long, after) = rest.split_first_chunk::<2>()?;
                    rest = after;
                    u16::from_be_bytes(*long)
                }
            }
            length => length,
        };
        let (value, after) = rest.split_at_checked(length.into())?;
        rest = after;
        values.push(value);
    }
    *set = rest;
    Some(())
}

/// Length of the shortest record, octets.
pub fn min_octets(fields: &[Field]) -> usize {
    fields.iter().map(|field| if field.length == VARIABLE { 1 } else { usize::from(field.length) }).sum()
}
