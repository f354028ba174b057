//! Configuration files of probes: whether they can be read, and what their probes need.

use crate::actions::Actions;
use crate::error::Error;
use crate::needs::{Needs, real};
use crate::probe;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use weir_host::{Finding, MACHINE, Severity};
use weir_text::units;

/// Where packages have the configuration files of services.
pub const FOLDER: &str = "/etc/weir";

/// The configuration files that are named, or those of the folder.
pub fn paths(named: Option<&Path>) -> Vec<PathBuf> {
    let path = named.unwrap_or(Path::new(FOLDER));
    if named.is_some() && !path.is_dir() {
        return vec![path.into()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("toml"))).collect();
    files.sort();
    if named.is_some() && files.is_empty() {
        // The finding says that it cannot be read, or is a folder.
        files.push(path.into());
    }
    files
}

/// Findings about the files, and what their probes need.
pub fn check(files: &[PathBuf]) -> (Vec<Finding>, Needs) {
    let (mut findings, mut needs) = (Vec::new(), Needs::default());
    let parsed: Vec<_> = files.iter().map(|path| (path, probe::options_of_file(path))).collect();
    let rules: Vec<PathBuf> = parsed.iter().filter_map(|(_, options)| options.as_ref().ok()?.rules.clone()).collect();
    for (path, options) in parsed {
        // A file of rules beside that of a probe.
        if rules.iter().any(|rules| real(rules) == real(path)) {
            continue;
        }
        let name = path.display().to_string();
        match options {
            Ok(options) => {
                let problem = options.rules.as_deref().and_then(|rules| Actions::load(rules).err());
                findings.extend(problem.iter().flat_map(invalid));
                needs.add(&options, &name);
                let (inputs, outputs) = (options.inputs.len() as u64, options.sinks.outputs.len() as u64);
                let (inputs, outputs) = (units::count(inputs, "source"), units::count(outputs, "sink"));
                findings.push(Finding::ok("configuration", MACHINE, format!("{name}: {inputs}, {outputs}")));
            }
            Err(error) => findings.extend(invalid(&error)),
        }
    }
    (findings, needs)
}

/// A finding for each line of an error.
fn invalid(error: &Error) -> Vec<Finding> {
    let impact = "A probe with this file does not start, and one that runs keeps its old configuration.";
    let finding = |line: &str| Finding::new(Severity::Critical, "configuration", MACHINE, line, impact);
    error.to_string().lines().map(finding).collect()
}
