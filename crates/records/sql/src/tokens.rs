//! The words and texts of SQL, without its grammar: which files a query names, and whether it uses a view.

/// A part of SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A text in single quotes, without them.
    Text(String),
    /// A name in double quotes, without them.
    Name(String),
    /// A name, a keyword or a number, in lower case.
    Word(String),
    /// Any other character.
    Sign(char),
}

/// A text in single quotes, or a name in double quotes, and whether it stands where a table does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextLiteral {
    /// Without quotes.
    pub text: String,
    /// Whether it follows FROM or JOIN, or is a text behind a comma.
    pub is_table: bool,
}

/// The texts in single quotes, and the names in double quotes that stand where tables do, in their sequence.
pub fn text_literals(sql: &str) -> Vec<TextLiteral> {
    let (tokens, mut literals) = (tokens(sql).0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        let (Token::Text(text) | Token::Name(text)) = token else { continue };
        let is_table = match at.checked_sub(1).map(|before| &tokens[before]) {
            Some(Token::Word(word)) => word == "from" || word == "join",
            Some(Token::Sign(sign)) => *sign == ',' && matches!(token, Token::Text(_)),
            _ => false,
        };
        if is_table || matches!(token, Token::Text(_)) {
            literals.push(TextLiteral { text: text.clone(), is_table });
        }
    }
    literals
}

/// Whether the SQL has this word outside of texts and comments.
pub fn uses_identifier(sql: &str, name: &str) -> bool {
    tokens(sql)
        .0
        .iter()
        .any(|token| matches!(token, Token::Word(word) | Token::Name(word) if word.eq_ignore_ascii_case(name)))
}

/// Whether the SQL gives this name to something else: `AS name` behind an expression without it. In `sum(bytes) AS bytes`
/// the name is used.
pub fn gives_name(sql: &str, name: &str) -> bool {
    let tokens = tokens(sql).0;
    let is_name =
        |token: &Token| matches!(token, Token::Word(word) | Token::Name(word) if word.eq_ignore_ascii_case(name));
    tokens.windows(2).enumerate().any(|(at, pair)| {
        let is_given = matches!(&pair[0], Token::Word(word) if word.eq_ignore_ascii_case("as")) && is_name(&pair[1]);
        is_given && !expression_before(&tokens[..at]).iter().any(is_name)
    })
}

/// The tokens of the expression at the end: from behind the last comma, `select` or parenthesis that it is in.
fn expression_before(tokens: &[Token]) -> &[Token] {
    let mut depth = 0;
    let begin = tokens.iter().rposition(|token| {
        match token {
            Token::Sign(')') => depth += 1,
            Token::Sign('(') => depth -= 1,
            Token::Sign(',') => return depth == 0,
            Token::Word(word) => return depth == 0 && word.eq_ignore_ascii_case("select"),
            _ => {}
        }
        depth < 0
    });
    &tokens[begin.map_or(0, |at| at + 1)..]
}

/// The words and signs, in their sequence, up to this number.
pub(crate) fn first_words(sql: &str, limit: usize) -> Vec<(String, usize)> {
    let mut scanner = Scanner { sql, at: 0 };
    let mut words = Vec::new();
    while let Some(token) = scanner.next().filter(|_| words.len() < limit) {
        words.push(match token {
            Token::Word(word) => (word, scanner.at),
            Token::Text(_) | Token::Name(_) => (String::new(), scanner.at),
            Token::Sign(sign) => (sign.into(), scanner.at),
        });
    }
    words
}

/// The SQL without the semicolons, spaces and comments at its end.
pub(crate) fn without_end(sql: &str) -> &str {
    &sql[..tokens(sql).1]
}

/// Whether a statement follows another one.
pub(crate) fn has_several(sql: &str) -> bool {
    let tokens = tokens(sql).0;
    let statements = tokens.split(|token| *token == Token::Sign(';')).filter(|statement| !statement.is_empty());
    statements.count() > 1
}

/// A name in SQL, quoted.
pub fn quoted_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in SQL, quoted.
pub fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The tokens, and where the last one ends that is no semicolon.
fn tokens(sql: &str) -> (Vec<Token>, usize) {
    let (mut scanner, mut tokens, mut end) = (Scanner { sql, at: 0 }, Vec::new(), 0);
    while let Some(token) = scanner.next() {
        if token != Token::Sign(';') {
            end = scanner.at;
        }
        tokens.push(token);
    }
    (tokens, end)
}

