//! The time zone of times that people read and write: UTC, or local time (`--local-time`).
//!
//! In: times in ns since 1970-01-01 UTC, texts of times without a zone. Out: the same the other way
//! round, and the intervals of time lines. A time that the clocks show twice, because they are set
//! back, is never ambiguous: its text has the offset from UTC, and without an offset it is refused.

use crate::units::{parse_duration, span};
use jiff::civil::{Date, DateTime, date};
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 86_400 * SECOND_NS;
/// What only a zone or an offset has; `-` is also in dates.
const ZONE_MARKS: [char; 4] = ['+', '[', 'Z', 'z'];
/// The day from which intervals of several days are counted.
const EPOCH: Date = date(1970, 1, 1);
/// The day of the last time that has a number of ns.
const LAST_DAY: Date = date(2554, 7, 21);
/// Octets of a date: `2026-11-20`.
const DATE_OCTETS: usize = 10;

/// Local time, once it is in use.
static LOCAL: OnceLock<Zone> = OnceLock::new();
static UTC: Zone = Zone::UTC;

/// A time zone.
#[derive(Debug)]
pub struct Zone {
    rules: TimeZone,
    name: Cow<'static, str>,
}

/// Why local time is not known.
#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    /// The variable `TZ` names no zone.
    #[error("TZ={0:?} is no time zone of this machine; write for example TZ=Europe/Berlin")]
    Variable(String),
    /// Without the variable, the machine has no zone.
    #[error("the time zone of this machine is not known; set TZ, for example TZ=Europe/Berlin ({0})")]
    System(jiff::Error),
}

