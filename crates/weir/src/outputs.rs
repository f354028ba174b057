//! Outputs of the commands that meter: sinks, summary, ledger.

use crate::arguments::{self, Enrichment, InvalidOutput, Metering, Output, RecordSink, Reporting, Switch};
use crate::console::frame::Terminal;
use crate::console::style::{self, StyledLines};
use crate::console::{self, Deadline, log};
use crate::error::{Error, OutputError, sink_advice};
use crate::files::{self, Target};
use crate::ledger_text::{self, has_problems};
use crate::memory::{self, ViewMemory};
use crate::names::SharedNames;
use crate::run_status::RunStatus;
use crate::settings::key_options;
use crate::summary::{self, TrafficSummary};
use crate::table::{self, Content, LargestFlows, Layout, LiveTable, LiveTraffic, SummedView, Table, ViewTable};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{Level, debug, error};
use weir_anonymise::{Anonymiser, AnonymisingSink};
use weir_export::{
    Attempts, Compression, ExportOptions, FailoverSink, FileMode, OutputFile, Owner, Sink, SinkSpec, ViewFormat,
};
use weir_fields::{Column, Profile, Words};
use weir_flow::KeyOptions;
use weir_ledger::{ExportLossReason, Ledger, SinkCounters, Timing};
use weir_probe::{BackPressure, Exporter, SinkChange};
use weir_query::{Expression, RecordOrder, SelectingSink, Share, View, ViewSettings};
use weir_store::{RowForm, UpkeepTimes};

/// Why the ledger can always be written as JSON.
const LEDGER_IS_PLAIN: &str = "the ledger has string keys and plain numbers only";

pub struct Outputs {
    pub sinks: Vec<RecordSink>,
    /// Those of transactions.
    pub transactions: Vec<RecordSink>,
    /// Columns of transactions: of JSON and CSV, of a store.
    pub transaction_columns: [Vec<&'static Column>; 2],
    pub invalid: Vec<InvalidOutput>,
    /// All outputs: the option as the user wrote it, and its target.
    pub targets: Vec<(String, Target)>,
    pub on_standard_output: Option<RecordSink>,
    /// Collectors that cannot be reached are tried again while the command runs.
    pub retries: bool,
    /// Payload is inspected.
    pub applications: bool,
    /// Columns of JSON and CSV.
    pub columns: Vec<&'static Column>,
    /// Columns of a store.
    pub stored_columns: Vec<&'static Column>,
    /// Records have these fields only, because they were stored; `None` if they are metered.
    pub known: Option<Vec<&'static Column>>,
    /// What stored records are.
    pub stored_form: RowForm,
    /// The view that table, CSV and JSON have instead of records.
    pub view: Option<ViewSettings>,
    /// The view, if it is computed without records. It is for one sink.
    pub summed: SummedView,
    /// The memory of the views of all sinks.
    pub view_memory: ViewMemory,
    /// What tables have besides records.
    pub additions: Additions,
    /// Anonymises the records of all sinks: with `--anonymise`, once its key is read.
    pub anonymiser: Option<Anonymiser>,
    /// Owner of new files; `None` for the user and group of the process.
    pub owner: Option<Owner>,
    pub stats: Option<PathBuf>,
    /// The store that the page of `--html` is made of.
    pub page: Option<PageStore>,
    /// Times after which sinks try again.
    pub timing: Timing,
}

/// What tables have besides records.
#[derive(Default)]
pub struct Additions {
    /// Names of hosts.
    pub names: Option<SharedNames>,
    /// Refreshes the table on a terminal.
    pub live: Option<LiveTraffic>,
}

/// A store in a temporary folder, which gets the records that the sinks get.
pub struct PageStore {
    pub spec: SinkSpec,
    pub columns: Vec<&'static Column>,
}

#[derive(Default)]
pub struct OpenOutputs {
    pub sinks: Vec<Box<dyn Sink + Send>>,
    /// Those of transactions; `None` if none are recorded.
    pub transactions: Option<Vec<Box<dyn Sink + Send>>>,
    /// Summary of all records, to be filled by its [`summary::observer`].
    pub summary: Arc<Mutex<TrafficSummary>>,
    stats: Option<File>,
}

impl OpenOutputs {
    /// Says in the summary whether packets are from files of packet records, which have no payload.
    pub fn set_without_payload(&self, is_without_payload: bool) {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).without_payload = is_without_payload;
    }
}

