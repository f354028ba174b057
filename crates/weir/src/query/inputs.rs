//! What a query reads: stores, files, and captures that are metered before.

use crate::error::{Error, InputError, QueryError, StoreError};
use crate::stored_reader::is_nfdump;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;
use weir_fields::{ColumnKind, Profile, default_columns};
use weir_sql::{View, computed_fields, gives_name, quoted_text, text_literals, uses_identifier, with_computed};
use weir_store::{Folder, Hour, NS_REST, StoredFile, columns_of};

/// The default of `-i`, and the variable that has another.
const STORE: &str = "flows";
const STORE_VARIABLE: &str = "WEIR_STORE";
/// The view of the flows before `--from`.
const EARLIER: &str = "earlier";
/// What `new-hosts` calls new without `--from`: the last day of the store.
const NEW_NS: u64 = 24 * 3_600 * 1_000_000_000;
/// Endings of captures and of IPFIX files, of which `weir read` makes Parquet files; and of files of nfdump, too.
const CAPTURES: &[&str] = &["pcap", "pcapng", "cap", "ntar", "dmp", "ipfix", "fix"];

/// A source of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Input {
    Store(PathBuf),
    Parquet(PathBuf),
    Csv(PathBuf),
    Json(PathBuf),
    Capture {
        path: PathBuf,
        /// Its flows, a file that does not exist yet.
        flows: PathBuf,
    },
}

impl Input {
    /// The input at a path; `number` names the flows of a capture.
    fn of(path: &Path, temporary: &Path, number: usize) -> Option<Self> {
        if path.is_dir() {
            return Some(Self::Store(path.into()));
        }
        let name = path.file_name()?.to_str()?.to_lowercase();
        let plain = [".gz", ".zst"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let kind = Path::new(plain).extension().and_then(|end| end.to_str()).unwrap_or_default();
        Some(match kind {
            "parquet" => Self::Parquet(path.into()),
            "csv" => Self::Csv(path.into()),
            "json" | "jsonl" | "ndjson" => Self::Json(path.into()),
            kind if CAPTURES.contains(&kind) || is_nfdump(path) => {
                Self::Capture { path: path.into(), flows: temporary.join(format!("{number}.parquet")) }
            }
            _ => return None,
        })
    }
}

/// The inputs of a query.
#[derive(Debug)]
pub struct Inputs {
    /// Those of the view `flows`; none if the query does not use it.
    flows: Vec<Input>,
    /// Files and folders that the SQL names, with these names.
    named: Vec<(String, Input)>,
    from_ns: u64,
    to_ns: u64,
    /// Whether the flows before `from_ns` are needed.
    with_earlier: bool,
    /// Fields that flows do not store, and that the query uses. A name that it gives itself is its own.
    computed: Vec<&'static str>,
    /// Texts that may name files, and do not.
    missing: Vec<String>,
    damage: Damage,
}

/// What was reported of damaged and special files, once.
#[derive(Debug, Default)]
struct Damage {
    /// Something could not be read.
    is_known: AtomicBool,
    was_reported: AtomicBool,
}

impl Inputs {
    /// Those that the command line and the SQL name.
    ///
    /// # Errors
    /// One does not exist, or has an unknown kind.
    pub fn new(
        sql: &str,
        given: &[PathBuf],
        (from_ns, to_ns): (Option<u64>, Option<u64>),
        temporary: &Path,
    ) -> Result<Self, Error> {
        let mut numbers = 0..;
        let mut input = |path: &Path| Input::of(path, temporary, numbers.next().unwrap_or_default());
        let with_earlier = uses_identifier(sql, EARLIER);
        let mut flows = Vec::new();
        if uses_identifier(sql, STORE) || with_earlier {
            for path in &paths(given)? {
                check_kind(path).map_err(|error| QueryError::Input { path: path.clone(), error })?;
                flows.push(input(path).ok_or_else(|| QueryError::UnknownInput(path.clone()))?);
            }
        }
        let (mut named, mut missing) = (Vec::new(), Vec::new());
        for literal in text_literals(sql) {
            let path = Path::new(&literal.text);
            let is_new = named.iter().all(|(name, _)| *name != literal.text);
            // A folder or a capture is one only in the place of a table.
            // No link: SQL of others may name one.
            let metadata = fs::symlink_metadata(path);
            let is_file = metadata.is_ok_and(|file| file.is_file() || literal.is_table && file.is_dir());
            if !is_file && Input::of(path, temporary, 0).is_some() {
                missing.push(literal.text.clone());
            }
            if let Some(input) = (is_new && is_file).then(|| input(path)).flatten()
                && (literal.is_table || !matches!(input, Input::Store(_) | Input::Capture { .. }))
            {
                named.push((literal.text, input));
            }
        }
        let (from, to) = (from_ns.unwrap_or(0), to_ns.unwrap_or(u64::MAX));
        if from > to {
            return Err(InputError::FromAfterTo.into());
        }
        let damage = Damage::default();
        let computed = computed_fields().filter(|name| uses_identifier(sql, name) && !gives_name(sql, name)).collect();
        let mut inputs = Self { flows, named, computed, missing, from_ns: from, to_ns: to, with_earlier, damage };
        for input in inputs.all() {
            if let Input::Store(path) = input {
                inputs.damage.is_known.fetch_or(check_store(path)?, Ordering::Relaxed);
            }
        }
        if with_earlier {
            inputs.split_at(from_ns)?;
        }
        Ok(inputs)
    }

