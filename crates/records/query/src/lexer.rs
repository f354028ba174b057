//! Splits an expression into tokens with their places.

use crate::error::{ExpressionError, Problem};
use crate::limits::MAX_OCTETS;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Operator {
    /// As nfdump writes it.
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "lt" => Self::Less,
            "le" => Self::LessOrEqual,
            "gt" => Self::Greater,
            "ge" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A name, a number, an address: all that is not quoted and has no other meaning.
    Word,
    /// Text in quotes.
    Quoted,
    Open,
    Close,
    /// `{` or `[`.
    OpenSet,
    /// `}` or `]`.
    CloseSet,
    Comma,
    Operator(Operator),
    And,
    Or,
    Not,
    In,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub kind: TokenKind,
    /// The text without quotes.
    pub text: &'a str,
    /// First octet in the expression.
    pub start: usize,
    pub end: usize,
}

impl Token<'_> {
    pub fn place(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Splits an expression. The last token is [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ExpressionError> {
    let error = |place: Range<usize>, problem| ExpressionError::new(text, place, problem);
    if text.len() > MAX_OCTETS {
        return Err(error(0..0, Problem::TooLong));
    }
    let octets = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < octets.len() {
        let next = octets.get(at + 1).copied();
        let (kind, length) = match octets[at] {
            b' ' | b'\t' | b'\r' | b'\n' | b'\x0b' | b'\x0c' => {
                at += 1;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                let inner = at + 1;
                let Some(length) = text[inner..].find(char::from(quote)) else {
                    return Err(error(at..text.len(), Problem::OpenQuote));
                };
                let end = inner + length;
                tokens.push(Token { kind: TokenKind::Quoted, text: &text[inner..end], start: at, end: end + 1 });
                at = end + 1;
                continue;
            }
            b'(' => (TokenKind::Open, 1),
            b')' => (TokenKind::Close, 1),
            b'{' | b'[' => (TokenKind::OpenSet, 1),
            b'}' | b']' => (TokenKind::CloseSet, 1),
            b',' => (TokenKind::Comma, 1),
            b'=' => (TokenKind::Operator(Operator::Equal), if next == Some(b'=') { 2 } else { 1 }),
            b'!' if next == Some(b'=') => (TokenKind::Operator(Operator::NotEqual), 2),
            b'!' => (TokenKind::Not, 1),
            b'<' if next == Some(b'=') => (TokenKind::Operator(Operator::LessOrEqual), 2),
            b'<' => (TokenKind::Operator(Operator::Less), 1),
            b'>' if next == Some(b'=') => (TokenKind::Operator(Operator::GreaterOrEqual), 2),
            b'>' => (TokenKind::Operator(Operator::Greater), 1),
            b'&' if next == Some(b'&') => (TokenKind::And, 2),
            b'|' if next == Some(b'|') => (TokenKind::Or, 2),
            octet if is_word(octet) => {
                let length = octets[at..].iter().take_while(|&&octet| is_word(octet)).count();
                (keyword(&text[at..at + length]), length)
            }
            _ => {
                let letter = text[at..].chars().next().unwrap_or_default();
                return Err(error(at..at + letter.len_utf8(), Problem::Character(letter)));
            }
        };
        tokens.push(Token { kind, text: &text[at..at + length], start: at, end: at + length });
        at += length;
    }
    tokens.push(Token { kind: TokenKind::End, text: "", start: text.len(), end: text.len() });
    Ok(tokens)
}

fn is_word(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"_.:/-+%*".contains(&octet)
}

fn keyword(word: &str) -> TokenKind {
    let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
    match () {
        () if is("and") => TokenKind::And,
        () if is("or") => TokenKind::Or,
        () if is("not") => TokenKind::Not,
        () if is("in") => TokenKind::In,
        () => TokenKind::Word,
    }
}
