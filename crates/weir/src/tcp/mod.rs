//! `weir tcp`: captures through the batch engine, and a report of what TCP went through.
//!
//! In: captures, as `weir read` takes them. Out: text, a page, JSON, CSV; or one connection segment by segment.
//! Always true: packets received = refused + filtered + not TCP + without ports + left out + analysed, and the connections have the
//! packets that were analysed. Memory grows with the connections, up to as many as there is memory for: those that begin
//! later are left out, and counted.

mod again;
mod between;
mod client;
mod compare;
mod connection;
mod explain;
mod histogram;
mod input;
mod key;
mod list;
mod memory;
mod page;
mod picture;
mod records;
mod text;
mod totals;

use crate::arguments::{EngineChoice, Tcp, TcpSort};
use crate::files::{self, Target};
use crate::{Outcome, Refusal, outputs, progress, read, say, summary};
use client::Clients;
use compare::Comparison;
use connection::Connection;
use input::{Intake, Taker, not_written};
use memory::Shares;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use totals::Totals;
use weir_ledger::{RecordTotals, SinkCounters};
use weir_packet::Packet;
use weir_tcp_batch::{Backend, ConnectionRecord, Engine, EngineOptions};

/// Everything that a run found.
pub struct Findings {
    pub sources: Vec<String>,
    pub engine: String,
    pub intake: Intake,
    pub totals: Totals,
    /// In the order of the list.
    pub connections: Vec<Connection>,
    pub comparison: Option<Comparison>,
    pub sort: TcpSort,
    /// Packets below which a connection comes last.
    pub fewest: u64,
    top: usize,
}

impl Findings {
    /// The connections at the top of the list.
    pub fn listed(&self) -> &[Connection] {
        &self.connections[..self.top.min(self.connections.len())]
    }

    /// What must be known before the figures are believed.
    pub fn warnings(&self) -> Vec<String> {
        self.totals.warnings(self.intake.without_ports, self.intake.ledger.packets.dropped_table_full)
    }
}

/// Reads, follows, and tells.
pub fn run(tcp: &Tcp) -> Result<Outcome, Refusal> {
    let sources: Vec<&OsStr> = tcp.files.iter().map(|source| source.as_os_str()).collect();
    read::check_sources(&sources, "tcp")?;
    if let Some(key) = &tcp.explain
        && let Some(pipe) = sources.iter().find(|source| files::is_pipe(source))
    {
        let pipe = pipe.display();
        return Err(Refusal(format!(
            "--explain {key} reads the capture more than once, which {pipe} cannot be: save it to a file"
        )));
    }
    let outputs = Outputs::of(tcp);
    files::check_targets(&sources, &outputs.targets())?;
    let choice = match tcp.engine {
        None | Some(EngineChoice::Auto) => Backend::Auto,
        Some(EngineChoice::Cpu) => Backend::Cpu,
        Some(EngineChoice::Gpu) => Backend::Gpu,
    };
    let decode = weir_packet::DecodeOptions { decapsulate: tcp.decap };
    let settings = input::Settings { filter: outputs::filter(tcp.filter.as_deref())?, decode };
    let stop = read::stop_signal()?;
    let source = files::open_sources(&sources, &stop)?;
    // Files take address space, too.
    let shares = Shares::of(memory::free(), tcp.connections)?;
    let engine = Engine::open(EngineOptions {
        backend: choice,
        batch_size: shares.batch,
        max_anomalies: shares.in_trouble,
        ..EngineOptions::default()
    })
    .map_err(|error| Refusal(format!("--engine gpu: {error}")))?;
    let mut outputs = outputs.open()?;

    let findings = find(tcp, &sources, source, settings.clone(), engine, shares.connections, &stop);
    let ledger = &findings.intake.ledger;
    let mut flawed = findings.intake.flawed || summary::flawed(ledger);
    let left_out = ledger.packets.dropped_table_full;
    if left_out > 0 {
        say(&totals::incomplete(left_out, findings.totals.connections));
    }
    if let Some(key) = &tcp.explain {
        let out = BufWriter::new(io::stdout().lock());
        flawed |= again::explain(&findings, key, &sources, &settings, &stop, out)? == Outcome::Flawed;
    } else {
        flawed |= outputs.write(&findings) == Outcome::Flawed;
        let text_is_wanted = !tcp.quiet && !outputs.on_standard_output;
        if text_is_wanted {
            let printed = crate::print_by(|out| text::report(&findings, files::terminal_columns(), out));
            flawed |= printed == Outcome::Flawed;
        }
    }
    if tcp.verbose || summary::flawed(ledger) {
        let _ = crate::tell(&summary::ledger_in_words(ledger));
    }
    if let Some((path, file)) = outputs.stats.take() {
        flawed |= outputs::write_stats(ledger, &path, file) == Outcome::Flawed;
    }
    Ok(if flawed { Outcome::Flawed } else { Outcome::Done })
}