impl Outputs {
    /// Outputs of `-o` and `--stats`. Without `-o`, a table on standard output, and also for a view
    /// that has no output.
    pub fn new(options: &arguments::Sinks, metering: &Metering, enrichment: &Enrichment, stats: Option<&Path>) -> Self {
        let default = |profile| {
            let (key, layer2) = (key_options(metering), metering.layer2);
            let columns = weir_fields::default_columns(profile, key, layer2, metering.mac_addresses);
            columns.into_iter().chain(enrichment.columns()).collect()
        };
        let [columns, stored_columns] = [Profile::Basic, Profile::Store]
            .map(|profile| options.fields.as_ref().map_or_else(|| default(profile), |fields| fields.0.clone()));
        let transactions = options.transactions.clone();
        let takes_standard_output =
            stats == Some(Path::new("-")) || transactions.iter().any(|sink| sink.spec.is_standard_output());
        let (mut sinks, invalid) = sinks_of(&options.outputs);
        if options.outputs.is_empty() {
            // The ledger, or transactions, are in place of the table. The ledger balances only with a sink.
            sinks.push(RecordSink::table(if takes_standard_output { "/dev/null" } else { "-" }));
        }
        let has_view = |sink: &&RecordSink| sink.spec.view_format().is_some();
        let views = |sinks: &[RecordSink]| sinks.iter().filter(has_view).count().max(1);
        let default_groups =
            |view: &ViewSettings| memory::default_groups(view.max_memory_bytes() * views(&sinks) as u64);
        let view = options.view(default_groups);
        if view.is_some() && !sinks.iter().any(|sink| has_view(&sink)) {
            sinks.push(RecordSink::table("-"));
        }
        let view_memory = view.as_ref().map_or(ViewMemory::default(), |view| ViewMemory {
            groups: view.groups,
            bytes: view.max_memory_bytes() * views(&sinks) as u64,
            store_bytes: 0,
        });
        let mut targets: Vec<_> = sinks.iter().flat_map(|sink| targets_of("-o", sink)).collect();
        targets.extend(transactions.iter().flat_map(|sink| targets_of("--transactions", sink)));
        if let Some(path) = stats {
            targets.push((stats_option(path), Target::of_path(path)));
        }
        let on_standard_output = sinks.iter().find(|sink| sink.spec.is_standard_output()).cloned();
        let transaction_columns =
            [false, true].map(|is_stored| weir_fields::transaction_columns(is_stored, metering.dpi_fields));
        Self {
            sinks,
            transactions,
            transaction_columns,
            invalid,
            targets,
            on_standard_output,
            retries: false,
            applications: metering.inspects(),
            columns,
            stored_columns,
            known: None,
            stored_form: RowForm::default(),
            view,
            summed: SummedView::default(),
            view_memory,
            additions: Additions::default(),
            anonymiser: None,
            owner: None,
            stats: stats.map(Path::to_path_buf),
            page: None,
            timing: Timing::default(),
        }
    }

    /// Adds the page of `--html`, in place of the table if it goes to standard output and there is no `-o`.
    pub fn add_page(&mut self, (option, target): (String, Target), store: PageStore, options: &arguments::Sinks) {
        let is_default = options.outputs.is_empty() && target == Target::StandardOutput;
        if let Some(table) = self.sinks.iter_mut().find(|sink| is_default && sink.spec.is_standard_output()) {
            *table = RecordSink::table("/dev/null");
            self.on_standard_output = None;
            self.targets.retain(|(_, target)| *target != Target::StandardOutput || self.stats.is_some());
        }
        self.targets.push((option, target));
        self.page = Some(store);
    }

    /// The targets of the sinks.
    pub fn sink_targets(&self) -> Vec<Target> {
        self.sinks.iter().chain(&self.transactions).flat_map(|sink| Target::all_of(&sink.spec)).collect()
    }

