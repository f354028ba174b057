//! Settings as text, for sources: parses the `key=value` pairs of `af_packet:eth0,queues=4` or
//! `velan,flows=131072,size=64`.

/// A specification that makes no sense, with what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The word before the first comma is no load.
    #[error("there is no load '{kind}'{}; the loads are: {}", guess(near), known.join(", "))]
    UnknownLoad {
        /// What was written.
        kind: String,
        /// The load that looks most like it, if one does.
        near: Option<&'static str>,
        /// All loads.
        known: &'static [&'static str],
    },
    /// A name that this load does not have.
    #[error("{load} has no key '{key}'{}; its keys are: {}", guess(near), known.join(", "))]
    UnknownKey {
        /// The load.
        load: &'static str,
        /// What was written.
        key: String,
        /// The key that looks most like it, if one does.
        near: Option<&'static str>,
        /// All keys of the load.
        known: &'static [&'static str],
    },
    /// Something between two commas that is not `key=value`.
    #[error("'{part}' is not of the form key=value")]
    NotAPair {
        /// What was written.
        part: String,
    },
    /// The same key twice.
    #[error("{key} is given twice")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A value that the key cannot have.
    #[error("{key}={value}: {what}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was written.
        value: String,
        /// What it must be.
        what: String,
    },
}

fn guess(near: &Option<&'static str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The values of one load, as written.
#[derive(Debug)]
pub struct SourceSettings<'a> {
    pairs: Vec<(&'static str, &'a str)>,
}

impl<'a> SourceSettings<'a> {
    /// Takes the text behind the load's name apart.
    pub fn parse(
        load: &'static str,
        known: &'static [&'static str],
        text: Option<&'a str>,
    ) -> Result<Self, SettingsError> {
        let mut values = Self { pairs: Vec::new() };
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            let not_a_pair = || SettingsError::NotAPair { part: part.into() };
            let (key, value) = part.split_once('=').ok_or_else(not_a_pair)?;
            let Some(&key) = known.iter().find(|&&name| name == key) else {
                return Err(SettingsError::UnknownKey { load, key: key.into(), near: closest_name(key, known), known });
            };
            if values.get(key).is_some() {
                return Err(SettingsError::Twice { key });
            }
            values.pairs.push((key, value));
        }
        Ok(values)
    }

    /// What was written for a key, if anything.
    pub fn get(&self, key: &'static str) -> Option<&'a str> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }

    /// A whole number within bounds, with k, M or G behind it or not.
    pub fn number(&self, key: &'static str, [low, high]: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const SUFFIXES: &[(&str, u64)] = &[("", 1), ("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
        self.value(key, &format!("must be a whole number from {low} to {high}; k, M and G are understood"), |value| {
            scaled(value, SUFFIXES).filter(|number| (low..=high).contains(number))
        })
    }

    /// Octets within bounds, with KiB, MiB or GiB behind the number or not; k, M and G mean the same.
    pub fn octets(&self, key: &'static str, [low, high]: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const KIB: u64 = 1024;
        const UNITS: &[(&str, u64)] = &[
            ("", 1),
            ("k", KIB),
            ("K", KIB),
            ("KiB", KIB),
            ("M", KIB * KIB),
            ("MiB", KIB * KIB),
            ("G", KIB * KIB * KIB),
            ("GiB", KIB * KIB * KIB),
        ];
        self.value(key, &format!("must be from {low} to {high} octets; KiB, MiB and GiB are understood"), |value| {
            scaled(value, UNITS).filter(|octets| (low..=high).contains(octets))
        })
    }

    /// A time span in ns, within bounds; a plain number is seconds.
    pub fn duration_ns(&self, key: &'static str, [low, high]: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const UNITS: &[(&str, u64)] = &[
            ("", 1_000_000_000),
            ("ms", 1_000_000),
            ("us", 1_000),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
        ];
        let bounds = format!("from {} to {} s", low as f64 / 1e9, high as f64 / 1e9);
        self.value(key, &format!("must be a time span {bounds}, such as 500ms, 30s or 5m"), |value| {
            scaled(value, UNITS).filter(|span| (low..=high).contains(span))
        })
    }

    /// A share of a whole (`0.3` or `30%`), in billionths.
    ///
    /// # Errors
    /// The value is no number from 0 to 1.
    pub fn share_in_billionths(&self, key: &'static str) -> Result<Option<u64>, SettingsError> {
        const WHOLE: u64 = 1_000_000_000;
        const UNITS: &[(&str, u64)] = &[("", WHOLE), ("%", WHOLE / 100)];
        self.value(key, "must be a share from 0 to 1, or from 0% to 100%", |value| {
            scaled(value, UNITS).filter(|&share| share <= WHOLE)
        })
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Result<Option<T>, SettingsError> {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        self.value(key, &format!("must be one of: {}", known.join(", ")), |value| {
            words.iter().find(|(word, _)| *word == value).map(|&(_, meaning)| meaning)
        })
    }

    fn value<T>(
        &self,
        key: &'static str,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(meaning) => Ok(Some(meaning)),
            None => Err(SettingsError::Value { key, value: value.into(), what: what.into() }),
        }
    }
}