/// All that want packets.
struct Takers {
    engine: Engine,
    done: Vec<ConnectionRecord>,
    /// Those that have ended.
    connections: Vec<Connection>,
    clients: Clients,
    comparison: Option<Comparison>,
    /// Packets of connections for which there was no room, and their octets on the wire.
    left_out: [u64; 2],
}

impl Taker for Takers {
    fn take(&mut self, packets: &[Packet], frames: &[u64]) {
        let mut from = 0;
        for (at, packet) in packets.iter().enumerate() {
            if !self.clients.enter(packet) {
                self.left_out[0] += 1;
                self.left_out[1] += u64::from(packet.frame_bytes);
                self.hand_on(&packets[from..at], &frames[from..at]);
                from = at + 1;
            }
        }
        self.hand_on(&packets[from..], &frames[from..]);
        self.connections.extend(self.done.drain(..).map(|conversation| Connection::of(conversation, &self.clients)));
    }
}

impl Takers {
    fn hand_on(&mut self, packets: &[Packet], frames: &[u64]) {
        self.engine.enter(packets, &mut self.done);
        if let Some(comparison) = &mut self.comparison {
            comparison.take(packets, frames);
        }
    }
}

/// Reads everything and puts it in order.
fn find(
    tcp: &Tcp,
    sources: &[&OsStr],
    mut source: weir_capture::Input<'_>,
    settings: input::Settings,
    engine: Engine,
    most: usize,
    stop: &AtomicBool,
) -> Findings {
    let comparison = tcp.compare.then(Comparison::default);
    let clients = Clients::at_most(most);
    let mut takers =
        Takers { engine, done: Vec::new(), connections: Vec::new(), clients, comparison, left_out: [0; 2] };
    let line = progress::Line::new(tcp.quiet);
    let mut intake = input::read(&mut source, settings, stop, line, true, &mut takers);
    let Takers { engine, mut done, mut connections, clients, comparison, left_out } = takers;
    let name = engine.name().to_string();
    let account = engine.finish(&mut done);
    // A machine without a card is nothing to speak of, if nobody asks; a card that does not work is.
    let asked = tcp.verbose || tcp.engine.is_some();
    if let Some(note) = account.note.filter(|note| !tcp.quiet && (asked || !note.ends_with(weir_tcp_batch::NO_DRIVER)))
    {
        say(&note);
    }
    if tcp.verbose {
        say(&format!("followed on: {name}; batches: {}", account.batches));
    }
    connections.extend(done.into_iter().map(|conversation| Connection::of(conversation, &clients)));
    drop(clients);
    let fewest = connection::fewest_packets(tcp.sort, tcp.min_packets);
    connection::sort(&mut connections, tcp.sort, fewest);
    let totals = Totals::of(&connections);
    let ledger = &mut intake.ledger;
    let [packets, octets] = left_out;
    (ledger.packets.dropped_table_full, ledger.bytes.dropped_table_full) = (packets, octets);
    ledger.packets.metered -= packets;
    ledger.bytes.metered -= octets;
    ledger.created = totals.connections;
    let mut line = SinkCounters { sink: "connections".into(), ..SinkCounters::default() };
    // Of a connection packets are known, and octets of payload, but not of frames.
    line.exported = RecordTotals { flows: totals.connections, packets: totals.packets, bytes: ledger.bytes.metered };
    ledger.sinks.push(line);
    Findings {
        sources: sources.iter().map(|source| source.to_string_lossy().into_owned()).collect(),
        engine: name,
        intake,
        totals,
        connections,
        comparison,
        sort: tcp.sort,
        fewest,
        top: if tcp.top == 0 { usize::MAX } else { tcp.top },
    }
}

