//! Parses an expression into a tree: recursive descent over the tokens.
//!
//! ```text
//! any       = all { ("or" | "||") all }            no "and" and "or" side by side
//! all       = factor { ("and" | "&&") factor }
//! factor    = ("not" | "!") factor | "(" any ")" | condition
//! condition = protocol [condition]                 tcp, udp dst port 53, ip6 host ::1
//!           | side kind literal                    src net 10.0.0.0/8, dst port 443
//!           | field test                           bytes > 1M, port in {80, 443}
//!           | field                                sni: the flows in which it has a value
//!           | literal                              repeats the words before: port 80 or 443
//! test      = operator literal | ["not"] "in" (literal | "{" literal {","} "}") | text operator
//! ```

use crate::condition::{Check, Node, Test, TextOperator};
use crate::error::{ExpressionError, Problem};
use crate::foreign_name;
use crate::lexer::{Operator, Token, TokenKind, tokens};
use crate::limits::MAX_DEPTH;
use crate::literal::{self, Literal, Values};
use std::net::IpAddr;
use std::ops::Range;
use weir_dpi::Application;
use weir_fields::{Field, Kind, Read, field, near_names};
use weir_text::zone::Zone;

pub(crate) fn parse(text: &str, zone: &Zone) -> Result<Node, ExpressionError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { text, zone, tokens, at: 0, depth: 0, last: None };
    if parser.peek().kind == TokenKind::End {
        return Err(parser.error(0..0, Problem::Empty));
    }
    let node = parser.any()?;
    let token = parser.peek();
    match token.kind {
        TokenKind::End => Ok(node),
        _ => Err(parser.error(token.place(), Problem::Unexpected(token.text.into()))),
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Of times without a zone.
    zone: &'a Zone,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    /// The protocol and the field of the last condition that was written with words, which a literal
    /// without words repeats.
    last: Option<(Option<Node>, Field)>,
}

