//! Handles of DuckDB that are closed when they are dropped: a connection to a database in memory, a prepared
//! statement, and its result, all of whose columns are texts.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::library::{CResult, CText, Engine, Handle, INLINE_LENGTH, SUCCESS, text};
use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::slice;

/// A database in memory, with one connection.
pub struct Connection<'engine> {
    engine: &'engine Engine,
    database: Handle,
    connection: Handle,
}

// SAFETY: DuckDB locks a connection for each call; `interrupt` and `query_progress` are made for other threads.
unsafe impl Sync for Connection<'_> {}

impl<'engine> Connection<'engine> {
    pub fn open(engine: &'engine Engine) -> Result<Self, Error> {
        let mut opened = Self { engine, database: null_mut(), connection: null_mut() };
        let failed = || Error::Sql("DuckDB cannot make a database in memory".into());
        // SAFETY: a null path opens a database in memory; the handles are written by success only.
        unsafe {
            if (engine.functions.open)(std::ptr::null(), &mut opened.database) != SUCCESS
                || (engine.functions.connect)(opened.database, &mut opened.connection) != SUCCESS
            {
                return Err(failed());
            }
        }
        Ok(opened)
    }

    /// Runs statements, and drops their results.
    pub fn run(&self, sql: &str) -> Result<(), Error> {
        let sql = CString::new(sql).map_err(|_| Error::Nul)?;
        let mut result = CResult::EMPTY;
        // SAFETY: the connection is open; the result is destroyed, and its message is copied before.
        unsafe {
            let state = (self.engine.functions.query)(self.connection, sql.as_ptr(), &mut result);
            let error = (state != SUCCESS).then(|| text((self.engine.functions.result_error)(&mut result)));
            (self.engine.functions.destroy_result)(&mut result);
            error.map_or(Ok(()), |error| Err(Error::of(error)))
        }
    }

    pub fn prepare<'connection>(&'connection self, sql: &str) -> Result<Statement<'connection>, Error> {
        let sql = CString::new(sql).map_err(|_| Error::Nul)?;
        let mut statement = Statement { engine: self.engine, handle: null_mut(), _connection: self };
        // SAFETY: the connection is open; a statement that failed has a message until it is destroyed.
        unsafe {
            let state = (self.engine.functions.prepare)(self.connection, sql.as_ptr(), &mut statement.handle);
            if state != SUCCESS {
                return Err(Error::of(text((self.engine.functions.prepare_error)(statement.handle))));
            }
        }
        Ok(statement)
    }

    /// Ends the query that runs, from any thread.
    pub fn interrupt(&self) {
        // SAFETY: the connection is open.
        unsafe { (self.engine.functions.interrupt)(self.connection) }
    }

    /// Percent of the query that runs, from any thread; `None` if it is not known.
    pub fn progress_percent(&self) -> Option<f64> {
        // SAFETY: the connection is open.
        let progress = unsafe { (self.engine.functions.query_progress)(self.connection) };
        (0.0..=100.0).contains(&progress.percentage).then_some(progress.percentage)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // SAFETY: both functions ignore null; statements and results borrow the connection, so none is left.
        unsafe {
            (self.engine.functions.disconnect)(&mut self.connection);
            (self.engine.functions.close)(&mut self.database);
        }
    }
}

/// A prepared statement.
pub struct Statement<'connection> {
    engine: &'connection Engine,
    handle: Handle,
    _connection: &'connection Connection<'connection>,
}

impl<'connection> Statement<'connection> {
    /// The kind (`duckdb_statement_type`).
    pub fn kind(&self) -> c_int {
        // SAFETY: the statement is prepared.
        unsafe { (self.engine.functions.prepared_statement_type)(self.handle) }
    }

    /// Name and type (`duckdb_type`) of each column.
    pub fn columns(&self) -> Vec<(String, c_int)> {
        let functions = &self.engine.functions;
        // SAFETY: the statement is prepared, and has these columns. The names are owned by the caller.
        unsafe {
            let columns = (functions.prepared_statement_column_count)(self.handle);
            let column = |at| {
                let name = (functions.prepared_statement_column_name)(self.handle, at);
                let named = (text(name), (functions.prepared_statement_column_type)(self.handle, at));
                (functions.free)(name.cast_mut().cast());
                named
            };
            (0..columns).map(column).collect()
        }
    }