    /// Without `--from`, the last day of the store is new.
    fn split_at(&mut self, from_ns: Option<u64>) -> Result<(), Error> {
        let folder = |input: &Input| matches!(input, Input::Store(_));
        if !self.flows.iter().all(folder) {
            return Err(QueryError::NothingEarlier.into());
        }
        if from_ns.is_none() {
            let files = self.stored_files()?;
            let last = files.iter().map(|file| file.hour).max();
            self.from_ns = last.map_or(0, |hour| hour.end_ns().saturating_sub(NEW_NS));
        }
        Ok(())
    }

    /// Whether a part of the stores cannot be read.
    pub fn has_damage(&self) -> bool {
        self.damage.is_known.load(Ordering::Relaxed)
    }

    /// The file that a message of DuckDB names, and that does not exist.
    pub fn missing_file(&self, message: &str) -> Option<&Path> {
        self.missing.iter().find(|name| message.contains(name.as_str())).map(Path::new)
    }

    fn all(&self) -> impl Iterator<Item = &Input> {
        self.flows.iter().chain(self.named.iter().map(|(_, input)| input))
    }

    fn stored_files(&self) -> Result<Vec<StoredFile>, Error> {
        let mut files = Vec::new();
        for input in &self.flows {
            if let Input::Store(path) = input {
                files.extend(content(path)?);
            }
        }
        Ok(files)
    }

    /// Meters the captures. Returns whether all were read to their ends without damage.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn meter_captures(&self, no_sandbox: bool) -> Result<bool, Error> {
        let mut is_whole = true;
        for input in self.all() {
            let Input::Capture { path, flows } = input else { continue };
            let failed = |error| QueryError::Input { path: path.clone(), error };
            // A process of its own, with the sandbox of `weir read`: captures are not to be trusted.
            let mut command = Command::new(std::env::current_exe().map_err(failed)?);
            command.args(["read", "-q", "-o"]).arg(flows).args(no_sandbox.then_some("--no-sandbox"));
            let status = command.arg("--").arg(path).stdin(Stdio::null()).stdout(Stdio::null()).status();
            match status.map_err(failed)?.code() {
                Some(0) => {}
                Some(2) => is_whole = false,
                _ => return Err(QueryError::Capture(path.clone()).into()),
            }
            if columns_of(flows).is_ok_and(|(_, rows)| rows.is_uniflow) {
                warn_of_directions(path);
            }
        }
        Ok(is_whole)
    }

    /// The files and folders that the query reads.
    pub fn readable(&self) -> Vec<PathBuf> {
        let path = |input: &Input| match input {
            Input::Capture { flows, .. } => flows.clone(),
            Input::Store(path) | Input::Parquet(path) | Input::Csv(path) | Input::Json(path) => path.clone(),
        };
        self.all().map(|input| std::path::absolute(path(input)).unwrap_or_else(|_| path(input))).collect()
    }

