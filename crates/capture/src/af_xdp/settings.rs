//! What the user wrote behind `af_xdp:`.

use crate::settings::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["queues", "mode", "attach", "snap", "frames"];
/// Frames of a queue, at most: 4 GiB of memory.
const MOST_FRAMES: u64 = 1 << 20;
/// More queues than any card has.
const MOST_QUEUES: u32 = 4096;

/// How frames come from the driver into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// By the card itself if its driver can, else by a copy.
    Auto,
    /// By a copy: every driver can.
    Copy,
    /// By the card itself, or not at all.
    Zerocopy,
}

/// Where the program stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attach {
    /// In the driver if it can, else behind it.
    Auto,
    /// In the driver, or not at all.
    Native,
    /// Behind the driver, which works with every one and is slower.
    Generic,
}

/// Settings that make sense by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// First and last queue; all that the interface has if there are none.
    pub queues: Option<(u32, u32)>,
    pub mode: Mode,
    pub attach: Attach,
    /// Octets kept of each frame.
    pub snap: Option<u32>,
    /// Frames for which each queue has memory: a power of two.
    pub frames: u32,
}

impl Settings {
    /// Reads `IFACE[,key=value]...`. `most_octets` is what fits into the memory of a frame.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str, most_octets: u32) -> Result<Self, SettingsError> {
        let (interface, rest) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let values = SourceSettings::parse("af_xdp", KEYS, rest)?;
        let refuse = |key: &'static str, value: &str, what: &str| SettingsError::Value {
            key,
            value: value.into(),
            what: what.into(),
        };
        let queues = match values.get("queues") {
            None => None,
            Some(text) => {
                let queues = range(text).filter(|(first, last)| first <= last && *last < MOST_QUEUES);
                Some(queues.ok_or_else(|| refuse("queues", text, "must be one queue (2) or a range (0-3)"))?)
            }
        };
        let frames = values.number("frames", [128, MOST_FRAMES])?.unwrap_or(4096) as u32;
        if !frames.is_power_of_two() {
            return Err(refuse("frames", &frames.to_string(), "must be a power of two, as 2048 or 4096"));
        }
        let modes = [("auto", Mode::Auto), ("copy", Mode::Copy), ("zerocopy", Mode::Zerocopy)];
        let attachments = [("auto", Attach::Auto), ("native", Attach::Native), ("generic", Attach::Generic)];
        let settings = Self {
            interface: interface.into(),
            queues,
            mode: values.choice("mode", &modes)?.unwrap_or(Mode::Auto),
            attach: values.choice("attach", &attachments)?.unwrap_or(Attach::Auto),
            snap: values.number("snap", [64, most_octets.into()])?.map(|octets| octets as u32),
            frames,
        };
        if (settings.mode, settings.attach) == (Mode::Zerocopy, Attach::Generic) {
            return Err(refuse("mode", "zerocopy", "needs a program in the driver: attach=native"));
        }
        Ok(settings)
    }
}

fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_takes_all_queues_as_well_as_the_driver_can() {
        let settings = Settings::parse("eth0", 3840).unwrap();
        let expected = Settings {
            interface: "eth0".into(),
            queues: None,
            mode: Mode::Auto,
            attach: Attach::Auto,
            snap: None,
            frames: 4096,
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn everything_can_be_said() {
        let settings = Settings::parse("eth0,queues=1-3,mode=copy,attach=generic,snap=128,frames=256", 3840).unwrap();
        let expected = Settings {
            interface: "eth0".into(),
            queues: Some((1, 3)),
            mode: Mode::Copy,
            attach: Attach::Generic,
            snap: Some(128),
            frames: 256,
        };
        assert_eq!(settings, expected);
        assert_eq!(Settings::parse("eth0,queues=2", 3840).unwrap().queues, Some((2, 2)));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_key() {
        for (text, what) in [
            ("eth0,queues=3-1", "queues"),
            ("eth0,queues=x", "range"),
            ("eth0,queues=0-99999", "range"),
            ("eth0,frames=1000", "power of two"),
            ("eth0,frames=64", "frames"),
            ("eth0,snap=63", "snap"),
            ("eth0,snap=3841", "snap"),
            ("eth0,mode=fast", "zerocopy"),
            ("eth0,mode=zerocopy,attach=generic", "attach=native"),
            ("eth0,queue=1", "queues"),
        ] {
            let error = Settings::parse(text, 3840).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
