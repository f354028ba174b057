//! Settings of an AF_XDP source.

use super::socket::MAX_FRAME_BYTES;
use crate::settings::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["queues", "mode", "attach", "snap", "frames"];
/// Largest number of frames of a queue: 4 GiB of memory.
const MAX_FRAMES: u64 = 1 << 20;
/// Upper bound of queue numbers: more queues than any NIC has.
const MAX_QUEUES: u32 = 4096;

/// How frames get from the driver into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Zero copy if the driver supports it, otherwise copy.
    Auto,
    /// Copy, which every driver supports.
    Copy,
    Zerocopy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attach {
    /// In the driver if it supports it, otherwise after the driver.
    Auto,
    Native,
    /// After the driver, which works with every driver and is slower.
    Generic,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// First and last queue; `None` for all queues of the interface.
    pub queues: Option<(u32, u32)>,
    pub mode: Mode,
    pub attach: Attach,
    /// Snap length in bytes.
    pub snap_bytes: Option<u32>,
    /// Frames that the memory of each queue holds: a power of two.
    pub frames: u32,
}

impl Settings {
    /// Parses `key=value[,key=value]...`.
    ///
    /// # Errors
    /// A wrong setting.
    pub fn parse(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("af_xdp", KEYS, text)?;
        let refuse = |key, value: &str, expected: &str| SettingsError::Value(key, value.into(), expected.into());
        let queues = match values.get("queues") {
            None => None,
            Some(text) => {
                let queues = range(text).filter(|(first, last)| first <= last && *last < MAX_QUEUES);
                Some(queues.ok_or_else(|| refuse("queues", text, "must be one queue (2) or a range (0-3)"))?)
            }
        };
        let frames = values.number("frames", [128, MAX_FRAMES])?.unwrap_or(4096) as u32;
        if !frames.is_power_of_two() {
            return Err(refuse("frames", &frames.to_string(), "must be a power of two, such as 2048 or 4096"));
        }
        let modes = [("auto", Mode::Auto), ("copy", Mode::Copy), ("zerocopy", Mode::Zerocopy)];
        let attachments = [("auto", Attach::Auto), ("native", Attach::Native), ("generic", Attach::Generic)];
        let settings = Self {
            queues,
            mode: values.choice("mode", &modes)?.unwrap_or(Mode::Auto),
            attach: values.choice("attach", &attachments)?.unwrap_or(Attach::Auto),
            snap_bytes: values.number("snap", [64, MAX_FRAME_BYTES.into()])?.map(|bytes| bytes as u32),
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
    fn name_alone_has_defaults_and_every_key_is_parsed() {
        let (mode, attach) = (Mode::Auto, Attach::Auto);
        let plain = Settings { queues: None, mode, attach, snap_bytes: None, frames: 4096 };
        assert_eq!(Settings::parse(None), Ok(plain));
        let (queues, mode, attach, snap_bytes) = (Some((1, 3)), Mode::Copy, Attach::Generic, Some(128));
        let expected = Settings { queues, mode, attach, snap_bytes, frames: 256 };
        let all = "queues=1-3,mode=copy,attach=generic,snap=128,frames=256";
        assert_eq!(Settings::parse(Some(all)), Ok(expected));
        assert_eq!(Settings::parse(Some("queues=2")).unwrap().queues, Some((2, 2)));
    }

    #[test]
    fn wrong_settings_are_refused_with_the_key() {
        for (text, what) in [
            ("queues=3-1", "queues"),
            ("queues=x", "range"),
            ("queues=0-99999", "range"),
            ("frames=1000", "power of two"),
            ("frames=64", "frames"),
            ("snap=63", "snap"),
            ("snap=3841", "snap"),
            ("mode=fast", "zerocopy"),
            ("mode=zerocopy,attach=generic", "attach=native"),
            ("queue=1", "queues"),
        ] {
            let error = Settings::parse(Some(text)).unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