    /// Targets that sinks open also after the start.
    pub fn later_targets(&self) -> Vec<Target> {
        let specs = self.sinks.iter().chain(&self.transactions).map(|sink| &sink.spec);
        let of_page = self.page.iter().filter_map(|page| page.spec.folder()?.parent());
        let of_page = of_page.map(|folder| Target::Folder(folder.into()));
        specs.filter(|spec| Target::is_opened_later(spec)).flat_map(Target::all_of).chain(of_page).collect()
    }

    pub fn table_on_standard_output(&self) -> bool {
        let is_text = |sink: &SinkSpec| sink.view_format() == Some(ViewFormat::Table) && sink.compression().is_none();
        self.on_standard_output.as_ref().is_some_and(|sink| is_text(&sink.spec))
    }

    /// What views and stores take.
    pub fn memory(&self) -> ViewMemory {
        let stores = self.sinks.iter().map(|sink| sink.spec.memory_bytes(&self.stored_columns, self.retries));
        let failovers = self.units().filter(|unit| unit.len() > 1).count() as u64;
        let [_, columns] = &self.transaction_columns;
        let transactions = self.transactions.iter().map(|sink| sink.spec.memory_bytes(columns, self.retries));
        let queues =
            Exporter::memory_bytes_for(self.transactions.len(), Exporter::transaction_batches(BackPressure::Drop));
        let transaction_bytes = transactions.sum::<u64>() + queues as u64;
        let page = self.page.iter().map(|page| page.spec.memory_bytes(&page.columns, false));
        let store_bytes =
            stores.chain(page).sum::<u64>() + failovers * FailoverSink::MEMORY_BYTES as u64 + transaction_bytes;
        ViewMemory { store_bytes, ..self.view_memory }
    }

    /// What runs as one sink: the sinks of a `failover:`, and each other sink.
    pub fn units(&self) -> impl Iterator<Item = &[RecordSink]> {
        self.sinks.chunk_by(|_, next| next.failover.is_some_and(|place| place > 0))
    }

    /// Whether a sink has a view instead of records.
    pub fn shows_view(&self, sink: &RecordSink) -> bool {
        self.view.is_some() && sink.spec.view_format().is_some()
    }

    /// What is wrong with the view and the sinks, which are not opened.
    pub fn problems(&self, options: &arguments::Sinks) -> Vec<Error> {
        let invalid = self.invalid.iter().map(|reason| Err(reason.clone().into()));
        [self.check_columns(options), self.check_order(options), self.check_collectors()]
            .into_iter()
            .chain(invalid)
            .chain(self.sinks.iter().map(|sink| self.check_sink(sink)))
            .filter_map(Result::err)
            .collect()
    }

    /// Checks that there are transactions, if they are to be recorded. `is_fused`: the threads that meter get payload.
    pub fn check_transactions(&self, metering: &Metering, is_fused: bool) -> Result<(), Error> {
        let without = match () {
            () if self.transactions.is_empty() => return Ok(()),
            () if !is_fused => "--layout split or spread",
            () if !metering.inspects() => "--dpi off",
            () if metering.dpi_transactions == Switch::Off => "--dpi-transactions off",
            () => return Ok(()),
        };
        Err(OutputError::TransactionsNeed(without).into())
    }

    /// Checks a sink together with the view, without opening it.
    pub fn check_sink(&self, RecordSink { spec, failover, .. }: &RecordSink) -> Result<(), Error> {
        let Some(format) = spec.view_format() else { return Ok(()) };
        if failover.is_some() && self.view.is_some() {
            return Err(OutputError::ViewOfFailover(spec.to_string()).into());
        }
        if spec.columns().is_some() && self.view.is_some() {
            return Err(OutputError::FieldsOfView(spec.name().into()).into());
        }
        if format != ViewFormat::Table && self.retries && self.view.is_some() {
            return Err(OutputError::ViewOfProbe(spec.to_string()).into());
        }
        if self.written_at_end(spec).is_some() && spec.is_rotated() {
            return Err(OutputError::RotatedTable(spec.to_string()).into());
        }
        Ok(())
    }

    /// Checks the output of a sink, without changing it.
    pub fn check_output(&self, sink: &RecordSink, options: &arguments::Sinks, key: KeyOptions) -> Result<(), Error> {
        Ok(sink.spec.check(&self.export_options(options, key, FileMode::Append))?)
    }