struct Scanner<'sql> {
    sql: &'sql str,
    /// The octet after the last token.
    at: usize,
}

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.sql[self.at..]
    }

    fn next(&mut self) -> Option<Token> {
        self.skip_blank();
        let first = self.rest().chars().next()?;
        Some(match first {
            '\'' => Token::Text(self.quoted('\'')),
            '"' => Token::Name(self.quoted('"')),
            '$' => self.dollar_quoted(),
            _ if is_word(first) => {
                let length = self.rest().find(|c| !is_word(c)).unwrap_or(self.rest().len());
                let word = self.rest()[..length].to_lowercase();
                self.at += length;
                // E'…' has escapes with backslashes; for what is looked for it is a text as any other.
                Token::Word(word)
            }
            sign => {
                self.at += sign.len_utf8();
                Token::Sign(sign)
            }
        })
    }

    /// Skips spaces, `-- …` and `/* … */`, which do not nest.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = if rest.starts_with("--") {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(comment) = rest.strip_prefix("/*") {
                comment.find("*/").map_or(rest.len(), |end| end + 4)
            } else {
                rest.len() - rest.trim_start().len()
            };
            if blank == 0 {
                return;
            }
            self.at += blank;
        }
    }

    /// What follows in quotes, which are doubled inside.
    fn quoted(&mut self, quote: char) -> String {
        let mut text = String::new();
        self.at += quote.len_utf8();
        loop {
            let length = self.rest().find(quote).unwrap_or(self.rest().len());
            text.push_str(&self.rest()[..length]);
            self.at = (self.at + length + quote.len_utf8()).min(self.sql.len());
            if !self.rest().starts_with(quote) {
                return text;
            }
            text.push(quote);
            self.at += quote.len_utf8();
        }
    }

    /// `$$…$$` or `$tag$…$tag$`; another `$` is a sign.
    fn dollar_quoted(&mut self) -> Token {
        let rest = self.rest();
        let tag = rest[1..].find(|c| !is_word(c)).filter(|&length| rest[1 + length..].starts_with('$'));
        let Some(tag) = tag.map(|length| &rest[..length + 2]) else {
            self.at += 1;
            return Token::Sign('$');
        };
        let inside = &rest[tag.len()..];
        let length = inside.find(tag).unwrap_or(inside.len());
        let (text, tag_length) = (inside[..length].to_owned(), tag.len());
        self.at = (self.at + 2 * tag_length + length).min(self.sql.len());
        Token::Text(text)
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<(String, bool)> {
        text_literals(sql).into_iter().map(|literal| (literal.text, literal.is_table)).collect()
    }

    #[test]
    fn texts_are_found_with_their_place_and_not_in_comments_or_names() {
        let sql = "select 'a''b', \"c'd\" -- 'no'\nfrom 'x.pcap' join $$y$$, /* 'no' */ $t$z$$z$t$ join \"w.csv\" where s = 'v'";
        let found = [("a'b", false), ("x.pcap", true), ("y", true), ("z$$z", true), ("w.csv", true), ("v", false)];
        assert_eq!(texts(sql), found.map(|(text, is_table)| (text.to_owned(), is_table)));
        assert_eq!(texts("select 'open"), [("open".to_owned(), false)]);
    }

    #[test]
    fn the_end_is_cut_and_quotes_are_kept() {
        for (sql, cut) in [("select 1 ; -- x\n;", "select 1"), ("select ';'", "select ';'"), (" ; ", ""), ("$", "$")] {
            assert_eq!(without_end(sql), cut);
        }
        assert_eq!(quoted_identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(quoted_text("a'b"), "'a''b'");
    }

    #[test]
    fn a_name_is_given_by_an_expression_without_it() {
        for (sql, expected) in [
            ("select sum(bytes) as bytes from flows", false),
            ("select bytes AS bytes, 1", false),
            ("select fwd_bytes + rev_bytes as bytes from flows", true),
            ("select x, coalesce(a, b) as \"bytes\"", true),
            ("select sum(bytes) as bytes from (select a as bytes from flows)", true),
            ("select bytes, sum(packets) as packets", false),
        ] {
            assert_eq!(gives_name(sql, "bytes"), expected, "{sql}");
        }
    }

    #[test]
    fn words_are_names_outside_of_texts() {
        assert!(uses_identifier("SELECT * FROM Flows f", "flows"));
        assert!(uses_identifier("from \"flows\"", "flows"));
        assert!(!uses_identifier("from 'flows' -- flows\n, flows2", "flows"));
    }
}