    /// The views of the query. The files of stores are those that exist now.
    ///
    /// # Errors
    /// A folder cannot be read, or is no store.
    pub fn views(&self) -> Result<Vec<View>, Error> {
        let mut views = Vec::new();
        for (name, input) in &self.named {
            views.push(View { name: name.clone(), sql: self.select(input, 0..=u64::MAX)? });
        }
        if !self.flows.is_empty() {
            let range = self.from_ns..=self.to_ns;
            views.push(View { name: STORE.into(), sql: self.select_all(&range)? });
        }
        if self.with_earlier {
            let before = self.from_ns.checked_sub(1);
            let sql = before.map_or(Ok(empty()), |before| self.select_all(&(0..=before)))?;
            views.push(View { name: EARLIER.into(), sql });
        }
        for view in &mut views {
            view.sql = with_computed(&view.sql, |name| self.computed.contains(&name));
        }
        self.damage.was_reported.store(true, Ordering::Relaxed);
        Ok(views)
    }

    fn select_all(&self, range: &RangeInclusive<u64>) -> Result<String, Error> {
        let selects =
            self.flows.iter().map(|input| self.select(input, range.clone())).collect::<Result<Vec<_>, _>>()?;
        Ok(selects.join("\nunion all by name\n"))
    }

    /// The flows of an input that start at these times.
    fn select(&self, input: &Input, range: RangeInclusive<u64>) -> Result<String, Error> {
        let file = |path: &Path| quoted_text(&path.to_string_lossy());
        // Folders such as src_ip=192.0.2.1 would replace columns.
        const PLAIN: &str = "hive_partitioning = false";
        let table = match input {
            Input::Store(path) => {
                let files = self.readable_files(path, &range)?;
                if files.is_empty() {
                    return Ok(empty());
                }
                let list: Vec<_> = files.iter().map(|path| file(path)).collect();
                let list = list.join(",\n    ");
                let names = "'date': date, 'hour': integer";
                if std::path::absolute(path).is_ok_and(|path| path.to_string_lossy().contains('=')) {
                    let table = format!("read_parquet([{list}], union_by_name = true, {PLAIN})");
                    let columns = "*, start_time::date as date, hour(start_time)::integer as hour";
                    return Ok(format!("select {columns} from {table}{}", condition(&range, true)));
                }
                format!(
                    "read_parquet([{list}], union_by_name = true, hive_partitioning = true, hive_types = {{{names}}})"
                )
            }
            Input::Parquet(path) | Input::Capture { flows: path, .. } => {
                format!("read_parquet({}, {PLAIN})", file(path))
            }
            Input::Csv(path) => format!("read_csv({}, {PLAIN})", file(path)),
            Input::Json(path) => format!("read_json({}, {PLAIN})", file(path)),
        };
        let has_rest = !matches!(input, Input::Csv(_) | Input::Json(_));
        Ok(format!("select * from {table}{}", condition(&range, has_rest)))
    }

    /// The files of a store of these times. What is damaged is reported and left out.
    fn readable_files(&self, store: &Path, range: &RangeInclusive<u64>) -> Result<Vec<PathBuf>, Error> {
        let in_range = |hour: Hour| hour.start_ns() <= *range.end() && *range.start() < hour.end_ns();
        let is_new = !self.damage.was_reported.load(Ordering::Relaxed);
        let (mut readable, mut lists, mut has_directions) = (Vec::new(), HashSet::new(), false);
        for file in content(store)?.into_iter().filter(|file| in_range(file.hour)) {
            match columns_of(&file.path) {
                Ok((columns, rows)) => {
                    has_directions |= rows.is_uniflow;
                    lists.insert(columns.iter().map(|column| column.name).collect::<Vec<_>>());
                }
                // It was sorted or removed; if it has no successor, the query begins again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.damage.is_known.store(true, Ordering::Relaxed);
                    if is_new {
                        warn!(path = %file.path.display(), %error, "this cannot be read, its flows are left out");
                    }
                    continue;
                }
            }
            readable.push(file.path);
        }
        if is_new && has_directions {
            warn_of_directions(store);
        }
        if is_new && lists.len() > 1 {
            let store = store.display();
            warn!(%store, "files have different fields: what a file does not have is NULL in its rows");
        }
        Ok(readable)
    }

    /// What has to be done before the SQL that is printed can run.
    pub fn preparations(&self) -> Vec<String> {
        let line = |input: &Input| match input {
            Input::Capture { path, flows } => {
                Some(format!("-- first: weir read {} -o {}", path.display(), flows.display()))
            }
            _ => None,
        };
        self.all().filter_map(line).collect()
    }
}