    /// The same of a sink of transactions.
    pub fn check_transaction_output(
        &self,
        sink: &RecordSink,
        options: &arguments::Sinks,
        key: KeyOptions,
    ) -> Result<(), Error> {
        Ok(sink.spec.check(&self.transaction_options(options, key, FileMode::Append))?)
    }

    /// Checks that a sink, also one of transactions, can make files while it runs.
    pub fn check_files(&self, sink: &RecordSink, options: &arguments::Sinks, key: KeyOptions) -> Result<(), Error> {
        let options = match self.transactions.contains(sink) {
            true => self.transaction_options(options, key, FileMode::Append),
            false => self.export_options(options, key, FileMode::Append),
        };
        Ok(sink.spec.check_files(&options)?)
    }

    /// How a sink is written that has a text at the end of the run instead of records: a view, or the
    /// largest flows.
    fn written_at_end(&self, spec: &SinkSpec) -> Option<ViewFormat> {
        spec.view_format().filter(|&format| format == ViewFormat::Table || self.view.is_some())
    }

    /// Checks that the view has no two columns with one name.
    fn check_columns(&self, options: &arguments::Sinks) -> Result<(), Error> {
        if options.groups.is_some() && self.view.is_none() {
            return Err(OutputError::GroupsWithoutView.into());
        }
        if !options.sums.is_empty() && self.view.is_none() {
            return Err(OutputError::SumsWithoutView.into());
        }
        let repeated = View::repeated_column(&options.by, &options.counts, &options.sums);
        repeated.map_or(Ok(()), |name| Err(OutputError::ColumnTwice(name).into()))
    }

    /// Checks `--sort`, which applies to all sinks that may have a table or a view.
    fn check_order(&self, options: &arguments::Sinks) -> Result<(), Error> {
        if !self.sinks.iter().any(|sink| sink.spec.view_format().is_some()) {
            return Ok(());
        }
        match &self.view {
            Some(view) => View::new(view.clone()).map(drop)?,
            None => options.order.as_ref().map(RecordOrder::new).transpose().map(drop)?,
        }
        Ok(())
    }

    /// Checks that no collector gets each record twice. Files and folders are checked with all other targets.
    fn check_collectors(&self) -> Result<(), Error> {
        let repeated = |sinks: &[RecordSink]| {
            let at = (1..sinks.len()).find(|&at| sinks[..at].iter().any(|other| sinks[at].repeats(other)));
            at.map(|at| sinks[at].to_string())
        };
        if let Some(output) = repeated(&self.transactions) {
            return Err(OutputError::SameCollector { other: output.clone(), output }.into());
        }
        for (at, sink) in self.sinks.iter().enumerate() {
            if let Some(other) = self.sinks[..at].iter().find(|other| sink.repeats(other)) {
                let (output, other) = (sink.to_string(), other.to_string());
                return Err(OutputError::SameCollector { output, other }.into());
            }
        }
        Ok(())
    }

    /// Checks the sinks and the view, before any sink is opened.
    fn check_views(&self, options: &arguments::Sinks) -> Result<(), Error> {
        self.check_columns(options)?;
        self.check_order(options)?;
        self.check_collectors()?;
        self.sinks.iter().try_for_each(|sink| self.check_sink(sink))
    }

