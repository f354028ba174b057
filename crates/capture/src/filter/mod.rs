//! Packet filters in tcpdump's syntax.
//!
//! In: an expression (`man pcap-filter`), and frames. Out: whether a frame matches. libpcap
//! compiles the expression once per link type; the resulting program is checked and interpreted
//! here. Invariants: the result depends only on the captured bytes of a frame and its length on the
//! wire. Running a filter cannot fail or allocate, and takes at most one step per instruction.

mod library;
mod program;
#[cfg(test)]
mod tests;

use crate::{Frame, link_type};
use library::CompileError;
use program::ProgramError;
pub(crate) use program::{Instruction, Program, opcode};
use std::sync::Arc;

/// Snap length that cuts no frame, bytes.
const SNAP_LENGTH: i32 = 262_144;

/// Why an expression cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FilterError {
    /// libpcap cannot be loaded.
    #[error("filters need libpcap, which is not installed (Debian: libpcap0.8): {0}")]
    NoLibrary(&'static libloading::Error),
    /// libpcap refuses the expression, with this message.
    #[error("filter \"{0}\": {1}")]
    Expression(String, String),
    /// libpcap compiles the expression to a program that is not supported.
    #[error("filter \"{0}\" compiles to a program that is not supported: {1} (protochain makes loops)")]
    Program(String, ProgramError),
    /// libpcap refuses the expression for frames of a link type.
    #[error("filter \"{expression}\" has no meaning for link type {link_type}, so it drops these frames: {message}")]
    LinkType {
        /// The expression.
        expression: String,
        /// LINKTYPE number.
        link_type: u16,
        /// Error message of libpcap.
        message: String,
    },
}

/// Compiles an expression for frames of a link type (LINKTYPE number). Host names in it are
/// resolved.
fn compile(expression: &str, link_type: u16) -> Result<Program, FilterError> {
    // Of the supported link types, only these have another number in libpcap than in captures.
    let link_type = match link_type {
        link_type::DLT_RAW_OPENBSD | link_type::RAW => link_type::DLT_RAW,
        link_type::ATM_RFC1483 => link_type::DLT_ATM_RFC1483,
        other => other,
    };
    let instructions = library::compile(expression, link_type.into(), SNAP_LENGTH).map_err(|error| match error {
        CompileError::Library(error) => FilterError::NoLibrary(error),
        CompileError::Expression(message) => FilterError::Expression(expression.into(), message),
    })?;
    Program::new(&instructions).map_err(|error| FilterError::Program(expression.into(), error))
}

/// A filter for frames of any link type: compiled for each link type when its first frame arrives.
#[derive(Clone, Debug)]
pub struct PacketFilter {
    expression: Arc<str>,
    /// Programs by link type, that of the last frame first; `None` where libpcap refuses the
    /// expression.
    filters: Vec<(u16, Option<Program>)>,
    errors: Vec<FilterError>,
}

impl PacketFilter {
    /// Compiles an expression for Ethernet; if libpcap refuses that, for the first supported link
    /// type that it accepts.
    ///
    /// # Errors
    /// libpcap is missing, refuses the expression (with its message for Ethernet), or compiles it
    /// to a program with loops.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        let compile = |link_type| compile(expression, link_type).map(|program| (link_type, Some(program)));
        let first = compile(link_type::CHECKED[0]).or_else(|error| {
            link_type::CHECKED[1..].iter().find_map(|&link_type| compile(link_type).ok()).ok_or(error)
        })?;
        Ok(Self { expression: expression.into(), filters: vec![first], errors: Vec::new() })
    }

    /// Returns whether a frame matches. Frames of a link type for which libpcap refuses the
    /// expression do not.
    #[inline]
    pub fn matches(&mut self, frame: &Frame<'_>) -> bool {
        if self.filters[0].0 != frame.link_type {
            self.select(frame.link_type);
        }
        self.filters[0].1.as_ref().is_some_and(|program| program.run(frame.bytes, frame.wire_bytes) > 0)
    }

    /// Moves the program of a link type to the front.
    #[cold]
    fn select(&mut self, link_type: u16) {
        let known = self.filters.iter().position(|&(other, _)| other == link_type);
        let at = known.unwrap_or_else(|| {
            let program = compile(&self.expression, link_type).map_err(|error| match error {
                FilterError::Expression(expression, message) => {
                    FilterError::LinkType { expression, link_type, message }
                }
                other => other,
            });
            self.filters.push((link_type, program.map_err(|error| self.errors.push(error)).ok()));
            self.filters.len() - 1
        });
        self.filters.swap(0, at);
    }

    /// Takes the errors since the last call: one for each new link type for which libpcap refuses
    /// the expression.
    pub fn take_errors(&mut self) -> Vec<FilterError> {
        std::mem::take(&mut self.errors)
    }
}
