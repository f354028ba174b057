//! What a query reads: stores, files, and captures that are metered before.

use crate::error::{Error, InputError, QueryError, StoreError};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tracing::warn;
use weir_fields::{ColumnKind, Profile, default_columns};
use weir_sql::{View, quoted_text, text_literals, uses_identifier};
use weir_store::{Folder, Hour, NS_REST, StoredFile};

/// The default of `-i`, and the variable that has another.
const STORE: &str = "flows";
const STORE_VARIABLE: &str = "WEIR_STORE";
/// The view of the flows before `--from`.
const EARLIER: &str = "earlier";
/// What `new-hosts` calls new without `--from`: the last day of the store.
const NEW_NS: u64 = 24 * 3_600 * 1_000_000_000;
const CAPTURES: &[&str] = &["pcap", "pcapng", "cap", "ntar", "dmp"];

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
            kind if CAPTURES.contains(&kind) => {
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
                fs::metadata(path).map_err(|error| QueryError::Input { path: path.clone(), error })?;
                flows.push(input(path).ok_or_else(|| QueryError::UnknownInput(path.clone()))?);
            }
        }
        let mut named = Vec::new();
        for literal in text_literals(sql) {
            let path = Path::new(&literal.text);
            let is_new = named.iter().all(|(name, _)| *name != literal.text);
            // A folder or a capture is one only in the place of a table.
            let is_file = path.is_file() || literal.is_table && path.exists();
            if literal.is_table && Input::of(path, temporary, 0).is_some() {
                fs::metadata(path).map_err(|error| QueryError::Input { path: path.into(), error })?;
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
        let mut inputs = Self { flows, named, from_ns: from, to_ns: to, with_earlier };
        for input in inputs.all() {
            if let Input::Store(path) = input {
                check_store(path)?;
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
            views.push(View { name: name.clone(), sql: select(input, 0..=u64::MAX)? });
        }
        if !self.flows.is_empty() {
            let range = self.from_ns..=self.to_ns;
            views.push(View { name: STORE.into(), sql: select_all(&self.flows, &range)? });
        }
        if self.with_earlier {
            let before = self.from_ns.checked_sub(1);
            let sql = before.map_or(Ok(empty()), |before| select_all(&self.flows, &(0..=before)))?;
            views.push(View { name: EARLIER.into(), sql });
        }
        Ok(views)
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

/// The files of a store.
fn content(path: &Path) -> Result<Vec<StoredFile>, Error> {
    let folder = Folder::new(path, None);
    Ok(folder.content().map_err(|error| QueryError::Input { path: path.into(), error })?.files)
}

/// Checks that a folder is a store, and tells what is none of it.
///
/// # Errors
/// It is no store, or cannot be read.
fn check_store(path: &Path) -> Result<(), Error> {
    let folder = Folder::new(path, None);
    let content = folder.content().map_err(|error| QueryError::Input { path: path.into(), error })?;
    folder.check_content().map_err(StoreError::from)?;
    if let Some(strange) = content.strange.first() {
        let (path, others) = (strange.display(), content.strange.len() - 1);
        warn!(%path, others, "there is something in the store that is none of it, which is left out");
    }
    for (path, error) in &content.unreadable {
        warn!(path = %path.display(), %error, "this folder cannot be read, its records are left out");
    }
    Ok(())
}

fn select_all(inputs: &[Input], range: &std::ops::RangeInclusive<u64>) -> Result<String, Error> {
    let selects = inputs.iter().map(|input| select(input, range.clone())).collect::<Result<Vec<_>, _>>()?;
    Ok(selects.join("\nunion all by name\n"))
}

/// The flows of an input that start at these times.
fn select(input: &Input, range: std::ops::RangeInclusive<u64>) -> Result<String, Error> {
    let file = |path: &Path| quoted_text(&path.to_string_lossy());
    let table = match input {
        Input::Store(path) => {
            let in_range = |hour: Hour| hour.start_ns() <= *range.end() && *range.start() < hour.end_ns();
            let files = content(path)?;
            let files: Vec<_> =
                files.iter().filter(|stored| in_range(stored.hour)).map(|stored| file(&stored.path)).collect();
            if files.is_empty() {
                return Ok(empty());
            }
            format!(
                "read_parquet([{}], union_by_name = true, hive_partitioning = true, \
                 hive_types = {{'date': date, 'hour': integer}})",
                files.join(",\n    ")
            )
        }
        Input::Parquet(path) | Input::Capture { flows: path, .. } => format!("read_parquet({})", file(path)),
        Input::Csv(path) => format!("read_csv({})", file(path)),
        Input::Json(path) => format!("read_json({})", file(path)),
    };
    Ok(format!("select * from {table}{}", condition(&range)))
}

/// The flows that start at these times, ns. Times are stored as µs and the ns left.
fn condition(range: &std::ops::RangeInclusive<u64>) -> String {
    let time = |ns: u64| format!("make_timestamptz({})", ns / 1_000);
    let rest = format!("coalesce(start_time{NS_REST}, 0)");
    let (from, to) = (*range.start(), *range.end());
    let mut conditions = Vec::new();
    if from > 0 {
        let exact = format!("(start_time > {0} or {rest} >= {1})", time(from), from % 1_000);
        conditions.push(format!("start_time >= {}", time(from)));
        conditions.extend((from % 1_000 > 0).then_some(exact));
    }
    if to < u64::MAX {
        conditions.push(format!("start_time <= {0} and (start_time < {0} or {rest} <= {1})", time(to), to % 1_000));
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