    /// Opens all outputs. Waits for the readers of named pipes until `stop` is set.
    pub fn open(
        &self,
        options: &arguments::Sinks,
        key: KeyOptions,
        mode: FileMode,
        stop: &AtomicBool,
    ) -> Result<OpenOutputs, Error> {
        self.check_views(options)?;
        let units: Vec<_> = self.units().collect();
        let mut sinks: Vec<_> = units.iter().map(|_| None).collect();
        let mut transactions: Vec<_> = self.transactions.iter().map(|_| None).collect();
        let mut stats = None;
        // Opening files may empty them, so pipes come first: a signal may end the wait for their readers.
        for is_last in [false, true] {
            for (opened, unit) in sinks.iter_mut().zip(&units) {
                if opened.is_none() && (is_last || unit.iter().any(|sink| is_pipe(&Target::of_sink(&sink.spec)))) {
                    let (name, open) = (name_of(unit), || self.open_unit(unit, options, key, mode));
                    *opened = Some(files::wait_for_reader(&format!("-o {name}"), stop, open)?);
                    debug!(sink = name, "sink opened");
                }
            }
            for (opened, sink) in transactions.iter_mut().zip(&self.transactions) {
                if opened.is_none() && (is_last || is_pipe(&Target::of_sink(&sink.spec))) {
                    let open = || self.open_transactions(sink, options, key, mode);
                    *opened = Some(files::wait_for_reader(&format!("--transactions {sink}"), stop, open)?);
                }
            }
            if let Some(path) = self.stats.as_deref()
                && stats.is_none()
                && (is_last || is_pipe(&Target::of_path(path)))
            {
                let open = || open_stats(Some(path), mode, self.owner);
                stats = Some(files::wait_for_reader(&stats_option(path), stop, open)?);
            }
        }
        let page = self.page.as_ref().map(|page| self.open_page(page, options, key)).transpose()?;
        let (sinks, stats) = (sinks.into_iter().flatten().chain(page).collect(), stats.flatten());
        let transactions = transactions.into_iter().collect::<Option<Vec<_>>>().filter(|sinks| !sinks.is_empty());
        let conditions =
            units.iter().copied().flatten().filter_map(|sink| sink.condition.as_ref()).chain(&options.records);
        let summary = Arc::new(Mutex::new(TrafficSummary::of_conditions(conditions)));
        Ok(OpenOutputs { sinks, transactions, summary, stats })
    }

    /// Opens new sinks while the probe runs. `position` is the position of a unit that stays open.
    ///
    /// # Errors
    /// A sink cannot be opened, or is a pipe without a reader. New files of other sinks are removed
    /// again.
    pub fn change_sinks(
        &self,
        options: &arguments::Sinks,
        key: KeyOptions,
        position: impl Fn(&[RecordSink]) -> Option<usize>,
    ) -> Result<Vec<SinkChange>, Error> {
        self.check_views(options)?;
        let open = |unit| {
            if let Some(position) = position(unit) {
                return Ok(SinkChange::Keep(position));
            }
            let open = || self.open_unit(unit, options, key, FileMode::Append);
            let opened = files::wait_for_reader(&format!("-o {}", name_of(unit)), &AtomicBool::new(true), open)?;
            Ok(SinkChange::Open(opened))
        };
        self.units().map(open).collect()
    }

    /// Opens a sink that gets only the records that the expressions select.
    fn open_unit(
        &self,
        unit: &[RecordSink],
        options: &arguments::Sinks,
        key: KeyOptions,
        mode: FileMode,
    ) -> Result<Box<dyn Sink + Send>, Error> {
        let export = self.export_options(options, key, mode);
        let (condition, share) = unit.first().map_or((&None, &None), |sink| (&sink.condition, &sink.share));
        let expressions: Vec<_> = options.records.iter().chain(condition).cloned().collect();
        let name = name_of(unit);
        let opened: Box<dyn Sink + Send> = match unit {
            [RecordSink { spec, .. }] => match self.written_at_end(spec) {
                Some(format) => self.open_table_or_live(spec, format, options, mode, &expressions, *share)?,
                None => spec.open(&export)?,
            },
            members => {
                // Another sink is there for a collector that is away.
                let of_member = ExportOptions { retries: true, ..export };
                let opened = members.iter().map(|sink| sink.spec.open(&of_member)).collect::<Result<_, _>>()?;
                Box::new(FailoverSink::new(&name, opened, of_member.attempts, self.retries))
            }
        };
        // Expressions have the true values.
        let opened = self.anonymised(opened, options)?;
        let gets_all = expressions.is_empty() && share.is_none();
        Ok(if gets_all { opened } else { Box::new(SelectingSink::new(&name, opened, expressions, *share)) })
    }

    /// Opens the store of the page: of flows of both directions, as those of a view.
    fn open_page(
        &self,
        PageStore { spec, columns }: &PageStore,
        options: &arguments::Sinks,
        key: KeyOptions,
    ) -> Result<Box<dyn Sink + Send>, Error> {
        let export = self.export_options(options, key, FileMode::New);
        let export = ExportOptions { uniflow: false, stored_columns: columns.clone(), ..export };
        // Expressions have the true values.
        let opened = self.anonymised(spec.open(&export)?, options)?;
        Ok(match &options.records {
            None => opened,
            Some(condition) => Box::new(SelectingSink::new(spec.name(), opened, vec![condition.clone()], None)),
        })
    }

