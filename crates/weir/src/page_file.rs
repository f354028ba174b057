//! `weir read --html`: the page of the flows of a run, as one file that has all its answers.
//!
//! Input: a store in a temporary folder, which gets the records that the sinks of the run get: selected by `--where`, and
//! anonymised. Output: the page with all answers of its *Traffic* and *Quality* (`weir_control::PageFile`), and what they
//! are of. The folder is removed in every ending but a kill.

use crate::arguments::{Enrichment, Metering, Read};
use crate::error::{Error, OutputError};
use crate::files::{self, Target};
use crate::outputs::{OpenOutputs, Outputs, PageStore, write_text};
use crate::page_answers::{answer_all, times};
use crate::run_status::{Ended, RunStatus};
use crate::settings::key_options;
use serde_json::json;
use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tracing::{debug, error};
use weir_capture::SourceSpec;
use weir_control::{FlowSource, PageAnswers, PageFile, StoredQuestion};
use weir_export::{FileMode, SinkSpec};
use weir_fields::Profile;
use weir_flow::KeyOptions;
use weir_ledger::{Ledger, TrafficCounters};
use weir_text::units;
use weir_text::zone::Zone;

/// The store in the temporary folder.
const STORE: &str = "flows";

/// The page that is written at the end.
pub struct PageOutput {
    path: PathBuf,
    /// `None` for standard output.
    file: Option<File>,
    page: PageFile,
    folder: TempDir,
    spec: SinkSpec,
    /// The flows were stored before: there are no packets.
    is_stored: bool,
    /// The page is not wanted any more.
    is_abandoned: Arc<AtomicBool>,
}

impl PageOutput {
    /// Makes the folder.
    ///
    /// # Errors
    /// The program was built without the page, or the folder cannot be made.
    pub fn new(path: &Path, is_stored: bool) -> Result<Self, Error> {
        let page = PageFile::load().ok_or(OutputError::NoPage)?;
        let folder = tempfile::Builder::new().prefix("weir-html-").tempdir();
        let folder = folder.map_err(|error| Error::file(env::temp_dir(), error))?;
        let spec =
            format!("parquet:{}", folder.path().join(STORE).display()).parse().map_err(OutputError::PageFolder)?;
        Ok(Self { path: path.into(), file: None, page, folder, spec, is_stored, is_abandoned: Arc::default() })
    }

    /// The option, and where it writes.
    pub fn target(&self) -> (String, Target) {
        (self.name(), Target::of_path(&self.path))
    }

    fn name(&self) -> String {
        format!("--html {}", self.path.display())
    }

    /// The store. It has the columns that a store has by default, whatever `--fields` selects.
    pub fn store(&self, metering: &Metering, enrichment: &Enrichment) -> PageStore {
        let (key, layer2) = (key_options(metering), metering.layer2);
        let columns = weir_fields::default_columns(Profile::Store, key, layer2, metering.mac_addresses);
        PageStore { spec: self.spec.clone(), columns: columns.into_iter().chain(enrichment.columns()).collect() }
    }

    /// Opens the file, whose content stays until the page is written. Waits for the reader of a named pipe until `stop` is
    /// set.
    ///
    /// # Errors
    /// It cannot be opened, or `mode` refuses it.
    fn open(&mut self, mode: FileMode, stop: &AtomicBool) -> Result<(), Error> {
        if let Target::File(path) = Target::of_path(&self.path) {
            self.file = Some(files::open_report(&path, mode, stop)?);
        }
        Ok(())
    }

    /// Gives the store its name in the ledger, answers all questions, and writes the page. `problems`: what is wrong with
    /// the inputs.
    fn write(self, read: &Read, ledger: &mut Ledger, problems: &[String]) -> RunStatus {
        let (name, mut problems) = (self.name(), problems.to_vec());
        for sink in ledger.sinks.iter_mut().filter(|sink| sink.sink == self.spec.name()) {
            sink.sink.clone_from(&name);
            let lost: u64 = sink.lost.values().map(|lost| lost.flows).sum();
            problems
                .extend((lost > 0).then(|| format!("{} could not be kept for this page", units::count(lost, "flow"))));
        }
        match self.html(read, ledger, &problems) {
            Ok(html) => write_text(html.into_bytes(), &self.path, self.file, "cannot write the page"),
            Err(reason) => {
                error!("{name}: the page is not written: {reason}");
                RunStatus::Problems
            }
        }
    }

    /// # Errors
    /// The flows cannot be read, or the page is not wanted any more: the sentence.
    fn html(&self, read: &Read, ledger: &Ledger, problems: &[String]) -> Result<String, String> {
        let source = FlowSource::Files(vec![self.folder.path().join(STORE)]);
        let all = StoredQuestion::without_limit(&BTreeMap::new(), self.is_abandoned.clone())?;
        let (times_ns, flows) = times(&source, &all).map_err(|error| error.to_string())?;
        let questions: Vec<_> = self.page.questions(&times_ns.clone().unwrap_or(0..=0)).collect();
        let asked = questions.iter().map(|question| question.stored(self.is_abandoned.clone()));
        let asked = asked.collect::<Result<Vec<_>, _>>();
        let asked = asked.map_err(|error| format!("a question of the page is not valid: {error}"))?;
        let answered = answer_all(&source, &all, &asked).map_err(|error| error.to_string())?;
        if self.is_abandoned.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        let mut answers = PageAnswers::default();
        for (question, answer) in questions.iter().zip(answered) {
            match answer {
                // The page does not offer this.
                Err(reason) => debug!(?question, %reason, "the flows do not have this"),
                Ok(mut answer) => {
                    answer.is_complete &= problems.is_empty();
                    answer.problems.splice(0..0, problems.iter().cloned());
                    answers.add(question, &answer);
                }
            }
        }
        let inputs: Vec<_> = read.sources().iter().map(SourceSpec::to_string).collect();
        let about = json!({
            "program": "weir",
            "version": env!("CARGO_PKG_VERSION"),
            "mode": "file",
            "inputs": inputs,
            "stores": [],
            "transactions": [],
            "history": "store",
            "from_ns": times_ns.as_ref().map(|times| *times.start()),
            "to_ns": times_ns.as_ref().map(|times| *times.end()),
            "facts": self.facts(read, ledger, flows, times_ns),
        });
        Ok(self.page.html(&about, &answers))
    }

