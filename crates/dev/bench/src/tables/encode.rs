//! The rate at which records are encoded and sent, beside what the same octets cost without encoding.

use super::receivers::Receivers;
use crate::error::{CountMismatch, Error};
use crate::frames::Frames;
use crate::load::config;
use crate::measure::{Bench, Group, Run, Work, timed};
use crate::meter::decode;
use crate::report::{PIPELINE, Table};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Instant;
use weir_capture::MAX_BURST_FRAMES;
use weir_export::{ExportOptions, Sink, SinkSpec};
use weir_fields::{Profile, default_columns};
use weir_flow::{FlowRecord, KeyOptions, Meter};
use weir_packet::Packet;

const COPY: &str = "memcpy";
const OUTPUT: &str = "memcpy and system calls";
const END_TO_END: &str = "end to end (wall)";
/// Rows of a row group of Parquet.
const ROW_GROUP: usize = 1 << 16;
/// Records of a round over a connection, which is made anew each time.
const OVER_CONNECTION: usize = 1 << 18;
/// Records of a batch, as the exporter hands them to a sink.
const BATCH: usize = 128;

const LOAD: &str = "records of TCP connections over IPv4 without loss (synth:lossy), in batches of 128; files are \
    /dev/null, but those of Parquet, which are synced; datagrams go to a socket on loopback that no program reads, \
    connections to a thread of this process that reads and forgets. weir: CPU time of the thread that encodes. End to \
    end: wall clock, from the first record until all are confirmed. memcpy: copies the octets that the format has for \
    these records, in pieces as long as its messages. System calls: also writes or sends the pieces";

/// Records of ordinary TCP flows in each format.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let mut table = Table::new("encode", "Encoding of flow records", "sink", LOAD);
    table.logarithmic = false;
    table.item = "record";
    table.against = vec![COPY, OUTPUT];
    let mut records = tcp_records(bench.size(8192, 512))?;
    let folder = Folder::create()?;
    let receivers = Receivers::start(&folder.0)?;
    let mut rows: Vec<_> = bench.sinks.iter().map(|sink| (sink.name().to_owned(), sink.clone())).collect();
    if rows.is_empty() {
        for (row, sink) in all_rows(&receivers, &folder) {
            rows.push((row.into(), sink.parse::<SinkSpec>().map_err(weir_export::Error::from)?));
        }
    }
    for (row, sink) in &rows {
        measure(bench, &mut table, &mut records, &receivers, (row, sink))?;
    }
    table.notes.push("a system call for a datagram has the kernel's work up to the queue of the receiver".into());
    table.notes.push("not in the table: kafka://, which needs a broker (--to kafka://BROKER/TOPIC)".into());
    Ok(table)
}