    /// Opens a sink of transactions.
    fn open_transactions(
        &self,
        sink: &RecordSink,
        options: &arguments::Sinks,
        key: KeyOptions,
        mode: FileMode,
    ) -> Result<Box<dyn Sink + Send>, Error> {
        let opened = self.anonymised(sink.spec.open(&self.transaction_options(options, key, mode))?, options)?;
        Ok(match &sink.condition {
            None => opened,
            Some(condition) => Box::new(SelectingSink::new(&sink.to_string(), opened, vec![condition.clone()], None)),
        })
    }

    /// The sink behind anonymisation, if that is requested. No sink is opened without the key.
    fn anonymised(
        &self,
        opened: Box<dyn Sink + Send>,
        options: &arguments::Sinks,
    ) -> Result<Box<dyn Sink + Send>, Error> {
        match (&options.anonymise, &self.anonymiser) {
            (None, _) => Ok(opened),
            (Some(_), Some(anonymiser)) => Ok(Box::new(AnonymisingSink::new(opened, anonymiser.clone()))),
            (Some(_), None) => Err(OutputError::NoAnonymisationKey.into()),
        }
    }

    fn transaction_options(&self, options: &arguments::Sinks, key: KeyOptions, mode: FileMode) -> ExportOptions {
        let [columns, stored_columns] = self.transaction_columns.clone();
        let of_flows = self.export_options(options, key, mode);
        ExportOptions { uniflow: false, transactions: true, columns, stored_columns, ..of_flows }
    }

    /// Opens a table, which is refreshed if it goes to a terminal.
    fn open_table_or_live(
        &self,
        spec: &SinkSpec,
        format: ViewFormat,
        options: &arguments::Sinks,
        mode: FileMode,
        expressions: &[Expression],
        share: Option<Share>,
    ) -> Result<Box<dyn Sink + Send>, Error> {
        let opened = self.open_table(spec, format, options, mode)?;
        let live = self.additions.live.as_ref().filter(|_| spec.is_standard_output());
        let Some((live, terminal)) = live.zip(live.and_then(|_| Terminal::open())) else {
            return Ok(Box::new(opened));
        };
        let anonymiser = self.anonymiser.clone().filter(|_| options.anonymise.is_some());
        let selection = table::Selection { expressions: expressions.to_vec(), share, anonymiser };
        Ok(Box::new(LiveTable::new(opened, live.clone(), selection, terminal)))
    }

    fn open_table(
        &self,
        spec: &SinkSpec,
        format: ViewFormat,
        options: &arguments::Sinks,
        mode: FileMode,
    ) -> Result<Table, Error> {
        let (name, content, compression) = (spec.name(), self.content(spec, format, options)?, spec.compression());
        let mut table = match Target::of_sink(spec) {
            Target::File(path) if path == Path::new("") => return Err(OutputError::NoTablePath(name.into()).into()),
            Target::File(path) => {
                let OutputFile { file, unused } = weir_export::open_file(name, &path, mode, self.owner)?;
                let output: Box<dyn Write + Send> = if mode == FileMode::Append || compression.is_some() {
                    Box::new(files::WholeTexts(file))
                } else {
                    Box::new(files::WholeLines(file))
                };
                let mut table = Table::new(name, content, output, None);
                table.unused = unused;
                table
            }
            _ => {
                let is_styled = compression.is_none() && style::is_on(&io::stdout());
                let output: Box<dyn Write + Send> = match is_styled {
                    true => Box::new(StyledLines::new(io::stdout(), style::table)),
                    false => Box::new(io::stdout()),
                };
                Table::new(name, content, output, console::terminal_columns())
            }
        };
        table.compression = compression;
        table.summed = self.summed.clone();
        table.names = self.additions.names.clone();
        Ok(table)
    }