    /// Starts the statement, all of whose columns must be VARCHAR.
    pub fn execute(self) -> Result<TextRows<'connection>, Error> {
        let mut rows = TextRows { result: CResult::EMPTY, chunk: null_mut(), statement: self };
        let engine = rows.statement.engine;
        let execute = engine.execute_streaming.unwrap_or(engine.functions.execute_prepared);
        // SAFETY: the statement is prepared; the result is destroyed when the rows are dropped.
        let state = unsafe { execute(rows.statement.handle, &mut rows.result) };
        if state == SUCCESS { Ok(rows) } else { Err(rows.error()) }
    }
}

impl Drop for Statement<'_> {
    fn drop(&mut self) {
        // SAFETY: the function ignores null.
        unsafe { (self.engine.functions.destroy_prepare)(&mut self.handle) }
    }
}

/// The result of a statement, a chunk after the other.
pub struct TextRows<'connection> {
    result: CResult,
    /// The last chunk; its texts are borrowed from it.
    chunk: Handle,
    statement: Statement<'connection>,
}

impl TextRows<'_> {
    /// The columns of the next chunk, each with the text of each row; `None` is NULL. At the end, `None`.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<Vec<Option<&str>>>>, Error> {
        let functions = &self.statement.engine.functions;
        self.drop_chunk();
        // SAFETY: the result is not destroyed yet. The texts borrow `self`, which owns the chunk.
        unsafe {
            self.chunk = (functions.fetch_chunk)(self.result);
            if self.chunk.is_null() {
                let message = (functions.result_error)(&mut self.result);
                return if message.is_null() { Ok(None) } else { Err(self.error()) };
            }
            let rows = (functions.data_chunk_get_size)(self.chunk) as usize;
            let columns = (functions.column_count)(&mut self.result);
            let column = |at| texts(self.statement.engine, (functions.data_chunk_get_vector)(self.chunk, at), rows);
            Ok(Some((0..columns).map(column).collect()))
        }
    }

    fn error(&mut self) -> Error {
        // SAFETY: the result is not destroyed yet; the message is copied.
        Error::of(unsafe { text((self.statement.engine.functions.result_error)(&mut self.result)) })
    }

    fn drop_chunk(&mut self) {
        if !self.chunk.is_null() {
            // SAFETY: the chunk is not destroyed yet; no text borrows it, because `self` is borrowed mutably.
            unsafe { (self.statement.engine.functions.destroy_data_chunk)(&mut self.chunk) };
            self.chunk = null_mut();
        }
    }
}

impl Drop for TextRows<'_> {
    fn drop(&mut self) {
        self.drop_chunk();
        // SAFETY: the result is destroyed once; one that was never filled is empty.
        unsafe { (self.statement.engine.functions.destroy_result)(&mut self.result) };
    }
}

/// The texts of a vector of VARCHAR.
///
/// # Safety
/// The vector is of VARCHAR, has this number of rows, and lives as long as the texts are used.
unsafe fn texts<'chunk>(engine: &Engine, vector: Handle, rows: usize) -> Vec<Option<&'chunk str>> {
    if rows == 0 {
        return Vec::new();
    }
    // SAFETY: see above. Without a validity mask, no row is NULL; with one, it has a bit for each row.
    unsafe {
        let values: &[CText] = slice::from_raw_parts((engine.functions.vector_get_data)(vector), rows);
        let valid = (engine.functions.vector_get_validity)(vector);
        let is_valid = |row: usize| valid.is_null() || *valid.add(row / 64) >> (row % 64) & 1 == 1;
        values.iter().enumerate().map(|(row, value)| is_valid(row).then(|| text_of(value))).collect()
    }
}

/// # Safety
/// The value is a valid one of a vector, which lives as long as the text is used.
unsafe fn text_of<'chunk>(value: &CText) -> &'chunk str {
    let length = value.length as usize;
    // SAFETY: short texts are inside of the value, long ones at its pointer; the vector has both.
    let octets = unsafe {
        let start =
            if length <= INLINE_LENGTH { (&raw const value.rest.inline).cast() } else { value.rest.long.pointer };
        slice::from_raw_parts(start, length)
    };
    // DuckDB checks texts when they are made.
    std::str::from_utf8(octets).unwrap_or("\u{fffd}")
}