    /// What the page is of: names and texts.
    fn facts(
        &self,
        read: &Read,
        ledger: &Ledger,
        flows: u64,
        times_ns: Option<RangeInclusive<u64>>,
    ) -> Vec<[String; 2]> {
        let mut facts = Vec::new();
        let mut add = |name: &str, text: String| facts.push([name.to_owned(), text]);
        add("read", read.sources().iter().map(SourceSpec::to_string).collect::<Vec<_>>().join(", "));
        if let Some(times_ns) = times_ns {
            add("time", Zone::current().period(*times_ns.start(), *times_ns.end()));
        }
        let selection = selection(read);
        if !selection.is_empty() {
            add("only", selection.join(", "));
        }
        add("packets", if self.is_stored { stored_packets_text(ledger) } else { packets_text(ledger) });
        let filtered = ledger.sinks.iter().find(|sink| sink.sink == self.name()).map_or(0, |sink| sink.filtered.flows);
        let part = if filtered > 0 { format!(" of {}", flows + filtered) } else { String::new() };
        add("flows", format!("{flows}{part}"));
        if read.sinks.anonymise.is_some() {
            add("anonymised", "addresses and names are others than in the traffic".into());
        }
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let (day, time) = Zone::UTC.date_and_second(now_ns);
        add("written", format!("{day} {time} UTC by Weir {}", env!("CARGO_PKG_VERSION")));
        facts
    }
}

/// Opens the page, if there is one, and all outputs. Waits for the readers of named pipes until `stop` is set.
///
/// # Errors
/// One cannot be opened.
pub fn open(
    read: &Read,
    outputs: &Outputs,
    page: Option<&mut PageOutput>,
    key: KeyOptions,
    stop: &AtomicBool,
) -> Result<OpenOutputs, Error> {
    let mode = read.output_files.mode();
    // Its content stays.
    page.map_or(Ok(()), |page| page.open(mode, stop))?;
    outputs.open(&read.sinks, key, mode, stop)
}

/// Writes the page, if there is one, and reports how the run has ended.
pub fn report(
    read: &Read,
    outputs: &Outputs,
    open: OpenOutputs,
    page: Option<PageOutput>,
    (mut ledger, Ended { mut status, problems }): (Ledger, Ended),
) -> Ended {
    if let Some(page) = page {
        status = status.and(page.write(read, &mut ledger, &problems));
    }
    Ended { status: outputs.report(&ledger, open, &read.reporting, status, None), problems }
}

/// What another signal does: it also ends the answers of the page, if there is one.
pub fn or_abandon(end_soon: impl Fn() + Send + 'static, page: Option<&PageOutput>) -> impl Fn() + Send + 'static {
    let is_abandoned = page.map(|page| page.is_abandoned.clone());
    move || {
        end_soon();
        is_abandoned.iter().for_each(|is_abandoned| is_abandoned.store(true, Ordering::Relaxed));
    }
}

/// The options that select packets and flows. Expressions have true addresses, which no anonymised output has.
fn selection(read: &Read) -> Vec<String> {
    let time = |ns: u64| {
        let (day, time) = Zone::current().date_and_time(ns);
        format!("{day} {time} {}", Zone::current().name())
    };
    let times = [(read.from_ns, "--from"), (read.to_ns, "--to")];
    let times = times.into_iter().filter_map(|(ns, option)| Some(format!("{option} {}", time(ns?))));
    let filter = read.metering.selection.filter.as_deref();
    let expressions = [(filter, "--filter"), (read.sinks.records.as_ref().map(|records| records.text()), "--where")];
    let shown = |text: &str| match read.sinks.anonymise {
        Some(_) => "(not shown: it has true addresses)".to_owned(),
        None => text.to_owned(),
    };
    let expressions = expressions.into_iter().filter_map(|(text, option)| Some(format!("{option} {}", shown(text?))));
    times.chain(expressions).collect()
}

/// Of stored flows, there is no ledger of packets.
fn stored_packets_text(ledger: &Ledger) -> String {
    format!("{} in the stored flows that were read", ledger.packets.received)
}

/// What became of all packets, in a sentence.
fn packets_text(ledger: &Ledger) -> String {
    let packets = &ledger.packets;
    let TrafficCounters { received, metered, filtered, sampled_out, .. } = *packets;
    let dropped = packets.dropped_nic + packets.dropped_kernel + packets.dropped_queue + packets.dropped_cache_full;
    let others = [
        (filtered, "filtered"),
        (sampled_out, "sampled out"),
        (packets.refused.total(), "refused"),
        (dropped, "dropped"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(" + {count} {what}"));
    let sum = format!("{received} received = {metered} metered{}", others.collect::<String>());
    let outcome = if ledger.balanced() { "every packet is accounted for" } else { "the ledger does not balance" };
    format!("{sum}; {outcome}")
}