    fn export_options(&self, options: &arguments::Sinks, key: KeyOptions, file_mode: FileMode) -> ExportOptions {
        ExportOptions {
            uniflow: options.uniflow,
            observation_domain: options.domain,
            anonymised: options.anonymise.is_some() || self.stored_form.is_anonymised,
            directions: self.stored_form.is_uniflow,
            transactions: self.stored_form.is_transactions,
            key,
            applications: self.applications,
            retries: self.retries,
            columns: self.columns.clone(),
            stored_columns: self.stored_columns.clone(),
            known: self.known.clone(),
            file_mode,
            file_owner: self.owner,
            attempts: Attempts::from(&self.timing),
            store_upkeep: UpkeepTimes::from(&self.timing),
        }
    }

    /// What a sink writes at the end of the run: a view, or the largest flows.
    fn content(&self, spec: &SinkSpec, format: ViewFormat, options: &arguments::Sinks) -> Result<Content, Error> {
        const DEFAULT_TOP: usize = 20;
        let Some(view) = &self.view else {
            let of_transactions = self.stored_form.is_transactions;
            // Octets of transactions are not known.
            let usual = of_transactions.then(|| "start_time:asc".parse().expect("it is an order"));
            let order = options.order.as_ref().or(usual.as_ref()).map(RecordOrder::new).transpose()?;
            let fields =
                spec.columns().map(<[_]>::to_vec).or_else(|| options.fields.as_ref().map(|_| self.columns.clone()));
            let is_end = |column: &&Column| column.properties.words == Some(Words::EndReason);
            let is_end_unknown = self.known.as_ref().is_some_and(|known| !known.iter().any(is_end));
            let layout = Layout { order, fields, is_end_unknown, of_transactions };
            return Ok(Content::Largest(LargestFlows::new(options.top.unwrap_or(DEFAULT_TOP), layout)));
        };
        let view = View::new(view.clone())?;
        Ok(Content::View(Box::new(ViewTable { view, format, top: options.top })))
    }

    /// Reports the result of a run: the summary (after the table, if there is one), the ledger as text
    /// if requested or if it shows problems, and the ledger as JSON. If no sink is read any more, there
    /// is no summary. What is not written at the deadline, if one is given, is not delivered. Returns
    /// `status`, with the problems of the report.
    pub fn report(
        &self,
        ledger: &Ledger,
        open: OpenOutputs,
        options: &Reporting,
        status: RunStatus,
        mut deadline: Option<Deadline<'_>>,
    ) -> RunStatus {
        let mut deliver = |output: &str, write: Box<dyn FnOnce() -> RunStatus + Send>| match &mut deadline {
            None => write(),
            Some(deadline) => console::write_until(deadline, write).unwrap_or_else(|| {
                error!(output, "this output is not read: it did not get everything in time (--drain-timeout)");
                RunStatus::Problems
            }),
        };
        for sink in &ledger.sinks {
            let lost = sink.lost.values().map(|lost| lost.flows).sum::<u64>();
            debug!(sink = sink.sink, exported = sink.exported.flows, lost, "sink closed");
        }
        let mut status = status.and(RunStatus::from_problems(has_problems(ledger)));
        let is_closed = |sink: &SinkCounters| sink.lost.contains_key(ExportLossReason::OutputClosed.key());
        if !options.quiet && !ledger.sinks.iter().all(is_closed) {
            let summary = open.summary.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let table = self.on_standard_output.as_ref().filter(|_| self.table_on_standard_output());
            let table = table.map(RecordSink::to_string);
            if ledger.sinks.iter().any(|sink| Some(&sink.sink) == table.as_ref() && sink.lost.is_empty()) {
                let gap = if ledger.flows_created > 0 { "\n" } else { "" };
                let text = summary::text(ledger, &summary, console::terminal_columns());
                let text = format!("{gap}{}", console::printable(&text));
                let print = move || console::print_styled(&text, style::ledger);
                status = status.and(deliver("standard output", Box::new(print)));
            } else if !log::is_json() {
                let text = summary::text(ledger, &summary, console::error_columns());
                console::eprint_styled(&text, style::ledger);
            }
        }
        let written = self.stats.clone().map_or(RunStatus::Success, |path| {
            let (output, ledger) = (stats_option(&path), ledger.clone());
            deliver(&output, Box::new(move || write_stats(&ledger, &path, open.stats)))
        });
        status = status.and(written);
        print_ledger(ledger, options.verbose || written != RunStatus::Success, status);
        status
    }
}

