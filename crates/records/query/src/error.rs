//! Why an expression is invalid, and where.

use crate::limits::{MAX_DEPTH, MAX_OCTETS};
use std::fmt;
use std::ops::Range;
use weir_fields::{Kind, Words};
use weir_text::zone::TimeError;

/// An invalid expression. Its text has a sentence, the expression, and a mark below the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    problem: Problem,
    /// The part of the expression that is shown, without control characters.
    shown: String,
    /// Characters of `shown` before the mark, and characters of the mark.
    mark: (usize, usize),
}

impl std::error::Error for ExpressionError {}

impl ExpressionError {
    /// A problem at the place of tokens.
    pub(crate) fn new(text: &str, place: Range<usize>, problem: Problem) -> Self {
        /// Characters of a long expression that are shown before and behind the place.
        const CONTEXT: usize = 60;
        // Tokens begin and end between characters.
        let Range { start, end } = place;
        let before: Vec<char> = text[..start].chars().collect();
        let from = before.len().saturating_sub(CONTEXT);
        let lead = if from > 0 { "…" } else { "" };
        let marked = text[start..end].chars().count().clamp(1, CONTEXT);
        let rest: Vec<char> = text[start..].chars().take(marked + CONTEXT + 1).collect();
        let cut = rest.len() > marked + CONTEXT;
        let tail = if cut { "…" } else { "" };
        let middle = before[from..].iter().chain(&rest[..rest.len() - usize::from(cut)]);
        let visible = |&letter: &char| if letter.is_control() { ' ' } else { letter };
        let shown = format!("{lead}{}{tail}", middle.map(visible).collect::<String>());
        Self { problem, shown, mark: (before.len() - from + lead.chars().count(), marked) }
    }

    /// What is wrong, in one sentence without the place.
    pub fn sentence(&self) -> String {
        self.problem.to_string()
    }

    /// The part of the expression that has the place, the characters before the place, and those of the place.
    pub fn place(&self) -> (&str, usize, usize) {
        (&self.shown, self.mark.0, self.mark.1)
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, marked) = self.mark;
        write!(f, "{}\n  {}\n  {}{}", self.problem, self.shown, " ".repeat(before), "^".repeat(marked))
    }
}

/// What is wrong at the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("the expression is longer than {MAX_OCTETS} octets")]
    TooLong,
    #[error("parentheses and not are nested deeper than {MAX_DEPTH}")]
    TooDeep,
    #[error("the expression is empty; write for example: dst port 443 and bytes > 1M")]
    Empty,
    #[error("the quote is not closed")]
    OpenQuote,
    #[error("{0:?} has no meaning here{hint}", hint = match .0 { '&' => "; write && or and", '|' => "; write || or or", _ => "" })]
    Character(char),
    #[error("the parenthesis is not closed")]
    OpenParenthesis,
    #[error("the set is not closed")]
    OpenSet,
    #[error("the set is empty")]
    EmptySet,
    #[error("missing here: {0}")]
    Expected(String),
    #[error("{0:?} is too much here; join conditions with and, or")]
    Unexpected(String),
    #[error("and beside or needs parentheses: tcpdump gives both the same rank, others do not")]
    MixedAndOr,
    #[error("there is no field {name:?}{}", nearest(.near))]
    UnknownField { name: String, near: Vec<String> },
    #[error("there is no field {name:?}; write {meant}")]
    ForeignName { name: String, meant: String },
    #[error("there is no field {0:?}; for the application write application = {0}")]
    ApplicationName(&'static str),
    #[error("for flows in which {field} has a value write {field}, for the others not {field}")]
    Presence { field: &'static str },
    #[error("0 is a value of {field}, too; compare it, as in {field} > 0")]
    Count { field: &'static str },
    #[error("{field} has no empty value; for flows without a value write not {field}")]
    EmptyWord { field: &'static str },
    #[error(
        "{word} is about the length of a packet, which a flow does not have; select packets with -f '{word} N', or flows \
         with bytes {operator} N (octets of all packets) or bpp {operator} N (octets per packet)"
    )]
    PacketLength { word: String, operator: &'static str },
    #[error("{field} is {kind}; {operator} needs a number")]
    NotOrdered { field: String, kind: Kind, operator: &'static str },
    #[error("{field} is {kind}; {operator} is for text")]
    NotText { field: String, kind: Kind, operator: String },
    #[error("{operator} takes one value; for several write {field} in {{…}}")]
    RangeWithOperator { field: String, operator: &'static str },
    #[error("the range is empty: its end is below its start")]
    EmptyRange,
    #[error("{field} is {kind}, not an address: it has no prefix")]
    Prefix { field: String, kind: Kind },
    #[error("{field} is {kind}: it has no unit {unit:?}")]
    Unit { field: String, kind: Kind, unit: String },
    #[error("{unit:?} is not a unit of {field}; use {units}")]
    UnknownUnit { field: String, unit: String, units: &'static str },
    #[error("{field} needs a unit of time, as in {number}s; there are ns, us, ms, s, m, h and d")]
    MissingUnit { field: String, number: String },
    #[error("{field} has whole numbers only")]
    Fraction { field: String },
    #[error("{text:?} is not a number, and {field} is {kind}{}", range(*.kind))]
    NotANumber { text: String, field: String, kind: Kind },
    #[error("{text:?} is not {kind}, which {field} is")]
    NotAValue { text: String, field: String, kind: Kind },
    #[error("'*' is compared as a letter; {advice}")]
    Star { advice: String },
    #[error("the number is too large: {field} is at most {most}")]
    TooLarge { field: String, most: u64 },
    #[error("{text} has set bits behind its first {bits} bits; write {network}/{bits}")]
    HostBits { text: String, bits: u8, network: String },
    #[error("an {family} prefix has at most {most} bits")]
    PrefixLength { family: &'static str, most: u8 },
    #[error("the addresses of a range must both be IPv4 or both IPv6")]
    MixedFamilies,
    #[error("there is no protocol {name:?}; write a number, or a name as in tcp{}", or_near(.near.as_slice()))]
    UnknownProtocol { name: String, near: Option<&'static str> },
    #[error("{field} has no value {word:?}{}; there are {}", or_near(.near.as_slice()), list(*.words))]
    UnknownWord { field: &'static str, word: String, near: Option<&'static str>, words: Words },
    #[error("{0:?} is not a TCP flag; letters are S A P F R U E C N X Y Z, as in SA")]
    UnknownFlag(char),
    #[error("TCP flags are letters; for {name:?} write {letters}, as in flags {letters}")]
    FlagName { name: String, letters: String },
    #[error(transparent)]
    NotATime(Box<TimeError>),
}

fn or_near(near: &[impl fmt::Display]) -> String {
    near.first().map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// The range of a number that has a limit.
fn range(kind: Kind) -> String {
    match kind {
        Kind::Number(most) if most < u64::MAX => format!(", from 0 to {most}"),
        _ => String::new(),
    }
}

fn list(words: Words) -> String {
    words.all().iter().map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}

/// The names that are near to an unknown one.
pub(crate) fn nearest(near: &[String]) -> String {
    match near {
        [] => " (weir fields lists all)".into(),
        [names @ .., last] if !names.is_empty() => format!("; did you mean {} or {last}?", names.join(", ")),
        [last, ..] => format!("; did you mean {last}?"),
    }
}
