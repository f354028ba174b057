//! `weir query`: SQL over stored flows, and ready questions.
//!
//! Captures are metered first, by `weir read` in a process of its own. Then the process restricts itself, and DuckDB
//! answers in memory.

mod inputs;
mod output;

use crate::arguments::{Query, SqlEngine};
use crate::console::progress::Progress;
use crate::console::{self, print_styled, style};
use crate::error::{Error, QueryError};
use crate::files::{self, Target};
use crate::run_status::RunStatus;
use crate::sandbox::{Restrictions, Sandbox};
use crate::signals::StopSignal;
use inputs::Inputs;
use output::Output;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use tracing::warn;
use weir_clickhouse::TableName;
use weir_host::{Sysroot, memory_bounds};
use weir_sql::{Argument, Database, ENVIRONMENT, Engine, Placeholders, QUESTIONS, Question, Settings};
use weir_text::columns::{Column, lines};
use weir_text::most_similar;

/// How often a query begins again because an hour of the store was sorted or removed meanwhile.
const ATTEMPTS: usize = 5;
/// Between two looks at signals and progress.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// Memory for a query if nothing is known of the machine.
const USUAL_MEMORY_BYTES: u64 = 1 << 30;
const MIN_MEMORY_BYTES: u64 = 128 << 20;

pub fn run(query: &Query) -> Result<RunStatus, Error> {
    if query.macros {
        return Ok(console::print(weir_sql::macros().as_bytes()));
    }
    let Some(text) = &query.query else { return Ok(print_questions()) };
    if query.print_sql == Some(SqlEngine::Clickhouse) {
        return print_clickhouse_sql(query, text);
    }
    if query.table.is_some() {
        return Err(QueryError::TableOfDuckDb.into());
    }
    let sql = sql(query, text)?;
    let output = Output::of(query)?;
    let stop_signal = StopSignal::register()?;
    let folder = tempfile::Builder::new().prefix("weir-query-").tempdir();
    let folder = folder.map_err(|error| QueryError::Temporary { error })?;
    let temporary = if query.print_sql.is_some() { Path::new("") } else { folder.path() };
    let inputs = Inputs::new(&sql, &query.inputs, (query.from_ns, query.to_ns), temporary)?;
    if query.print_sql.is_some() {
        return print_sql(&inputs, &sql);
    }
    let target = output.path().map(|path| (format!("-o {}", path.display()), Target::File(path.into())));
    files::check_outside(&inputs.readable(), target.as_slice())?;
    let engine = load(query)?;
    let stop = stop_signal.flag();
    let is_whole = inputs.meter_captures(query.hardening.no_sandbox)?;
    stop_signal.start_thread();
    let spill_folder = folder.path().join("spill");
    // A restricted thread makes files in folders, but no folders.
    std::fs::create_dir(&spill_folder).map_err(|error| QueryError::Temporary { error })?;
    let settings = Settings {
        memory_bytes: query.memory_bytes.unwrap_or_else(usual_memory_bytes),
        threads: query.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from),
        spill_folder,
        readable: inputs.readable().into_iter().chain(output.parquet_file()).collect(),
        views: Vec::new(),
    };
    let mut run = Run { engine: &engine, inputs: &inputs, settings, sql: &sql, stop: &stop, quiet: query.quiet };
    let restricted = || {
        if !query.hardening.no_sandbox {
            enter_sandbox(&inputs, &output, &run.settings.spill_folder);
        }
        run.answer(&output)
    };
    // All that touches SQL and files runs on a restricted thread and those that it starts. This one only names the
    // result and removes the temporary folder, which a restricted thread cannot.
    let answered = thread::scope(|scope| scope.spawn(restricted).join());
    let status = answered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    output.finish(status)?;
    Ok(status.and(RunStatus::from_problems(!is_whole || inputs.has_damage())))
}

/// A query whose inputs are ready.
struct Run<'a> {
    engine: &'a Engine,
    inputs: &'a Inputs,
    settings: Settings,
    sql: &'a str,
    stop: &'a AtomicBool,
    quiet: bool,
}

impl Run<'_> {
    /// Asks, again if a file of the store was replaced before the first row came.
    fn answer(&mut self, output: &Output) -> Result<RunStatus, Error> {
        let mut attempts = 1..=ATTEMPTS;
        loop {
            let is_last = attempts.next().is_none();
            match self.attempt(output) {
                Ok(()) => return Ok(RunStatus::Success),
                Err(output::Failure::Write(error)) => {
                    if error.kind() == io::ErrorKind::BrokenPipe {
                        return Ok(RunStatus::Success);
                    }
                    return Err(output.error(error));
                }
                Err(output::Failure::Query(weir_sql::Error::Interrupted)) => {
                    warn!("interrupted: the result is not complete");
                    return Ok(RunStatus::Problems);
                }
                Err(output::Failure::Query(error)) => {
                    let message = error.to_string();
                    if let Some(path) = self.inputs.missing_file(&message).filter(|_| !output.has_begun()) {
                        let error = io::ErrorKind::NotFound.into();
                        return Err(QueryError::Input { path: path.into(), error }.into());
                    }
                    let is_gone = message.contains("No such file") || message.contains("No files found");
                    if is_last || !is_gone || output.has_begun() {
                        return Err(QueryError::Sql(error).into());
                    }
                }
                Err(output::Failure::Told) => return Ok(RunStatus::Problems),
                Err(output::Failure::Other(error)) => return Err(error),
            }
        }
    }

    fn attempt(&mut self, output: &Output) -> Result<(), output::Failure> {
        self.settings.views = self.inputs.views().map_err(output::Failure::Other)?;
        let database = Database::open(self.engine, &self.settings)?;
        let (done, is_done) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(|| self.watch(&database, is_done));
            let result = database.prepare(self.sql).map_err(Into::into).and_then(|query| output.write(&query));
            drop(done);
            result
        })
    }

    /// Ends the query if a signal came, and shows its progress, until it has ended.
    fn watch(&self, database: &Database<'_>, is_done: Receiver<()>) {
        let mut progress = Progress::new(self.quiet);
        while is_done.recv_timeout(WATCH_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if self.stop.load(Ordering::Relaxed) {
                database.interrupt();
            }
            if let Some(percent) = database.progress_percent() {
                progress.update_share(percent);
            }
        }
        progress.clear();
    }
}

