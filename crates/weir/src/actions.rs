//! Actions on packets: the rules file, its egresses, and `weir rules`.

use crate::arguments::{Enrichment, Metering, RulesArguments, RulesCheck, RulesCommand};
use crate::console::{print, print_styled, style};
use crate::enrichment::{Enricher, unix_seconds};
use crate::error::{Error, OutputError, ProbeError, RulesError, RulesProblems};
use crate::files::{self, Target};
use crate::input::{self, DamageLog};
use crate::missing_options;
use crate::probe::privileges;
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::settings::{settings, start_error};
use crate::signals::StopSignal;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tracing::{error, warn};
use weir_capture::{Frame, SourceSpec};
use weir_control::RulesFile;
use weir_egress::{Egress, EgressSpec, OutputSettings, OutputSpec, PacketOutput, WhenFull};
use weir_export::Owner;
use weir_ledger::{ActionCounters, OutputCounters, PacketTotals, RuleCounters, Timing};
use weir_probe::{BackPressure, CpuAffinity, Exporter, Overrides, PacketActions, Pipeline, Settings};
use weir_recorder::{FOLDER_MODE, FolderSettings};
use weir_rules::{InvalidRules, MAX_PROBLEMS, Rules};
use weir_text::columns::{self, Column};
use weir_text::units;

/// Memory for packets that wait which a reload may always take, octets of each pipeline.
const DEFAULT_HOLD_OCTETS: u64 = 64 << 20;
/// Longest rules file, octets.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A rules file, and the outputs that it names.
#[derive(Clone, Debug)]
pub struct Actions {
    pub rules: Arc<Rules>,
    /// The content of the file.
    text: Arc<str>,
    loaded: SystemTime,
    egresses: Vec<EgressSpec>,
    /// Key of the hash that balances, the same in all pipelines.
    secret: u64,
    /// What `[hold]` had at the start, octets.
    hold_octets: u64,
    /// What others say over HTTP about single flows.
    overrides: Option<Overrides>,
}

