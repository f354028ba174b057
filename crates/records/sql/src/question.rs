//! Ready questions: a name, and the SQL that answers it.

use crate::tokens::quoted_text;

/// What a question needs beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// An address.
    Address,
}

/// A ready question.
#[derive(Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// What it answers.
    pub sentence: &'static str,
    /// What follows the name.
    pub argument: Argument,
    /// Its SQL, with placeholders in braces.
    sql: &'static str,
}

macro_rules! questions {
    ($($name:literal $argument:ident, $sentence:literal;)*) => {
        /// All questions. Their SQL is in `questions`, a file for each.
        pub const QUESTIONS: &[Question] = &[$(Question {
            name: $name,
            sentence: $sentence,
            argument: Argument::$argument,
            sql: include_str!(concat!("questions/", $name, ".sql")),
        }),*];
    };
}

questions! {
    "top-talkers" None, "hosts with most octets, sent and received";
    "top-ports" None, "services (protocol and port) with most octets";
    "applications" None, "applications with most octets";
    "timeline" None, "flows, packets and octets by the start of flows";
    "host" Address, "the peers of a host, and the services that it uses and offers";
    "tcp-quality" None, "servers with most retransmitted TCP segments";
    "slow-servers" None, "servers that answer slowest";
    "failed" None, "TCP connections that were refused or not answered, and who tried";
    "scanners" None, "hosts that reach for most hosts and ports";
    "dns-failures" None, "names that DNS does not have, or does not answer";
    "new-hosts" None, "hosts that send for the first time";
}

/// What the placeholders become.
#[derive(Clone, Debug)]
pub struct Placeholders<'a> {
    /// Rows at most; `None` for all.
    pub top: Option<u64>,
    /// Length of a step of a time line, ns.
    pub step_ns: u64,
    /// The address of [`Argument::Address`].
    pub address: &'a str,
}

impl Question {
    /// The question of a name.
    pub fn of(name: &str) -> Option<&'static Self> {
        QUESTIONS.iter().find(|question| question.name == name)
    }

    /// The SQL.
    pub fn sql(&self, placeholders: &Placeholders<'_>) -> String {
        let limit = placeholders.top.map_or("all".into(), |top| top.to_string());
        let step = format!("{}", placeholders.step_ns / 1000);
        let address = quoted_text(placeholders.address);
        let sql = self.sql.replace("{limit}", &limit).replace("{step_us}", &step).replace("{address}", &address);
        sql.trim_end().to_owned()
    }
}
