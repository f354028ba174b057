//! Opens a sink from its specification.

use crate::file_output::FileOutput;
use crate::ipfix_netflow9::{MAX_FILE_MESSAGE_BYTES, TemplateSink, Transport, Version};
use crate::json_csv::{TextFormat, TextSink};
use crate::netflow5::Netflow5Sink;
use crate::sink::{Error, ExportOptions, Sink};
use crate::sink_spec::{CollectorFormat, FileFormat, SinkSpec};
use crate::udp::UdpOutput;

/// Opens a sink: `json:PATH`, `csv:PATH`, `ipfix:PATH` (`-` is standard output),
/// `ipfix+udp://HOST:PORT`, `netflow9+udp://HOST:PORT` or `netflow5+udp://HOST:PORT`. The default
/// ports are 4739, 2055 and 9995. `?mtu=N` (UDP payload of a datagram in octets, default 1420) and
/// `rate=N` (datagrams per second, default 10 000, 0 for no limit), joined by `&`, may follow.
///
/// # Errors
/// The specification is invalid, or the file or socket cannot be opened.
pub fn open(spec: &str, options: &ExportOptions) -> Result<Box<dyn Sink + Send>, Error> {
    let parsed = SinkSpec::parse(spec).map_err(|invalid| Error::Spec { spec: spec.into(), invalid })?;
    Ok(match parsed {
        SinkSpec::File(FileFormat::Json, path) => Box::new(TextSink::create(spec, path, TextFormat::Json, options)?),
        SinkSpec::File(FileFormat::Csv, path) => Box::new(TextSink::create(spec, path, TextFormat::Csv, options)?),
        SinkSpec::File(FileFormat::Ipfix, path) => {
            let transport = Transport::File(FileOutput::create(spec, path)?);
            Box::new(TemplateSink::new(spec, Version::Ipfix, transport, MAX_FILE_MESSAGE_BYTES, options))
        }
        SinkSpec::Collector(format, collector) => {
            let udp = UdpOutput::connect(&collector.host, collector.port, collector.rate)
                .map_err(|error| Error::Io { sink: spec.into(), error })?;
            let template_sink =
                |version, udp| Box::new(TemplateSink::new(spec, version, Transport::Udp(udp), collector.mtu, options));
            match format {
                CollectorFormat::Ipfix => template_sink(Version::Ipfix, udp),
                CollectorFormat::Netflow9 => template_sink(Version::Netflow9, udp),
                CollectorFormat::Netflow5 => Box::new(Netflow5Sink::new(spec, udp, collector.mtu, options)),
            }
        }
    })
}