/// Why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// It has another form.
    #[error("{text:?} is not a time; write for example 2026-11-20T12:00:00Z (without a zone: {zone})")]
    Form {
        /// The text.
        text: String,
        /// Name of the zone.
        zone: String,
    },
    /// No record can have it.
    #[error(
        "{text:?} is a time before 1970 or after 2554-07-21, which no flow has; without the limit all flows are selected"
    )]
    Beyond {
        /// The text.
        text: String,
    },
    /// The clocks show it twice.
    #[error("{text:?} is two times in {zone}, where the clocks are set back; write {early} or {late} behind it")]
    Twice {
        /// The text.
        text: String,
        /// Name of the zone.
        zone: String,
        /// Offset of the first of both.
        early: String,
        /// Offset of the second of both.
        late: String,
    },
    /// The clocks do not show it.
    #[error("{text:?} is no time in {zone}, where the clocks are set forward")]
    Skipped {
        /// The text.
        text: String,
        /// Name of the zone.
        zone: String,
    },
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self { rules: TimeZone::UTC, name: Cow::Borrowed("UTC") };

    /// The zone that people read and write times in: UTC, or local time after [`Zone::use_local`].
    pub fn current() -> &'static Self {
        LOCAL.get().unwrap_or(&UTC)
    }

    /// Reads the local zone from the variable `TZ`, or from the settings of the system, and makes it the
    /// current one. Opens files; later calls do nothing.
    ///
    /// # Errors
    /// `TZ` names no zone, or the system has none.
    pub fn use_local() -> Result<(), ZoneError> {
        if LOCAL.get().is_some() {
            return Ok(());
        }
        let variable = std::env::var_os("TZ").map(|name| name.to_string_lossy().into_owned());
        let rules = TimeZone::try_system().map_err(|error| match &variable {
            Some(name) => ZoneError::Variable(name.clone()),
            None => ZoneError::System(error),
        })?;
        let is_printable = |name: &String| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_graphic());
        let name = rules.iana_name().map(str::to_owned).or(variable.filter(is_printable));
        let name = name.map_or(Cow::Borrowed("local time"), Cow::Owned);
        let _ = LOCAL.set(Self { rules, name });
        Ok(())
    }

    /// The name in headings: `UTC`, `Europe/Berlin`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Date and time of day, to the millisecond: (`2026-11-20`, `12:00:00.123`). A time that the clocks show
    /// twice has its offset: `02:30:00.000+01:00`.
    pub fn date_and_time(&self, ns: u64) -> (String, String) {
        self.text(ns, "%H:%M:%S.%3f")
    }

    /// As [`Zone::date_and_time`], to the second.
    pub fn date_and_second(&self, ns: u64) -> (String, String) {
        self.text(ns, "%H:%M:%S")
    }

    /// A period and its length: `2026-11-20 12:00:00.000 to 12:00:00.364 UTC (364ms)`.
    pub fn period(&self, first_ns: u64, last_ns: u64) -> String {
        let ((day, time), (last_day, last_time)) = (self.date_and_time(first_ns), self.date_and_time(last_ns));
        let until = if day == last_day { last_time } else { format!("{last_day} {last_time}") };
        format!("{day} {time} to {until} {} ({})", self.name(), span(last_ns.saturating_sub(first_ns)))
    }

    fn text(&self, ns: u64, form: &str) -> (String, String) {
        let time = timestamp(ns).to_zoned(self.rules.clone());
        let offset = self.rules.to_ambiguous_timestamp(time.datetime()).offset();
        let offset = if matches!(offset, AmbiguousOffset::Fold { .. }) { "%:z" } else { "" };
        (time.strftime("%Y-%m-%d").to_string(), time.strftime(&format!("{form}{offset}")).to_string())
    }

    /// RFC 3339 with nanoseconds: `2026-11-20T12:00:00.123456789Z`, in other zones with the offset instead
    /// of `Z`.
    pub fn rfc_3339(&self, ns: u64) -> String {
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(9));
        let time = timestamp(ns);
        if self.rules == TimeZone::UTC {
            return PRINTER.timestamp_to_string(&time);
        }
        PRINTER.timestamp_with_offset_to_string(&time, self.rules.to_offset(time))
    }

    /// Parses a time, ns since 1970 UTC: with or without a zone, or a day, which is its begin. Without a zone
    /// the time is in this one.
    ///
    /// # Errors
    /// It is no time, or its clocks show it twice or not at all.
    pub fn parse(&self, text: &str) -> Result<u64, TimeError> {
        let form = || match text.get(..DATE_OCTETS).and_then(|day| day.parse::<Date>().ok()) {
            Some(day) if !(EPOCH..=LAST_DAY).contains(&day) => TimeError::Beyond { text: text.into() },
            _ => TimeError::Form { text: text.into(), zone: self.name().into() },
        };
        if let Ok(time) = text.parse::<Timestamp>() {
            return nanoseconds(time).ok_or_else(form);
        }
        // Another zone or offset would be left out in silence.
        let time = text.split_once(['T', 't', ' ']).map_or("", |(_, time)| time);
        if text.contains(ZONE_MARKS) || time.contains('-') {
            return Err(form());
        }
        match (text.parse::<DateTime>(), text.parse::<Date>()) {
            // A day is also a date with the time 0:00, which the clocks may skip or show twice.
            (_, Ok(day)) if !text.contains(':') && !text.contains(['T', 't', ' ']) => {
                day.to_zoned(self.rules.clone()).ok().and_then(|day| nanoseconds(day.timestamp())).ok_or_else(form)
            }
            (Ok(time), _) => self.only_instant(text, time).map_err(|error| match error {
                TimeError::Form { .. } => form(),
                other => other,
            }),
            _ => Err(form()),
        }
    }

    /// Parses a time of the day on which another time is.
    ///
    /// # Errors
    /// As [`Zone::parse`].
    pub fn parse_time_of_day(&self, text: &str, day_ns: u64) -> Result<u64, TimeError> {
        let has_zone = text.contains(ZONE_MARKS) || text.contains('-');
        let time = text.parse().ok().filter(|_| !has_zone);
        let time = time.ok_or_else(|| TimeError::Form { text: text.into(), zone: self.name().into() })?;
        self.only_instant(text, timestamp(day_ns).to_zoned(self.rules.clone()).date().to_datetime(time))
    }

    /// Parses a time as [`Zone::parse`], a time of today, or a duration before now: `-2h`.
    ///
    /// # Errors
    /// As [`Zone::parse`].
    pub fn parse_relative(&self, text: &str, now_ns: u64) -> Result<u64, TimeError> {
        let of_today = |error| match error {
            TimeError::Form { .. } => self.parse_time_of_day(text, now_ns),
            other => Err(other),
        };
        let before = |error| {
            let ago = text.strip_prefix('-').and_then(|text| parse_duration(text).ok());
            ago.filter(|_| matches!(error, TimeError::Form { .. })).and_then(|ago| now_ns.checked_sub(ago)).ok_or(error)
        };
        self.parse(text).or_else(of_today).or_else(before)
    }

    /// When the clocks show a time.
    fn only_instant(&self, text: &str, time: DateTime) -> Result<u64, TimeError> {
        let (text, zone) = (text.to_owned(), self.name().to_owned());
        let instant = self.rules.to_ambiguous_timestamp(time);
        match instant.offset() {
            AmbiguousOffset::Unambiguous { .. } => {
                let instant = instant.unambiguous().ok().and_then(nanoseconds);
                instant.ok_or(TimeError::Form { text, zone })
            }
            AmbiguousOffset::Gap { .. } => Err(TimeError::Skipped { text, zone }),
            AmbiguousOffset::Fold { before, after } => {
                let (early, late) = (offset_text(before), offset_text(after));
                Err(TimeError::Twice { text, zone, early, late })
            }
        }
    }

    /// The interval of a length, in ns, that a time is in. In UTC, intervals begin at multiples of their
    /// length since 1970. In other zones, those of whole days are days of the calendar, which have 23 or 25
    /// hours when the clocks change. Shorter ones begin at multiples of their length by the clock, and an
    /// interval in which the clocks change ends there: the next one begins.
    pub fn interval(&self, ns: u64, length_ns: u64) -> Range<u64> {
        if self.rules == TimeZone::UTC {
            let start = ns / length_ns * length_ns;
            return start..start.saturating_add(length_ns);
        }
        if length_ns.is_multiple_of(DAY_NS) {
            return self.days(ns, (length_ns / DAY_NS) as i64);
        }
        let (time, length) = (timestamp(ns), i128::from(length_ns));
        let offset_ns = i128::from(self.rules.to_offset(time).seconds()) * i128::from(SECOND_NS);
        let start = (i128::from(ns) + offset_ns).div_euclid(length) * length - offset_ns;
        let (mut start, end) = (start, clamped(start + length));
        let before = self.rules.preceding(time + 1.nanosecond()).map(|change| change.timestamp());
        if let Some(change) = before.take_while(|at| at.as_nanosecond() > start).find(|&at| self.changes(at)) {
            start = change.as_nanosecond();
        }
        clamped(start)..self.next_change(ns, end)
    }

    /// The number of intervals that begin from the begin of one on and before another time.
    pub fn intervals(&self, times_ns: Range<u64>, length_ns: u64) -> u64 {
        let (mut ns, mut intervals) = (times_ns.start, 0);
        while ns < times_ns.end {
            let interval = self.interval(ns, length_ns);
            // Up to the next change of the clocks, all have this length.
            let whole = match interval.end - interval.start == length_ns {
                true => (self.next_change(ns, times_ns.end) - ns) / length_ns,
                false => 0,
            };
            intervals += whole.max(1);
            ns = if whole > 0 { ns + whole * length_ns } else { interval.end };
        }
        intervals
    }

    /// When the offset from UTC changes next after a time; `until_ns` if it does not change before.
    fn next_change(&self, ns: u64, until_ns: u64) -> u64 {
        let times = self.rules.following(timestamp(ns)).map(|change| change.timestamp());
        let mut times = times.take_while(|at| at.as_nanosecond() < until_ns.into());
        times.find(|&at| self.changes(at)).map_or(until_ns, |at| clamped(at.as_nanosecond()))
    }

    /// Whether the offset from UTC changes at a transition; otherwise it is none of the clocks.
    fn changes(&self, transition: Timestamp) -> bool {
        self.rules.to_offset(transition) != self.rules.to_offset(transition - 1.nanosecond())
    }

    /// The interval of a number of days of the calendar, counted from 1970, that a time is in.
    fn days(&self, ns: u64, length: i64) -> Range<u64> {
        let day = timestamp(ns).to_zoned(self.rules.clone()).date();
        let days = i64::from((day - EPOCH).get_days());
        let first = days.div_euclid(length) * length;
        let begin = |day: i64| {
            let day = EPOCH.checked_add(day.days()).ok()?.to_zoned(self.rules.clone()).ok()?;
            Some(clamped(day.timestamp().as_nanosecond()))
        };
        begin(first).unwrap_or(0)..begin(first + length).unwrap_or(u64::MAX)
    }
}

