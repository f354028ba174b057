//! Fields that have the first answer of a flow, although a flow may have several: conditions on them do not find the
//! others.

use crate::selection::column;
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

impl FirstAnswer {
    /// Whether a flow has several answers.
    pub fn has_several(&self, flow: &FlowRecord) -> bool {
        column(self.number).is_ok_and(|column| matches!(column.read(flow), FieldValue::Unsigned(2..)))
    }
}
