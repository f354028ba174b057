//! Packet filters in tcpdump's syntax.
//!
//! In: an expression (`man pcap-filter`), and frames. Out: whether a frame matches. libpcap
//! compiles the expression once per link type; the resulting program is checked and interpreted
//! here. Invariants: the result depends only on the captured bytes of a frame and its length on the
//! wire. Running a filter cannot fail or allocate, and takes at most one step per instruction.
//!
//! The time of libpcap's optimizer grows with the third power of the length of the program: for
//! 180 hosts it is 0.4 s, for 500 hosts 6 s, for 2000 hosts minutes. The time of its code generator
//! grows with the square. Therefore expressions have limits.

mod library;
mod program;
#[cfg(test)]
mod tests;

use crate::link_type;
use crate::source::Frame;
use library::CompileError;
use program::ProgramError;
pub(crate) use program::{Instruction, Program, opcode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest number of words in an expression: those of 500 ports, for which the code generator
/// of libpcap needs 2.5 s.
const MAX_WORDS: usize = 1000;
/// Largest number of instructions before optimization, which then lasts 0.5 s at most. 180 hosts
/// (`host ADDRESS`), 95 ports or 400 source hosts have that many.
const MAX_UNOPTIMIZED: usize = 6000;
/// Link types of live sources. Their programs exist before the first frame arrives.
const LIVE: [u16; 2] = [link_type::ETHERNET, link_type::RAW];
/// If libpcap refuses an expression after this time, it has waited for a name server. Other link
/// types are not tried then.
const NAME_SERVER_TIME: Duration = Duration::from_secs(1);

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
    /// libpcap would need too much time for the expression.
    #[error("filter \"{0}...\" is too long: {1}; name networks instead of single hosts, and ranges instead of ports")]
    Size(String, SizeError),
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

/// Which limit an expression exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Its number of words.
    #[error("it has {0} words, the limit is {MAX_WORDS}")]
    Words(usize),
    /// Its number of instructions before optimization.
    #[error("libpcap makes {0} instructions of it, the limit is {MAX_UNOPTIMIZED}")]
    Instructions(usize),
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
    let size_error = |error| FilterError::Size(expression.chars().take(40).collect(), error);
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || ".:/_-".contains(c)));
    let words = words.filter(|word| !word.is_empty()).count();
    if words > MAX_WORDS {
        return Err(size_error(SizeError::Words(words)));
    }
    let instructions = |optimize| {
        library::compile(expression, link_type.into(), SNAP_LENGTH, optimize).map_err(|error| match error {
            CompileError::Library(error) => FilterError::NoLibrary(error),
            CompileError::Expression(message) => FilterError::Expression(expression.into(), message),
        })
    };
    let unoptimized = instructions(false)?.len();
    if unoptimized > MAX_UNOPTIMIZED {
        return Err(size_error(SizeError::Instructions(unoptimized)));
    }
    let instructions = instructions(true)?;
    Program::new(&instructions).map_err(|error| FilterError::Program(expression.into(), error))
}

/// A filter for frames of any link type: compiled for those of live sources at once, and for each
/// other link type when its first frame arrives.
#[derive(Clone, Debug)]
pub struct PacketFilter {
    expression: Arc<str>,
    /// Programs by link type, that of the last frame first; `None` where libpcap refuses the
    /// expression.
    filters: Vec<(u16, Option<Program>)>,
    errors: Vec<FilterError>,
}

impl PacketFilter {
    /// Compiles an expression for the link types of live sources; if libpcap refuses that, for the
    /// first supported link type that it accepts. May wait for a name server, and compile for
    /// seconds.
    ///
    /// # Errors
    /// libpcap is missing, refuses the expression (with its message for Ethernet), or compiles it
    /// to a program with loops; or the expression is too long.
    pub fn new(expression: &str) -> Result<Self, FilterError> {
        let (mut filters, mut first_error) = (Vec::new(), None);
        for link_type in link_type::CHECKED {
            if !filters.is_empty() && !LIVE.contains(&link_type) {
                break;
            }
            let started = Instant::now();
            match compile(expression, link_type) {
                Ok(program) => filters.push((link_type, Some(program))),
                Err(error @ FilterError::Size(..)) => return Err(error),
                Err(error) => drop(first_error.get_or_insert(error)),
            }
            if filters.is_empty() && started.elapsed() > NAME_SERVER_TIME {
                break;
            }
        }
        match first_error {
            Some(error) if filters.is_empty() => Err(error),
            _ => Ok(Self { expression: expression.into(), filters, errors: Vec::new() }),
        }
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
