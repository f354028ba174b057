//! Packet filters in tcpdump's syntax.
//!
//! In: an expression (`man pcap-filter`), and frames. Out: whether a frame is kept. libpcap compiles the expression, once per
//! link type; the program that comes out is checked and run here. A [`CompiledFilter`] is for one link type, a [`PacketFilter`] for
//! frames of any.
//! Always true: a frame is kept or not by its captured octets and its length on the wire alone; running a filter cannot
//! fail, allocate or take longer than its program is long.

mod library;
mod program;

use crate::Frame;
use library::Trouble;
pub use program::BpfInstruction;
use program::Program;
use std::sync::Arc;

/// Ethernet, and the other link types that Weir decodes (LINKTYPE numbers).
const DECODED: [u16; 9] = [1, 101, 113, 276, 0, 108, 12, 228, 229];

/// An expression that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no libpcap that could compile it.
    #[error("filters need libpcap, which is not installed (Debian: libpcap0.8): {0}")]
    NoLibrary(String),
    /// libpcap does not take it, in its words.
    #[error("filter \"{expression}\": {what}")]
    Expression {
        /// What was to be compiled.
        expression: String,
        /// What libpcap says.
        what: String,
    },
    /// libpcap took it, but made a program that Weir does not run.
    #[error("filter \"{expression}\" makes a program that is not run here: {what} (protochain makes loops)")]
    Program {
        /// What was compiled.
        expression: String,
        /// What is wrong with the program.
        what: String,
    },
    /// It has no meaning for frames of a link type.
    #[error(
        "filter \"{expression}\" means nothing for frames of link type {link_type}, so none of them is kept: {what}"
    )]
    LinkType {
        /// What was to be compiled.
        expression: String,
        /// LINKTYPE number.
        link_type: u16,
        /// What libpcap says.
        what: String,
    },
}

/// A filter for frames of one link type. Clones share the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledFilter {
    program: Program,
}

impl CompiledFilter {
    /// More octets than a frame has: the snap length of frames that are captured whole.
    pub const WHOLE: u32 = 262_144;

    /// Compiles an expression for frames of a link type (LINKTYPE number), at most `snap` octets of which are captured
    /// ([`CompiledFilter::WHOLE`]: all). Names of hosts in it are looked up.
    ///
    /// # Errors
    /// No libpcap, an expression that it does not take, or one that makes loops.
    pub fn compile(expression: &str, link_type: u16, snap: u32) -> Result<Self, FilterError> {
        // What libpcap calls a link type differs from what captures call it for raw IP alone, of those that Weir decodes.
        let link_type = if matches!(link_type, 14 | 101) { 12 } else { link_type };
        let snap = i32::try_from(snap).unwrap_or(i32::MAX);
        let instructions = library::compile(expression, link_type.into(), snap).map_err(|trouble| match trouble {
            Trouble::Library(what) => FilterError::NoLibrary(what),
            Trouble::Expression(what) => FilterError::Expression { expression: expression.into(), what },
        })?;
        let program =
            Program::new(&instructions).map_err(|what| FilterError::Program { expression: expression.into(), what })?;
        Ok(Self { program })
    }

    /// A filter of instructions that were compiled elsewhere.
    ///
    /// # Errors
    /// The program could run forever, go astray or divide by 0: which instruction, and why.
    pub fn from_instructions(instructions: &[BpfInstruction]) -> Result<Self, String> {
        Program::new(instructions).map(|program| Self { program })
    }

    /// Whether a frame is kept: its captured octets, and its octets on the wire.
    #[inline]
    pub fn keeps(&self, bytes: &[u8], wire_bytes: u32) -> bool {
        self.program.run(bytes, wire_bytes) > 0
    }

    /// The program, in the form that `SO_ATTACH_FILTER` takes.
    pub fn instructions(&self) -> &[BpfInstruction] {
        self.program.instructions()
    }
}

/// A filter for frames of any link type: compiled for each when its first frame comes.
#[derive(Clone, Debug)]
pub struct PacketFilter {
    expression: Arc<str>,
    /// By link type, the one of the last frame first; none where the expression means nothing.
    filters: Vec<(u16, Option<CompiledFilter>)>,
    /// What was not told yet.
    errors: Vec<FilterError>,
}

impl PacketFilter {
    /// Compiles an expression for Ethernet; if it means nothing there, tries the other link types that Weir decodes.
    ///
    /// # Errors
    /// As [`CompiledFilter::compile`], in what libpcap says of Ethernet.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        let compile = |link_type| {
            CompiledFilter::compile(expression, link_type, CompiledFilter::WHOLE)
                .map(|filter| (link_type, Some(filter)))
        };
        let first = compile(DECODED[0]);
        let first =
            first.or_else(|error| DECODED[1..].iter().find_map(|&link_type| compile(link_type).ok()).ok_or(error))?;
        Ok(Self { expression: expression.into(), filters: vec![first], errors: Vec::new() })
    }

    /// What the user wrote.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Whether a frame is kept. Frames of a link type for which the expression means nothing are not.
    #[inline]
    pub fn keeps(&mut self, frame: &Frame<'_>) -> bool {
        if self.filters[0].0 != frame.link_type {
            self.turn_to(frame.link_type);
        }
        self.filters[0].1.as_ref().is_some_and(|filter| filter.keeps(frame.bytes, frame.wire_bytes))
    }

    /// Puts the filter of a link type first.
    #[cold]
    fn turn_to(&mut self, link_type: u16) {
        let known = self.filters.iter().position(|&(other, _)| other == link_type);
        let at = known.unwrap_or_else(|| {
            let filter =
                CompiledFilter::compile(&self.expression, link_type, CompiledFilter::WHOLE).map_err(
                    |error| match error {
                        FilterError::Expression { expression, what } => {
                            FilterError::LinkType { expression, link_type, what }
                        }
                        other => other,
                    },
                );
            self.filters.push((link_type, filter.map_err(|error| self.errors.push(error)).ok()));
            self.filters.len() - 1
        });
        self.filters.swap(0, at);
    }

    /// Link types that came since the last call and for which the expression means nothing.
    pub fn take_errors(&mut self) -> Vec<FilterError> {
        std::mem::take(&mut self.errors)
    }
}
