//! `weir view`: the page of captures and stored flows, without a probe.
//!
//! Input: stores and Parquet files, which questions read as they are then; captures and files of other flows, which are
//! read once, into a store in a temporary folder. Output: the address of the page on standard output, and the HTTP
//! interface without what needs a probe, until a signal. The folder is removed in every ending but a kill.

use crate::arguments::{Arguments, Command, Output, Read, View};
use crate::console;
use crate::error::{Error, InputError, SourceError, StoreError};
use crate::files::Target;
use crate::flow_packets::{self, PacketPlaces, SegmentPlaces, SegmentSource};
use crate::input;
use crate::names::SharedNames;
use crate::read;
use crate::run_status::{Ended, RunStatus};
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings;
use crate::signals::StopSignal;
use crate::stored;
use crate::stored_answers;
use crate::stored_reader::StoredPaths;
use crate::stored_times;
use clap::Parser;
use signal_hook::consts::SIGHUP;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use tracing::warn;
use weir_capture::{PacketFilter, SourceSpec};
use weir_control::{Access, AskPackets, AskStore, Server, ViewOf};
use weir_fields::Requirement;
use weir_probe::CpuAffinity;
use weir_store::FlowReader;
use weir_tcp_report::PacketSelection;

/// Time between two looks at the flag of the signals.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// What is shown.
struct Shown {
    /// Stores and Parquet files.
    files: Vec<PathBuf>,
    /// Those of transactions.
    transactions: Vec<PathBuf>,
    /// What is read into a temporary store.
    packets: Vec<SourceSpec>,
    flows: StoredPaths,
}

pub fn run(view: &View) -> Result<RunStatus, Error> {
    let shown = Shown::new(view)?;
    // From now on no signal ends the program before it has removed its folder. The sandbox forbids to register more.
    let [mut stop_signal, of_packets, of_flows] =
        [StopSignal::register_without_end()?, StopSignal::register_without_end()?, StopSignal::register_without_end()?];
    let stop = stop_signal.flag();
    let tls = view.tls_cert.as_deref().zip(view.tls_key.as_deref()).map(|(cert, key)| [cert, key]);
    let access = Access::load(view.listen, view.token_file.as_deref(), tls)?;
    let server = Server::bind(view.listen, access, &view.times.timing())?;
    stored::raise_limit_of_files();
    let packets = shown.ask_packets(view)?;
    let opener = view.open.then(Opener::start).transpose()?;
    let folder = shown.is_read_first().then(temporary_folder).transpose()?;
    let names = view.names.then(SharedNames::load);
    enter_sandbox(view, &shown, folder.as_ref());
    let mut files = shown.files.clone();
    let mut ended = Ended { status: RunStatus::Success, problems: Vec::new() };
    if let Some(folder) = &folder {
        ended = shown.store(view, folder.path(), [of_packets, of_flows], &mut files)?;
    }
    if stop.load(Ordering::Relaxed) {
        return Ok(RunStatus::Problems);
    }
    let scheme = if view.tls_cert.is_some() { "https" } else { "http" };
    let address = format!("{scheme}://{}/", server.address());
    let inputs = view.paths.iter().map(ToString::to_string).collect();
    let of_names = names.as_ref().map(SharedNames::ask).unwrap_or_default();
    names.map_or(Ok(()), |names| learn(names, &shown, &files, of_names.is_learning.clone()))?;
    let of = ViewOf { inputs, stores: shown.files, files, transactions: shown.transactions, packets, names: of_names };
    server.start_view(CpuAffinity::default(), of, ask_store(view, ended.problems)?).map_err(Error::Thread)?;
    // A reader that is gone has the page perhaps.
    let _ = console::print(format!("page: {address}\n").as_bytes());
    if let Some(opener) = opener {
        opener.open(&address);
    }
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(CHECK_INTERVAL);
    }
    if stop_signal.wait() == Some(SIGHUP) {
        warn!("SIGHUP ends weir view, which has nothing to reload; nohup keeps it when its terminal is closed");
    }
    Ok(ended.status)
}