/// Prints the ledger on standard error if `wanted` or if it shows problems. In a JSON log it is the
/// last event, together with the `status` of the run: call this after everything that can fail.
pub fn print_ledger(ledger: &Ledger, wanted: bool, status: RunStatus) {
    if log::is_json() {
        let (level, message) = match status {
            RunStatus::Success => (Level::INFO, "finished"),
            RunStatus::Problems => (Level::WARN, "finished with problems"),
        };
        let packets = &ledger.packets;
        let (received, metered) = (packets.received, packets.metered);
        let fields = json!({ "received": received, "metered": metered, "ledger": ledger.json() });
        log::json_event(level, message, &fields);
    } else if wanted || has_problems(ledger) {
        console::eprint_styled(&ledger_text::text(ledger, console::error_columns()), style::ledger);
    }
}

pub fn log_sink_failure(error: &weir_export::Error) {
    error!(
        error = format_args!("{error}{}", sink_advice(error)),
        "sink failed, the ledger says what became of its records"
    );
}

/// Opens the file of the ledger as JSON; `None` without one, and for standard output. The ledger of an
/// earlier run stays in the file until it is replaced.
pub fn open_stats(path: Option<&Path>, mode: FileMode, owner: Option<Owner>) -> Result<Option<File>, Error> {
    let mode = files::keeping_content(mode);
    let open = |path: &Path| weir_export::open_file(&path.display().to_string(), path, mode, owner);
    Ok(path.filter(|path| *path != Path::new("-")).map(open).transpose()?.map(OutputFile::keep))
}

/// Writes the ledger as JSON to its file, or to standard output.
pub fn write_stats(ledger: &Ledger, path: &Path, file: Option<File>) -> RunStatus {
    let json = serde_json::to_vec_pretty(&ledger.json()).expect(LEDGER_IS_PLAIN);
    write_json(json, path, file, "cannot write the ledger")
}

/// Writes JSON to its file, or to standard output. `problem` is logged if that fails.
pub fn write_json(mut json: Vec<u8>, path: &Path, file: Option<File>, problem: &str) -> RunStatus {
    json.push(b'\n');
    write_text(json, path, file, problem)
}

/// The same of a text, which ends with a line break.
pub fn write_text(mut text: Vec<u8>, path: &Path, file: Option<File>, problem: &str) -> RunStatus {
    let Some(file) = file else { return console::print(&text) };
    if let Some(compression) = Compression::of(&path.to_string_lossy()) {
        text = compression.compress(&text);
    }
    if let Err(error) = files::truncate(file).and_then(|file| files::WholeTexts(file).write_all(&text)) {
        error!(error = %Error::file(path, error), "{problem}");
        return RunStatus::Problems;
    }
    RunStatus::Success
}

fn stats_option(path: &Path) -> String {
    format!("--stats {}", path.display())
}

/// The sinks of `-o`, and why others are invalid.
fn sinks_of(outputs: &[Output]) -> (Vec<RecordSink>, Vec<InvalidOutput>) {
    let (mut sinks, mut invalid) = (Vec::new(), Vec::new());
    for output in outputs {
        match output {
            Output::Records(sink) => sinks.push(sink.clone()),
            Output::Balanced(members) | Output::Failover(members) => sinks.extend(members.iter().cloned()),
            Output::Packets(path) => invalid.extend(RecordSink::parse(&format!("packets:{}", path.display())).err()),
            Output::Invalid(reason) => invalid.push(reason.clone()),
        }
    }
    (sinks, invalid)
}

/// The targets of a sink, each with its option as the user wrote it.
fn targets_of(option: &str, sink: &RecordSink) -> Vec<(String, Target)> {
    Target::all_of(&sink.spec).map(|target| (format!("{option} {sink}"), target)).collect()
}

/// The name of a sink in the ledger and in the log.
fn name_of(unit: &[RecordSink]) -> String {
    let names: Vec<_> = unit.iter().map(RecordSink::to_string).collect();
    format!("{}{}", if unit.len() > 1 { "failover:" } else { "" }, names.join(","))
}

/// Whether an output is a named pipe at present.
fn is_pipe(target: &Target) -> bool {
    let Target::File(path) = target else { return false };
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}