/// All sinks, by the name of the row.
fn all_rows(receivers: &Receivers, folder: &Folder) -> [(&'static str, String); 24] {
    let Receivers { udp, tcp, tls, http, unix, ca, .. } = receivers;
    let [(udp, tcp), (tls, http)] = [(udp.to_string(), tcp.to_string()), (tls.to_string(), http.to_string())];
    let (unix, ca, folder) = (unix.display(), ca.display(), folder.0.display());
    [
        ("IPFIX, basic, UDP", format!("ipfix+udp://{udp}?template=basic&rate=0")),
        ("IPFIX, full, UDP", format!("ipfix+udp://{udp}?template=full&rate=0")),
        ("IPFIX, basic, TCP", format!("ipfix+tcp://{tcp}?template=basic")),
        ("IPFIX, full, TCP", format!("ipfix+tcp://{tcp}?template=full")),
        ("IPFIX, full, TLS", format!("ipfix+tls://{tls}?template=full&ca={ca}&name=localhost")),
        ("IPFIX, file", "ipfix:/dev/null".into()),
        ("NetFlow v9, basic, UDP", format!("netflow9+udp://{udp}?template=basic&rate=0")),
        ("NetFlow v9, full, UDP", format!("netflow9+udp://{udp}?template=full&rate=0")),
        ("NetFlow v5, UDP", format!("netflow5+udp://{udp}?rate=0")),
        ("JSON, basic, file", "json:/dev/null".into()),
        ("JSON, all fields, file", "json:/dev/null?fields=all".into()),
        ("JSON, basic, TCP", format!("json+tcp://{tcp}")),
        ("JSON, basic, TLS", format!("json+tls://{tls}?ca={ca}&name=localhost")),
        ("JSON, basic, Unix", format!("json+unix:{unix}")),
        ("syslog, basic, UDP", format!("syslog+udp://{udp}?rate=0")),
        ("syslog, basic, TCP", format!("syslog+tcp://{tcp}")),
        ("CSV, basic, file", "csv:/dev/null".into()),
        ("CSV, profile store, file", "csv:/dev/null?fields=store".into()),
        ("Arrow, basic, file", "arrow:/dev/null?fields=basic".into()),
        ("Parquet, basic", format!("parquet:{folder}/basic?fields=basic")),
        ("Parquet, profile store", format!("parquet:{folder}/store")),
        ("ClickHouse, basic, zstd", format!("clickhouse+http://{http}/weir.flows?fields=basic")),
        ("ClickHouse, profile store, zstd", format!("clickhouse+http://{http}/weir.flows")),
        ("ClickHouse, profile store", format!("clickhouse+http://{http}/weir.flows?compression=none")),
    ]
}

fn measure(
    bench: &mut Bench<'_>,
    table: &mut Table,
    records: &mut Vec<FlowRecord>,
    receivers: &Receivers,
    (row, sink): (&str, &SinkSpec),
) -> Result<(), Error> {
    let (is_connection, is_store) = (sink.has_intake(), sink.folder().is_some());
    let of_round = match (is_connection, bench.quick) {
        (true, false) => OVER_CONNECTION,
        _ if is_store => ROW_GROUP,
        _ => 1,
    };
    let new = |is_wall| Encoder::new(sink, (of_round / records.len().max(1)).max(1), [is_connection, is_wall]);
    let mut encoder = new(false);
    // The first run shows the octets and messages.
    let (run, messages) = encoder.write(records)?;
    let octets = run.facts[0].1 * run.packets as f64;
    // Formats without messages are written in pieces of 64 KiB.
    let pieces = messages.max(octets as u64 / (64 << 10)).max(1);
    let copies = |output| Copies::new(octets as usize, pieces as usize, run.packets, output);
    let io = |error| Error::io("cannot use loopback")(error);
    let output = match is_connection {
        true => Output::Stream(TcpStream::connect(receivers.tcp).map_err(io)?),
        false if sink.path().is_none() && !is_store => {
            let socket =
                UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.connect(receivers.udp).map(|()| socket));
            Output::Socket(socket.map_err(io)?)
        }
        false => Output::File(File::create("/dev/null").map_err(Error::io("/dev/null"))?),
    };
    let mut group =
        Group::new(row, 0.0).case(COPY, copies(Output::None)).case(OUTPUT, copies(output)).case(PIPELINE, encoder);
    if is_connection {
        group = group.case(END_TO_END, new(true));
    }
    group.measure(bench, table, records, |_| Ok(()))
}

/// Meters TCP connections until `count` of them are complete.
fn tcp_records(count: usize) -> Result<Vec<FlowRecord>, Error> {
    let clean = "loss=0,reorder=0,duplicate=0,spurious=0,keepalive=0,zerowindow=0,ipv6=0,rst=0";
    let mut frames = Frames::continuing(&format!("lossy,flows=1000,new=1000,snap=96,{clean}"), 20_000)?;
    let config = config(20_000);
    let mut meter = Meter::new(config).map_err(|error| Error::Memory(Meter::memory_bytes_for(&config), error))?;
    let mut records = Vec::new();
    while records.len() < count {
        let mut iter = frames.iter();
        loop {
            let (mut burst, mut filled) = ([Packet::default(); MAX_BURST_FRAMES], 0);
            for frame in iter.by_ref().take(MAX_BURST_FRAMES) {
                filled += usize::from(decode(&frame, &mut burst[filled]));
            }
            if filled == 0 {
                break;
            }
            meter.process(&burst[..filled], &mut records);
        }
        frames.next_round()?;
    }
    records.truncate(count);
    Ok(records)
}