type Parsed<T> = Result<T, ExpressionError>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn peek_second(&self) -> Token<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    /// Where the last token was.
    fn before(&self) -> Range<usize> {
        self.tokens[self.at.saturating_sub(1)].place()
    }

    fn error(&self, place: Range<usize>, problem: Problem) -> ExpressionError {
        ExpressionError::new(self.text, place, problem)
    }

    fn expected(&self, what: &str) -> ExpressionError {
        self.error(self.peek().place(), Problem::Expected(what.into()))
    }

    /// Conditions joined by `or`, or by `and`.
    fn any(&mut self) -> Parsed<Node> {
        let mut nodes = vec![self.factor()?];
        let joint = self.peek().kind;
        while matches!(self.peek().kind, TokenKind::And | TokenKind::Or) {
            let token = self.next();
            if token.kind != joint {
                return Err(self.error(token.place(), Problem::MixedAndOr));
            }
            nodes.push(self.factor()?);
        }
        Ok(match (joint, nodes.len()) {
            (_, 1) => nodes.remove(0),
            (TokenKind::Or, _) => Node::Any(nodes.into()),
            _ => Node::All(nodes.into()),
        })
    }

    fn factor(&mut self) -> Parsed<Node> {
        let token = self.peek();
        match token.kind {
            TokenKind::Not | TokenKind::Open => {
                self.next();
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.error(token.place(), Problem::TooDeep));
                }
                let node = if token.kind == TokenKind::Not {
                    Node::Not(Box::new(self.factor()?))
                } else {
                    let node = self.any()?;
                    match self.next() {
                        Token { kind: TokenKind::Close, .. } => node,
                        Token { kind: TokenKind::End, .. } => {
                            return Err(self.error(token.place(), Problem::OpenParenthesis));
                        }
                        other => return Err(self.error(other.place(), Problem::Unexpected(other.text.into()))),
                    }
                };
                self.depth -= 1;
                Ok(node)
            }
            TokenKind::Word => self.condition(None),
            _ => Err(self.expected("a condition, as in port 443 or bytes > 1M")),
        }
    }

    /// A condition, of the flows of a protocol if that was written before it.
    fn condition(&mut self, protocol: Option<Node>) -> Parsed<Node> {
        let token = self.next();
        let word = token.text.to_ascii_lowercase();
        let both = |protocol: Option<Node>, node: Node| match protocol {
            Some(protocol) => Node::All([protocol, node].into()),
            None => node,
        };
        let of = |name: &str| field(name).expect("the words of conditions are fields");
        let node = match word.as_str() {
            "any" => return Ok(Node::Always),
            "src" | "dst" => return self.of_sides(word == "src", protocol),
            "host" | "port" | "proto" | "protocol" | "flags" if self.ends_condition() => {
                let name = if word == "proto" { "protocol" } else { &word };
                both(protocol, Node::Test(Test::present(of(name))))
            }
            "host" | "net" => self.with_words(of("host"), protocol)?,
            "port" | "portrange" => self.with_words(of("port"), protocol)?,
            "proto" | "protocol" => both(protocol, self.comparison(of("protocol"), true)?),
            "vlan" | "inner_vlan" | "mpls" | "tunnel" | "mac" | "as" | "country" if self.ends_condition() => {
                both(protocol, Node::Test(Test::present(of(&word))))
            }
            "flags" | "mac" | "as" | "country" => self.with_words(of(&word), protocol)?,
            "ether" => self.of_ethernet(protocol)?,
            "greater" | "less" => {
                let operator = if word == "less" { "<=" } else { ">=" };
                return Err(self.error(token.place(), Problem::PacketLength { word, operator }));
            }
            "vlan" | "inner_vlan" | "mpls" | "tunnel" => self.with_words(of(&word), protocol)?,
            "icmp-type" => self.comparison(of("icmp_type"), true)?,
            "layer2" => Node::Not(Box::new(Node::Test(Test::present(of("ip_version"))))),
            "ip" | "ip4" | "ipv4" | "inet" | "ip6" | "ipv6" | "inet6" => {
                if word == "ip" && self.next_is_literal() {
                    return self.with_words(of("host"), protocol);
                }
                let version = if word.ends_with('6') { 6 } else { 4 };
                let check = Check::Values(Values::new(&[Literal::Whole(version, version)]));
                return self.after_protocol(both(
                    protocol,
                    Node::Test(Test { field: of("ip_version"), check, negate: false }),
                ));
            }
            _ => match (literal::protocol_number(&word), field(&word)) {
                (Some(number), _) if !matches!(self.peek().kind, TokenKind::Operator(_) | TokenKind::In) => {
                    let number = Literal::Whole(number.into(), number.into());
                    let check = Check::Values(Values::new(&[number]));
                    let test = Test { field: of("protocol"), check, negate: false };
                    return self.after_protocol(both(protocol, Node::Test(test)));
                }
                (_, Some(field)) => self.comparison(field, false)?,
                (_, None) => return self.repeated(token),
            },
        };
        Ok(node)
    }

    /// What may follow a protocol: the end of the condition, or words of another one.
    fn after_protocol(&mut self, protocol: Node) -> Parsed<Node> {
        const WORDS: [&str; 11] =
            ["src", "dst", "host", "net", "port", "portrange", "flags", "proto", "vlan", "as", "country"];
        let token = self.peek();
        if token.kind == TokenKind::Word && WORDS.iter().any(|word| token.text.eq_ignore_ascii_case(word)) {
            self.condition(Some(protocol))
        } else {
            Ok(protocol)
        }
    }

    /// `src`, `dst`, `src or dst`, `src and dst`, and what follows.
    fn of_sides(&mut self, is_source: bool, protocol: Option<Node>) -> Parsed<Node> {
        let other = if is_source { "dst" } else { "src" };
        let joint = self.peek().kind;
        let second = self.peek_second();
        let of_both = matches!(joint, TokenKind::And | TokenKind::Or)
            && second.kind == TokenKind::Word
            && second.text.eq_ignore_ascii_case(other);
        if of_both {
            self.at += 2;
        }
        let token = self.peek();
        let word = token.text.to_ascii_lowercase();
        let name = match word.as_str() {
            _ if token.kind != TokenKind::Word => "",
            "host" | "net" | "ip" => "host",
            "port" | "portrange" => "port",
            "flags" | "vlan" | "mac" | "mpls" | "as" | "country" => word.as_str(),
            _ if self.next_is_literal() => "host",
            _ => "",
        };
        let Some(field) = field(name) else {
            return Err(self.expected("host, net, port, mac, as, country or an address"));
        };
        if !(name == "host" && word.starts_with(|letter: char| letter.is_ascii_digit() || letter == ':')
            || self.next_is_literal())
        {
            self.next();
        }
        if !of_both {
            return self.with_words(field.of_side(is_source), protocol);
        }
        let node = self.with_words(field, protocol)?;
        if joint == TokenKind::Or {
            return Ok(node);
        }
        Ok(node.with_both_sides())
    }

    /// `host`, `src` or `dst` and a MAC address, which follow `ether`.
    fn of_ethernet(&mut self, protocol: Option<Node>) -> Parsed<Node> {
        let mac = field("mac").expect("it is one of the words");
        let is = |parser: &Self, word: &str| parser.peek().text.eq_ignore_ascii_case(word);
        let field = match () {
            () if is(self, "host") => mac,
            () if is(self, "src") || is(self, "dst") => {
                let side = mac.of_side(is(self, "src"));
                if self.peek_second().text.eq_ignore_ascii_case("host") {
                    self.next();
                }
                side
            }
            () => return Err(self.expected("src, dst or host, and a MAC address")),
        };
        self.next();
        self.with_words(field, protocol)
    }

    /// A field that needs no operator.
    fn with_words(&mut self, field: Field, protocol: Option<Node>) -> Parsed<Node> {
        let node = self.comparison(field, true)?;
        self.last = Some((protocol.clone(), field));
        Ok(match protocol {
            Some(protocol) => Node::All([protocol, node].into()),
            None => node,
        })
    }

    /// A literal without words, or an unknown word.
    fn repeated(&mut self, token: Token<'a>) -> Parsed<Node> {
        let Some((protocol, field)) = self.last.clone().filter(|_| is_literal(token.text)) else {
            let name = token.text.to_string();
            if let Some(application) = Application::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(&name)) {
                return Err(self.error(token.place(), Problem::ApplicationName(application.name())));
            }
            if let Some(meant) = foreign_name::meant(&name, [self.peek(), self.peek_second()], self.text) {
                return Err(self.error(token.place(), Problem::ForeignName { name, meant }));
            }
            let near = near_names(&name.to_ascii_lowercase());
            return Err(self.error(token.place(), Problem::UnknownField { name, near }));
        };
        self.at -= 1;
        self.with_words(field, protocol)
    }

    /// What is compared with a field.
    fn comparison(&mut self, field: Field, needs_no_operator: bool) -> Parsed<Node> {
        let token = self.peek();
        let text_operator = TextOperator::parse(token.text).filter(|_| token.kind == TokenKind::Word);
        // The words of operators may also be values: LT is a country.
        let has_value = matches!(self.peek_second().kind, TokenKind::Word | TokenKind::Quoted | TokenKind::OpenSet);
        let kind = match Operator::of_word(token.text).filter(|_| token.kind == TokenKind::Word && has_value) {
            Some(operator) => TokenKind::Operator(operator),
            None => token.kind,
        };
        let test = match (kind, text_operator) {
            (TokenKind::Operator(operator), _) => {
                self.next();
                self.ordered(field, operator, token)?
            }
            (TokenKind::In, _) => {
                self.next();
                Test { field, check: self.set(field)?, negate: false }
            }
            (TokenKind::Not, _) if self.peek_second().kind == TokenKind::In => {
                self.at += 2;
                Test { field, check: self.set(field)?, negate: true }
            }
            (_, Some(operator)) => {
                self.next();
                Test { field, check: self.part_of_text(field, operator, token)?, negate: false }
            }
            (TokenKind::OpenSet, None) if needs_no_operator => Test { field, check: self.set(field)?, negate: false },
            _ if needs_no_operator && field.kind == Kind::Flags => {
                let token = self.next();
                Test { field, check: Check::Flags(self.flags(token)?), negate: false }
            }
            _ if needs_no_operator => Test { field, check: self.one(field)?, negate: false },
            _ if self.ends_condition() && field.is_count() => {
                return Err(self.error(self.before(), Problem::Count { field: field.name }));
            }
            _ if self.ends_condition() => Test::present(field),
            (TokenKind::Word, _) if is_word_of_presence(token.text) => {
                return Err(self.error(token.place(), Problem::Presence { field: field.name }));
            }
            _ => return Err(self.expected(operators(field.kind))),
        };
        Ok(Node::Test(test))
    }

    fn ordered(&mut self, field: Field, operator: Operator, token: Token<'a>) -> Parsed<Test> {
        let negate = operator == Operator::NotEqual;
        if matches!(operator, Operator::Equal | Operator::NotEqual) {
            let check = if self.peek().kind == TokenKind::OpenSet { self.set(field)? } else { self.one(field)? };
            return Ok(Test { field, check, negate });
        }
        if !field.kind.is_ordered() {
            let problem =
                Problem::NotOrdered { field: field.name.into(), kind: field.kind, operator: operator.symbol() };
            return Err(self.error(token.place(), problem));
        }
        let place = self.peek().place();
        let several = || Problem::RangeWithOperator { field: field.name.into(), operator: operator.symbol() };
        let below = matches!(operator, Operator::Less | Operator::LessOrEqual);
        let equal = matches!(operator, Operator::LessOrEqual | Operator::GreaterOrEqual);
        let check = match self.literal(field)? {
            Literal::Whole(low, high) if low == high => {
                let bound = match (below, equal) {
                    (_, true) => Some(low),
                    (true, false) => low.checked_sub(1),
                    (false, false) => low.checked_add(1),
                };
                let range =
                    bound.map(|bound| if below { Literal::Whole(0, bound) } else { Literal::Whole(bound, u64::MAX) });
                Check::Values(Values::new(range.as_slice()))
            }
            Literal::Fraction(low, high) if low == high => {
                let bound = match (below, equal) {
                    (_, true) => low,
                    (true, false) => low.next_down(),
                    (false, false) => low.next_up(),
                };
                let range = if below { (f64::NEG_INFINITY, bound) } else { (bound, f64::INFINITY) };
                Check::Values(Values::new(&[Literal::Fraction(range.0, range.1)]))
            }
            _ => return Err(self.error(place, several())),
        };
        Ok(Test { field, check, negate: false })
    }

    /// One literal, which may be a range or a prefix.
    fn one(&mut self, field: Field) -> Parsed<Check> {
        if let Some(operator) = text_equality(field.kind) {
            return Ok(Check::Text(operator, [self.whole_text(field)?].into()));
        }
        Ok(Check::Values(Values::new(&[self.literal(field)?])))
    }

    /// The literals of a set, or one literal.
    fn set(&mut self, field: Field) -> Parsed<Check> {
        let open = self.peek();
        if open.kind != TokenKind::OpenSet {
            return self.one(field);
        }
        self.next();
        let (mut literals, mut texts) = (Vec::new(), Vec::new());
        loop {
            match self.peek().kind {
                TokenKind::CloseSet => {
                    self.next();
                    break;
                }
                TokenKind::Comma => {
                    self.next();
                }
                TokenKind::Word | TokenKind::Quoted => match field.kind {
                    kind if text_equality(kind).is_some() => texts.push(self.whole_text(field)?),
                    _ => literals.push(self.literal(field)?),
                },
                _ => return Err(self.error(open.start..self.peek().start, Problem::OpenSet)),
            }
        }
        match (texts.is_empty(), literals.is_empty()) {
            (true, true) => Err(self.error(open.place(), Problem::EmptySet)),
            (false, _) => {
                Ok(Check::Text(text_equality(field.kind).expect("only texts are compared as text"), texts.into()))
            }
            (true, false) => Ok(Check::Values(Values::new(&literals))),
        }
    }

    fn literal(&mut self, field: Field) -> Parsed<Literal> {
        let token = self.peek();
        if !matches!(token.kind, TokenKind::Word | TokenKind::Quoted) {
            return Err(self.expected(&format!("a value of {} ({})", field.name, field.kind)));
        }
        self.next();
        literal::parse(&field, token.text, self.zone).map_err(|problem| self.error(token.place(), problem))
    }

    /// What follows `starts-with`, `ends-with` or `contains`, the token `of_operator`.
    fn part_of_text(&mut self, field: Field, operator: TextOperator, of_operator: Token<'a>) -> Parsed<Check> {
        match field.kind {
            kind if text_equality(kind).is_some() => {
                let part = self.peek();
                if part.kind == TokenKind::Word && part.text.contains('*') {
                    let advice = "leave it out, or write the part in quotes".into();
                    return Err(self.error(part.place(), Problem::Star { advice }));
                }
                Ok(Check::Text(operator, [self.text_literal(field)?].into()))
            }
            Kind::Words(words) => {
                let place = self.peek().place();
                let text = self.text_literal(field)?;
                let is_part = |part: &&str| words.all().iter().any(|(_, word)| operator.holds(field.kind, word, part));
                match text.split_whitespace().find(|part| !is_part(part)) {
                    Some(unknown) => Err(self.error(place, literal::unknown_word(&field, words, unknown))),
                    None => Ok(Check::Text(operator, [text].into())),
                }
            }
            Kind::Flags if operator == TextOperator::Contains => {
                let token = self.next();
                Ok(Check::Flags(self.flags(token)?))
            }
            kind => {
                let operator = of_operator.text.to_ascii_lowercase();
                let problem = Problem::NotText { field: field.name.into(), kind, operator };
                Err(self.error(of_operator.place(), problem))
            }
        }
    }

    /// A text that is compared as a whole: `*.example` looks like a pattern. Names of hosts have no star.
    fn whole_text(&mut self, field: Field) -> Parsed<Box<str>> {
        let token = self.peek();
        let may_have_star = token.kind == TokenKind::Quoted && field.kind != Kind::HostName;
        match literal::advice_on_star(field.name, token.text).filter(|_| !may_have_star) {
            Some(advice) => Err(self.error(token.place(), Problem::Star { advice })),
            None => self.text_literal(field),
        }
    }

    fn text_literal(&mut self, field: Field) -> Parsed<Box<str>> {
        let token = self.peek();
        if !matches!(token.kind, TokenKind::Word | TokenKind::Quoted) {
            return Err(self.expected(&format!("a value of {} ({})", field.name, field.kind)));
        }
        self.next();
        Ok(if matches!(field.kind, Kind::Words(_)) {
            token.text.to_ascii_lowercase().into()
        } else {
            token.text.into()
        })
    }

    fn flags(&self, token: Token<'a>) -> Parsed<u16> {
        let error = |problem| self.error(token.place(), problem);
        if !matches!(token.kind, TokenKind::Word | TokenKind::Quoted) || token.text.is_empty() {
            return Err(error(Problem::Expected("letters of TCP flags, as in SA".into())));
        }
        literal::flags(token.text).map_err(error)
    }

    fn next_is_literal(&self) -> bool {
        self.peek().kind == TokenKind::Word && is_literal(self.peek().text)
    }

    /// Whether no value follows.
    fn ends_condition(&self) -> bool {
        matches!(self.peek().kind, TokenKind::And | TokenKind::Or | TokenKind::Close | TokenKind::End)
    }
}