/// One kind of output.
type Format = fn(&Findings, &mut dyn Write) -> io::Result<()>;

/// What is written besides the text.
struct Outputs<'a> {
    /// The option, where to, and how.
    wanted: Vec<(&'static str, &'a Path, Format)>,
    files: Vec<Option<File>>,
    plots: Option<&'a Path>,
    stats: Option<(std::path::PathBuf, Option<File>)>,
    stats_path: Option<&'a Path>,
    on_standard_output: bool,
}

impl<'a> Outputs<'a> {
    fn of(tcp: &'a Tcp) -> Self {
        let all: [(_, _, Format); 3] = [
            ("--json", &tcp.json, records::json),
            ("--csv", &tcp.csv, records::csv),
            ("--html", &tcp.html, page::html),
        ];
        let wanted: Vec<_> =
            all.into_iter().filter_map(|(option, path, format)| Some((option, path.as_deref()?, format))).collect();
        let (stats_path, standard) = (tcp.stats.as_deref(), Some(Path::new("-")));
        let on_standard_output = stats_path == standard || wanted.iter().any(|&(_, path, _)| Some(path) == standard);
        Self { wanted, files: Vec::new(), plots: tcp.svg.as_deref(), stats: None, stats_path, on_standard_output }
    }

    fn targets(&self) -> Vec<(String, Target)> {
        let all = self.wanted.iter().map(|&(option, path, _)| (option, path));
        let all = all.chain(self.stats_path.map(|path| ("--stats", path)));
        all.map(|(option, path)| (format!("{option} {}", path.display()), Target::of_path(path))).collect()
    }

    /// Opens all of them; what is in the files stays until they are written.
    fn open(mut self) -> Result<Self, Refusal> {
        let open = |path: &Path| match Target::of_path(path) {
            Target::File(path) => files::open_for_later(&path).map(Some),
            _ => Ok(None),
        };
        self.files = self.wanted.iter().map(|(_, path, _)| open(path)).collect::<Result<_, _>>()?;
        if let Some(folder) = self.plots {
            fs::create_dir_all(folder).map_err(|error| Refusal(not_written(&folder.display().to_string(), &error)))?;
        }
        if let Some(path) = self.stats_path {
            self.stats = Some((
                path.into(),
                open(path)?
                    .map(emptied)
                    .transpose()
                    .map_err(|error| Refusal(not_written(&path.display().to_string(), &error)))?,
            ));
        }
        Ok(self)
    }

    fn write(&mut self, findings: &Findings) -> Outcome {
        let mut outcome = Outcome::Done;
        let mut written = |path: &Path, result: io::Result<()>| {
            if let Err(error) = result {
                say(&not_written(&path.display().to_string(), &error));
                outcome = Outcome::Flawed;
            }
        };
        let mut printed = Outcome::Done;
        for (&(_, path, format), file) in self.wanted.iter().zip(self.files.drain(..)) {
            match file {
                Some(file) => written(
                    path,
                    emptied(file)
                        .map(BufWriter::new)
                        .and_then(|mut file| format(findings, &mut file).and_then(|()| file.flush())),
                ),
                None => printed = crate::print_by(|out| format(findings, out)),
            }
        }
        if let Some(folder) = self.plots {
            for (name, plot) in picture::plots(findings) {
                let path = folder.join(format!("{name}.svg"));
                written(&path, fs::write(&path, picture::standalone(&plot)));
            }
        }
        if printed == Outcome::Flawed { printed } else { outcome }
    }
}

/// A file without what was in it. A pipe has no length.
fn emptied(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}
