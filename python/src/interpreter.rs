//! What the Python interpreter does while a run is waited for: signals, warnings, progress.

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyUserWarning};
use pyo3::prelude::*;
use pyo3::{create_exception, intern};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Why a reader gets no further flows.
pub const CLOSED: &str = "these flows were closed before their end";

create_exception!(
    weir,
    Error,
    PyRuntimeError,
    "A run of weir failed. The text is that of the program, with the marked place of an expression."
);
create_exception!(
    weir,
    FlowWarning,
    PyUserWarning,
    "A run of weir warns about its flows: an input is cut, packets were lost, a field is left out."
);

/// Shows a warning, which the user's filters can turn into an error.
pub fn warn(text: &str) -> PyResult<()> {
    // No text of the program has a NUL.
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let show = |python: Python<'_>| PyErr::warn(python, &python.get_type::<FlowWarning>(), &text, 1);
    // Without an interpreter, as at its end, there is no place for it.
    Python::try_attach(show).unwrap_or(Ok(()))
}

/// Runs `wait` without the interpreter's lock, whether the caller holds it or not.
pub fn without_lock<T: Send>(wait: impl Fn() -> T + Send + Sync) -> T {
    Python::try_attach(|python| python.detach(&wait)).unwrap_or_else(&wait)
}

/// Ctrl-C once more, for programs that turn the error of a stream into one of their own.
pub fn interrupt_again(error: &PyErr) {
    Python::try_attach(|python| {
        if error.is_instance_of::<PyKeyboardInterrupt>(python) {
            let thread = python.import(intern!(python, "_thread"));
            // If this fails, the error of the stream is all that the user gets.
            let _ = thread.and_then(|module| module.call_method0(intern!(python, "interrupt_main")));
        }
    });
}

/// What is looked at while a run is waited for.
pub struct Watch {
    progress: Option<Py<PyAny>>,
    /// No run may go on.
    is_refused: Arc<AtomicBool>,
    rows: AtomicU64,
    raised: Mutex<Option<PyErr>>,
}

impl Watch {
    /// `progress` is called with the rows so far, and whether these are all.
    pub fn new(progress: Option<Py<PyAny>>, is_refused: Arc<AtomicBool>) -> Self {
        Self { progress, is_refused, rows: AtomicU64::new(0), raised: Mutex::new(None) }
    }

    /// Rows up to now.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Counts rows, and shows the progress.
    pub fn count(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.show(false);
    }

    /// Runs the handlers of signals that have arrived, and shows the progress. Whether nothing was raised.
    pub fn look(&self) -> bool {
        self.show(false);
        if self.is_refused.load(Ordering::Relaxed) {
            self.raise(Error::new_err(CLOSED));
            return false;
        }
        // Only the main thread has signals to handle.
        let checked = Python::try_attach(|python| python.check_signals()).unwrap_or(Ok(()));
        checked.map_err(|error| self.raise(error)).is_ok()
    }

    /// What the handler of a signal has raised.
    pub fn take_raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Shows the progress; `is_all` removes it.
    pub fn show(&self, is_all: bool) {
        let Some(progress) = &self.progress else { return };
        let shown = Python::try_attach(|python| progress.call1(python, (self.rows(), is_all)).map(drop));
        if let Some(Err(error)) = shown {
            self.raise(error);
        }
    }

    fn raise(&self, error: PyErr) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}
