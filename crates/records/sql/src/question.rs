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
    /// The same for ClickHouse.
    clickhouse: &'static str,
}

macro_rules! questions {
    ($($name:literal $argument:ident, $sentence:literal;)*) => {
        /// All questions. Their SQL is in `questions`, a file for each, and for ClickHouse in `questions/clickhouse`.
        pub const QUESTIONS: &[Question] = &[$(Question {
            name: $name,
            sentence: $sentence,
            argument: Argument::$argument,
            sql: include_str!(concat!("questions/", $name, ".sql")),
            clickhouse: include_str!(concat!("questions/clickhouse/", $name, ".sql")),
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

    /// The SQL for ClickHouse, with the flows of a table that start in a range of times, ns. `table` is as it stands in
    /// SQL. Without a first time, what [`Question::needs_earlier`] calls new is the last day of the table.
    pub fn clickhouse_sql(
        &self,
        placeholders: &Placeholders<'_>,
        table: &str,
        [from_ns, to_ns]: [Option<u64>; 2],
    ) -> String {
        let start = from_ns.map(time);
        let start = start.or_else(|| {
            self.needs_earlier().then(|| format!("(select max(start_time) - interval 1 day from {table})"))
        });
        let conditions: Vec<_> = start
            .iter()
            .map(|start| format!("start_time >= {start}"))
            .chain(to_ns.map(|to| format!("start_time <= {}", time(to))))
            .collect();
        let conditions =
            if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) };
        let mut views = vec![format!("flows as (select * from {table}{conditions})")];
        if let Some(start) = start.filter(|_| self.needs_earlier()) {
            views.push(format!("earlier as (select * from {table} where start_time < {start})"));
        }
        let limit = placeholders.top.map_or_else(|| u64::MAX.to_string(), |top| top.to_string());
        let sql = self
            .clickhouse
            .replace("{limit}", &limit)
            .replace("{step_ns}", &placeholders.step_ns.to_string())
            .replace("{address}", &format!("'{}'", placeholders.address));
        format!("with {}\n{}", views.join(",\n     "), with_address_texts(sql.trim_end()))
    }

    /// Whether it compares with earlier flows.
    fn needs_earlier(&self) -> bool {
        self.clickhouse.contains("from earlier")
    }
}

/// A time, as it stands in SQL of ClickHouse.
fn time(ns: u64) -> String {
    format!("fromUnixTimestamp64Nano({}, 'UTC')", i64::try_from(ns).unwrap_or(i64::MAX))
}

/// Replaces `{ip:ADDRESS}` by the text of an address, in which an IPv4 address is not mapped.
fn with_address_texts(sql: &str) -> String {
    let mut parts = sql.split("{ip:");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (address, rest) = part.split_once('}').unwrap_or((part, ""));
        text += &format!("replaceRegexpOne(toString({address}), '^::ffff:([0-9]+[.])', '\\\\1'){rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flows_of_clickhouse_are_those_of_a_table_and_a_time() {
        let placeholders = Placeholders { top: None, step_ns: 1, address: "::1" };
        let sql = |name, times| Question::of(name).unwrap().clickhouse_sql(&placeholders, "db.flows", times);
        let text = sql("host", [Some(5), Some(7)]);
        assert!(text.starts_with(
            "with flows as (select * from db.flows where start_time >= fromUnixTimestamp64Nano(5, 'UTC') and \
             start_time <= fromUnixTimestamp64Nano(7, 'UTC'))\nselect side, replaceRegexpOne(toString(peer), \
             '^::ffff:([0-9]+[.])', '\\\\1') as"
        ));
        assert!(text.contains("toIPv6('::1')") && text.ends_with("limit 18446744073709551615"), "{text}");
        let text = sql("new-hosts", [None, None]);
        assert!(
            text.contains("earlier as (select * from db.flows where start_time < (select max(start_time)"),
            "{text}"
        );
        for question in QUESTIONS {
            let text = sql(question.name, [None, None]);
            assert!(!text.contains(['{', '}']), "{text}");
        }
    }
}