/// The SQL of the command line, of standard input, or of a ready question.
fn sql(query: &Query, text: &str) -> Result<String, Error> {
    let question = Question::of(text);
    if let Some(address) = &query.address
        && question.is_none_or(|question| question.argument == Argument::None)
    {
        return Err(QueryError::NotExpected(address.clone()).into());
    }
    if let Some(question) = question {
        let address = address_of(question, query)?;
        return Ok(question.sql(&placeholders(query, &address)));
    }
    let mut sql = text.to_owned();
    if text == "-" {
        sql.clear();
        io::stdin().read_to_string(&mut sql).map_err(QueryError::StandardInput)?;
    }
    if sql.trim().is_empty() {
        return Err(QueryError::Empty.into());
    }
    // No SELECT is one word.
    if !sql.trim().contains(|c: char| c.is_whitespace() || "\"'(/*;".contains(c)) {
        let near = most_similar(&sql, QUESTIONS.iter().map(|question| question.name));
        let near = near.map_or_else(String::new, |near| format!("; do you mean {near}?"));
        return Err(QueryError::NoQuestion { word: sql, near }.into());
    }
    Ok(sql)
}

/// The address of a question, in the shortest form, as in records.
fn address_of(question: &Question, query: &Query) -> Result<String, Error> {
    match (question.argument, &query.address) {
        (Argument::None, None) => Ok(String::new()),
        (Argument::None, Some(address)) => Err(QueryError::NotExpected(address.clone()).into()),
        (Argument::Address, None) => Err(QueryError::NoAddress.into()),
        (Argument::Address, Some(address)) => {
            let parsed = address.parse::<IpAddr>().map_err(|_| QueryError::Address(address.clone()))?;
            Ok(parsed.to_string())
        }
    }
}

fn placeholders<'a>(query: &Query, address: &'a str) -> Placeholders<'a> {
    Placeholders { top: (query.top > 0).then_some(query.top), step_ns: query.every_ns, address }
}

/// Prints a ready question for a table of ClickHouse.
fn print_clickhouse_sql(query: &Query, text: &str) -> Result<RunStatus, Error> {
    let question = Question::of(text).ok_or_else(|| QueryError::QuestionOnly(text.into()))?;
    let name = query.table.as_deref().unwrap_or("weir.flows");
    let table: TableName = name.parse().map_err(|_| QueryError::Table(name.into()))?;
    let address = address_of(question, query)?;
    let times = [query.from_ns, query.to_ns];
    let sql = question.clickhouse_sql(&placeholders(query, &address), &table.quoted(), times);
    Ok(console::print(format!("{sql};\n").as_bytes()))
}

fn print_questions() -> RunStatus {
    let name = |question: &Question| match question.argument {
        Argument::None => question.name.to_owned(),
        Argument::Address => format!("{} ADDRESS", question.name),
    };
    let columns = [
        Column::new("question", false, QUESTIONS.iter().map(name)),
        Column::new("answer", false, QUESTIONS.iter().map(|question| question.sentence.to_owned())),
    ];
    print_styled(&lines(&columns, 1, console::terminal_columns()), style::table)
}

/// The views and the query, as statements for DuckDB's own shell.
fn print_sql(inputs: &Inputs, sql: &str) -> Result<RunStatus, Error> {
    let mut text = inputs.preparations();
    if sql.contains("port_name(") {
        text.push("-- port_name and others: weir query --macros".into());
    }
    text.extend(inputs.views()?.iter().map(weir_sql::View::statement));
    Ok(console::print(
        format!("{}{sql};\n", text.iter().map(|line| format!("{line}\n")).collect::<String>()).as_bytes(),
    ))
}

fn load(query: &Query) -> Result<Engine, Error> {
    let of_environment = std::env::var_os(ENVIRONMENT).filter(|path| !path.is_empty()).map(PathBuf::from);
    let engine = Engine::load(query.engine.as_ref().or(of_environment.as_ref()).map(PathBuf::as_path));
    Ok(engine.map_err(|error| match error {
        weir_sql::Error::NoLibrary(_) => QueryError::NoLibrary(error),
        error => QueryError::Library(error),
    })?)
}

/// Half of the memory that is free.
fn usual_memory_bytes() -> u64 {
    let free = memory_bounds(&Sysroot::live()).into_iter().map(|bound| bound.free_bytes).min();
    free.map_or(USUAL_MEMORY_BYTES, |free| (free / 2).max(MIN_MEMORY_BYTES))
}

fn enter_sandbox(inputs: &Inputs, output: &Output, spill_folder: &Path) {
    let inside = |path: PathBuf| if path.is_dir() { path.join("inside") } else { path };
    let readable: Vec<PathBuf> = inputs.readable().into_iter().map(inside).collect();
    let readable: Vec<&Path> = readable.iter().map(PathBuf::as_path).collect();
    let targets: Vec<Target> = [Target::Folder(spill_folder.into())]
        .into_iter()
        .chain(output.path().map(|path| Target::File(path.into())))
        .collect();
    Sandbox::enter(&targets, &[], &readable, Restrictions::FilesAndCalls { accepts: false });
}