/// Learns names from flows that were read just now, and from stores on a thread of its own: large ones take time.
fn learn(names: SharedNames, shown: &Shown, files: &[PathBuf], is_learning: Arc<AtomicBool>) -> Result<(), Error> {
    let (stores, read): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|path| shown.files.contains(path));
    is_learning.store(true, Ordering::Relaxed);
    let end = EndOfLearning(is_learning);
    if !read.is_empty() {
        names.learn_stored(&read);
    }
    let learn = move || {
        if !stores.is_empty() {
            names.learn_stored(&stores);
        }
        drop(end);
        names.log_left_out();
    };
    if shown.files.is_empty() {
        learn();
        return Ok(());
    }
    thread::Builder::new().name("weir-names".into()).spawn(learn).map(drop).map_err(Error::Thread)
}

/// Says that nothing more is learned when it is dropped, also by a panic.
struct EndOfLearning(Arc<AtomicBool>);

impl Drop for EndOfLearning {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Shown {
    /// Sorts and checks what is given.
    fn new(view: &View) -> Result<Self, Error> {
        input::check_sources(&view.paths, "view")?;
        let live = view.paths.iter().find(input::is_live);
        if let Some(live) = live {
            return Err(InputError::ViewOfLiveTraffic(live.to_string()).into());
        }
        let is_url = |source: &&SourceSpec| {
            let text = source.to_string();
            text.starts_with("http://") || text.starts_with("https://")
        };
        if let Some(url) = view.paths.iter().find(is_url) {
            return Err(InputError::ViewOfUrl(url.to_string()).into());
        }
        view.times_ns()?;
        let mut flows = StoredPaths::default();
        let packets: Vec<_> = view.paths.iter().filter(|source| !flows.add(source)).cloned().collect();
        let files = flows.take_parquet();
        // A file that cannot be read is reported below.
        let has_transactions = |path: &PathBuf| {
            FlowReader::open(std::slice::from_ref(path), None).is_ok_and(|found| found.form.is_transactions)
        };
        let (transactions, files) = files.into_iter().partition(has_transactions);
        let (selects, shown) = (&view.selection, Self { files, transactions, packets, flows });
        let of_packets = [(selects.filter.is_some(), "--filter"), (selects.decap, "--decap")];
        let given =
            |options: &[(bool, &'static str)]| options.iter().find(|(is_given, _)| *is_given).map(|(_, name)| *name);
        if let Some(option) = given(&of_packets).filter(|_| shown.packets.is_empty()) {
            return Err(InputError::NeedsPackets(option).into());
        }
        let adds = |requirement| view.enrichment.meets(requirement);
        let of_files = [
            (adds(Requirement::Networks), "--networks"),
            (adds(Requirement::Geo), "--geo"),
            (adds(Requirement::Tags), "--tags"),
            (adds(Requirement::InterfaceNames), "--interface-names"),
        ];
        if let Some(option) = given(&of_files).filter(|_| shown.stored().next().is_some()) {
            return Err(InputError::EnrichedStore(option).into());
        }
        for of_kind in [&shown.files, &shown.transactions] {
            if of_kind.is_empty() {
                continue;
            }
            let found = FlowReader::open(of_kind, None).map_err(StoreError::from)?;
            if let Some(path) = found.strange.first() {
                let (others, path) = (found.strange.len() - 1, path.display());
                warn!(%path, others, "there is something in the store that is none of it, which is left out");
            }
            for damage in &found.damaged {
                warn!(path = %damage.path.display(), error = %damage.error, "this cannot be read, and is left out");
            }
        }
        Ok(shown)
    }

    /// Stores and Parquet files of all kinds.
    fn stored(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().chain(&self.transactions)
    }

    /// What finds the packets of a flow: in what `--packets` names, or in the captures that are shown.
    ///
    /// # Errors
    /// What `--packets` names cannot be read, or the filter is invalid.
    fn ask_packets(&self, view: &View) -> Result<AskPackets, Error> {
        let unreadable = |error| Error::Sources(vec![SourceError::Capture(error)]);
        for path in &view.packets {
            if input::is_pipe_at(path) {
                return Err(InputError::PacketsOfPipe(path.display().to_string()).into());
            }
            if path.is_dir() {
                fs::read_dir(path).map(drop).map_err(|error| Error::file(path, error))?;
            } else {
                weir_capture::open(path).map(drop).map_err(unreadable)?;
            }
        }
        let (filter, decode) = settings::selection(&view.selection)?;
        let times_ns = view.times_ns()?;
        let (again, once): (Vec<_>, Vec<_>) =
            self.packets.iter().partition(|source| matches!(source, SourceSpec::Capture(_)) && !input::is_pipe(source));
        let shown = again.iter().filter_map(|source| source.path()).map(Path::to_path_buf).collect();
        let paths: Vec<PathBuf> = if view.packets.is_empty() { shown } else { view.packets.clone() };
        let once = once.first().map(|source| match input::is_pipe(source) {
            true => format!("{source} cannot be read again"),
            false => format!("{source} is no capture"),
        });
        let missing = once.clone().filter(|_| view.packets.is_empty());
        let packets = match () {
            () if view.listen_packets == 0 => Err(flow_packets::SWITCHED_OFF.to_owned()),
            () if view.selection.decap => Err(flow_packets::OF_TUNNELS.to_owned()),
            () if paths.is_empty() => Err(missing.clone().unwrap_or_else(|| {
                "flows are shown without their packets: name a folder of a recorder, or a capture, by --packets".into()
            })),
            () => Ok(PacketPlaces {
                paths: paths.clone(),
                missing,
                most_octets: view.listen_packets,
                are_recorded: !view.packets.is_empty(),
                filter: filter.clone(),
                times_ns: times_ns.clone(),
            }),
        };
        let is_piped = self.packets.iter().any(input::is_pipe);
        let source = match (view.packets.is_empty(), packets.as_ref().err()) {
            (true, _) if !self.packets.is_empty() && !is_piped => Ok(SegmentSource::Inputs(self.packets.clone())),
            (_, Some(why)) => Err(why.clone()),
            (true, None) => Err(once.unwrap_or_default()),
            (false, None) => Ok(SegmentSource::Recorded(paths)),
        };
        let selection = PacketSelection { filter, times_ns: Some(times_ns), decode };
        Ok(flow_packets::ask(packets, source.map(|source| SegmentPlaces { source, selection })))
    }

    fn is_read_first(&self) -> bool {
        !self.packets.is_empty() || self.flows.all().next().is_some()
    }

    /// Reads packets and flows into stores in this folder, whose paths are added to the files.
    fn store(
        &self,
        view: &View,
        folder: &Path,
        [of_packets, of_flows]: [StopSignal; 2],
        files: &mut Vec<PathBuf>,
    ) -> Result<Ended, Error> {
        let mut ended = Ended { status: RunStatus::Success, problems: Vec::new() };
        let mut add = |of: Ended| {
            ended.status = ended.status.and(of.status);
            ended.problems.extend(of.problems);
        };
        if !self.packets.is_empty() {
            let path = folder.join("packets");
            let read = reading(view, &path);
            add(read::run_pipeline(&read, &self.packets, || Ok(of_packets))?);
            files.push(path);
        }
        if self.flows.all().next().is_some() {
            let path = folder.join("flows");
            let read = reading(view, &path);
            add(stored::run(&read, &self.flows, || Ok(of_flows))?);
            files.push(path);
        }
        Ok(ended)
    }
}

/// `weir read`, with a store at this path as its output.
fn reading(view: &View, path: &Path) -> Read {
    // With the defaults of all options.
    let usual = Arguments::parse_from(["weir", "read", "-"]);
    let Some(Command::Read(mut read)) = usual.command else { unreachable!("this command line is weir read") };
    read.files.clear();
    read.sinks.outputs = vec![Output::parse(&format!("parquet:{}", path.display()))];
    read.sinks.records = view.records.clone();
    (read.from_ns, read.to_ns) = (view.from_ns, view.to_ns);
    read.metering.selection = view.selection.clone();
    read.enrichment = view.enrichment.clone();
    // This process is restricted already.
    read.hardening.no_sandbox = true;
    read.reporting.quiet = view.quiet;
    read.times = view.times;
    *read
}

/// Answers among the flows of the options, with what is wrong with inputs that were read before.
fn ask_store(view: &View, problems: Vec<String>) -> Result<AskStore, Error> {
    let (times_ns, condition) = (view.times_ns()?, view.records.clone());
    let ask = stored_answers::ask_store();
    let answer = ask.answer.clone();
    let answer = Arc::new(move |source: &_, question: &weir_control::StoredQuestion| {
        let mut answer = answer(source, &question.among(&times_ns, condition.as_ref()))?;
        answer.is_complete &= problems.is_empty();
        answer.problems.splice(0..0, problems.iter().cloned());
        Ok(answer)
    });
    Ok(AskStore { answer, times: stored_times::finder(view.times_ns()?, view.newest) })
}

/// A folder of this run, which is removed when it is dropped.
fn temporary_folder() -> Result<TempDir, Error> {
    let folder = tempfile::Builder::new().prefix("weir-view-").tempdir();
    folder.map_err(|error| Error::file(env::temp_dir(), error))
}

/// Permits to read what is given, and to write and remove the folder.
fn enter_sandbox(view: &View, shown: &Shown, folder: Option<&TempDir>) {
    if view.hardening.no_sandbox {
        return;
    }
    if view.selection.filter.is_some() {
        // The sandbox forbids to load libpcap.
        let _ = PacketFilter::new("ip");
    }
    // Of a folder, all files.
    let inside = |path: &PathBuf| if path.is_dir() { path.join("inside") } else { path.clone() };
    let packets = shown.packets.iter().filter_map(SourceSpec::path).map(Path::to_path_buf);
    let read: Vec<PathBuf> =
        shown.stored().chain(shown.flows.all()).chain(&view.packets).map(inside).chain(packets).collect();
    let tables = view.enrichment.sources();
    let read: Vec<&Path> = read.iter().map(PathBuf::as_path).chain(tables.paths()).collect();
    let written: Vec<Target> = folder.iter().map(|folder| Target::Folder(folder.path().into())).collect();
    Sandbox::enter(&written, &[], &read, Restrictions::FilesAndCalls { accepts: true });
}

/// Opens an address in the browser. It starts before this process is restricted, which forbids to start programs, and
/// waits for the address.
struct Opener(Child);

impl Opener {
    const PROGRAM: &str = "xdg-open";

    /// # Errors
    /// There is no such program.
    fn start() -> Result<Self, Error> {
        let paths = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&paths).any(|folder| folder.join(Self::PROGRAM).is_file()) {
            return Err(InputError::NoOpener(Self::PROGRAM).into());
        }
        let mut shell = Program::new("sh");
        shell.args(["-c", "read -r address && exec xdg-open \"$address\""]);
        shell.stdin(Stdio::piped()).stdout(Stdio::null());
        shell.spawn().map(Self).map_err(|error| Error::file("sh", error))
    }

    fn open(mut self, address: &str) {
        let written = self.0.stdin.take().map_or(Ok(()), |mut pipe| writeln!(pipe, "{address}"));
        if let Err(error) = written {
            warn!(%error, "the page cannot be opened");
        }
    }
}
