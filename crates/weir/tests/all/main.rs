//! Tests of the binary, through its command line.
//!
//! * `cli`: help, exit codes, terminal output, and the small commands
//! * `read`: `weir read` of captures: records, views, expressions, outputs
//! * `inspection`: applications; `tcp`: `weir tcp`
//! * `query`: SQL over stored flows
//! * `export`: how records leave; `interop`: what collectors of others read
//! * `probe`: `weir probe` on network interfaces
//! * `actions`: rules, egress, recorder, overrides; `control`: the HTTP interface
//! * `alone`: tests that need the machine to themselves; `scripts/test` runs them one at a time

mod actions;
mod alone;
mod cli;
mod control;
mod export;
mod inspection;
mod interop;
mod probe;
mod query;
mod read;
mod tcp;
