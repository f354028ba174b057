//! Receivers of syslog: `//HOST[:PORT][?NAME=VALUE&...]`.

use super::SinkSetting;
use super::collector::{RATE, connect, parse_endpoint, resolve};
use super::stream::{each, of_tls, shown};
use crate::sink::{Error, ExportOptions, InvalidSink, MAX_MTU, Sink};
use crate::stream::StreamSettings;
use crate::syslog::{MIN_DATAGRAM_BYTES, SyslogOutput, SyslogSink};
use crate::udp::Collector;
use weir_fields::{Column, select_columns};

pub(super) const FACILITY: SinkSetting = SinkSetting {
    name: "facility",
    value: "NAME",
    default: "local0",
    effect: "syslog: facility of the messages, such as daemon or local7; their severity is informational",
};
pub(super) const SIZE: SinkSetting = SinkSetting {
    name: "size",
    value: "N",
    default: "8192",
    effect: "syslog over UDP: longest datagram, octets; a record that needs more is lost (too_long)",
};

/// The facilities by number (RFC 5424 section 6.2.1), without those of clocks and audits.
const FACILITIES: [(&str, u8); 20] = [
    ("kern", 0),
    ("user", 1),
    ("mail", 2),
    ("daemon", 3),
    ("auth", 4),
    ("syslog", 5),
    ("lpr", 6),
    ("news", 7),
    ("uucp", 8),
    ("cron", 9),
    ("authpriv", 10),
    ("ftp", 11),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];
const LOCAL0: u8 = 16;
const DEFAULT_SIZE: usize = 8192;
/// As of other collectors over UDP.
const DEFAULT_RATE: u32 = 10_000;

/// How messages are carried.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Carrier {
    Udp,
    Tcp,
    Tls,
}

#[derive(Debug)]
enum Receiver {
    Stream(StreamSettings),
    /// With the longest datagram.
    Udp(Collector, usize),
}

/// A receiver of syslog.
#[derive(Debug)]
pub(super) struct SyslogReceiver {
    receiver: Receiver,
    facility: u8,
    columns: Option<Vec<&'static Column>>,
}

impl SyslogReceiver {
    pub fn parse(rest: &str, default_port: u16, carrier: Carrier) -> Result<Self, InvalidSink> {
        let (host, port, settings) = parse_endpoint(rest, Some(default_port))?;
        let is_tls = carrier == Carrier::Tls;
        let mut receiver = match carrier {
            // The output knows the shortest limit only: it divides what is longer than the path permits.
            Carrier::Udp => {
                let mtu = MIN_DATAGRAM_BYTES;
                Receiver::Udp(Collector { host: host.into(), port, mtu, rate: DEFAULT_RATE }, DEFAULT_SIZE)
            }
            Carrier::Tcp | Carrier::Tls => Receiver::Stream(StreamSettings::tcp(host, port, is_tls)),
        };
        let (mut facility, mut columns) = (LOCAL0, None);
        for (name, value) in each(settings) {
            if let Receiver::Stream(stream) = &mut receiver
                && stream.set(name, value)?
            {
                continue;
            }
            match (name, &mut receiver) {
                ("fields", _) => columns = Some(select_columns(value)?),
                ("facility", _) => {
                    let known = FACILITIES.iter().find(|(name, _)| *name == value);
                    facility = known.ok_or_else(|| InvalidSink::Facility(value.into()))?.1;
                }
                ("size", Receiver::Udp(_, size)) => {
                    let octets = value.parse().ok().filter(|octets| (MIN_DATAGRAM_BYTES..=MAX_MTU).contains(octets));
                    *size = octets.ok_or_else(|| InvalidSink::Size(value.into()))?;
                }
                (name, Receiver::Udp(collector, _)) if name == RATE.name => {
                    collector.rate = value.parse().map_err(|_| InvalidSink::Rate(value.into()))?;
                }
                (name, receiver) => {
                    let others = match receiver {
                        Receiver::Udp(..) => "size=N, rate=N",
                        Receiver::Stream(_) => "buffer=16MiB, spool=FOLDER, limit=10GiB, retry=1m",
                    };
                    let setting = shown(name, value);
                    return Err(InvalidSink::SyslogSetting { setting, others, of_tls: of_tls(is_tls) });
                }
            }
        }
        if let Receiver::Stream(stream) = &receiver {
            stream.check_settings()?;
        }
        Ok(Self { receiver, facility, columns })
    }
}

impl super::Destination for SyslogReceiver {
    fn open(&self, name: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
        let output = match &self.receiver {
            Receiver::Stream(stream) => SyslogOutput::Stream(Box::new(stream.open("syslog", name, options)?)),
            Receiver::Udp(collector, size) => {
                SyslogOutput::Udp(Box::new(connect(collector, name, MIN_DATAGRAM_BYTES, options)?), *size)
            }
        };
        let columns = self.columns.clone().unwrap_or_else(|| options.columns.clone());
        Ok(Box::new(SyslogSink::new(name, output, self.facility, columns, options)))
    }

    fn check(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        match &self.receiver {
            Receiver::Stream(stream) => stream.check("syslog", name, options),
            Receiver::Udp(collector, _) => resolve(collector, name),
        }
    }

    fn check_files(&self, name: &str, options: &ExportOptions) -> Result<(), Error> {
        match &self.receiver {
            Receiver::Stream(stream) => stream.check_files("syslog", name, options),
            Receiver::Udp(..) => Ok(()),
        }
    }

    fn columns(&self) -> Option<&[&'static Column]> {
        self.columns.as_deref()
    }

    fn stream(&self) -> Option<(&'static str, &StreamSettings)> {
        if let Receiver::Stream(stream) = &self.receiver { Some(("syslog", stream)) } else { None }
    }

    fn collector(&self) -> Option<String> {
        Some(match &self.receiver {
            Receiver::Stream(stream) => stream.peer.address(),
            Receiver::Udp(collector, _) => collector.address(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::sink_spec::SinkSpec;

    #[test]
    fn invalid_receivers_are_rejected() {
        for (spec, expected) in [
            ("syslog+udp://h?size=479", "size must be a number of octets from 480 to 65507, not \"479\""),
            ("syslog+udp://h?buffer=1MiB", "\"buffer=1MiB\" is not a setting of syslog here; use facility=NAME"),
            ("syslog+tcp://h?size=500", "\"size=500\" is not a setting of syslog here"),
            ("syslog+tcp://h?ca=a", "\"ca=a\" is not a setting of syslog here"),
            (
                "syslog+tcp://h?facility=local8",
                "there is no facility \"local8\"; use daemon, user, or local0 to local7",
            ),
            ("syslog+tls://h?facility=user&facility=mail", "facility= is given twice"),
            ("syslog+tls://h?key=k", "cert= and key= go together"),
        ] {
            let error = spec.parse::<SinkSpec>().expect_err(spec).to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }
}
