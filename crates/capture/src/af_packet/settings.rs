//! What the user wrote behind `af_packet:`.

use crate::settings::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["queues", "block", "blocks", "snap", "promisc", "timestamps", "fanout"];
/// The pages of which every processor here can make blocks.
const PAGE: u64 = 4096;
const KIB: u64 = 1024;
const GIB: u64 = KIB * KIB * KIB;

/// Settings that make sense by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// Sources.
    pub queues: u16,
    /// Octets of a block.
    pub block_bytes: u32,
    /// Blocks of each queue's ring.
    pub blocks: u32,
    /// Octets kept of each frame.
    pub snap: Option<u32>,
    /// Also frames that are for others.
    pub promiscuous: bool,
    /// Times are those of the card.
    pub hardware: bool,
    /// Number of a group of programs that share the traffic.
    pub fanout: Option<u16>,
}

impl Settings {
    /// Reads `IFACE[,key=value]...`.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let (interface, rest) = text.split_once(',').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let values = SourceSettings::parse("af_packet", KEYS, rest)?;
        let block_bytes = values.octets("block", [PAGE, GIB])?.unwrap_or(256 * KIB);
        if block_bytes % PAGE != 0 {
            let what = format!("must be a multiple of {PAGE}, the size of a page");
            return Err(SettingsError::Value { key: "block", value: block_bytes.to_string(), what });
        }
        let on_or_off = [("on", true), ("off", false)];
        Ok(Self {
            interface: interface.into(),
            queues: values.number("queues", [1, 256])?.unwrap_or(1) as u16,
            block_bytes: block_bytes as u32,
            blocks: values.number("blocks", [2, 1 << 20])?.unwrap_or(256) as u32,
            snap: values.number("snap", [64, 1 << 18])?.map(|octets| octets as u32),
            promiscuous: values.choice("promisc", &on_or_off)?.unwrap_or(true),
            hardware: values.choice("timestamps", &[("kernel", false), ("hardware", true)])?.unwrap_or(false),
            fanout: values.number("fanout", [0, u16::MAX.into()])?.map(|group| group as u16),
        })
    }

    /// Octets of all rings together.
    fn octets(&self) -> u64 {
        u64::from(self.queues) * u64::from(self.blocks) * u64::from(self.block_bytes)
    }

    /// Refuses rings that the memory which is available does not hold: the kernel would take all of it before it says so.
    ///
    /// # Errors
    /// What to say.
    pub fn check_memory(&self, available: Option<u64>) -> Result<(), String> {
        match available {
            Some(available) if available <= self.octets() => Err(self.too_large("has available")),
            _ => Ok(()),
        }
    }

    /// What to say of a ring that is too large.
    pub fn too_large(&self, verb: &str) -> String {
        let Self { queues, blocks, block_bytes, .. } = self;
        format!(
            "queues={queues}, blocks={blocks}, block={block_bytes} take {} MiB of memory, more than this machine {verb}; make one of them smaller",
            self.octets().div_ceil(KIB * KIB)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Settings::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_name_alone_has_defaults_and_every_key_is_read() {
        let plain = Settings::parse("eth0").unwrap();
        assert_eq!((plain.interface.as_str(), plain.queues, plain.snap), ("eth0", 1, None));
        assert_eq!((u64::from(plain.block_bytes), plain.blocks), (256 * KIB, 256));
        assert!(plain.promiscuous && !plain.hardware && plain.fanout.is_none());
        let all = "e,queues=4,block=1MiB,blocks=8,snap=96,promisc=off,timestamps=hardware,fanout=7";
        let expected = Settings {
            interface: "e".into(),
            queues: 4,
            block_bytes: 1 << 20,
            blocks: 8,
            snap: Some(96),
            promiscuous: false,
            hardware: true,
            fanout: Some(7),
        };
        assert_eq!(Settings::parse(all).unwrap(), expected);
    }

    #[test]
    fn settings_that_make_no_sense_are_answered_with_what_would() {
        assert!(error("eth0,queue=2").contains("af_packet has no key 'queue' (did you mean queues?)"));
        assert!(error("eth0,queues=0").contains("from 1 to 256"));
        assert!(error("eth0,block=5000").contains("multiple of 4096"));
        assert!(error("eth0,block=1T").contains("KiB, MiB and GiB"));
        assert!(error("eth0,promisc=yes").contains("one of: on, off"));
        assert!(error("eth0,fanout=65536").contains("from 0 to 65535"));
        assert!(error("eth0,4").contains("not of the form key=value"));
        assert!(error("eth0,snap=96,snap=128").contains("given twice"));
    }

    #[test]
    fn rings_beyond_the_memory_are_refused_before_the_kernel_is_asked() {
        let settings = Settings::parse("eth0,queues=4,block=1GiB,blocks=64").unwrap();
        let told = settings.check_memory(Some(8 << 30)).unwrap_err();
        assert!(told.contains("take 262144 MiB") && told.contains("make one of them smaller"), "{told}");
        assert_eq!(settings.check_memory(None), Ok(()));
        assert_eq!(Settings::parse("eth0").unwrap().check_memory(Some(8 << 30)), Ok(()));
    }
}