impl Actions {
    /// Reads a rules file.
    ///
    /// # Errors
    /// It cannot be read, or has problems.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let failed = |error| RulesError::File { path: path.display().to_string(), error };
        let mut text = Vec::new();
        let file = files::open_regular(path).map_err(failed)?;
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(RulesError::TooLong { path: path.display().to_string(), most: MAX_FILE_BYTES >> 20 }.into());
        }
        let invalid = |problems| {
            RulesError::Invalid { path: path.to_owned(), problems: RulesProblems { problems, most: MAX_PROBLEMS } }
                .into()
        };
        let text = String::from_utf8(text).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|&&octet| octet == b'\n').count();
            invalid(vec![(line, "this is not UTF-8: rules files are text".into())])
        })?;
        let rules = Rules::new(&text).map_err(|InvalidRules { problems }| invalid(problems))?;
        let mut problems = Vec::new();
        let mut egresses = Vec::new();
        for egress in &rules.egresses {
            let mut outputs = Vec::new();
            for (line, text) in &egress.outputs {
                let parsed = text.parse::<OutputSpec>().map_err(|error| error.to_string());
                let checked = parsed.and_then(|output| match is_folder(&output) {
                    true => folder_settings(&output).map(|_| output).map_err(|error| error.to_string()),
                    false => Ok(output),
                });
                outputs.extend(checked.map_err(|problem| problems.push((*line, problem))));
                if problems.len() >= MAX_PROBLEMS {
                    return Err(invalid(problems));
                }
            }
            let balance = egress.balance.as_ref().map(|(line, balance)| {
                balance.parse().map_err(|error: weir_egress::Error| problems.push((*line, error.to_string())))
            });
            let balance = balance.and_then(Result::ok).unwrap_or_default();
            egresses.push(EgressSpec { outputs, balance });
        }
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        Ok(Self {
            hold_octets: rules.hold.octets,
            rules: Arc::new(rules),
            text: text.into(),
            loaded: SystemTime::now(),
            egresses,
            secret: RandomState::new().hash_one(0),
            overrides: None,
        })
    }

    /// Permits overrides. Returns them.
    pub fn permit_overrides(&mut self) -> Overrides {
        self.overrides.get_or_insert_default().clone()
    }

    /// Checks the rules beside the other options of a run, without opening outputs. `targets` are the
    /// files of sinks.
    ///
    /// # Errors
    /// An output is named twice, is monitored by a source, or is a file that is also a source or a
    /// sink. A rule asks for what no flow has without an option.
    pub fn check(
        &self,
        sources: &[SourceSpec],
        targets: &[(String, Target)],
        metering: &Metering,
        enrichment: &Enrichment,
    ) -> Result<(), Error> {
        // What is wrong with the sinks alone is reported with them.
        if files::check_targets(sources, targets).is_ok() {
            let all: Vec<_> = targets.iter().cloned().chain(self.targets()).collect();
            files::check_targets(sources, &all)?;
        }
        if io::stdout().is_terminal() && self.targets().any(|(_, target)| target == Target::StandardOutput) {
            return Err(OutputError::CaptureToTerminal.into());
        }
        let in_log = |target: &Target| matches!(target, Target::File(path) if files::is_standard_error(path));
        if let Some((output, _)) = self.targets().find(|(_, target)| in_log(target)) {
            return Err(RulesError::PacketsInLog(output).into());
        }
        missing_options::check_rules(&self.rules, metering, enrichment)?;
        weir_egress::check(&self.egresses, sources).map_err(Error::Egress)
    }

    /// Interfaces of outputs that cannot be opened.
    pub fn check_interfaces(&self) -> Vec<Error> {
        weir_egress::check_interfaces(&self.egresses).into_iter().map(Error::Egress).collect()
    }

    /// Files, pipes and folders of outputs that cannot be opened. Creates none.
    pub fn check_files(&self) -> Vec<Error> {
        let files = weir_egress::check_files(&self.egresses).into_iter().map(Error::Egress);
        let folders = self.folder_outputs().filter_map(|output| weir_recorder::check(output).err());
        files.chain(folders.map(Error::from)).collect()
    }

    /// Folders that are there, and in which the user of a probe cannot create files, and FIFOs that he
    /// could not open again.
    pub fn check_folders(&self, user: &str) -> Vec<Error> {
        let present = self.folders().filter(|folder| folder.is_dir());
        present.chain(self.fifos()).filter_map(|path| check_access(&path, user).err()).collect()
    }

    fn fifos(&self) -> impl Iterator<Item = PathBuf> {
        let outputs = self.egresses.iter().flat_map(|egress| &egress.outputs).filter(|output| !is_folder(output));
        // /dev/stdout and others stay open.
        let has_name = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|path| !path.starts_with("/proc"));
        outputs.filter_map(|output| output.writable_path().map(Path::to_owned)).filter(has_name)
    }

    /// How many rules there are, and each egress with its outputs.
    pub fn description(&self) -> (String, Vec<String>) {
        let egresses = self.rules.egresses.iter().zip(&self.egresses);
        let line = |(named, egress): (&weir_rules::Egress, &EgressSpec)| {
            let outputs: Vec<String> = egress.outputs.iter().map(OutputSpec::to_string).collect();
            let balance = if outputs.len() > 1 { format!(" ({})", egress.balance) } else { String::new() };
            format!("{}: {}{balance}", named.name, outputs.join(", "))
        };
        (units::count(self.rules.rules.len() as u64, "rule"), egresses.map(line).collect())
    }

    fn folder_outputs(&self) -> impl Iterator<Item = &OutputSpec> {
        self.egresses.iter().flat_map(|egress| &egress.outputs).filter(|output| is_folder(output))
    }

    /// The folders in which packets are recorded.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.folder_outputs().filter_map(|output| folder_settings(output).ok()).map(|settings| settings.folder)
    }

    /// Creates the folders of the recorder for the user of a probe, and checks that he can write there,
    /// and into FIFOs.
    ///
    /// # Errors
    /// A folder cannot be created, or the user cannot create files in it or open a FIFO.
    pub fn prepare_folders(&self, user: &str, owner: Option<Owner>) -> Result<(), Error> {
        for folder in self.folders() {
            match fs::DirBuilder::new().mode(FOLDER_MODE).create(&folder) {
                Ok(()) => owner
                    .map_or(Ok(()), |Owner { user, group }| chown(&folder, Some(user), Some(group)))
                    .map_err(|error| Error::file(&folder, error))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::file(&folder, error)),
            }
            if owner.is_some() {
                check_access(&folder, user)?;
            }
        }
        if owner.is_some() {
            self.fifos().try_for_each(|fifo| check_access(&fifo, user))?;
        }
        Ok(())
    }

    /// Opens the outputs, for each pipeline. `filter` is the capture filter, which recorded files have.
    /// An output gets no packets while one of the sources monitors its interface.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open(
        &self,
        sources: &[SourceSpec],
        pipelines: usize,
        when_full: &WhenFull,
        timing: &Timing,
        filter: Option<&str>,
    ) -> Result<Vec<PacketActions>, Error> {
        let stop = match when_full {
            WhenFull::Wait(stop) => stop.clone(),
            WhenFull::Drop => Arc::default(),
        };
        let settings = OutputSettings::new(when_full.clone(), timing);
        self.with_outputs(pipelines, |output| {
            if !is_folder(output) {
                let open = || weir_egress::open(output, sources, pipelines, &settings).map_err(Error::Egress);
                return files::wait_for_reader(&output.to_string(), &stop, open);
            }
            Ok(weir_recorder::open(output, pipelines, when_full, timing.recorder_retry, filter)?)
        })
    }

    /// Whether an output is a port of DPDK.
    pub fn use_dpdk(&self) -> bool {
        self.egresses.iter().flat_map(|egress| &egress.outputs).any(|output| matches!(output, OutputSpec::Dpdk(_)))
    }

    /// What outputs open again while the program runs.
    pub fn writable_paths(&self) -> impl Iterator<Item = PathBuf> {
        let outputs = self.egresses.iter().flat_map(|egress| &egress.outputs);
        outputs.filter_map(|output| output.writable_path().map(Path::to_owned)).chain(self.folders())
    }

    fn with_outputs(
        &self,
        pipelines: usize,
        open: impl Fn(&OutputSpec) -> Result<Vec<Box<dyn PacketOutput>>, Error>,
    ) -> Result<Vec<PacketActions>, Error> {
        let mut of_pipelines: Vec<Vec<Egress>> = (0..pipelines).map(|_| Vec::new()).collect();
        for EgressSpec { outputs, balance } in &self.egresses {
            let mut handles: Vec<Vec<Box<dyn PacketOutput>>> = (0..pipelines).map(|_| Vec::new()).collect();
            for output in outputs {
                handles.iter_mut().zip(open(output)?).for_each(|(of_pipeline, handle)| of_pipeline.push(handle));
            }
            for (egresses, outputs) in of_pipelines.iter_mut().zip(handles) {
                egresses.push(Egress::new(outputs, *balance, self.secret));
            }
        }
        let actions = of_pipelines.into_iter().map(|egresses| {
            let actions = PacketActions::new(self.rules.clone(), egresses);
            match &self.overrides {
                Some(overrides) => actions.with_overrides(overrides),
                None => actions,
            }
        });
        Ok(actions.collect())
    }

    /// Reads the rules file again. The outputs are those that are open.
    ///
    /// # Errors
    /// The file cannot be used, or a change needs a restart.
    pub fn load_again(&self, path: &Path) -> Result<Self, Error> {
        let new = Self::load(path)?;
        let egress_names =
            |actions: &Self| actions.rules.egresses.iter().map(|egress| egress.name.clone()).collect::<Vec<_>>();
        if new.egresses != self.egresses || egress_names(&new) != egress_names(self) {
            return Err(RulesError::ReloadChangesEgress(path.display().to_string()).into());
        }
        let permitted = self.hold_octets.max(DEFAULT_HOLD_OCTETS);
        if PacketActions::memory_bytes_for(&new.rules) > permitted {
            return Err(RulesError::ReloadEnlargesHold(path.display().to_string()).into());
        }
        Ok(Self { hold_octets: self.hold_octets, secret: self.secret, overrides: self.overrides.clone(), ..new })
    }

    /// The rules in effect, for the HTTP interface. `error` says why a later version is not.
    pub fn in_effect(&self, path: &Path, error: Option<String>) -> RulesFile {
        let rules = self.rules.rules.iter();
        RulesFile {
            file: path.display().to_string(),
            loaded: unix_seconds(self.loaded),
            error,
            text: self.text.clone(),
            lines: rules.map(|rule| (rule.level.name(), rule.name.clone(), rule.line)).collect(),
        }
    }

    /// Memory of packets that wait for a decision or in an output, octets.
    pub fn memory_bytes(&self, pipelines: usize) -> u64 {
        let outputs = self.egresses.iter().flat_map(|egress| &egress.outputs);
        let outputs: u64 = outputs.map(|output| output.memory_bytes(pipelines)).sum();
        (PacketActions::memory_bytes_for(&self.rules) * pipelines as u64).saturating_add(outputs)
    }

    /// Files of the outputs, each with its name in messages.
    pub fn targets(&self) -> impl Iterator<Item = (String, Target)> {
        let outputs = self.egresses.iter().flat_map(|egress| &egress.outputs);
        outputs.filter_map(|output| match output {
            OutputSpec::Pcap(path) => Some((format!("{output} of the rules"), Target::of_path(path))),
            OutputSpec::AfPacket(_) | OutputSpec::AfXdp(_) | OutputSpec::Dpdk(_) | OutputSpec::Folder(_) => None,
        })
    }
}

