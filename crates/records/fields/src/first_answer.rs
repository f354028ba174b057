//! Fields that have the first question or answer of a flow, although a flow may have several: conditions on them do not
//! find the others, and sums of the flow are those of all.

use crate::selection::column;
use crate::sum_field::SumField;
use crate::value::FieldValue;
use weir_flow::FlowRecord;

/// A field with a value of the first answer.
#[derive(Debug)]
pub struct FirstAnswer {
    /// Its name.
    pub name: &'static str,
    /// The field with the number of answers, or of questions.
    number: &'static str,
    /// The fields that count all answers, in words.
    pub all: &'static str,
}

/// All of them.
pub static FIRST_ANSWERS: [FirstAnswer; 2] = [
    FirstAnswer { name: "http_status", number: "http_requests", all: "http_4xx and http_5xx" },
    FirstAnswer {
        name: "dns_rcode",
        number: "dns_answers",
        all: "dns_nxdomain, dns_servfail, dns_refused and dns_other_errors",
    },
];

/// Fields of the first question or request, what the names of sums over all of them begin with, and their number.
static OF_FIRST: [(&[&str], &str, &str); 2] = [
    (&["dns_name", "dns_type", "dns_rcode"], "dns_", "dns_queries"),
    (
        &["http_host", "http_method", "http_path", "http_user_agent", "http_status", "http_content_type"],
        "http_",
        "http_requests",
    ),
];

/// The number of questions or requests of a flow, if a field has the first one alone and a sum counts all of them.
pub fn number_of_all(field: &str, sum: SumField) -> Option<&'static str> {
    let of = OF_FIRST.iter().find(|(fields, begin, _)| fields.contains(&field) && sum.name().starts_with(begin));
    of.map(|(_, _, number)| *number)
}

impl FirstAnswer {
    /// Whether a flow has several answers.
    pub fn has_several(&self, flow: &FlowRecord) -> bool {
        column(self.number).is_ok_and(|column| matches!(column.read(flow), FieldValue::Unsigned(2..)))
    }
}
