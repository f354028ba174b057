//! Opens a sink from its specification.

use crate::element::Format;
use crate::file_output::FileOutput;
use crate::ipfix_netflow9::{MAX_FILE_MESSAGE_BYTES, TemplateSink, Transport};
use crate::json_csv::{TextFormat, TextSink};
use crate::netflow5::Netflow5Sink;
use crate::sink::{Error, ExportOptions, Sink};
use crate::sink_spec::{Collector, InvalidSink};
use crate::udp::UdpOutput;

/// Opens a sink: `json:PATH`, `csv:PATH`, `ipfix:PATH` (`-` is standard output),
/// `ipfix+udp://HOST:PORT`, `netflow9+udp://HOST:PORT` or `netflow5+udp://HOST:PORT`. The default
/// ports are 4739, 2055 and 9995. `?mtu=N` (UDP payload of a datagram in octets, default 1420) and
/// `rate=N` (datagrams per second, default 10 000, 0 for no limit), joined by `&`, may follow.
///
/// # Errors
/// The specification is invalid, or the file or socket cannot be opened.
pub fn open(spec: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
    let invalid = |invalid| Error::Spec { spec: spec.into(), invalid };
    let (scheme, rest) = spec.split_once(':').ok_or_else(|| invalid(InvalidSink::Scheme))?;
    let path = || {
        if rest.is_empty() {
            Err(invalid(InvalidSink::Syntax("the file name is missing; use - for standard output")))
        } else {
            Ok(rest)
        }
    };
    let connect = |default_port| {
        let endpoint = rest.strip_prefix("//").ok_or(InvalidSink::Syntax("//HOST:PORT must follow the scheme"));
        let collector = endpoint.and_then(|endpoint| Collector::parse(endpoint, default_port)).map_err(invalid)?;
        match UdpOutput::connect(&collector.host, collector.port, collector.rate) {
            Ok(udp) => Ok((udp, collector.mtu)),
            Err(error) => Err(Error::Io { sink: spec.into(), error }),
        }
    };
    let templates = |format, transport, mtu| Box::new(TemplateSink::new(spec, format, transport, mtu, options));
    Ok(match scheme {
        "json" => Box::new(TextSink::create(spec, path()?, TextFormat::Json, options)?),
        "csv" => Box::new(TextSink::create(spec, path()?, TextFormat::Csv, options)?),
        "ipfix" => {
            let output = FileOutput::create(spec, path()?)?;
            templates(Format::Ipfix, Transport::File(output), MAX_FILE_MESSAGE_BYTES)
        }
        "ipfix+udp" => {
            let (udp, mtu) = connect(4739)?;
            templates(Format::Ipfix, Transport::Udp(udp), mtu)
        }
        "netflow9+udp" => {
            let (udp, mtu) = connect(2055)?;
            templates(Format::Netflow9, Transport::Udp(udp), mtu)
        }
        "netflow5+udp" => {
            let (udp, mtu) = connect(9995)?;
            Box::new(Netflow5Sink::new(spec, udp, mtu, options))
        }
        _ => return Err(invalid(InvalidSink::Scheme)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sinks_are_rejected() {
        for (spec, expected) in [
            ("", "not a sink"),
            ("json", "not a sink"),
            ("json:", "the file name is missing"),
            ("xml:file", "not a sink"),
            ("ipfix+udp:host", "//HOST:PORT must follow"),
            ("ipfix+tcp://host:4739", "not a sink"),
            ("netflow7+udp://host", "not a sink"),
        ] {
            let error = open(spec, &ExportOptions::default()).err().expect("the sink is invalid").to_string();
            assert!(error.starts_with(&format!("{spec}: {expected}")), "{error}");
        }
    }
}