impl Node {
    /// A test of either side as a test of both sides.
    fn with_both_sides(self) -> Self {
        match self {
            Self::Test(test) if matches!(test.field.read, Read::Sides(..)) => {
                let of = |is_source| Self::Test(Test { field: test.field.of_side(is_source), ..test.clone() });
                Self::All([of(true), of(false)].into())
            }
            Self::All(nodes) => Self::All(nodes.into_iter().map(Self::with_both_sides).collect()),
            other => other,
        }
    }
}

/// The operators of a field.
fn operators(kind: Kind) -> &'static str {
    match kind {
        kind if kind.is_text() || matches!(kind, Kind::Names | Kind::Words(_)) => {
            "an operator (= != in starts-with ends-with contains), as in sni ends-with .example"
        }
        Kind::Flags => "an operator (= != in contains), as in flags contains SA",
        kind if kind.is_ordered() => "an operator (= != < <= > >= in), as in bytes > 1M",
        _ => "an operator (= != in), as in src_ip = 192.0.2.0/24",
    }
}

/// Whether other languages ask with this word whether a field has a value.
fn is_word_of_presence(word: &str) -> bool {
    ["is", "exists", "missing", "present", "null"].iter().any(|other| word.eq_ignore_ascii_case(other))
}

/// How `=` compares a field that is text.
fn text_equality(kind: Kind) -> Option<TextOperator> {
    match kind {
        kind if kind.is_text() => Some(TextOperator::Equal),
        Kind::Names => Some(TextOperator::Has),
        _ => None,
    }
}

/// Whether a word is a number or an address, and no name.
fn is_literal(word: &str) -> bool {
    let address = word.split(['/', '-']).next().unwrap_or_default();
    word.starts_with(|letter: char| letter.is_ascii_digit()) || address.parse::<IpAddr>().is_ok()
}
