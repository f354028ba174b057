//! Questions for the HTTP interface.

use std::fmt::Write;

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The figures of the probe.
    Status,
    /// The rows of the list.
    Rows,
    /// Further rows: flows that have ended.
    Ended,
    /// Sources of connections that never opened.
    Scans,
    /// The fields of a flow.
    Detail,
    /// What the fields mean.
    Meanings,
    /// What answers.
    About,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What it is about.
    pub topic: Topic,
    /// The path of the request, with its parameters.
    pub path: String,
    /// Whether the names of its rows are to be asked for, too.
    pub names: bool,
}

/// What the screen wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Questions {
    /// Other questions have another number. Answers to earlier ones are of no use.
    pub generation: u64,
    /// Whether to ask again and again.
    pub repeats: bool,
    /// In the order in which they are to be asked.
    pub all: Vec<Question>,
}

/// A path with parameters, of which those without a value are left out.
pub fn path(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    for (number, (name, value)) in parameters.iter().filter(|(_, value)| !value.is_empty()).enumerate() {
        let _ = write!(text, "{}{name}=", if number == 0 { '?' } else { '&' });
        for octet in value.bytes() {
            match octet {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b',' | b':' => {
                    text.push(octet.into());
                }
                _ => drop(write!(text, "%{octet:02X}")),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_and_empty_ones_left_out() {
        let parameters = [("where", "sni = \"ü\" & x"), ("sort", ""), ("top", "20")];
        assert_eq!(path("/flows", &parameters), "/flows?where=sni%20%3D%20%22%C3%BC%22%20%26%20x&top=20");
        assert_eq!(path("/status", &[]), "/status");
    }
}
