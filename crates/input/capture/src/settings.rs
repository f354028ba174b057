//! Parses the `key=value` settings of sources: `af_packet:eth0,queues=4` or
//! `velan,flows=131072,size=64`.

use weir_text::most_similar;

/// A wrong setting, with the possible ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The word before the first comma is not one of the traffic profiles.
    #[error("there is no traffic profile '{0}'{near}; the profiles are: {all}", near = near(.0, .1), all = .1.join(", "))]
    UnknownProfile(String, &'static [&'static str]),
    /// The source, named first, has other keys than this one.
    #[error("{0} has no key '{1}'{near}; its keys are: {all}", near = near(.1, .2), all = .2.join(", "))]
    UnknownKey(&'static str, String, &'static [&'static str]),
    /// The text between two commas is not `key=value`.
    #[error("'{0}' is not of the form key=value")]
    NotAPair(String),
    /// A key is given twice.
    #[error("{0} is given twice")]
    Duplicate(&'static str),
    /// The key does not allow this value; the last part says what it allows.
    #[error("{0}={1}: {2}")]
    Value(&'static str, String, String),
}

fn near(written: &str, known: &[&'static str]) -> String {
    most_similar(written, known.iter().copied()).map_or_else(String::new, |near| format!(" (did you mean {near}?)"))
}

/// The settings of one source, unparsed.
#[derive(Debug)]
pub struct SourceSettings<'a> {
    pairs: Vec<(&'static str, &'a str)>,
}

impl<'a> SourceSettings<'a> {
    /// Splits the text after the source's name.
    ///
    /// # Errors
    /// It has an unknown or duplicate key, or a part without `=`.
    pub fn parse(
        source_name: &'static str,
        known: &'static [&'static str],
        text: Option<&'a str>,
    ) -> Result<Self, SettingsError> {
        let mut values = Self { pairs: Vec::new() };
        for part in text.into_iter().flat_map(|text| text.split(',')) {
            let not_a_pair = || SettingsError::NotAPair(part.into());
            let (key, value) = part.split_once('=').ok_or_else(not_a_pair)?;
            let Some(&key) = known.iter().find(|&&name| name == key) else {
                return Err(SettingsError::UnknownKey(source_name, key.into(), known));
            };
            if values.get(key).is_some() {
                return Err(SettingsError::Duplicate(key));
            }
            values.pairs.push((key, value));
        }
        Ok(values)
    }

    /// Returns the text of a value, if the key is given.
    pub fn get(&self, key: &'static str) -> Option<&'a str> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }

    /// Returns a whole number within bounds; the suffixes k, M and G are powers of 1000.
    ///
    /// # Errors
    /// It is no such number.
    pub fn number(&self, key: &'static str, bounds: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const SUFFIXES: &[(&str, u64)] = &[("", 1), ("k", 1_000), ("K", 1_000), ("M", 1_000_000), ("G", 1_000_000_000)];
        let [low, high] = bounds;
        let expected = format!("must be a whole number from {low} to {high}, with an optional suffix k, M or G");
        self.scaled(key, &expected, SUFFIXES, bounds)
    }

    /// Returns a size in bytes within bounds; the suffixes KiB, MiB and GiB, and k, M and G, are
    /// powers of 1024.
    ///
    /// # Errors
    /// It is no such size.
    pub fn size_bytes(&self, key: &'static str, bounds: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const K: u64 = 1 << 10;
        const M: u64 = 1 << 20;
        const G: u64 = 1 << 30;
        const UNITS: &[(&str, u64)] =
            &[("", 1), ("k", K), ("K", K), ("KiB", K), ("M", M), ("MiB", M), ("G", G), ("GiB", G)];
        let [low, high] = bounds;
        let expected = format!("must be from {low} to {high} bytes, with an optional suffix KiB, MiB or GiB");
        self.scaled(key, &expected, UNITS, bounds)
    }

    /// Returns a duration in ns within bounds; a number without unit is in seconds.
    ///
    /// # Errors
    /// It is no such duration.
    pub fn duration_ns(&self, key: &'static str, bounds: [u64; 2]) -> Result<Option<u64>, SettingsError> {
        const SECOND: u64 = 1_000_000_000;
        const UNITS: &[(&str, u64)] =
            &[("", SECOND), ("us", 1_000), ("ms", 1_000_000), ("s", SECOND), ("m", 60 * SECOND), ("h", 3600 * SECOND)];
        let [low, high] = bounds.map(|bound| bound as f64 / 1e9);
        let expected = format!("must be a duration from {low} to {high} s, such as 500ms, 30s or 5m");
        self.scaled(key, &expected, UNITS, bounds)
    }

    /// Returns a fraction (`0.3` or `30%`) in billionths.
    ///
    /// # Errors
    /// The value is no number from 0 to 1.
    pub fn fraction_billionths(&self, key: &'static str) -> Result<Option<u64>, SettingsError> {
        const WHOLE: u64 = 1_000_000_000;
        const UNITS: &[(&str, u64)] = &[("", WHOLE), ("%", WHOLE / 100)];
        self.scaled(key, "must be a fraction from 0 to 1, or from 0% to 100%", UNITS, [0, WHOLE])
    }

    /// Returns the meaning of one of a few words.
    ///
    /// # Errors
    /// It is none of them.
    pub fn choice<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Result<Option<T>, SettingsError> {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        self.value(key, &format!("must be one of: {}", known.join(", ")), |value| {
            words.iter().find(|(word, _)| *word == value).map(|&(_, meaning)| meaning)
        })
    }

    fn scaled(
        &self,
        key: &'static str,
        expected: &str,
        units: &[(&str, u64)],
        [low, high]: [u64; 2],
    ) -> Result<Option<u64>, SettingsError> {
        self.value(key, expected, |value| scaled(value, units).filter(|number| (low..=high).contains(number)))
    }

    fn value<T>(
        &self,
        key: &'static str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match read(value) {
            Some(meaning) => Ok(Some(meaning)),
            None => Err(SettingsError::Value(key, value.into(), expected.into())),
        }
    }
}

/// Returns a decimal number times the factor of its suffix, if that is a whole number of 64 bits.
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

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["flows", "packets", "fraction", "duration"];

    fn values(text: &str) -> Result<SourceSettings<'_>, SettingsError> {
        SourceSettings::parse("load", KEYS, Some(text))
    }

    #[test]
    fn numbers_take_suffixes_and_fractions_with_a_whole_result() {
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
    fn fractions_take_percent_and_durations_take_units() {
        for (text, fraction) in
            [("0.3", 300_000_000), ("30%", 300_000_000), ("1", 1_000_000_000), ("0", 0), ("12.5%", 125_000_000)]
        {
            let text = format!("fraction={text}");
            assert_eq!(values(&text).unwrap().fraction_billionths("fraction").unwrap(), Some(fraction));
        }
        for text in ["fraction=1.1", "fraction=101%", "fraction=%", "fraction="] {
            assert!(values(text).unwrap().fraction_billionths("fraction").is_err(), "{text}");
        }
        for (text, ns) in
            [("500ms", 500_000_000), ("2", 2_000_000_000), ("1.5s", 1_500_000_000), ("5m", 300_000_000_000)]
        {
            let text = format!("duration={text}");
            assert_eq!(values(&text).unwrap().duration_ns("duration", [0, u64::MAX]).unwrap(), Some(ns));
        }
    }

    #[test]
    fn unknown_key_is_refused_with_the_closest_and_all_keys() {
        let error = values("flow=3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "load has no key 'flow' (did you mean flows?); its keys are: flows, packets, fraction, duration"
        );
    }

    #[test]
    fn part_without_equals_sign_and_duplicate_key_are_refused() {
        assert!(matches!(values("flows"), Err(SettingsError::NotAPair(_))));
        assert!(matches!(values(""), Err(SettingsError::NotAPair(_))));
        assert!(matches!(values("flows=1,"), Err(SettingsError::NotAPair(_))));
        assert!(matches!(values("flows=1,flows=2"), Err(SettingsError::Duplicate("flows"))));
    }
}