/// The paths of `-i`, or the default.
fn paths(given: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if !given.is_empty() {
        return Ok(given.into());
    }
    let of_variable = std::env::var_os(STORE_VARIABLE).filter(|path| !path.is_empty());
    let path = PathBuf::from(of_variable.unwrap_or_else(|| STORE.into()));
    if path.exists() { Ok(vec![path]) } else { Err(QueryError::NoStore(path).into()) }
}

fn warn_of_directions(path: &Path) {
    let path = path.display();
    warn!(%path, "some rows are directions of flows (--uniflow): answers about both directions are not right");
}

/// The files of a store.
fn content(path: &Path) -> Result<Vec<StoredFile>, Error> {
    let folder = Folder::new(path, None);
    Ok(folder.content().map_err(|error| QueryError::Input { path: path.into(), error })?.files)
}

/// Checks that a folder is a store, and tells what is none of it. Returns whether a part is left out.
///
/// # Errors
/// It is no store, or cannot be read.
fn check_store(path: &Path) -> Result<bool, Error> {
    let folder = Folder::new(path, None);
    let content = folder.content().map_err(|error| QueryError::Input { path: path.into(), error })?;
    folder.check_content().map_err(StoreError::from)?;
    if let Some(strange) = content.strange.first() {
        let (path, others) = (strange.display(), content.strange.len() - 1);
        warn!(%path, others, "there is something in the store that is none of it, which is left out");
    }
    if let Some(foreign) = content.foreign.first() {
        let (path, others) = (foreign.display(), content.foreign.len() - 1);
        warn!(%path, others, "there are files of another program in the store, whose flows are left out");
    }
    for (path, error) in &content.unreadable {
        warn!(path = %path.display(), %error, "this folder cannot be read, its records are left out");
    }
    Ok(!content.unreadable.is_empty() || !content.foreign.is_empty())
}

/// Checks that a path is a file or a folder: a pipe would wait for its writer.
fn check_kind(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    let other = || io::Error::new(io::ErrorKind::InvalidInput, "this is neither a regular file nor a folder");
    if kind.is_file() || kind.is_dir() { Ok(()) } else { Err(other()) }
}

/// The flows that start at these times, ns. Times are µs; with `has_rest`, a column has the ns left.
fn condition(range: &RangeInclusive<u64>, has_rest: bool) -> String {
    let time = |ns: u64| format!("make_timestamptz({})", ns / 1_000);
    // Times of JSON are texts.
    let start = format!("start_time{}", if has_rest { "" } else { "::timestamptz" });
    let rest = format!("coalesce(start_time{NS_REST}, 0)");
    let (from, to) = (*range.start(), *range.end());
    let mut conditions = Vec::new();
    if from > 0 {
        conditions.push(format!("{start} >= {}", time(from)));
        let exact = format!("({start} > {0} or {rest} >= {1})", time(from), from % 1_000);
        conditions.extend((has_rest && from % 1_000 > 0).then_some(exact));
    }
    if to < u64::MAX {
        conditions.push(format!("{start} <= {}", time(to)));
        conditions.extend(has_rest.then(|| format!("({start} < {0} or {rest} <= {1})", time(to), to % 1_000)));
    }
    if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) }
}

/// No flows, with the columns of the profile `store`.
fn empty() -> String {
    let of_profile = default_columns(Profile::Store, Default::default(), false, false).into_iter();
    let column = |column: &weir_fields::Column| {
        let (name, of_type) = (
            column.name,
            match column.kind {
                ColumnKind::Time => "timestamptz",
                ColumnKind::Integer => "bigint",
                ColumnKind::Number => "double",
                _ => "varchar",
            },
        );
        let rest = matches!(column.kind, ColumnKind::Time).then(|| format!(", null::integer as {name}{NS_REST}"));
        format!("null::{of_type} as {name}{}", rest.unwrap_or_default())
    };
    format!(
        "select {}, null::date as date, null::integer as hour where false",
        of_profile.map(column).collect::<Vec<_>>().join(", ")
    )
}