/// Checks that a user can create files in a folder, or write into a FIFO.
fn check_access(path: &Path, user: &str) -> Result<(), Error> {
    let is_folder = path.is_dir();
    let access = || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from);
    let refused = |error| {
        let user = user.into();
        match is_folder {
            true => ProbeError::RotatedFiles { sink: format!("folder:{}", path.display()), user, error }.into(),
            false => RulesError::FifoOfUser { output: format!("pcap:{}", path.display()), user, error }.into(),
        }
    };
    privileges::as_user(user, || access().map_err(refused))
}

fn is_folder(output: &OutputSpec) -> bool {
    matches!(output, OutputSpec::Folder(_))
}

fn folder_settings(output: &OutputSpec) -> Result<FolderSettings, weir_recorder::Error> {
    FolderSettings::parse(&output.to_string())
}

/// An output that only counts.
struct Counted(OutputCounters);

impl PacketOutput for Counted {
    fn send(&mut self, frames: &[Frame<'_>]) {
        frames.iter().for_each(|frame| self.0.sent.add(frame.bytes.len()));
    }

    fn counters(&self) -> OutputCounters {
        self.0.clone()
    }
}

pub fn run(arguments: &RulesArguments) -> Result<RunStatus, Error> {
    let RulesCommand::Check(check) = &arguments.command;
    let actions = Actions::load(&check.file)?;
    for egress in actions.rules.unused_egresses() {
        let (file, line, name) = (check.file.display(), egress.line, &egress.name);
        warn!("{file}: line {line}: no packet goes to '{name}': neither [default] nor a rule names it");
    }
    Error::of(missing_options::unknown_tags_of(&actions.rules, &check.enrichment))?;
    let enricher = Enricher::load(&check.enrichment)?;
    if let Some(enricher) = &enricher {
        missing_options::check_tags(&actions.rules, &check.metering, &enricher.current())?;
    }
    if check.with.is_empty() {
        let unusable = actions.check_files();
        unusable.iter().for_each(|error| error!("{}: {error}", check.file.display()));
        let mut text = format!(
            "{}: valid, {}, {}",
            check.file.display(),
            actions.description().0,
            units::count(actions.egresses.len() as u64, "output group")
        );
        if !unusable.is_empty() {
            text += &format!(", of which {} cannot be opened here", units::count(unusable.len() as u64, "output"));
        }
        let text = weir_dpi::printable(&text) + "\n";
        return Ok(RunStatus::from_problems(!unusable.is_empty()).and(print(text.as_bytes())));
    }
    let (counters, status) = tried(&actions, enricher.as_ref(), check)?;
    let printed = if check.json {
        let json = serde_json::to_string_pretty(&counters).expect("counters are plain values");
        print(format!("{json}\n").as_bytes())
    } else {
        print_styled(&text(&counters), style::findings)
    };
    Ok(status.and(printed))
}

/// What the rules do with the packets of captures.
fn tried(
    actions: &Actions,
    enricher: Option<&Enricher>,
    check: &RulesCheck,
) -> Result<(ActionCounters, RunStatus), Error> {
    let sources = &check.with[..];
    input::check_sources(sources, "rules check")?;
    input::check_packets(sources, &check.metering.selection, true)?;
    missing_options::check_rules(&actions.rules, &check.metering, &check.enrichment)?;
    let settings = settings(&check.metering)?;
    let enricher = enricher.map(Enricher::record_enricher);
    let stop_signal = StopSignal::register()?;
    let mut source = input::open_sources(sources, settings.decode, &stop_signal.flag())?;
    if !check.hardening.no_sandbox {
        Sandbox::enter(&[], &[], &[], Restrictions::of(sources, false, false));
    }
    stop_signal.start_thread();
    let count = |output: &OutputSpec| {
        let counters = OutputCounters { output: output.to_string(), ..OutputCounters::default() };
        Ok(vec![Box::new(Counted(counters)) as Box<dyn PacketOutput>])
    };
    let packet_actions = actions.with_outputs(1, count)?.remove(0);
    let settings = Settings { enricher, ..settings };
    let mut exporter =
        Exporter::new(Vec::new(), CpuAffinity::default(), BackPressure::Block, &settings).map_err(Error::Thread)?;
    let config = settings.meter;
    let mut pipeline = Pipeline::new(settings, exporter.handle(), Some(packet_actions))
        .map_err(|error| start_error(&config, check.metering.flows.is_some(), error))?;
    let mut damage = DamageLog::default();
    loop {
        match pipeline.process_burst(&mut source) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => damage.log(&error),
        }
    }
    damage.log_end();
    let account = pipeline.finish();
    exporter.finish();
    let counters = account.ledger.actions.unwrap_or_default();
    Ok((counters, RunStatus::from_problems(damage.count() > 0)))
}