/// An offset as in RFC 3339: `+01:00`.
fn offset_text(offset: jiff::tz::Offset) -> String {
    let (sign, minutes) = (if offset.is_negative() { '-' } else { '+' }, offset.seconds().abs() / 60);
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

fn timestamp(ns: u64) -> Timestamp {
    Timestamp::from_nanosecond(ns.into()).expect("64 bits of ns end in the year 2554")
}

fn nanoseconds(time: Timestamp) -> Option<u64> {
    u64::try_from(time.as_nanosecond()).ok()
}

/// Times before 1970 are 1970.
fn clamped(ns: i128) -> u64 {
    ns.clamp(0, u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &'static str) -> Zone {
        Zone { rules: TimeZone::get(name).unwrap(), name: name.into() }
    }

    #[test]
    fn times_are_in_utc_to_the_millisecond() {
        let utc = |ns| Zone::UTC.date_and_time(ns);
        assert_eq!(utc(951_782_399 * SECOND_NS), ("2000-02-28".into(), "23:59:59.000".into()));
        assert_eq!(utc(951_782_400 * SECOND_NS), ("2000-02-29".into(), "00:00:00.000".into()));
        assert_eq!(utc(u64::MAX), ("2554-07-21".into(), "23:34:33.709".into()));
    }

    #[test]
    fn a_time_that_the_clocks_show_twice_has_its_offset() {
        let berlin = zone("Europe/Berlin");
        for (utc, local) in [
            ("2026-10-24T23:59:59Z", "01:59:59"),
            ("2026-10-25T00:30:00Z", "02:30:00+02:00"),
            ("2026-10-25T01:30:00Z", "02:30:00+01:00"),
            ("2026-10-25T02:00:00Z", "03:00:00"),
        ] {
            let ns = Zone::UTC.parse(utc).unwrap();
            assert_eq!(berlin.date_and_second(ns), ("2026-10-25".into(), local.into()));
            assert_eq!(berlin.parse(&format!("2026-10-25T{local}")), Ok(ns));
            assert_eq!(berlin.parse(&berlin.rfc_3339(ns)), Ok(ns));
        }
        let error = |text| berlin.parse(text).unwrap_err().to_string();
        assert!(error("2026-10-25T02:30").ends_with("write +02:00 or +01:00 behind it"));
        assert!(error("2026-03-29T02:30").contains("is no time in Europe/Berlin"));
        assert!(error("tomorrow").ends_with("(without a zone: Europe/Berlin)"));
        let day = |zone: &Zone| zone.parse("2026-03-29").map(|ns| Zone::UTC.rfc_3339(ns)).unwrap();
        assert_eq!(day(&berlin), "2026-03-28T23:00:00.000000000Z");
        assert_eq!(day(&zone("Asia/Kathmandu")), "2026-03-28T18:15:00.000000000Z");
        // The day begins at 1:00.
        assert_eq!(day(&zone("Asia/Beirut")), "2026-03-28T22:00:00.000000000Z");
    }

    #[test]
    fn no_zone_is_left_out() {
        let noon = Zone::UTC.parse("2026-11-20T12:00").unwrap();
        let parse = |text| Zone::UTC.parse_relative(text, noon + SECOND_NS);
        for text in ["2026-11-20 12:00", "12:00", "-1s", "2026-11-20T14:00+02", "2026-11-20T09:00-03:00"] {
            assert_eq!(parse(text), Ok(noon), "{text}");
        }
        for text in ["9999-12-31", "9999-12-31T23:59:59Z", "2554-07-22", "1969-12-31 12:00"] {
            assert_eq!(parse(text), Err(TimeError::Beyond { text: text.into() }));
        }
        for text in
            ["12:00+02:00", "12:00-02:00", "12:00Z", "2026-11-20T12:00[Europe/Berlin]", "2026-11-20+02:00", "-1x", "1s"]
        {
            assert!(matches!(parse(text), Err(TimeError::Form { .. })), "{text}");
        }
    }

    /// The begins of the intervals between two times, of which each begins where the other ends.
    fn begins(zone: &Zone, length: &str, from: &str, until: &str) -> Vec<String> {
        let length_ns = crate::units::parse_duration(length).unwrap();
        let (mut ns, until) = (zone.parse(from).unwrap(), zone.parse(until).unwrap());
        let mut begins = Vec::new();
        while ns < until {
            let interval = zone.interval(ns, length_ns);
            assert!(interval.contains(&ns) && interval.start == ns, "{interval:?} {ns}");
            assert_eq!(zone.interval(interval.end - 1, length_ns), interval);
            let after = interval.end + 3 * length_ns;
            assert_eq!(zone.intervals(interval.start..zone.interval(after, length_ns).start, length_ns), {
                let (mut at, mut intervals) = (interval.end, 1);
                while at < zone.interval(after, length_ns).start {
                    (at, intervals) = (zone.interval(at, length_ns).end, intervals + 1);
                }
                intervals
            });
            begins.push(zone.date_and_second(ns).1.replace(":00:00", ""));
            ns = interval.end;
        }
        begins
    }

    #[test]
    fn intervals_are_those_of_the_clock() {
        let berlin = zone("Europe/Berlin");
        let autumn = |length| begins(&berlin, length, "2026-10-25T00:00", "2026-10-25T04:00").join(" ");
        assert_eq!(autumn("1h"), "00 01 02+02 02+01 03".replace("+02", "+02:00").replace("+01", "+01:00"));
        assert_eq!(autumn("2h"), "00 02+02:00 02+01:00");
        let spring = |length| begins(&berlin, length, "2026-03-29T00:00", "2026-03-29T08:00").join(" ");
        assert_eq!(spring("1h"), "00 01 03 04 05 06 07");
        assert_eq!(spring("4h"), "00 03 04");
        let days = |length| begins(&berlin, length, "2026-03-26", "2026-04-01");
        assert_eq!([days("1d"), days("3d")].map(|days| days.join(" ")), ["00 00 00 00 00 00", "00 00"]);
        let kathmandu = zone("Asia/Kathmandu");
        assert_eq!(begins(&kathmandu, "12h", "2026-03-28", "2026-03-29"), ["00", "12"]);
        // Half an hour is set back.
        let lord_howe = zone("Australia/Lord_Howe");
        let begins = begins(&lord_howe, "1h", "2026-04-05T00:00", "2026-04-05T03:00").join(" ");
        assert_eq!(begins, "00 01 01:30:00+10:30 02");
    }

    #[test]
    fn intervals_exist_at_the_ends_of_time() {
        for zone in [Zone::UTC, zone("Europe/Berlin"), zone("America/New_York"), zone("Pacific/Apia")] {
            for length_ns in [1_000_000, 7 * 3600 * SECOND_NS, DAY_NS, 213_503 * DAY_NS, u64::MAX] {
                for ns in [0, 1, SECOND_NS, u64::MAX / 2, u64::MAX - 1] {
                    assert!(zone.interval(ns, length_ns).contains(&ns), "{zone:?} {length_ns} {ns}");
                }
            }
        }
    }
}