/// A decimal number times the factor that its suffix stands for, if that is whole and fits.
fn scaled(text: &str, suffixes: &[(&str, u64)]) -> Option<u64> {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (_, factor) = suffixes.iter().find(|(name, _)| *name == suffix)?;
    let number = &text[..text.len() - suffix.len()];
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let unit = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let fraction = u128::from(*factor) * u128::from(fraction.parse::<u64>().ok()?);
    let fraction = (fraction % u128::from(unit) == 0).then_some(fraction / u128::from(unit))?;
    whole.parse::<u64>().ok()?.checked_mul(*factor)?.checked_add(u64::try_from(fraction).ok()?)
}

/// The word that takes the fewest changes to become, if those are few.
pub fn closest_name(written: &str, known: &[&'static str]) -> Option<&'static str> {
    // Nobody mistypes a name into something much longer; comparing would take the product of both lengths.
    let written: Vec<char> = written.chars().take(32).collect();
    let closest = known.iter().map(|&word| (changes(&written, word), word)).min()?;
    (closest.0 <= closest.1.len().div_ceil(2)).then_some(closest.1)
}

/// Letters to put in, leave out or replace (Levenshtein).
fn changes(written: &[char], word: &str) -> usize {
    let mut row: Vec<usize> = (0..=written.len()).collect();
    for (line, letter) in word.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, &other) in written.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[written.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["flows", "packets", "share", "span"];

    fn values(text: &str) -> Result<SourceSettings<'_>, SettingsError> {
        SourceSettings::parse("load", KEYS, Some(text))
    }

    #[test]
    fn numbers_take_suffixes_and_fractions_that_come_out_whole() {
        for (text, number) in
            [("7", 7), ("300k", 300_000), ("14.88M", 14_880_000), ("0.5k", 500), ("2G", 2_000_000_000)]
        {
            let text = format!("flows={text}");
            assert_eq!(values(&text).unwrap().number("flows", [1, u64::MAX]).unwrap(), Some(number), "{text}");
        }
        for text in
            ["", "x", "1.5", "-1", "+1", "1e3", "99999999999G", "1.k", ".5k", "0", "1kk", "1.00000000000000000000001k"]
        {
            let text = format!("flows={text}");
            assert!(values(&text).unwrap().number("flows", [1, u64::MAX]).is_err(), "{text}");
        }
        assert_eq!(values("flows=1").unwrap().number("packets", [1, 2]).unwrap(), None);
    }

    #[test]
    fn shares_are_parts_or_percent_and_spans_have_units() {
        for (text, share) in
            [("0.3", 300_000_000), ("30%", 300_000_000), ("1", 1_000_000_000), ("0", 0), ("12.5%", 125_000_000)]
        {
            let text = format!("share={text}");
            assert_eq!(values(&text).unwrap().share_in_billionths("share").unwrap(), Some(share));
        }
        for text in ["share=1.1", "share=101%", "share=%", "share="] {
            assert!(values(text).unwrap().share_in_billionths("share").is_err(), "{text}");
        }
        for (text, ns) in
            [("500ms", 500_000_000), ("2", 2_000_000_000), ("1.5s", 1_500_000_000), ("5m", 300_000_000_000)]
        {
            let text = format!("span={text}");
            assert_eq!(values(&text).unwrap().duration_ns("span", [0, u64::MAX]).unwrap(), Some(ns));
        }
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_near_one_and_all() {
        let error = values("flow=3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "load has no key 'flow' (did you mean flows?); its keys are: flows, packets, share, span"
        );
        assert_eq!(closest_name("zzzzzzzzzzzz", KEYS), None);
        assert_eq!(closest_name("pakets", KEYS), Some("packets"));
    }

    #[test]
    fn what_is_no_pair_or_comes_twice_is_refused() {
        assert!(matches!(values("flows"), Err(SettingsError::NotAPair { .. })));
        assert!(matches!(values(""), Err(SettingsError::NotAPair { .. })));
        assert!(matches!(values("flows=1,"), Err(SettingsError::NotAPair { .. })));
        assert!(matches!(values("flows=1,flows=2"), Err(SettingsError::Twice { key: "flows" })));
    }
}
