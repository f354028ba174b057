//! Flows that can be read once or several times: each reader has a run of its own.
//!
//! The first run is started at once, so that an error is where the user wrote it, and live traffic is metered from then
//! on. The first reader gets it. A library that only asks for the columns starts none.

use crate::batch::{Batch, Field, fields, schema_capsule, stream_capsule};
use crate::interpreter::{CLOSED, Error, interrupt_again, without_lock};
use crate::run::{CommandLine, Run};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What all readers share.
struct Shared {
    line: CommandLine,
    schema: SchemaRef,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The run that has no reader yet.
    first: Option<Arc<Run>>,
    /// Those with one.
    runs: Vec<Weak<Run>>,
    ledger: Option<String>,
    /// Why the last stream has ended.
    failure: Option<PyErr>,
}

/// Flows of a command of `weir`: the base of `weir.Flows`.
#[pyclass(module = "weir", subclass, frozen)]
pub struct Source(Arc<Shared>);

#[pymethods]
impl Source {
    #[new]
    #[pyo3(signature = (words, reads_input = false, progress = None))]
    fn new(python: Python<'_>, words: Vec<String>, reads_input: bool, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        let line = CommandLine { words, reads_input, progress, is_refused: Arc::default() };
        let first = line.start(python)?;
        let (schema, state) = (first.schema(), State { first: Some(Arc::new(first)), ..State::default() });
        Ok(Self(Arc::new(Shared { line, schema, state: Mutex::new(state) })))
    }

    /// The columns: name, type ("int64", "float64", "string", "timestamp[ns, UTC]"), unit, and what they are.
    #[getter]
    fn fields(&self) -> Vec<Field> {
        fields(&self.0.schema)
    }

    /// The stream of batches (Arrow's PyCapsule interface). `requested_schema` is ignored.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        python: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream_capsule(python, Box::new(Reader { shared: self.0.clone(), run: None }))
    }

    /// The columns (Arrow's PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, python: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(python, &self.0.schema)
    }

    fn __iter__(&self) -> Batches {
        Batches(Mutex::new(Some(Reader { shared: self.0.clone(), run: None })))
    }

    /// The ledger of the last run that was read to its end, as JSON.
    #[getter]
    fn _ledger(&self) -> Option<String> {
        self.0.state().ledger.clone()
    }

    /// Why the last stream has ended, once.
    fn _take_failure(&self) -> Option<PyErr> {
        self.0.state().failure.take()
    }

    /// Asks the program to end, as Ctrl-C on its terminal does: flows that it still has are its last ones.
    fn stop(&self) {
        self.0.all_runs().iter().for_each(|run| run.stop());
    }

    /// Refuses all runs, also those that start, or allows them again.
    fn _refuse(&self, python: Python<'_>, is_refused: bool) {
        self.0.line.is_refused.store(is_refused, Ordering::Relaxed);
        if is_refused {
            self.close(python);
        }
    }

    /// Ends the program at once.
    fn close(&self, python: Python<'_>) {
        let runs = self.0.all_runs();
        python.detach(|| {
            runs.iter().for_each(|run| run.close());
            self.0.state().first = None;
        });
    }
}

/// Batches of flows, one after the other. To give it up ends the program.
#[pyclass(module = "weir", frozen)]
pub struct Batches(Mutex<Option<Reader>>);

#[pymethods]
impl Batches {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__(&self, python: Python<'_>) -> PyResult<Option<Batch>> {
        python.detach(|| {
            let mut reader = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(open) = &mut *reader else { return Ok(None) };
            let next = open.next_batch();
            if !matches!(next, Ok(Some(_))) {
                *reader = None;
            }
            next.map(|batch| batch.map(Batch))
        })
    }

    /// Ends the program, if this has not come to its end.
    fn close(&self, python: Python<'_>) {
        python.detach(|| drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

/// Reads a run from its begin to its end.
struct Reader {
    shared: Arc<Shared>,
    /// `None` before the first batch.
    run: Option<Arc<Run>>,
}

impl Reader {
    fn next_batch(&mut self) -> PyResult<Option<RecordBatch>> {
        let run = match &self.run {
            Some(run) => run,
            None => self.run.insert(self.shared.take_run()?),
        };
        let batch = run.next_batch()?;
        if batch.is_none()
            && let Some(ledger) = run.ledger()
        {
            self.shared.state().ledger = Some(ledger);
        }
        Ok(batch)
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = Mutex::new(self);
        let next = without_lock(|| reader.lock().unwrap_or_else(PoisonError::into_inner).next_batch());
        let this = reader.into_inner().unwrap_or_else(PoisonError::into_inner);
        next.map_err(|error| {
            let text = Python::try_attach(|python| error.value(python).to_string()).unwrap_or_default();
            interrupt_again(&error);
            this.shared.state().failure = Some(error);
            ArrowError::ExternalError(text.into())
        })
        .transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.shared.schema.clone()
    }
}

impl CommandLine {
    fn start(&self, python: Python<'_>) -> PyResult<Run> {
        let progress = self.progress.as_ref().map(|progress| progress.clone_ref(python));
        python.detach(|| Run::start(self, progress))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run that was started first, or a new one.
    fn take_run(&self) -> PyResult<Arc<Run>> {
        if self.line.is_refused.load(Ordering::Relaxed) {
            return Err(Error::new_err(CLOSED));
        }
        let first = self.state().first.take().filter(|run| run.is_own());
        let run = match first {
            Some(run) => run,
            None => Arc::new(Python::attach(|python| self.line.start(python))?),
        };
        let mut state = self.state();
        state.runs.retain(|run| run.strong_count() > 0);
        state.runs.push(Arc::downgrade(&run));
        Ok(run)
    }

    fn all_runs(&self) -> Vec<Arc<Run>> {
        let state = self.state();
        state.runs.iter().filter_map(Weak::upgrade).chain(state.first.clone()).collect()
    }
}