/// A folder of its own, which is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("weir-benches-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(Error::io("cannot create a temporary folder"))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A sink, and what it should have counted.
struct Encoder {
    spec: SinkSpec,
    /// `None` before the first round, and between rounds if each has a connection of its own.
    sink: Option<Box<dyn Sink + Send>>,
    is_connection: bool,
    /// Measures the wall clock instead of the CPU time of this thread.
    is_wall: bool,
    /// How often a round gets the records: a row group of Parquet has 64 Ki of them.
    times: usize,
    /// Records and octets that the sink has counted before this round.
    records: u64,
    octets: u64,
}

impl Encoder {
    fn new(spec: &SinkSpec, times: usize, [is_connection, is_wall]: [bool; 2]) -> Self {
        Self { spec: spec.clone(), sink: None, is_connection, is_wall, times, records: 0, octets: 0 }
    }

    fn open(&self) -> Result<Box<dyn Sink + Send>, Error> {
        let options = ExportOptions {
            columns: default_columns(Profile::Basic, KeyOptions::default(), false, false),
            ..ExportOptions::default()
        };
        Ok(self.spec.open(&options)?)
    }

    /// Writes all records of a round, and checks that all of them were exported. Returns the messages, too.
    fn write(&mut self, records: &[FlowRecord]) -> Result<(Run, u64), Error> {
        let start = Instant::now();
        let mut sink = match self.sink.take() {
            Some(sink) => sink,
            None => self.open()?,
        };
        let (result, mut seconds) = timed(|| {
            (0..self.times).try_for_each(|_| records.chunks(BATCH).try_for_each(|batch| sink.write(batch)))?;
            sink.finish()
        });
        result?;
        if self.is_wall {
            seconds = start.elapsed().as_secs_f64();
        }
        let counters = sink.counters();
        let (exported, octets, messages) = (counters.exported.flows, counters.octets, counters.messages);
        let written = (self.times * records.len()) as u64;
        if exported != self.records + written {
            let mismatch = format!("{} records given, {exported} exported", self.records + written);
            return Err(CountMismatch(mismatch).in_case("a round"));
        }
        let of_round = octets - self.octets;
        if !self.is_connection {
            (self.records, self.octets, self.sink) = (exported, octets, Some(sink));
        }
        let facts =
            vec![("octets/record", of_round as f64 / written as f64), ("MB/s", of_round as f64 / seconds / 1e6)];
        Ok((Run { facts, ..Run::new(written, seconds) }, messages))
    }
}

impl Work<Vec<FlowRecord>> for Encoder {
    fn run(&mut self, records: &mut Vec<FlowRecord>) -> Result<Run, Error> {
        self.write(records).map(|(run, _)| run)
    }
}

enum Output {
    None,
    File(File),
    Socket(UdpSocket),
    Stream(TcpStream),
}

/// Copies as many octets as a format has for the records.
struct Copies {
    from: Vec<u8>,
    to: Vec<u8>,
    output: Output,
    /// How many records have these octets.
    records: u64,
}

impl Copies {
    fn new(octets: usize, pieces: usize, records: u64, output: Output) -> Self {
        Self { from: vec![1; octets], to: vec![0; octets.div_ceil(pieces)], output, records }
    }
}

impl Work<Vec<FlowRecord>> for Copies {
    fn run(&mut self, _: &mut Vec<FlowRecord>) -> Result<Run, Error> {
        let Self { from, to, output, records } = self;
        let (result, seconds) = timed(|| {
            for piece in from.chunks(to.len()) {
                let to = &mut to[..piece.len()];
                to.copy_from_slice(piece);
                let to = black_box(to);
                match output {
                    Output::None => {}
                    Output::File(file) => file.write_all(to)?,
                    Output::Socket(socket) => socket.send(to).map(drop)?,
                    Output::Stream(stream) => stream.write_all(to)?,
                }
            }
            Ok(())
        });
        result.map_err(Error::io("cannot write"))?;
        Ok(Run::new(*records, seconds))
    }
}
