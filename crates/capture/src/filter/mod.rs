//! Packet filters in tcpdump's syntax.
//!
//! In: an expression (`man pcap-filter`), and frames. Out: whether a frame matches. libpcap
//! compiles the expression once per link type; the resulting program is checked and interpreted
//! here. A [`CompiledFilter`] is for one link type, a [`PacketFilter`] for frames of any.
//! Invariants: the result depends only on the captured bytes of a frame and its length on the wire.
//! Running a filter cannot fail or allocate, and takes at most one step per instruction.

mod library;
mod program;

use crate::Frame;
use library::CompileError;
use program::Program;
pub use program::{BpfInstruction, InstructionError, ProgramError};
use std::sync::Arc;

/// Link types for which a new expression is tried, in this order, until libpcap accepts it.
const CHECKED_LINK_TYPES: [u16; 14] = [1, 101, 113, 276, 0, 108, 12, 228, 229, 9, 50, 104, 239, 100];

/// Why an expression cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FilterError {
    /// libpcap cannot be loaded.
    #[error("filters need libpcap, which is not installed (Debian: libpcap0.8): {0}")]
    NoLibrary(&'static libloading::Error),
    /// libpcap refuses the expression.
    #[error("filter \"{expression}\": {message}")]
    Expression {
        /// The expression.
        expression: String,
        /// Error message of libpcap.
        message: String,
    },
    /// libpcap compiles it to a program that is not supported.
    #[error("filter \"{expression}\" compiles to a program that is not supported: {error} (protochain makes loops)")]
    Program {
        /// The expression.
        expression: String,
        /// What is wrong with the program.
        error: ProgramError,
    },
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

/// A filter for frames of one link type. Clones share the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledFilter {
    program: Program,
}

impl CompiledFilter {
    /// Snap length of frames that are captured whole.
    pub const WHOLE: u32 = 262_144;

    /// Compiles an expression for frames of a link type (LINKTYPE number) and a snap length
    /// ([`CompiledFilter::WHOLE`]: none). Host names in it are resolved.
    ///
    /// # Errors
    /// libpcap is missing or refuses the expression, or the program has loops.
    pub fn compile(expression: &str, link_type: u16, snap_bytes: u32) -> Result<Self, FilterError> {
        // Of the supported link types, only raw IP and LLC/SNAP over ATM have another number in
        // libpcap than in captures.
        let link_type = match link_type {
            14 | 101 => 12,
            100 => 11,
            other => other,
        };
        let snap = i32::try_from(snap_bytes).unwrap_or(i32::MAX);
        let instructions = library::compile(expression, link_type.into(), snap).map_err(|error| match error {
            CompileError::Library(error) => FilterError::NoLibrary(error),
            CompileError::Expression(message) => FilterError::Expression { expression: expression.into(), message },
        })?;
        let program = Program::new(&instructions)
            .map_err(|error| FilterError::Program { expression: expression.into(), error })?;
        Ok(Self { program })
    }

    /// Makes a filter of instructions that were compiled elsewhere.
    ///
    /// # Errors
    /// The program may not terminate, or has an invalid instruction.
    pub fn from_instructions(instructions: &[BpfInstruction]) -> Result<Self, ProgramError> {
        Program::new(instructions).map(|program| Self { program })
    }

    /// Returns whether a frame matches, given its captured bytes and its length on the wire.
    #[inline]
    pub fn matches(&self, bytes: &[u8], wire_bytes: u32) -> bool {
        self.program.run(bytes, wire_bytes) > 0
    }

    /// Returns the program in the form of `SO_ATTACH_FILTER`.
    pub fn instructions(&self) -> &[BpfInstruction] {
        self.program.instructions()
    }
}

/// A filter for frames of any link type: compiled for each link type when its first frame arrives.
#[derive(Clone, Debug)]
pub struct PacketFilter {
    expression: Arc<str>,
    /// Filters by link type, that of the last frame first; `None` where libpcap refuses the
    /// expression.
    filters: Vec<(u16, Option<CompiledFilter>)>,
    /// Errors that were not taken yet.
    errors: Vec<FilterError>,
}

impl PacketFilter {
    /// Compiles an expression for Ethernet; if libpcap refuses that, for the first supported link
    /// type that it accepts.
    ///
    /// # Errors
    /// As [`CompiledFilter::compile`], with libpcap's message for Ethernet.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        let compile = |link_type| {
            CompiledFilter::compile(expression, link_type, CompiledFilter::WHOLE)
                .map(|filter| (link_type, Some(filter)))
        };
        let first = compile(CHECKED_LINK_TYPES[0]).or_else(|error| {
            CHECKED_LINK_TYPES[1..].iter().find_map(|&link_type| compile(link_type).ok()).ok_or(error)
        })?;
        Ok(Self { expression: expression.into(), filters: vec![first], errors: Vec::new() })
    }

    /// Returns the expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Returns whether a frame matches. Frames of a link type for which libpcap refuses the
    /// expression do not.
    #[inline]
    pub fn matches(&mut self, frame: &Frame<'_>) -> bool {
        if self.filters[0].0 != frame.link_type {
            self.select(frame.link_type);
        }
        self.filters[0].1.as_ref().is_some_and(|filter| filter.matches(frame.bytes, frame.wire_bytes))
    }

    /// Moves the filter of a link type to the front.
    #[cold]
    fn select(&mut self, link_type: u16) {
        let known = self.filters.iter().position(|&(other, _)| other == link_type);
        let at = known.unwrap_or_else(|| {
            let filter = CompiledFilter::compile(&self.expression, link_type, CompiledFilter::WHOLE);
            let filter = filter.map_err(|error| match error {
                FilterError::Expression { expression, message } => {
                    FilterError::LinkType { expression, link_type, message }
                }
                other => other,
            });
            self.filters.push((link_type, filter.map_err(|error| self.errors.push(error)).ok()));
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
