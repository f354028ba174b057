//! The native module of the Python package `weir`: starts the program and hands its Arrow stream over.
//!
//! Input: a command line of `weir` that writes an Arrow stream to standard output. Output: objects with the methods of
//! Arrow's PyCapsule interface, a batch at a time. Invariants: nothing is made per flow; the interpreter's lock is
//! released while a run is waited for; every run that is given up is ended and reaped; a run belongs to the process that
//! started it, also after a fork. Not done here: options and their names (`weir/_flows.py`), tables (`_tables.py`).

mod batch;
mod flows;
mod interpreter;
mod messages;
mod run;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::flows::{Batches, Source};
    #[pymodule_export]
    use crate::interpreter::{Error, FlowWarning};
}
