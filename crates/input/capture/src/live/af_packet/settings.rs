//! Settings of an AF_PACKET source.

use crate::live_error::LiveError;
use crate::settings::{SettingsError, SourceSettings};

const KEYS: &[&str] = &["queues", "block", "blocks", "snap", "promisc", "timestamps", "fanout"];
/// Largest page size of the supported machines: a block is a multiple of it.
const PAGE_BYTES: u64 = 4096;
const KIB: u64 = 1024;
const GIB: u64 = KIB * KIB * KIB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub queues: u16,
    pub block_bytes: u32,
    pub blocks: u32,
    /// Snap length in bytes.
    pub snap_bytes: Option<u32>,
    pub promiscuous: bool,
    /// Time stamps of the NIC.
    pub hardware: bool,
    pub fanout: Option<u16>,
}

impl Settings {
    /// Parses `key=value[,key=value]...`.
    ///
    /// # Errors
    /// A wrong setting.
    pub fn parse(text: Option<&str>) -> Result<Self, SettingsError> {
        let values = SourceSettings::parse("af_packet", KEYS, text)?;
        let block_bytes = values.size_bytes("block", [PAGE_BYTES, GIB])?.unwrap_or(256 * KIB);
        if block_bytes % PAGE_BYTES != 0 {
            let expected = format!("must be a multiple of {PAGE_BYTES}, the page size");
            return Err(SettingsError::Value("block", block_bytes.to_string(), expected));
        }
        let on_or_off = [("on", true), ("off", false)];
        Ok(Self {
            queues: values.number("queues", [1, 256])?.unwrap_or(1) as u16,
            block_bytes: block_bytes as u32,
            blocks: values.number("blocks", [2, 1 << 20])?.unwrap_or(256) as u32,
            snap_bytes: values.number("snap", [64, 1 << 18])?.map(|bytes| bytes as u32),
            promiscuous: values.choice("promisc", &on_or_off)?.unwrap_or(true),
            hardware: values.choice("timestamps", &[("kernel", false), ("hardware", true)])?.unwrap_or(false),
            fanout: values.number("fanout", [0, u16::MAX.into()])?.map(|group| group as u16),
        })
    }

    /// Whether the source can attach to an interface again. The kernel binds no socket of a fanout group
    /// again, and time stamps of the NIC would need a capability.
    pub fn can_wait(&self) -> bool {
        self.queues == 1 && self.fanout.is_none() && !self.hardware
    }

    /// Refuses rings that exceed the available memory, because the kernel would use up all of it
    /// before it fails.
    ///
    /// # Errors
    /// [`LiveError::RingMemory`].
    pub fn check_memory(&self, available_bytes: Option<u64>) -> Result<(), LiveError> {
        let bytes = u64::from(self.queues) * u64::from(self.blocks) * u64::from(self.block_bytes);
        match available_bytes {
            Some(available) if available <= bytes => Err(self.memory_error()),
            _ => Ok(()),
        }
    }

    pub fn memory_error(&self) -> LiveError {
        LiveError::RingMemory(self.queues, self.blocks, self.block_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Settings::parse(Some(text)).unwrap_err().to_string()
    }

    #[test]
    fn name_alone_has_defaults_and_every_key_is_parsed() {
        let plain = Settings::parse(None).unwrap();
        assert_eq!((plain.queues, plain.snap_bytes), (1, None));
        assert_eq!((u64::from(plain.block_bytes), plain.blocks), (256 * KIB, 256));
        assert!(plain.promiscuous && !plain.hardware && plain.fanout.is_none());
        let all = "queues=4,block=1MiB,blocks=8,snap=96,promisc=off,timestamps=hardware,fanout=7";
        let expected = Settings {
            queues: 4,
            block_bytes: 1 << 20,
            blocks: 8,
            snap_bytes: Some(96),
            promiscuous: false,
            hardware: true,
            fanout: Some(7),
        };
        assert_eq!(Settings::parse(Some(all)).unwrap(), expected);
    }

    #[test]
    fn wrong_settings_are_refused_with_the_right_ones() {
        assert!(error("queue=2").contains("af_packet has no key 'queue' (did you mean queues?)"));
        assert!(error("queues=0").contains("from 1 to 256"));
        assert!(error("block=5000").contains("multiple of 4096"));
        assert!(error("block=1T").contains("suffix KiB, MiB or GiB"));
        assert!(error("promisc=yes").contains("one of: on, off"));
        assert!(error("fanout=65536").contains("from 0 to 65535"));
        assert!(error("4").contains("not of the form key=value"));
        assert!(error("snap=96,snap=128").contains("given twice"));
    }

    #[test]
    fn rings_larger_than_memory_are_refused() {
        let settings = Settings::parse(Some("queues=4,block=1GiB,blocks=64")).unwrap();
        let error = settings.check_memory(Some(8 << 30)).unwrap_err().to_string();
        assert!(error.contains("take 262144 MiB") && error.contains("make one of them smaller"), "{error}");
        assert!(settings.check_memory(None).is_ok());
        assert!(Settings::parse(None).unwrap().check_memory(Some(8 << 30)).is_ok());
    }
}