/// The tables of rules and outputs.
fn text(counters: &ActionCounters) -> String {
    let rules = &counters.rules;
    let column = |heading: &str, cell: &dyn Fn(&RuleCounters) -> String| {
        Column::new(heading, !matches!(heading, "level" | "rule"), rules.iter().map(cell))
    };
    let mut text = columns::lines(
        &[
            column("level", &|rule| rule.level.into()),
            column("rule", &|rule| weir_dpi::printable(&rule.rule)),
            column("packets", &|rule| rule.matched.packets.to_string()),
            column("octets", &|rule| rule.matched.octets.to_string()),
            column("forwarded", &|rule| rule.forwarded.packets.to_string()),
            column("octets", &|rule| rule.forwarded.octets.to_string()),
        ],
        2,
        crate::console::terminal_columns(),
    );
    text += "\n";
    let outputs = &counters.outputs;
    let column = |heading: &str, cell: &dyn Fn(&OutputCounters) -> String| {
        Column::new(heading, heading != "output", outputs.iter().map(cell))
    };
    text += &columns::lines(
        &[
            column("output", &|output| weir_dpi::printable(&output.output)),
            column("packets", &|output| output.total().packets.to_string()),
            column("octets, cut", &|output| output.total().octets.to_string()),
        ],
        1,
        crate::console::terminal_columns(),
    );
    text += "\n";
    text += &totals(counters);
    text
}

/// One line per outcome.
fn totals(counters: &ActionCounters) -> String {
    let total = counters.total();
    let line = |name: &str, PacketTotals { packets, octets }: PacketTotals| {
        format!("{name:<28} {packets:>12} packets {octets:>15} octets on the wire\n")
    };
    let mut text = line("packets", total)
        + &line("- dropped by rules", counters.dropped)
        + &line("- shunted", counters.shunted)
        + &line("= forwarded", counters.forwarded);
    for (name, number, unit) in [
        ("  of which cut", counters.cut, "packets"),
        ("flows decided late", counters.decided_late, "flows"),
        ("flows decided, no memory", counters.decided_full, "flows"),
        ("flows decided uninspected", counters.decided_uninspected, "flows"),
    ] {
        if number > 0 {
            text += &format!("{name:<28} {number:>12} {unit}\n");
        }
    }
    text
}
