//! The rate at which records are encoded, beside what the same octets cost without encoding.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::net::UdpSocket;
use std::path::PathBuf;
use weir_bench::error::{CountMismatch, Error};
use weir_bench::frames::Frames;
use weir_bench::load::config;
use weir_bench::measure::{Bench, Fact, Group, Run, Work, timed};
use weir_bench::meter::decode;
use weir_bench::report::{PIPELINE, Table};
use weir_capture::MAX_BURST_FRAMES;
use weir_export::{ExportOptions, FileMode, Sink, SinkSpec};
use weir_fields::{Profile, default_columns};
use weir_flow::{FlowRecord, KeyOptions, Meter};
use weir_packet::Packet;

const COPY: &str = "memcpy";
const OUTPUT: &str = "memcpy and system calls";
/// Rows of a row group of Parquet.
const ROW_GROUP: usize = 1 << 16;
/// Records of a batch, as the exporter hands them to a sink.
const BATCH: usize = 128;

/// Records of ordinary TCP flows in each format.
pub fn table(bench: &mut Bench<'_>) -> Result<Table, Error> {
    let load = "records of TCP connections over IPv4 without loss (synth:lossy), in batches of 128; files are /dev/null, \
                but those of Parquet, which are synced; collectors a socket on loopback that no program reads. memcpy: copies the octets that the format has for these \
                records, in pieces as long as its messages. System calls: also writes or sends the pieces";
    let mut table = Table::new("encode", "Encoding of flow records", "format", load);
    table.logarithmic = false;
    table.item = "record";
    table.against = vec![COPY, OUTPUT];
    let mut records = tcp_records(bench.size(8192, 512))?;
    let collector = UdpSocket::bind("127.0.0.1:0").map_err(Error::io("cannot bind a socket"))?;
    let address = collector.local_addr().map_err(Error::io("cannot bind a socket"))?;
    let store = Folder::create()?;
    for (row, sink) in [
        ("IPFIX, basic, UDP", format!("ipfix+udp://{address}?template=basic&rate=0")),
        ("IPFIX, full, UDP", format!("ipfix+udp://{address}?template=full&rate=0")),
        ("IPFIX, file", "ipfix:/dev/null".into()),
        ("NetFlow v9, basic, UDP", format!("netflow9+udp://{address}?template=basic&rate=0")),
        ("NetFlow v5, UDP", format!("netflow5+udp://{address}?rate=0")),
        ("JSON, basic, file", "json:/dev/null".into()),
        ("JSON, all fields, file", "json:/dev/null?fields=all".into()),
        ("CSV, basic, file", "csv:/dev/null".into()),
        ("CSV, profile store, file", "csv:/dev/null?fields=store".into()),
        ("Parquet, basic", format!("parquet:{}?fields=basic", store.0.join("basic").display())),
        ("Parquet, profile store", format!("parquet:{}", store.0.join("store").display())),
    ] {
        let is_file = !sink.contains("://");
        let options = ExportOptions {
            columns: default_columns(Profile::Basic, KeyOptions::default(), false, false),
            file_mode: FileMode::Overwrite,
            ..ExportOptions::default()
        };
        let mut encoder = Encoder {
            sink: sink.parse::<SinkSpec>().map_err(weir_export::Error::from)?.open(&options)?,
            times: if sink.starts_with("parquet:") { ROW_GROUP / records.len().max(1) } else { 1 }.max(1),
            records: 0,
            octets: 0,
        };
        // The first run shows the octets and messages.
        let run = encoder.run(&mut records)?;
        let octets = run.facts[0].1 * run.packets as f64;
        // Formats without messages are written in pieces of 64 KiB.
        let pieces = encoder.sink.counters().messages.max(octets as u64 / (64 << 10)).max(1);
        let copies = |output| Copies::new(octets as usize, pieces as usize, run.packets, output);
        let output = if is_file {
            Output::File(File::create("/dev/null").map_err(Error::io("/dev/null"))?)
        } else {
            let socket = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.connect(address).map(|()| socket));
            Output::Socket(socket.map_err(Error::io("cannot bind a socket"))?)
        };
        Group::new(row, 0.0)
            .case(COPY, copies(Output::None))
            .case(OUTPUT, copies(output))
            .case(PIPELINE, encoder)
            .measure(bench, &mut table, &mut records, |_| Ok(()))?;
    }
    table
        .notes
        .push("the kernel's work for a datagram runs in the system call, up to the queue of the receiver".into());
    Ok(table)
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
    sink: Box<dyn Sink + Send>,
    /// How often a round gets the records: a row group of Parquet has 64 Ki of them.
    times: usize,
    records: u64,
    /// Octets before this round.
    octets: u64,
}

impl Encoder {
    fn check(&self) -> Result<(), CountMismatch> {
        match self.sink.counters().exported.flows {
            exported if exported == self.records => Ok(()),
            exported => Err(CountMismatch(format!("{} records given, {exported} exported", self.records))),
        }
    }
}

impl Work<Vec<FlowRecord>> for Encoder {
    fn run(&mut self, records: &mut Vec<FlowRecord>) -> Result<Run, Error> {
        let (result, seconds) = timed(|| {
            (0..self.times).try_for_each(|_| records.chunks(BATCH).try_for_each(|batch| self.sink.write(batch)))?;
            self.sink.finish()
        });
        result?;
        let written = (self.times * records.len()) as u64;
        self.records += written;
        self.check().map_err(|mismatch| mismatch.in_case("a round"))?;
        let octets = self.sink.counters().octets - std::mem::replace(&mut self.octets, self.sink.counters().octets);
        let facts = vec![("octets/record", octets as f64 / written as f64), ("MB/s", octets as f64 / seconds / 1e6)];
        Ok(Run { facts, ..Run::new(written, seconds) })
    }

    fn finish(self: Box<Self>) -> Result<Vec<Fact>, CountMismatch> {
        self.check().map(|()| vec![])
    }
}

enum Output {
    None,
    File(File),
    Socket(UdpSocket),
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
                }
            }
            Ok(())
        });
        result.map_err(Error::io("cannot write"))?;
        Ok(Run::new(*records, seconds))
    }
}
